// The player: frames of an episode as they are stored, a track to scrub on, vectors as lines, and what belongs to a step.

import { address, get } from "./api.js";
import { count, el, icon, number, problem, put, throttled } from "./dom.js";
import { badge } from "./episodes.js";
import { Lines } from "./lines.js";
import { difference, painted, pixels, Sheets } from "./sheets.js";
import { Track } from "./track.js";

const SPEEDS = [1, 2, 5, 10, 15, 30, 60, 120];
const CHUNK = 400;
const STACKS = [["newest", "Newest frame"], ["beside", "All frames"], ["animate", "Animation"]];
const PAINTS = [["plain", "As stored"], ["stretch", "More contrast"], ["labels", "Labels"], ["bgr", "Swap red and blue"]];

export class Player {
  constructor(app) {
    this.app = app;
    this.node = el("div", { class: "player" });
    this.options = { next: false, diff: false, stack: "newest", paint: null, zoom: 0, fps: 15, ...JSON.parse(sessionStorage.getItem("player") ?? "{}") };
    this.playing = false;
    this.turn = 0;
    this.chunks = new Map();
    this.saveHash = throttled(200, () => { if (this.episode && this.node.isConnected) this.app.replace(this.place()); });
  }

  // ---- loading

  async open(source, wanted, step) {
    this.pause();
    this.source = source;
    this.keys = await get(`${source.id}/keys`);
    this.palette ??= this.keys.some((one) => one.picture?.channels === 1) ? await get(`${source.id}/palette`) : null;
    let number_ = wanted;
    if (number_ === null) {
      const first = await get(`${source.id}/episodes`, { limit: 1 });
      if (!first.rows.length) { this.node.replaceChildren(el("p", { class: "nothing" }, "There are no steps yet.")); this.episode = null; return; }
      number_ = first.rows[0].episode;
    }
    this.episode = await get(`${source.id}/episodes/${number_}`);
    this.about = this.keys.find((one) => one.key === this.app.params.get("key")) ?? this.keys[0] ?? null;
    this.step = this.episode.first + Math.min(Math.max(step ?? 0, 0), this.episode.length - 1);
    this.build();
    await this.ready();
  }

  // A newer state of the same folder: stay at the step that is shown.
  async refresh() {
    if (!this.episode) return this.open(this.source, null, 0);
    const fresh = await get(`${this.source.id}/episodes/${this.episode.episode}`);
    if (fresh.identity !== this.episode.identity) return this.open(this.source, fresh.episode, this.step - this.episode.first);
    const grown = fresh.last !== this.episode.last || fresh.first !== this.episode.first || fresh.ended !== this.episode.ended;
    this.episode = fresh;
    this.step = Math.min(Math.max(this.step, fresh.first), fresh.last - 1);
    this.chunks.clear();
    if (this.sheets) { this.sheets.version = fresh.version; }
    this.title();
    if (grown) { this.film(); if (this.lines) await this.lines.load(this.source, this.episode, this.about.key); }
    await this.show();
  }

  async ready() {
    this.chunks.clear();
    if (this.lines) await this.lines.load(this.source, this.episode, this.about.key);
    await this.show();
  }

  place() {
    const said = { episode: this.episode.episode, step: this.step - this.episode.first };
    if (this.app.sources.length > 1) said.buffer = this.source.id;
    if (this.keys.length > 1) said.key = this.about.key;
    return said;
  }

  // ---- layout

  build() {
    const picture = this.about?.picture;
    this.track?.close();
    this.track = new Track((step) => this.seek(step));
    this.sheets = picture ? new Sheets(this.source, this.episode.env, this.about, this.episode.version) : null;
    this.lines = this.about && !picture ? new Lines((step) => this.seek(step)) : null;
    this.stage = el("div", { class: "stage", "aria-label": "Frames" });
    this.facts = el("dl", { class: "facts" });
    this.head = el("header", { class: "player-head" });
    this.strip = el("div", { class: "film" });
    this.hover = el("span", { class: "dim hover" }, "");
    this.paint = this.options.paint ?? (picture?.labels ? "labels" : "plain");
    put(this.node, this.head,
      el("div", { class: "split" },
        el("div", { class: "left" }, picture ? [this.viewOptions(), this.stage] : this.lines ? this.lines.node : el("p", { class: "nothing" }, "No observations are stored."),
          this.strip, this.track.node, this.controls()),
        el("aside", { class: "side" }, el("h2", {}, "Step"), this.facts, this.exports())));
    this.title();
    this.film();
    this.fit?.disconnect();
    this.fit = new ResizeObserver(() => this.resize());
    this.fit.observe(this.stage);
  }

