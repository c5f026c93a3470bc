// Vectors as lines over the steps of an episode: one line per number, which can be switched off and on.

import { get } from "./api.js";
import { el, number, problem, svg } from "./dom.js";
import { colour } from "./plots.js";

const WIDTH = 760, HEIGHT = 230, LEFT = 8, TOP = 8, BOTTOM = 8, AT_ONCE = 8;

export class Lines {
  constructor(seek) {
    this.seek = seek;
    this.node = el("section", { class: "lines" });
    this.hidden = new Set();
    this.data = null;
    this.only = null;
  }

  async load(source, episode, key) {
    try {
      this.data = await get(`${source.id}/values/${episode.env}`, { key, first: episode.first, count: episode.length });
    } catch (error) {
      this.data = null;
      this.node.replaceChildren(problem("These values cannot be read.", error.message));
      return;
    }
    if (this.only !== key) {
      this.only = key;
      this.hidden = new Set(Array.from({ length: this.data.dimensions }, (_, i) => i).filter((i) => i >= AT_ONCE));
    }
    this.key = key;
    this.episode = episode;
    this.draw();
  }

  draw() {
    const { values, steps, dimensions } = this.data, n = values[0]?.length ?? 0;
    const shown = Array.from({ length: n }, (_, i) => i).filter((i) => !this.hidden.has(i));
    let low = Infinity, high = -Infinity;
    values.forEach((row) => shown.forEach((i) => { if (row[i] !== null) { low = Math.min(low, row[i]); high = Math.max(high, row[i]); } }));
    if (low > high) [low, high] = [0, 1];
    if (low === high) [low, high] = [low - 1, high + 1];
    const first = this.episode.first, last = this.episode.last;
    this.x = (step) => LEFT + ((step + 0.5 - first) / (last - first)) * (WIDTH - 2 * LEFT);
    const y = (v) => TOP + (1 - (v - low) / (high - low)) * (HEIGHT - TOP - BOTTOM);
    const lines = shown.map((i) => {
      let pen = "M";
      const d = values.map((row, j) => { if (row[i] === null) { pen = "M"; return ""; } const part = `${pen}${this.x(steps[j]).toFixed(1)},${y(row[i]).toFixed(1)}`; pen = "L"; return part; }).join("");
      return svg("path", { class: "line", stroke: colour(i), d });
    });
    this.cursor = svg("line", { class: "cursor", y1: TOP, y2: HEIGHT - BOTTOM, x1: -9, x2: -9 });
    const zero = low < 0 && high > 0 ? svg("line", { class: "zero", x1: LEFT, x2: WIDTH - LEFT, y1: y(0), y2: y(0) }) : null;
    const drawing = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": `Values of ${this.key}`, preserveAspectRatio: "none" }, zero, lines, this.cursor);
    const seek = (event) => {
      const box = drawing.getBoundingClientRect(), share = Math.min(Math.max((event.clientX - box.left) / box.width, 0), 0.99999);
      this.seek(first + Math.floor(share * (last - first)));
    };
    drawing.addEventListener("pointerdown", (event) => { drawing.setPointerCapture(event.pointerId); seek(event); });
    drawing.addEventListener("pointermove", (event) => { if (event.buttons) seek(event); });
    this.legend = Array.from({ length: n }, (_, i) => el("button", {
      class: "legend-entry", "aria-pressed": String(!this.hidden.has(i)), title: "Show or hide",
      onclick: () => { if (this.hidden.has(i)) this.hidden.delete(i); else this.hidden.add(i); this.draw(); this.show(this.step); },
    }, el("i", { style: { background: colour(i) } }), el("span", {}, `[${i}]`), el("b", {}, "")));
    this.node.replaceChildren(
      el("header", {}, el("b", {}, this.key), el("span", { class: "dim" }, ` ${number(low)} to ${number(high)}${dimensions > n ? `; ${n} of ${dimensions} values` : ""}`)),
      el("div", { class: "canvas" }, drawing), el("div", { class: "legend-grid" }, this.legend));
  }

  show(step) {
    this.step = step;
    if (!this.data || !this.cursor) return;
    const { steps, values } = this.data;
    let i = 0;
    while (i + 1 < steps.length && steps[i + 1] <= step) i += 1;
    this.cursor.setAttribute("x1", this.x(step));
    this.cursor.setAttribute("x2", this.x(step));
    this.legend.forEach((entry, d) => { entry.querySelector("b").textContent = number(values[i]?.[d]); });
  }
}
