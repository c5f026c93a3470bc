// The overview: numbers, warnings and plots of each buffer; those of several buffers in the same plots.

import { get } from "./api.js";
import { bytes, count, el, number, percent, problem } from "./dom.js";
import { bars, colour, scatter } from "./plots.js";

export async function overview(app) {
  const loaded = await Promise.all(app.sources.map((source) => load(source)));
  const good = loaded.filter((one) => !one.error);
  const page = el("div", { class: "overview" }, el("h1", { class: "sr" }, "Overview"),
    el("div", { class: `cards n${loaded.length}` }, loaded.map((one) => card(one, loaded.length > 1, app))));
  if (!good.length) return page;
  const plots = el("div", { class: "plots" });
  page.append(plots);
  const series = (points) => good.map((one) => ({ name: one.source.name, source: one.source, colour: colour(one.source.id), points: points(one) }));
  const pick = (point, one) => app.go({ buffer: one.source.id, episode: point.episode, step: 0 });
  const over = (name) => series(({ facts: { over_time: o } }) => o.step.map((x, i) => ({
    x, y: o[name][i][0], low: o[name][i][1] ?? undefined, high: o[name][i][2] ?? undefined, episode: o.episode[i], label: o.together ? `episodes around ${count(o.episode[i])}` : `episode ${count(o.episode[i])}`,
  })));
  const together = good.some((one) => one.facts.over_time.together) ? "mean, least and greatest of several episodes" : "and the mean of neighbours; click one to see it";
  plots.append(
    scatter({ title: "Episode return", note: together, series: over("return"), onPick: pick }),
    scatter({ title: "Episode length", note: together, series: over("length"), onPick: pick }),
    bars({ title: "Rewards", series: good.map((one) => ({ name: one.source.name, colour: colour(one.source.id), histogram: one.facts.rewards })) }),
    ...actions(good),
  );
  const memory = el("div", { class: "plots" });
  page.append(memory);
  const laden = (await Promise.all(good.map(async (one) => ({ ...one, memory: await get(`${one.source.id}/memory`).catch((error) => ({ error })) })))).filter((one) => !one.memory.error && one.memory.raw);
  laden.forEach((one) => showMemory(page, one));
  if (laden.length) {
    const steps = (name) => laden.map((one) => ({ name: one.source.name, colour: colour(one.source.id), points: one.memory.step.map((x, i) => ({ x, y: one.memory[name][i] })) }));
    memory.append(
      scatter({ title: "Stored memory", note: "observations, over the life of the buffer", series: steps("total"), yFormat: bytes, line: true, zero: true }),
      scatter({ title: "Stored, as a share of raw", note: "of the steps at that time", series: steps("ratio"), yFormat: percent, line: true, zero: true }),
    );
    page.append(keyTable(laden));
  }
  return page;
}

async function load(source) {
  if (source.error) return { source, error: source.error };
  try {
    return { source, facts: await get(`${source.id}/overview`) };
  } catch (error) {
    return { source, error: error.message };
  }
}

function card(one, several, app) {
  const { source, facts, error } = one;
  const head = el("header", {}, several ? el("i", { class: "dot", style: { background: colour(source.id) } }) : null,
    el("h2", {}, source.name), facts ? el("span", { class: "dim" }, facts.class) : null);
  if (error) {
    return el("section", { class: "card" }, head, problem("This cannot be shown.", error),
      el("p", { class: "dim" }, "What is damaged, and what can be saved: ", el("code", {}, `sb3-extra-buffers verify ${source.path}`), ", then ", el("code", {}, "repair"), "."));
  }
  const full = facts.transitions === facts.capacity ? "full" : `of ${count(facts.capacity)}`;
  const ended = Object.entries(facts.ended).filter(([, n]) => n).map(([name, n]) => `${count(n)} ${name}`).join(", ");
  const warnings = el("div", { class: "warnings", "aria-live": "polite" }, el("p", { class: "dim" }, "Looking at the data …"));
  fillWarnings(warnings, source, app);
  return el("section", { class: "card", dataset: { source: source.id } }, head,
    el("p", { class: "dim spaces" }, [facts.observation_space, facts.action_space && `actions ${facts.action_space}`].filter(Boolean).join(" · ")),
    el("div", { class: "tiles" },
      tile("Transitions", count(facts.transitions), `${full}, ${facts.envs} env${facts.envs > 1 ? "s" : ""}`),
      tile("Episodes", count(facts.episodes), ended),
      tile("Return", facts.episode_return ? number(facts.episode_return.mean) : "–", facts.episode_return ? `mean; ${number(facts.episode_return.min)} to ${number(facts.episode_return.max)}` : "no complete episode"),
      tile("Length", facts.episode_length ? number(facts.episode_length.mean) : "–", facts.episode_length ? `mean; ${count(facts.episode_length.min)} to ${count(facts.episode_length.max)}` : "no complete episode"),
      el("div", { class: "tile", dataset: { tile: "stored" } }, el("span", {}, "Stored"), el("b", {}, "…"), el("small", {}, " ")),
      el("div", { class: "tile", dataset: { tile: "ratio" } }, el("span", {}, "Ratio"), el("b", {}, "…"), el("small", {}, " "))),
    warnings);
}

