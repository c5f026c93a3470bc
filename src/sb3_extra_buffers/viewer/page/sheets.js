// Sheets: one PNG per step with all frames of obs in a row, and those of next_obs below. Fetched ahead, cut and painted here.

import { picture } from "./api.js";

const KEPT = 160, AHEAD = 12;

export class Sheets {
  // about: what the server says of the key; its `picture` has height, width, frames, channels
  constructor(source, env, about, version) {
    Object.assign(this, { source, env, about, version, cache: new Map() });
  }

  get(step) {
    const known = this.cache.get(step);
    if (known) {
      this.cache.delete(step);
      this.cache.set(step, known);
      return known;
    }
    const loading = picture(`${this.source.id}/frames/${this.env}/${step}.png`, { key: this.about.key, v: this.version });
    loading.catch(() => this.cache.delete(step));
    this.cache.set(step, loading);
    while (this.cache.size > KEPT) this.cache.delete(this.cache.keys().next().value);
    return loading;
  }

  ahead(step, last, direction = 1) {
    for (let i = 1; i <= AHEAD; i++) {
      const at = step + i * direction;
      if (at >= 0 && at < last) this.get(at).catch(() => {});
    }
  }
}

const scratch = document.createElement("canvas");
const reader = scratch.getContext("2d", { willReadFrequently: true });

// The pixels of one frame of a sheet. row 0 is obs, row 1 next_obs.
export function pixels(sheet, about, row, frame) {
  const { width, height } = about.picture;
  scratch.width = width;
  scratch.height = height;
  reader.drawImage(sheet, frame * width, row * height, width, height, 0, 0, width, height);
  return reader.getImageData(0, 0, width, height);
}

// paint: plain, stretch, labels, bgr; palette: a colour for each label
export function painted(data, paint, palette) {
  const d = data.data;
  if (paint === "bgr") for (let i = 0; i < d.length; i += 4) [d[i], d[i + 2]] = [d[i + 2], d[i]];
  if (paint === "labels") for (let i = 0; i < d.length; i += 4) [d[i], d[i + 1], d[i + 2]] = palette[d[i]];
  if (paint === "stretch") {
    let low = 255, high = 0;
    for (let i = 0; i < d.length; i += 4) for (let c = 0; c < 3; c++) { low = Math.min(low, d[i + c]); high = Math.max(high, d[i + c]); }
    const by = 255 / (high - low || 1);
    for (let i = 0; i < d.length; i += 4) for (let c = 0; c < 3; c++) d[i + c] = (d[i + c] - low) * by;
  }
  return data;
}

// What became brighter is orange, what became darker is blue; what stayed is dark. Gives how many pixels have changed.
export function difference(now, before) {
  const a = now.data, b = before.data;
  let changed = 0;
  for (let i = 0; i < a.length; i += 4) {
    const by = [a[i] - b[i], a[i + 1] - b[i + 1], a[i + 2] - b[i + 2]];
    const most = by.reduce((x, y) => (Math.abs(y) > Math.abs(x) ? y : x));
    if (most) changed += 1;
    const strong = most ? Math.min(255, 70 + Math.abs(most)) / 255 : 0;
    const to = most > 0 ? [255, 168, 60] : [80, 160, 255];
    for (let c = 0; c < 3; c++) a[i + c] = 18 + (to[c] - 18) * strong;
  }
  return { data: now, changed };
}
