// The table of episodes: sorted and filtered by the server, a page at a time.

import { address, get } from "./api.js";
import { count, el, number, problem } from "./dom.js";
import { spark } from "./plots.js";

const COLUMNS = [["episode", "Episode"], ["env", "Env"], ["start", "Start"], ["length", "Length"], ["return", "Return"], ["ended", "Ended"]];
const EXAMPLES = ["return > 10", "length < 50", "ended by timeout", "ended by terminal", "env = 0"];
const LIMIT = 50;

export const badge = (row) => el("span", { class: `badge ${row.ended}`, title: row.cut ? "Earlier steps of this episode may have been overwritten." : "" }, row.ended, row.cut ? " · cut" : "");

export async function episodes(app) {
  const { source, params } = app;
  const at = { where: params.get("where") ?? "", sort: params.get("sort") ?? "episode", desc: params.get("desc") ?? "", offset: Number(params.get("offset") ?? 0) };
  const keys = await get(`${source.id}/keys`).catch(() => []);
  const picture = keys.find((one) => one.picture);
  const go = (changes) => {
    const next = { view: "episodes", buffer: source.id, ...at, offset: 0, ...changes };
    app.go(next);
  };
  const input = el("input", {
    id: "where", type: "search", value: at.where, placeholder: "return > 10 and length < 50", spellcheck: "false", autocomplete: "off", "aria-label": "Filter episodes",
    onkeydown: (event) => { if (event.key === "Enter") go({ where: input.value.trim() }); },
    onsearch: () => { if (input.value.trim() !== at.where) go({ where: input.value.trim() }); },
  });
  const page = el("div", { class: "episodes" }, el("h1", {}, "Episodes", el("small", {}, source.name)),
    el("div", { class: "filter" }, input, el("button", { onclick: () => go({ where: input.value.trim() }) }, "Filter"),
      el("div", { class: "chips" }, EXAMPLES.map((text) => el("button", { class: "chip", "aria-pressed": String(at.where === text), onclick: () => go({ where: at.where === text ? "" : text }) }, text)))));
  let found;
  try {
    found = await get(`${source.id}/episodes`, { ...at, limit: LIMIT });
  } catch (error) {
    page.append(problem("No episodes can be shown.", error.message));
    return page;
  }
  page.append(el("p", { class: "dim", id: "found", role: "status" }, found.found === found.total ? `${count(found.total)} episodes` : `${count(found.found)} of ${count(found.total)} episodes`));
  if (found.rows.length) page.append(el("div", { class: "scroll" }, table(app, source, at, found, picture, go)), pager(found, go));
  else page.append(el("p", { class: "nothing" }, found.total ? "No episode meets this condition." : "There are no steps yet."));
  return page;
}

function table(app, source, at, found, picture, go) {
  const heads = COLUMNS.map(([name, title]) => {
    const active = at.sort === name, down = active && at.desc === "1";
    const next = active && !down ? "1" : active ? "" : ["return", "length"].includes(name) ? "1" : "";
    return el("th", { class: `${["ended", "env"].includes(name) ? "" : "num"} ${["start", "env"].includes(name) ? "extra" : ""}`, "aria-sort": active ? (down ? "descending" : "ascending") : "none" },
      el("button", { class: "sort", onclick: () => go({ sort: name, desc: next }) }, title, el("span", { "aria-hidden": "true" }, active ? (down ? " ↓" : " ↑") : "")));
  });
  const open = (row, step = 0) => app.go({ buffer: source.id, episode: row.episode, step });
  return el("table", { class: "wide rows" },
    el("thead", {}, el("tr", {}, picture ? el("th", {}, "Frames") : null, heads, el("th", { class: "extra" }, "Return over time"))),
    el("tbody", {}, found.rows.map((row) => el("tr", { tabindex: "0", dataset: { episode: row.episode }, onclick: () => open(row), onkeydown: (event) => { if (event.key === "Enter") open(row); } },
      picture ? el("td", { class: "thumbs" }, thumbs(source, row, picture, found.version)) : null,
      el("td", { class: "num" }, el("a", { href: app.hash({ buffer: source.id, episode: row.episode, step: 0 }) }, count(row.episode))),
      el("td", { class: "extra" }, row.env), el("td", { class: "num extra" }, count(row.first)), el("td", { class: "num" }, count(row.length)), el("td", { class: "num strong" }, number(row.return)),
      el("td", {}, badge(row)), el("td", { class: "extra" }, spark(row.spark))))));
}

function thumbs(source, row, picture, version) {
  const steps = [...new Set([row.first, Math.floor((row.first + row.last - 1) / 2), row.last - 1])];
  return steps.map((step) => el("img", {
    class: "thumb", loading: "lazy", decoding: "async", alt: "", width: 56, height: Math.round((56 * picture.picture.height) / picture.picture.width),
    src: address(`${source.id}/frames/${row.env}/${step}.png`, { key: picture.key, newest: 1, v: version }),
  }));
}

function pager(found, go) {
  if (found.found <= LIMIT) return "";
  const to = (offset) => () => go({ offset });
  return el("nav", { class: "pager", "aria-label": "Pages" },
    el("button", { disabled: found.offset === 0, onclick: to(Math.max(found.offset - LIMIT, 0)) }, "← Previous"),
    el("span", { class: "dim" }, `${count(found.offset + 1)} – ${count(Math.min(found.offset + LIMIT, found.found))} of ${count(found.found)}`),
    el("button", { disabled: found.offset + LIMIT >= found.found, onclick: to(found.offset + LIMIT) }, "Next →"));
}