  title() {
    const e = this.episode, link = (n, text, title) => el("button", { class: "quiet", disabled: n === null, title, "aria-label": title, onclick: () => this.go(n) }, text);
    put(this.head, link(e.previous, "‹", "Previous episode of this env (p)"),
      el("h1", {}, `Episode ${count(e.episode)}`), link(e.next, "›", "Next episode of this env (n)"), badge(e),
      e.life ? el("span", { class: "badge life", title: "The next episode goes on where this one ended, as after a lost life." }, "looks like a lost life") : null,
      el("span", { class: "dim" }, `env ${e.env} · ${count(e.length)} steps from ${count(e.first)} · return ${number(e.return)}`));
  }

  controls() {
    this.button = el("button", { class: "play", title: "Play or pause (space)", "aria-label": "Play", onclick: () => this.toggle() }, icon("play"));
    this.position = el("output", { class: "position" });
    const button = (text, title, run) => el("button", { class: "quiet", title, "aria-label": title, onclick: run }, text);
    this.speed = el("select", { "aria-label": "Steps per second", onchange: () => this.set({ fps: Number(this.speed.value) }) },
      SPEEDS.map((n) => el("option", { value: n, selected: n === this.options.fps }, `${n} / s`)));
    return el("div", { class: "controls" }, button(icon("first"), "First step (Home)", () => this.seek(this.episode.first)), button(icon("back"), "One step back (←)", () => this.move(-1)),
      this.button, button(icon("on"), "One step on (→)", () => this.move(1)), button(icon("last"), "Last step (End)", () => this.seek(this.episode.last - 1)),
      this.position, el("label", {}, "Speed ", this.speed),
      button("◂ reward", "Previous reward (k)", () => this.reward(-1)), button("reward ▸", "Next reward (j)", () => this.reward(1)));
  }

  viewOptions() {
    const { frames, channels } = this.about.picture;
    const check = (name, text, key) => el("label", { title: `(${key})` }, el("input", { type: "checkbox", checked: this.options[name], dataset: { option: name }, onchange: (event) => this.set({ [name]: event.target.checked }) }), text);
    const choose = (name, entries, value) => el("select", { "aria-label": name, dataset: { option: name }, onchange: (event) => this.set({ [name]: event.target.value }) },
      entries.map(([key, text]) => el("option", { value: key, selected: key === value }, text)));
    this.zoom = el("input", { type: "range", min: 0, max: 16, step: 1, value: this.options.zoom, "aria-label": "Zoom", oninput: () => this.set({ zoom: Number(this.zoom.value) }) });
    this.zoomText = el("output", {}, "");
    return el("div", { class: "options" }, this.keyChoice(),
      this.about.has_next ? check("next", "next_obs", "o") : null, check("diff", "Difference", "d"),
      frames > 1 ? choose("stack", STACKS, this.options.stack) : null,
      choose("paint", PAINTS.filter(([key]) => (key === "bgr" ? channels === 3 : key === "labels" ? channels === 1 : true)), this.paint),
      el("label", { class: "zoom" }, "Zoom ", this.zoom, this.zoomText), this.hover);
  }

  keyChoice() {
    if (this.keys.length < 2) return null;
    return el("select", { "aria-label": "Key", dataset: { option: "key" }, onchange: (event) => this.choose(event.target.value) },
      this.keys.map((one) => el("option", { value: one.key, selected: one.key === this.about.key }, `${one.key} (${one.shape.join("×")})`)));
  }

  async choose(key) {
    this.pause();
    this.about = this.keys.find((one) => one.key === key);
    this.options.paint = null;
    this.build();
    await this.ready();
    this.saveHash();
  }

