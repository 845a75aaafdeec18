// IDs handed out over time, stacked by broker: bars in an SVG, made of elements alone.

import { clock, grouped } from "/console/numbers.js";

const SVG = "http://www.w3.org/2000/svg";
const BARS = 60;
const NAMED = 6;
const FOOT = 22;
const HEAD = 14;

/** Of the blocks in the last `seconds`: what each broker had, most first. Those behind the first six share a colour. */
export function shares(blocks, now, seconds) {
  const brokers = new Map();
  for (const block of blocks) {
    if (block.at < now - seconds * 1000) continue;
    const one = brokers.get(block.broker) ?? { broker: block.broker, blocks: 0, ids: 0, last: block };
    one.blocks += 1;
    one.ids += block.length;
    one.last = block;
    brokers.set(block.broker, one);
  }
  const found = [...brokers.values()].sort((one, other) => one.broker - other.broker);
  return found.map((one, place) => ({ ...one, colour: Math.min(place, NAMED) }));
}

export function draw(svg, blocks, drawn, now, seconds) {
  const width = Math.max(svg.clientWidth, 200);
  const height = Math.max(svg.clientHeight, 100);
  const step = (seconds * 1000) / BARS;
  const end = Math.ceil(now / step) * step;
  const start = end - BARS * step;
  const colours = new Map(drawn.map((one) => [one.broker, one.colour]));
  const bars = Array.from({ length: BARS }, () => new Array(NAMED + 1).fill(0));
  for (const block of blocks) {
    const bar = Math.floor((block.at - start) / step);
    if (bar >= 0 && bar < BARS && colours.has(block.broker)) bars[bar][colours.get(block.broker)] += block.length;
  }
  const top = ceiling(Math.max(...bars.map((bar) => bar.reduce((sum, ids) => sum + ids, 0))));
  const room = height - FOOT - HEAD;
  const wide = width / BARS;
  const parts = [...lines(width, room, top)];
  bars.forEach((bar, place) => {
    let foot = height - FOOT;
    bar.forEach((ids, colour) => {
      if (ids === 0) return;
      const high = Math.max((ids / top) * room, 1);
      foot -= high;
      const gap = Math.min(2, wide / 4);
      parts.push(element("rect", { class: `f${colour}`, x: place * wide + gap / 2, y: foot, width: wide - gap, height: high, rx: 1 }));
    });
  });
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.replaceChildren(...parts, ...times(width, height, start, end));
}

function lines(width, room, top) {
  const base = HEAD + room;
  const line = (y, kind) => element("line", { class: kind, x1: 0, x2: width, y1: y, y2: y });
  return [line(base, "axis"), line(HEAD, "line"), line(HEAD + room / 2, "line"), label(0, HEAD - 4, `${grouped(top)} IDs`, "start")];
}

function times(width, height, start, end) {
  const short = (ms) => clock(ms).slice(0, end - start > 600000 ? 5 : 8);
  const places = [[0, "start"], [0.5, "middle"], [1, "end"]];
  return places.map(([share, anchor]) => label(share * width, height - 6, short(start + share * (end - start)), anchor));
}

function label(x, y, text, anchor) {
  const made = element("text", { x, y, "text-anchor": anchor });
  made.textContent = text;
  return made;
}

/** The next round number above, 1,000 at least. */
function ceiling(value) {
  for (let power = 1000; ; power *= 10) {
    for (const factor of [1, 2, 3, 4, 5, 6, 8]) if (factor * power >= value) return factor * power;
  }
}

function element(name, attributes) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}