const tile = (name, value, detail) => el("div", { class: "tile" }, el("span", {}, name), el("b", {}, value), el("small", {}, detail));

async function fillWarnings(box, source, app) {
  let found;
  try {
    found = await get(`${source.id}/findings`);
  } catch (error) {
    box.replaceChildren(problem("The observations cannot be read.", error.message));
    return;
  }
  if (!found.length) {
    box.replaceChildren(el("p", { class: "fine" }, "✓ A look at the data found nothing unusual."));
    return;
  }
  box.replaceChildren(el("h3", {}, `${found.length} warning${found.length > 1 ? "s" : ""}`), el("ul", {}, found.map((one) => el("li", {},
    el("b", {}, one.kind), " ", one.text, " ", el("span", { class: "dim" }, one.advice), " ",
    one.at ? el("a", { href: "#", onclick: (event) => { event.preventDefault(); app.goTo(source, one.at[0], one.at[1]); } }, "show") : null))));
}

// The histogram whose names stand for all of them; none if 1 is FIRE in one buffer and UP in another.
function commonNames(histograms) {
  const named = histograms.find((one) => one.names), told = (one) => JSON.stringify([one.values, one.names ?? named.names]);
  return named && histograms.every((one) => told(one) === told(named)) ? named : null;
}

function actions(good) {
  const most = Math.max(...good.map((one) => one.facts.actions.length));
  return Array.from({ length: most }, (_, i) => {
    const named = commonNames(good.map((one) => one.facts.actions[i]).filter(Boolean));
    return bars({
      title: most > 1 ? `Actions, value ${i}` : "Actions", names: named?.names, start: named?.values[0] ?? 0,
      series: good.map((one) => ({ name: one.source.name, colour: colour(one.source.id), histogram: one.facts.actions[i] })),
    });
  });
}

function showMemory(page, { source, memory }) {
  const set = (name, value, detail) => {
    const box = page.querySelector(`[data-source="${source.id}"] [data-tile="${name}"]`);
    box.querySelector("b").textContent = value;
    box.querySelector("small").textContent = detail;
  };
  set("stored", bytes(memory.stored), `instead of ${bytes(memory.raw)}`);
  set("ratio", percent(memory.stored / memory.raw), memory.stored ? `${number(memory.raw / memory.stored, 3)} times less` : "");
}

function keyTable(laden) {
  const rows = laden.flatMap(({ source, memory }) => Object.entries(memory.keys).map(([key, one]) => el("tr", {},
    laden.length > 1 ? el("td", {}, source.name) : null, el("td", {}, key), el("td", {}, `${one.dtype} ${one.shape.join("×")}`),
    el("td", {}, one.stack > 1 ? `${one.stack} frames` : "–"),
    el("td", {}, Object.entries(one.codecs).map(([name, share]) => (share > 0.995 ? name : `${name} ${percent(share)}`)).join(", ")),
    el("td", { class: "num" }, bytes(one.stored)), el("td", { class: "num" }, bytes(one.raw)), el("td", { class: "num" }, percent(one.raw ? one.stored / one.raw : 0)))));
  return el("section", { class: "card" }, el("h2", {}, "Observations"), el("div", { class: "scroll" }, el("table", {},
    el("thead", {}, el("tr", {}, laden.length > 1 ? el("th", {}, "Buffer") : null, ...["Key", "Array", "Stack", "Codec"].map((t) => el("th", {}, t)), ...["Stored", "Raw", "Ratio"].map((t) => el("th", { class: "num" }, t)))),
    el("tbody", {}, rows))));
}