  exports() {
    const zoom = () => this.options.zoom || 3;
    const link = (suffix) => el("a", {
      class: "button", download: "", href: "#", dataset: { export: suffix },
      onclick: (event) => this.save(event, suffix, zoom()),
    }, suffix.toUpperCase());
    this.saving = el("p", { class: "dim", role: "status" });
    const keys = this.lines && this.keys.length > 1 ? this.keyChoice() : null;
    return el("div", { class: "exports" }, keys ? el("h2", {}, "Observation") : null, keys, el("h2", {}, "Save this episode"),
      el("div", { class: "chips" }, this.about?.picture ? [link("gif"), link("mp4")] : null, link("npz")), this.saving);
  }

  async save(event, suffix, zoom) {
    event.preventDefault();
    this.saving.textContent = `Making the ${suffix.toUpperCase()} …`;
    try {
      const response = await fetch(address(`${this.source.id}/export/${this.episode.episode}.${suffix}`, { key: this.about?.key, fps: this.options.fps, zoom }));
      if (!response.ok) throw new Error((await response.json()).error);
      const url = URL.createObjectURL(await response.blob());
      el("a", { href: url, download: `episode-${this.episode.episode}.${suffix}` }).click();
      setTimeout(() => URL.revokeObjectURL(url), 60_000);
      this.saving.textContent = "Saved.";
    } catch (error) {
      this.saving.textContent = error.message;
    }
  }

  film() {
    this.strip.replaceChildren();
    if (!this.about?.picture) return;
    const { first, length, env, version } = this.episode, n = Math.min(12, length);
    for (let i = 0; i < n; i++) {
      const step = first + Math.floor(((i + 0.5) * length) / n);
      this.strip.append(el("img", { alt: `step ${step - first}`, title: `step ${step - first}`, loading: "lazy", src: address(`${this.source.id}/frames/${env}/${step}.png`, { key: this.about.key, newest: 1, v: version }), onclick: () => this.seek(step) }));
    }
  }

  // ---- showing a step

  async show() {
    const turn = ++this.turn, { first, length } = this.episode;
    this.position.textContent = `${count(this.step - first)} / ${count(length - 1)}`;
    this.track.show(this.episode, this.step);
    this.lines?.show(this.step);
    this.saveHash();
    const drawn = this.sheets ? this.draw(turn) : null;
    await Promise.all([drawn, this.describe(turn)]);
    this.node.dataset.shown = this.step - first;
  }

  async draw(turn) {
    const { frames } = this.about.picture, { next, diff, stack } = this.options;
    let sheet, before = null;
    try {
      sheet = await this.sheets.get(this.step);
      if (diff && frames === 1 && this.step > this.episode.first) before = await this.sheets.get(this.step - 1);
    } catch (error) {
      if (turn === this.turn) this.stage.replaceChildren(problem("This frame cannot be read.", error.message));
      return;
    }
    if (turn !== this.turn) return;
    this.sheets.ahead(this.step, this.episode.last, this.direction ?? 1);
    const panes = [], newest = frames - 1;
    const shown = stack === "beside" ? Array.from({ length: frames }, (_, i) => i) : [stack === "animate" ? Math.floor(performance.now() / 180) % frames : newest];
    for (const [row, name] of [[0, "obs"], [1, "next_obs"]].slice(0, next && this.about.has_next ? 2 : 1)) {
      for (const frame of shown) panes.push([`${name}${frames > 1 ? (stack === "newest" ? ", newest frame" : `, frame ${frame + 1} of ${frames}`) : ""}`, painted(pixels(sheet, this.about, row, frame), this.paint, this.palette), row, frame]);
    }
    if (diff) {
      const now = pixels(sheet, this.about, 0, newest);
      const last = frames > 1 ? pixels(sheet, this.about, 0, newest - 1) : before && pixels(before, this.about, 0, newest);
      const { data, changed } = last ? difference(now, last) : { data: null, changed: 0 };
      panes.push([data ? `Difference to the frame before: ${count(changed)} pixels` : "No frame before", data, 0, newest]);
    }
    this.panes(panes, sheet);
    if (stack === "animate" && frames > 1 && !this.playing) setTimeout(() => { if (turn === this.turn && this.node.isConnected) this.draw(turn); }, 180);
  }

