// Plots as SVG: points over steps, bars, lines. They fill the width they get, and say what is under the pointer.

import { el, number, svg } from "./dom.js";

// Text has the same size on a phone, so a plot is drawn narrower there.
const narrow = window.matchMedia("(max-width: 560px)");
let WIDTH = narrow.matches ? 350 : 560;
narrow.addEventListener("change", () => { WIDTH = narrow.matches ? 350 : 560; });
const HEIGHT = 210, LEFT = 52, RIGHT = 12, TOP = 10, BOTTOM = 26;

export const colour = (i) => `var(--series-${i % 8})`;

function ticks(low, high, n = 4) {
  const span = high - low || 1, step = 10 ** Math.floor(Math.log10(span / n));
  const nice = [1, 2, 5, 10].map((m) => m * step).find((s) => span / s <= n + 0.5) ?? step * 10;
  const found = [];
  for (let v = Math.ceil(low / nice) * nice; v <= high + nice * 1e-6; v += nice) found.push(Math.abs(v) < nice * 1e-6 ? 0 : v);
  return found;
}

const short = (v) => (Math.abs(v) >= 1e9 ? `${number(v / 1e9, 3)}G` : Math.abs(v) >= 1e6 ? `${number(v / 1e6, 3)}M` : Math.abs(v) >= 1e4 ? `${number(v / 1e3, 3)}k` : number(v, 3));

function scale(low, high, from, to) {
  const span = high - low || 1;
  return (v) => from + ((v - low) / span) * (to - from);
}

function frame({ xLow, xHigh, yLow, yHigh, yFormat = short, xFormat = short, xTicks = true, log = false }) {
  const x = scale(xLow, xHigh, LEFT, WIDTH - RIGHT);
  const yv = scale(yLow, yHigh, HEIGHT - BOTTOM, TOP);
  const y = log ? (v) => yv(v > 0 ? Math.log10(v) : yLow) : yv;
  const marks = log ? Array.from({ length: Math.floor(yHigh) - Math.ceil(yLow) + 1 }, (_, i) => Math.ceil(yLow) + i) : ticks(yLow, yHigh);
  const every = Math.max(1, Math.ceil(marks.length / 6));
  const axes = svg("g", { class: "axes" },
    marks.filter((_, i) => i % every === 0).map((v) => [
      svg("line", { x1: LEFT, x2: WIDTH - RIGHT, y1: yv(v), y2: yv(v) }),
      svg("text", { x: LEFT - 7, y: yv(v) + 4, "text-anchor": "end" }, yFormat(log ? 10 ** v : v)),
    ]),
    xTicks ? ticks(xLow, xHigh, 5).map((v) => svg("text", { x: x(v), y: HEIGHT - 8, "text-anchor": "middle" }, xFormat(v))) : null,
  );
  return { x, y, axes };
}

function shell(title, note, legend, content, describe) {
  const tip = el("div", { class: "tip", hidden: true });
  const drawing = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": title }, content);
  const figure = el("figure", { class: "plot" },
    el("figcaption", {}, el("b", {}, title), note ? el("span", { class: "dim" }, note) : null, legend),
    el("div", { class: "canvas" }, drawing, tip));
  const hide = () => { tip.hidden = true; drawing.querySelector(".cursor")?.remove(); };
  drawing.addEventListener("pointermove", (event) => {
    const box = drawing.getBoundingClientRect(), at = ((event.clientX - box.left) / box.width) * WIDTH;
    const said = describe(at, ((event.clientY - box.top) / box.height) * HEIGHT);
    hide();
    if (!said) return;
    tip.textContent = said.text;
    tip.hidden = false;
    tip.style.left = `${Math.min(Math.max((said.x / WIDTH) * box.width, 70), box.width - 70)}px`;
    drawing.append(svg("line", { class: "cursor", x1: said.x, x2: said.x, y1: TOP, y2: HEIGHT - BOTTOM }));
  });
  drawing.addEventListener("pointerleave", hide);
  return { figure, drawing };
}

function legendOf(series) {
  if (series.length < 2) return null;
  return el("span", { class: "legend" }, series.map((one, i) => el("span", {}, el("i", { style: { background: one.colour ?? colour(i) } }), one.name)));
}

const empty = (title, text) => el("figure", { class: "plot" }, el("figcaption", {}, el("b", {}, title)), el("p", { class: "nothing" }, text));

