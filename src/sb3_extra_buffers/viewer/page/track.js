// The track: rewards of an episode, marks of its end and of lost lives, and the place that is shown. One scrubs on it.

import { el, number } from "./dom.js";

const HEIGHT = 64;
const MARKS = { terminal: "--bad", timeout: "--warn", ended: "--warn", life: "--life" };

export class Track {
  constructor(seek) {
    this.seek = seek;
    this.canvas = el("canvas", { class: "track", height: HEIGHT, tabindex: "0", role: "slider", "aria-label": "Step of the episode" });
    this.tip = el("div", { class: "tip", hidden: true });
    this.node = el("div", { class: "track-box" }, this.canvas, this.tip);
    this.episode = null;
    this.step = 0;
    const at = (event) => {
      const box = this.canvas.getBoundingClientRect(), { first, last } = this.episode;
      const share = Math.min(Math.max((event.clientX - box.left) / box.width, 0), 0.999999);
      return first + Math.floor(share * (last - first));
    };
    let pressed = false;
    this.canvas.addEventListener("pointerdown", (event) => { pressed = true; this.canvas.setPointerCapture(event.pointerId); this.seek(at(event)); });
    this.canvas.addEventListener("pointerup", () => { pressed = false; });
    this.canvas.addEventListener("pointermove", (event) => {
      if (!this.episode) return;
      if (pressed) this.seek(at(event));
      const step = at(event), box = this.canvas.getBoundingClientRect(), { first, track, per } = this.episode;
      const marks = this.episode.marks.filter((m) => Math.abs(m.step - step) * box.width < 6 * (this.episode.last - first)).map((m) => m.kind);
      this.tip.textContent = [`step ${step - first}`, track.length ? `reward ${number(track[Math.floor((step - first) / per)])}` : "", ...marks].filter(Boolean).join(" · ");
      this.tip.hidden = false;
      this.tip.style.left = `${Math.min(Math.max(event.clientX - box.left, 60), box.width - 60)}px`;
    });
    this.canvas.addEventListener("pointerleave", () => { this.tip.hidden = true; });
    this.resized = new ResizeObserver(() => this.draw());
    this.resized.observe(this.canvas);
  }

  show(episode, step) {
    this.episode = episode;
    this.step = step;
    this.canvas.setAttribute("aria-valuemin", 0);
    this.canvas.setAttribute("aria-valuemax", episode.length - 1);
    this.canvas.setAttribute("aria-valuenow", step - episode.first);
    this.canvas.setAttribute("aria-valuetext", `step ${step - episode.first} of ${episode.length}`);
    this.draw();
  }

  draw() {
    if (!this.episode || !this.canvas.isConnected) return;
    const { first, last, track, per, marks } = this.episode;
    const ratio = window.devicePixelRatio || 1, width = this.canvas.clientWidth, style = getComputedStyle(this.canvas);
    const css = (name) => style.getPropertyValue(name).trim();
    this.canvas.width = Math.round(width * ratio);
    this.canvas.height = HEIGHT * ratio;
    const c = this.canvas.getContext("2d");
    c.scale(ratio, ratio);
    const x = (step) => ((step - first) / (last - first)) * width, middle = HEIGHT / 2, one = width / (last - first);
    const most = Math.max(...track.map((r) => Math.abs(r ?? 0)), 1e-12);
    c.fillStyle = css("--line");
    c.fillRect(0, middle - 0.5, width, 1);
    c.fillStyle = css("--played");
    c.fillRect(0, 0, x(this.step), HEIGHT);
    track.forEach((r, i) => {
      const at = x(first + i * per), wide = Math.max(one * per * 0.9, 1.5);
      if (r === null) { c.fillStyle = css("--bad"); c.fillRect(at, 2, wide, HEIGHT - 4); return; }
      if (!r) return;
      const high = Math.max((Math.abs(r) / most) * (middle - 8), 2);
      c.fillStyle = css(r > 0 ? "--good" : "--bad");
      c.fillRect(at, r > 0 ? middle - high : middle, wide, high);
    });
    marks.forEach((mark) => {
      const at = Math.min(Math.max(x(mark.step + 0.5), 4), width - 4);
      c.fillStyle = css(MARKS[mark.kind] ?? "--warn");
      c.fillRect(at - 1, 0, 2, HEIGHT);
      c.beginPath();
      if (mark.kind === "life") c.arc(at, 5, 4, 0, 7);
      else { c.moveTo(at - 5, 0); c.lineTo(at + 5, 0); c.lineTo(at, 8); }
      c.fill();
    });
    c.fillStyle = css("--ink");
    c.fillRect(Math.min(x(this.step + 0.5), width - 1) - 1, 0, 2, HEIGHT);
  }

  close() {
    this.resized.disconnect();
  }
}