  panes(panes, sheet) {
    const { width, height } = this.about.picture;
    if (this.stage.children.length !== panes.length || !this.stage.querySelector("canvas")) {
      this.stage.replaceChildren(...panes.map(() => el("figure", {}, el("canvas", { width, height }), el("figcaption", {}, ""))));
      this.stage.querySelectorAll("canvas").forEach((canvas) => { canvas.addEventListener("pointermove", (event) => this.inspect(event, canvas)); canvas.addEventListener("pointerleave", () => { this.hover.textContent = ""; }); });
      this.resize();
    }
    this.sheet = sheet;
    panes.forEach(([name, data, row, frame], i) => {
      const figure = this.stage.children[i], canvas = figure.querySelector("canvas"), c = canvas.getContext("2d", { willReadFrequently: true });
      if (data) c.putImageData(data, 0, 0); else c.clearRect(0, 0, width, height);
      canvas.place = [row, frame];
      figure.querySelector("figcaption").textContent = name;
    });
  }

  inspect(event, canvas) {
    const { width, height, exact, low, high, channels } = this.about.picture, box = canvas.getBoundingClientRect();
    const x = Math.floor(((event.clientX - box.left) / box.width) * width), y = Math.floor(((event.clientY - box.top) / box.height) * height);
    if (x < 0 || y < 0 || x >= width || y >= height || !this.sheet) return;
    const d = pixels(this.sheet, this.about, ...canvas.place).data.slice(4 * (y * width + x), 4 * (y * width + x) + channels);
    this.hover.textContent = `x ${x}, y ${y}: ${[...d].map((v) => (exact ? v : number(low + ((high - low) * v) / 255, 3))).join(", ")}`;
  }

  resize() {
    if (!this.about?.picture || !this.stage.children.length) return;
    const { width, height } = this.about.picture, n = this.stage.children.length, room = this.stage.clientWidth - 12;
    const { stack, zoom: chosen } = this.options, inRow = stack === "beside" ? this.about.picture.frames : n;
    const across = Math.min(inRow, room < 560 ? 2 : 6), high = Math.max(window.innerHeight - 430, 220) / (n > across ? 1.6 : 1);
    this.stage.style.gridTemplateColumns = `repeat(${chosen ? "auto-fit" : across}, ${chosen ? `${width * chosen}px` : "max-content"})`;
    const fit = Math.min((room / across - 12) / width, high / height);
    const zoom = chosen || Math.max(fit >= 1 ? Math.floor(fit) : fit, 0.25);
    this.stage.querySelectorAll("canvas").forEach((canvas) => { canvas.style.width = `${width * zoom}px`; });
    this.zoomText.textContent = chosen ? `${zoom}×` : `fit, ${number(zoom, 2)}×`;
  }

  async describe(turn) {
    const { first, env, length } = this.episode, begin = Math.floor((this.step - first) / CHUNK) * CHUNK + first;
    if (!this.chunks.has(begin)) this.chunks.set(begin, get(`${this.source.id}/steps/${env}`, { first: begin, count: Math.min(CHUNK, first + length - begin) }));
    let chunk;
    try {
      chunk = await this.chunks.get(begin);
    } catch (error) {
      this.chunks.delete(begin);
      if (turn === this.turn) this.facts.replaceChildren(problem("This step cannot be read.", error.message));
      return;
    }
    if (turn !== this.turn) return;
    const i = this.step - chunk.first, entries = [["step", `${count(this.step - first)} (of all: ${count(this.step)})`]];
    const order = ["actions", "rewards", "dones", "timeouts"];
    const names = Object.keys(chunk.arrays).sort((a, b) => (order.indexOf(a) + 1 || 99) - (order.indexOf(b) + 1 || 99));
    for (const name of names) {
      const row = chunk.arrays[name][i];
      if (!row || name.startsWith("ep_") || name === "episode_starts") continue;
      if (name === "actions" && row.length === 1 && chunk.names) entries.push(["action", `${chunk.names[row[0] - chunk.start] ?? "?"} (${row[0]})`]);
      else if (["dones", "timeouts"].includes(name)) entries.push([name.slice(0, -1), row[0] ? "yes" : "no"]);
      else entries.push([{ actions: "action", rewards: "reward" }[name] ?? name, row.slice(0, 24).map((v) => number(v)).join(", ") + (row.length > 24 ? ", …" : "")]);
    }
    this.facts.replaceChildren(...entries.flatMap(([name, text]) => [el("dt", {}, name), el("dd", { dataset: { fact: name }, class: name === "reward" && text !== "0" ? (text.startsWith("-") ? "bad" : "good") : "" }, text)]));
  }

