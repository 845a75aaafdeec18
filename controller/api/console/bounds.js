// What the quorum keeps of something, against its bounds, as the metrics tell it.

import { grouped } from "/console/numbers.js";
import { at, make } from "/console/page.js";

const NEAR = 0.8;
const SAMPLE = /^pidkeeper_(\w+?)_(kept|kept_limit)\{kind="(\w+)"\} (\S+)$/gm;

/** The bounds of "logs", or of "groups". */
export function boundsOf(metrics, family) {
  const found = new Map();
  for (const [, of, what, kind, value] of metrics.matchAll(SAMPLE)) {
    if (of === family) found.set(kind, { ...found.get(kind), [what]: Number(value) });
  }
  return [...found].map(([kind, { kept, kept_limit }]) => ({ kind: kind.replaceAll("_", " "), kept, limit: kept_limit }));
}

export function showBounds(id, bounds) {
  const shown = JSON.stringify(bounds);
  if (at(id).dataset.shown === shown) return;
  at(id).dataset.shown = shown;
  at(id).replaceChildren(...bounds.map(item));
}

function item({ kind, kept, limit }) {
  const meter = make("meter", `${grouped(kept)} of ${grouped(limit)}`);
  Object.assign(meter, { min: 0, max: limit, high: limit * NEAR, optimum: 0, value: kept });
  meter.setAttribute("aria-label", kind);
  return make("li", [make("span", kind), meter, make("small", `${grouped(kept)} of ${grouped(limit)}`)], kept > limit * NEAR ? "near" : "");
}