// The mean of the points around each.
function running(points) {
  const wide = Math.max(2, Math.round(points.length / 14));
  return points.map((p, i) => { const some = points.slice(Math.max(i - wide, 0), i + wide + 1); return { x: p.x, y: some.reduce((sum, one) => sum + one.y, 0) / some.length }; });
}

// series: [{name, points: [{x, y, low, high, ...}]}]
export function scatter({ title, note, series, onPick, yFormat, xName = "step", line = false, zero = false }) {
  const all = series.flatMap((one) => one.points).filter((p) => p.y !== null);
  if (!all.length) return empty(title, "Nothing to show yet.");
  const low = Math.min(...all.map((p) => p.low ?? p.y), ...(zero ? [0] : [])), high = Math.max(...all.map((p) => p.high ?? p.y), ...(zero ? [0] : []));
  const pad = (high - low || Math.abs(high) || 1) * 0.06;
  const { x, y, axes } = frame({
    xLow: Math.min(...all.map((p) => p.x)), xHigh: Math.max(...all.map((p) => p.x)),
    yLow: zero && low >= 0 ? 0 : low - pad, yHigh: high + pad, yFormat,
  });
  const shown = series.map((one, i) => {
    const points = one.points.filter((p) => p.y !== null), c = one.colour ?? colour(i);
    const band = points.some((p) => p.low !== undefined && p.high > p.low)
      ? svg("path", { class: "band", fill: c, d: points.map((p, j) => `${j ? "L" : "M"}${x(p.x).toFixed(1)},${y(p.high).toFixed(1)}`).join("") + points.slice().reverse().map((p) => `L${x(p.x).toFixed(1)},${y(p.low).toFixed(1)}`).join("") + "Z" }) : null;
    const dots = !line && !band ? points.map((p) => svg("circle", { cx: x(p.x), cy: y(p.y), r: points.length > 60 ? 2 : 3, fill: c, opacity: points.length > 12 ? 0.55 : 1 })) : null;
    const trend = dots && points.length > 12 ? running(points) : points;
    const path = trend.map((p, j) => `${j ? "L" : "M"}${x(p.x).toFixed(1)},${y(p.y).toFixed(1)}`).join("");
    return svg("g", {}, band, dots, svg("path", { class: dots && trend === points ? "line faint" : "line", stroke: c, d: path }));
  });
  const nearest = (px, py) => {
    let best = null, distance = Infinity;
    series.forEach((one) => one.points.forEach((p) => {
      if (p.y === null) return;
      const d = Math.abs(x(p.x) - px) + 0.2 * Math.abs(y(p.y) - py);
      if (d < distance) [best, distance] = [{ p, one }, d];
    }));
    return best;
  };
  const { figure, drawing } = shell(title, note, legendOf(series), [axes, ...shown], (px, py) => {
    const found = nearest(px, py);
    if (!found) return null;
    const name = series.length > 1 ? `${found.one.name}, ` : "";
    return { x: x(found.p.x), text: `${name}${found.p.label ?? `${xName} ${number(found.p.x)}`}: ${(yFormat ?? number)(found.p.y)}` };
  });
  if (onPick) {
    drawing.classList.add("picks");
    drawing.addEventListener("click", (event) => {
      const box = drawing.getBoundingClientRect();
      const found = nearest(((event.clientX - box.left) / box.width) * WIDTH, ((event.clientY - box.top) / box.height) * HEIGHT);
      if (found) onPick(found.p, found.one);
    });
  }
  return figure;
}