  // ---- moving

  seek(step) {
    this.step = Math.min(Math.max(step, this.episode.first), this.episode.last - 1);
    return this.show();
  }

  move(by) {
    this.pause();
    this.direction = Math.sign(by);
    return this.seek(this.step + by);
  }

  reward(direction) {
    const { first, track, per } = this.episode;
    for (let i = Math.floor((this.step - first) / per) + direction; i >= 0 && i < track.length; i += direction) if (track[i]) return this.seek(first + i * per);
    return null;
  }

  go(episode) {
    if (episode !== null) this.app.go({ ...this.place(), episode, step: 0 });
  }

  toggle() {
    if (this.playing) { this.pause(); return; }
    if (this.step >= this.episode.last - 1) this.step = this.episode.first;
    this.playing = true;
    this.direction = 1;
    put(this.button, icon("pause"));
    this.button.setAttribute("aria-pressed", "true");
    let due = performance.now();
    const tick = async (now) => {
      if (!this.playing || !this.node.isConnected) return;
      if (now >= due) {
        due = Math.max(due + 1000 / this.options.fps, now - 100);
        if (this.step + 1 >= this.episode.last) { this.pause(); return; }
        await this.seek(this.step + 1);
      }
      requestAnimationFrame(tick);
    };
    requestAnimationFrame(tick);
  }

  pause() {
    this.playing = false;
    if (this.button) { put(this.button, icon("play")); this.button.setAttribute("aria-pressed", "false"); }
  }

  set(changes) {
    Object.assign(this.options, changes);
    if ("paint" in changes) this.paint = changes.paint;
    sessionStorage.setItem("player", JSON.stringify({ ...this.options, paint: null }));
    if ("zoom" in changes) this.resize();
    else if ("fps" in changes) this.speed.value = changes.fps;
    else this.show();
    for (const [name, value] of Object.entries(changes)) {
      const input = this.node.querySelector(`input[data-option="${name}"]`);
      if (input) input.checked = value;
      const choice = this.node.querySelector(`select[data-option="${name}"]`);
      if (choice) choice.value = value;
    }
  }

  key(event) {
    if (!this.episode) return false;
    const far = event.shiftKey ? 10 : 1;
    const speed = (by) => this.set({ fps: SPEEDS[Math.min(Math.max(SPEEDS.indexOf(this.options.fps) + by, 0), SPEEDS.length - 1)] });
    const zoom = (by) => { if (this.sheets) { const z = Math.min(Math.max((this.options.zoom || Math.round(parseFloat(this.stage.querySelector("canvas")?.style.width) / this.about.picture.width)) + by, 1), 16); this.zoom.value = z; this.set({ zoom: z }); } };
    const runs = {
      " ": () => this.toggle(), ArrowLeft: () => this.move(-far), ArrowRight: () => this.move(far), Home: () => this.seek(this.episode.first), End: () => this.seek(this.episode.last - 1),
      ",": () => speed(-1), ".": () => speed(1), n: () => this.go(this.episode.next), p: () => this.go(this.episode.previous), j: () => this.reward(1), k: () => this.reward(-1),
      d: () => this.sheets && this.set({ diff: !this.options.diff }), o: () => this.sheets && this.about.has_next && this.set({ next: !this.options.next }),
      s: () => this.sheets && this.about.picture.frames > 1 && this.set({ stack: STACKS[(STACKS.findIndex(([name]) => name === this.options.stack) + 1) % 3][0] }),
      "+": () => zoom(1), "=": () => zoom(1), "-": () => zoom(-1), 0: () => { if (this.sheets) { this.zoom.value = 0; this.set({ zoom: 0 }); } },
    };
    if (!runs[event.key]) return false;
    runs[event.key]();
    return true;
  }
}

export const KEYS = [
  ["space", "play, pause"], ["← →", "one step"], ["shift ← →", "ten steps"], ["Home, End", "first, last step"], ["j k", "next, previous reward"], ["n p", "next, previous episode of the env"],
  [", .", "slower, faster"], ["+ − 0", "zoom, fit"], ["o", "next_obs"], ["d", "difference to the frame before"], ["s", "newest, all frames, animation"], ["1 2 3", "overview, episodes, player"], ["/", "filter episodes"], ["?", "this list"],
];
