// Numbers and times: how they are read, and how they are written.

export const MAX_ID = 2n ** 63n - 1n;

// IDs reach 2^63-1, and a Number is exact up to 2^53 alone: a longer integer becomes a string, outside of strings.
const TOKENS = /"(?:[^"\\]|\\.)*"|(?<![\w.+-])-?\d{16,}(?![\w.+-])/g;

export function parse(text) {
  return JSON.parse(text.replace(TOKENS, (token) => (token.startsWith('"') ? token : `"${token}"`)));
}

export function grouped(value) {
  return String(value).replace(/\B(?=(\d{3})+$)/g, ",");
}

export function counted(count, word) {
  return `${grouped(count)} ${word}${count === 1 ? "" : "s"}`;
}

/** The ID that somebody has typed, as a BigInt; null if it is none. */
export function typedId(text) {
  const digits = text.replace(/[,_\s]/g, "");
  return /^\d{1,19}$/.test(digits) && BigInt(digits) <= MAX_ID ? BigInt(digits) : null;
}

export function clock(ms) {
  return new Date(ms).toLocaleTimeString("en-GB");
}

export function moment(ms) {
  const date = new Date(ms);
  const day = date.toDateString() === new Date().toDateString() ? "" : `${date.toLocaleDateString("en-CA")} `;
  return day + clock(ms);
}

/** Milliseconds, for somebody who waits: 0.4 s, 12 s, 3 min, or hardly any. */
export function ago(ms) {
  const seconds = ms / 1000;
  if (seconds < 1) return "under 1 s";
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 120) return `${Math.round(seconds)} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  return seconds < 172800 ? `${Math.round(seconds / 3600)} h` : `${Math.round(seconds / 86400)} d`;
}

const SPANS = [[3600, 60, "minute"], [2 * 86400, 3600, "hour"], [730 * 86400, 86400, "day"], [200 * 31557600, 31557600, "year"]];
const LARGE = new Intl.NumberFormat("en", { notation: "compact", compactDisplay: "long", maximumSignificantDigits: 3 });

/** Seconds, for somebody who plans: 12 hours, 40 days, 2.92 million centuries. */
export function lasting(seconds) {
  for (const [below, unit, word] of SPANS) {
    if (seconds < below) return counted(Math.floor(seconds / unit), word);
  }
  return `${LARGE.format(seconds / 3155760000)} centuries`;
}

export function rate(perSecond) {
  if (perSecond === 0) return "none";
  if (perSecond >= 100) return `${grouped(Math.round(perSecond))} / s`;
  if (perSecond >= 1) return `${perSecond.toFixed(1)} / s`;
  return perSecond * 60 >= 1 ? `${(perSecond * 60).toFixed(1)} / min` : `${(perSecond * 3600).toFixed(1)} / h`;
}

/** The share of the ID space below an ID. */
export function share(id) {
  const percent = (Number(id) / Number(MAX_ID)) * 100;
  if (percent < 0.0001) return "under a millionth used";
  return `${percent.toPrecision(percent >= 99.99 ? 4 : 2)} % used`;
}