// series: [{name, histogram}]: counts by value or by range, as shares where there are several
export function bars({ title, note, series, names, start = 0 }) {
  const drawn = series.filter((one) => one.histogram && one.histogram.n);
  if (!drawn.length) return empty(title, "Nothing to show yet.");
  const several = drawn.length > 1, share = (h, c) => (several ? c / h.n : c);
  const byValue = drawn.every((one) => one.histogram.kind === "values");
  const counts = drawn.flatMap((one) => one.histogram.counts.map((c) => share(one.histogram, c))).filter((c) => c > 0);
  const top = Math.max(...counts, several ? 1e-9 : 1), least = Math.min(...counts, top);
  const log = top / least > 60;
  const values = byValue ? [...new Set(drawn.flatMap((one) => one.histogram.values))].sort((a, b) => a - b) : null;
  const edges = byValue ? [-0.5, values.length - 0.5] : [Math.min(...drawn.map((one) => range(one.histogram)[0])), Math.max(...drawn.map((one) => range(one.histogram)[1]))];
  const yFormat = several ? (v) => `${number(100 * v, 2)}%` : short;
  const { x, y, axes } = frame({
    xLow: edges[0], xHigh: edges[1], yLow: log ? Math.log10(least) - 0.3 : 0, yHigh: log ? Math.log10(top) + 0.05 : top * 1.05, yFormat, log, xTicks: !byValue,
  });
  const floor = HEIGHT - BOTTOM, parts = [axes];
  const called = (v) => (names ? names[v - start] ?? v : number(v));
  drawn.forEach((one, s) => {
    const h = one.histogram, c = one.colour ?? colour(s), group = [];
    const bar = (a, b, n) => { if (n > 0) group.push(svg("rect", { x: a, width: Math.max(b - a, 0.8), y: y(share(h, n)), height: Math.max(floor - y(share(h, n)), 0.8), rx: 1.5, fill: c, opacity: several && !byValue ? 0.55 : 0.9 })); };
    if (byValue) {
      const slot = x(1) - x(0), wide = Math.min((slot * 0.8) / drawn.length, 46), whole = wide * drawn.length;
      h.values.forEach((v, i) => { const at = x(values.indexOf(v)) - whole / 2 + s * wide; bar(at, at + wide * 0.94, h.counts[i]); });
    } else if (h.kind === "values") h.values.forEach((v, i) => bar(x(v) - 3, x(v) + 3, h.counts[i]));
    else h.counts.forEach((n, i) => bar(x(h.edges[i]) + 0.4, x(h.edges[i + 1]) - 0.4, n));
    parts.push(svg("g", {}, group));
  });
  if (byValue) {
    const widest = Math.max(...values.map((v) => String(called(v)).length)), room = (WIDTH - LEFT - RIGHT) / values.length;
    const every = Math.max(1, Math.ceil((widest * 6.2 + 4) / room));
    const slanted = names && every > 1 && values.length <= 20;
    parts.push(svg("g", { class: "axes" }, values.map((v, i) => (slanted || i % every === 0 ? svg("text", slanted ? { x: x(i), y: HEIGHT - (i % 2 ? 2 : 13), "text-anchor": "middle", class: "tiny" } : { x: x(i), y: HEIGHT - 8, "text-anchor": "middle" }, called(v)) : null))));
  }
  const bad = drawn.reduce((n, one) => n + (one.histogram.not_finite ?? 0), 0);
  const notes = [note, log ? "log scale" : null, bad ? `${bad} NaN or infinite` : null].filter(Boolean).join(" · ");
  return shell(title, notes, legendOf(drawn), parts, (px) => {
    if (byValue) {
      const i = Math.round(edges[0] + ((px - LEFT) / (WIDTH - LEFT - RIGHT)) * (edges[1] - edges[0]));
      if (i < 0 || i >= values.length) return null;
      const said = drawn.map((one) => { const j = one.histogram.values.indexOf(values[i]); const n = j < 0 ? 0 : one.histogram.counts[j]; return `${number(n)} (${number((100 * n) / one.histogram.n, 3)} %)`; });
      return { x: x(i), text: `${called(values[i])}: ${said.join(" | ")}` };
    }
    const h = drawn[0].histogram, v = edges[0] + ((px - LEFT) / (WIDTH - LEFT - RIGHT)) * (edges[1] - edges[0]);
    if (h.kind !== "bins") return null;
    const i = h.edges.findIndex((e, j) => v >= e && v < h.edges[j + 1]);
    return i < 0 || i >= h.counts.length ? null : { x: px, text: `${number(h.edges[i])} to ${number(h.edges[i + 1])}: ${number(h.counts[i])}` };
  }).figure;
}

function range(h) {
  if (h.kind === "bins") return [h.edges[0], h.edges.at(-1)];
  return h.values.length ? [h.values[0] - 0.5, h.values.at(-1) + 0.5] : [0, 1];
}

// A line without axes.
export function spark(values, width = 96, height = 26) {
  const seen = values.filter((v) => v !== null);
  if (seen.length < 2) return el("span", { class: "dim" }, "–");
  const low = Math.min(0, ...seen), high = Math.max(0, ...seen), y = scale(low, high, height - 3, 3), x = scale(0, values.length - 1, 2, width - 2);
  const d = values.map((v, i) => `${i ? "L" : "M"}${x(i).toFixed(1)},${y(v ?? 0).toFixed(1)}`).join("");
  return svg("svg", { class: "spark", viewBox: `0 0 ${width} ${height}`, width, height, "aria-hidden": "true" },
    svg("line", { x1: 2, x2: width - 2, y1: y(0), y2: y(0) }), svg("path", { d }));
}
