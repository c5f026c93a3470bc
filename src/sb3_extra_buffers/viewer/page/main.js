// The page: which view is shown, which buffer, what the address says, and following what changes.

import { get } from "./api.js";
import { el, icon, problem, put } from "./dom.js";
import { episodes } from "./episodes.js";
import { overview } from "./overview.js";
import { KEYS, Player } from "./player.js";

const POLL = 1500;
const main = document.getElementById("main");

const app = {
  sources: [], params: new URLSearchParams(), player: null,
  shown: null, // the address of what is shown; null until a new one is

  get source() {
    return this.sources[Number(this.params.get("buffer") ?? 0)] ?? this.sources[0];
  },

  get view() {
    if (this.params.has("episode") || this.params.get("view") === "player") return "player";
    return this.params.get("view") === "episodes" ? "episodes" : "overview";
  },

  hash(said) {
    const params = new URLSearchParams();
    for (const [name, value] of Object.entries(said)) {
      const usual = value === "" || value === null || value === undefined || (name === "buffer" && this.sources.length < 2) || (name === "offset" && !value) || (name === "sort" && value === "episode");
      if (!usual) params.set(name, value);
    }
    return `#${params}`;
  },

  go(said) { location.hash = this.hash(said); },

  // Say in the address where the view stands now, unless the reader is already on the way to another one.
  replace(said) {
    const hash = this.hash(said);
    if (location.hash !== this.shown) return;
    this.params = new URLSearchParams(hash.slice(1));
    if (hash !== location.hash) history.replaceState(null, "", hash);
    this.shown = hash;
  },

  async goTo(source, env, step) {
    const row = await get(`${source.id}/containing/${env}/${step}`);
    this.go({ buffer: source.id, episode: row.episode, step: step - row.first });
  },
};

// ---- showing

let turn = 0;

async function render({ follow = false } = {}) {
  const mine = ++turn, address = location.hash;
  app.shown = null;
  app.params = new URLSearchParams(location.hash.slice(1));
  chrome();
  const { source, view } = app;
  try {
    let node;
    if (view !== "overview" && source.error) {
      node = el("div", {}, problem("This cannot be shown.", source.error));
    } else if (view === "player") {
      app.player ??= new Player(app);
      const wanted = app.params.has("episode") ? Number(app.params.get("episode")) : null;
      const step = Math.trunc(Number(app.params.get("step"))) || 0, player = app.player;
      if (follow && player.node.isConnected) { await player.refresh(); return; }
      const same = player.episode && player.source === source && player.episode.episode === wanted && player.node.isConnected && (app.params.get("key") ?? player.about?.key) === player.about?.key;
      if (same) { await player.seek(player.episode.first + step); return; }
      await player.open(source, wanted, step);
      node = player.node;
    } else {
      app.player?.pause();
      node = await (view === "episodes" ? episodes(app) : overview(app));
    }
    if (mine !== turn) return;
    if (main.firstChild !== node || main.children.length > 1) swap(node, follow);
  } catch (error) {
    if (mine === turn) main.replaceChildren(problem("This cannot be shown.", error.message));
  } finally {
    if (mine === turn) {
      app.shown = address;
      app.player?.saveHash(); // what it wanted to say before was refused
    }
  }
}

// Put a view in its place. Of one that is followed, what is typed and where one has scrolled to stays.
function swap(node, follow) {
  const old = document.activeElement, typed = follow && old?.id === "where" ? [old.value, old.selectionStart] : null, top = window.scrollY;
  main.replaceChildren(node);
  if (typed) {
    const input = document.getElementById("where");
    input.value = typed[0];
    input.focus();
    input.setSelectionRange(typed[1], typed[1]);
  }
  window.scrollTo(0, follow ? top : 0);
}

function chrome() {
  for (const tab of document.querySelectorAll("#tabs a")) {
    const here = tab.dataset.view === app.view;
    tab.toggleAttribute("aria-current", here);
    if (here) tab.setAttribute("aria-current", "page");
    tab.href = app.hash({ view: tab.dataset.view, buffer: app.source?.id });
  }
  const box = document.getElementById("sources");
  box.replaceChildren(...(app.sources.length > 1 && app.view !== "overview" ? app.sources.map((one) => el("button", {
    class: "chip", "aria-pressed": String(one === app.source), onclick: () => app.go({ view: app.view, buffer: one.id }),
  }, el("i", { class: "dot", style: { background: `var(--series-${one.id})` } }), one.name)) : []));
  document.title = `${app.sources.map((one) => one.name).join(", ")} · Buffer viewer`;
}

// ---- following

function says(text, kind) {
  const live = document.getElementById("live");
  live.hidden = !text;
  live.textContent = text ?? "";
  live.className = `live ${kind ?? ""}`;
}

async function look(first = false) {
  let found;
  try {
    found = await get("sources");
  } catch (error) {
    says("viewer ended", "gone");
    if (first) main.replaceChildren(problem("The viewer does not answer.", error.message));
    return;
  }
  const before = app.sources;
  app.sources = found.map((one, i) => (before[i] ? Object.assign(before[i], { error: undefined, version: undefined }, one) : one));
  says(found.some((one) => one.followed) ? "following" : null, "on");
  const state = JSON.stringify(found.map((one) => one.version ?? one.error));
  if (state !== look.state) {
    const follow = look.state !== undefined;
    look.state = state;
    await render({ follow });
    if (follow) { says("new steps", "on fresh"); }
  }
}

async function keepLooking() {
  if (!document.hidden) await look();
  setTimeout(keepLooking, POLL);
}

// ---- keyboard, theme

function onKey(event) {
  const typing = event.target.closest?.("input[type=search], input[type=text], textarea, dialog[open]");
  if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
  const onButton = event.target.closest?.("button, a, select") && [" ", "Enter"].includes(event.key);
  const onRange = event.target.matches?.("input[type=range], select") && event.key.startsWith("Arrow");
  if (onButton || onRange) return;
  if (event.key === "?") { document.getElementById("keys").showModal(); event.preventDefault(); return; }
  if (event.key === "/" ) { event.preventDefault(); if (app.view === "episodes") document.getElementById("where")?.focus(); else app.go({ view: "episodes", buffer: app.source?.id }); return; }
  const view = { 1: "overview", 2: "episodes", 3: "player" }[event.key];
  if (view) { if (view !== app.view) app.go({ view, buffer: app.source?.id }); return; }
  if (app.view === "player" && app.player?.key(event)) event.preventDefault();
}

function theme(next) {
  const root = document.documentElement, dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const now = root.dataset.theme ?? localStorage.getItem("theme") ?? (dark ? "dark" : "light");
  root.dataset.theme = next ? (now === "dark" ? "light" : "dark") : now;
  if (next) localStorage.setItem("theme", root.dataset.theme);
  put(document.getElementById("theme"), icon(root.dataset.theme === "dark" ? "sun" : "moon"));
  app.player?.track?.draw();
}

document.getElementById("keys-list").append(...KEYS.flatMap(([keys, text]) => [el("dt", {}, el("kbd", {}, keys)), el("dd", {}, text)]));
document.getElementById("help").addEventListener("click", () => document.getElementById("keys").showModal());
document.getElementById("theme").addEventListener("click", () => theme(true));
document.querySelector(".skip").addEventListener("click", (event) => { event.preventDefault(); main.focus(); });
window.addEventListener("hashchange", () => render());
window.addEventListener("keydown", onKey);
theme();
look(true).then(() => setTimeout(keepLooking, POLL));
