// Elements, and numbers as people read them. Text from files only ever becomes text nodes, never markup.

const SVG = "http://www.w3.org/2000/svg";

function fill(node, properties, children) {
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "style") for (const [key, one] of Object.entries(value)) node.style.setProperty(key, one);
    else if (name === "dataset") Object.assign(node.dataset, value);
    else if (["value", "checked", "disabled", "hidden", "selected"].includes(name)) node[name] = value;
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat(Infinity).filter((one) => one !== null && one !== undefined && one !== false));
  return node;
}

export const el = (tag, properties, ...children) => fill(document.createElement(tag), properties, children);
export const svg = (tag, properties, ...children) => fill(document.createElementNS(SVG, tag), properties, children);

// Put children in the place of others; null is left out.
export const put = (node, ...children) => node.replaceChildren(...children.flat(Infinity).filter((one) => one !== null && one !== undefined && one !== false));

const ICONS = {
  play: "M6 4l13 8-13 8z", pause: "M6 4h4v16H6zM14 4h4v16h-4z", first: "M5 4h3v16H5zM20 4v16l-11-8z", last: "M16 4h3v16h-3zM4 4v16l11-8z", back: "M15 4v16L5 12z", on: "M9 4v16l10-8z",
  sun: "M12 7a5 5 0 100 10 5 5 0 000-10zM11 1h2v4h-2zM11 19h2v4h-2zM1 11h4v2H1zM19 11h4v2h-4zM4.2 5.6l1.4-1.4 2.8 2.8L7 8.4zM15.6 17l1.4-1.4 2.8 2.8-1.4 1.4zM4.2 18.4L7 15.6 8.4 17l-2.8 2.8zM15.6 7l2.8-2.8 1.4 1.4L17 8.4z",
  moon: "M20 14.5A8.5 8.5 0 019.5 4 8.5 8.5 0 1020 14.5z",
};
export const icon = (name) => svg("svg", { class: "icon", viewBox: "0 0 24 24", width: 16, height: 16, "aria-hidden": "true" }, svg("path", { d: ICONS[name], fill: "currentColor" }));

export function count(n) {
  return n === null || n === undefined ? "–" : Math.round(n).toLocaleString("en-US");
}

export function number(x, digits = 4) {
  if (x === null || x === undefined) return "NaN";
  if (Number.isInteger(x) && Math.abs(x) < 1e6) return x.toLocaleString("en-US");
  if (x !== 0 && (Math.abs(x) < 1e-3 || Math.abs(x) >= 1e6)) return x.toExponential(2);
  return String(Number(x.toPrecision(digits)));
}

export function bytes(n) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let i = 0;
  while (n >= 999.5 && i < units.length - 1) [n, i] = [n / 1000, i + 1];
  return `${i === 0 || n >= 100 ? Math.round(n) : Number(n.toPrecision(3))} ${units[i]}`;
}

export function percent(x) {
  if (x === null || x === undefined || !Number.isFinite(x)) return "–";
  const p = 100 * x;
  return `${p >= 10 ? p.toFixed(0) : p >= 1 ? p.toFixed(1) : p.toPrecision(2)} %`;
}

export function problem(text, detail) {
  return el("div", { class: "problem", role: "alert" }, el("strong", {}, text), detail ? el("p", {}, detail) : null);
}

// Call with what came last, but not more often than each `wait` milliseconds.
export function throttled(wait, run) {
  let timer = null, latest = null;
  return (...args) => {
    latest = args;
    timer ??= setTimeout(() => { timer = null; run(...latest); }, wait);
  };
}
