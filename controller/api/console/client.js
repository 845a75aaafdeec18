// Calls of the member that served this page, and of no other.

import { parse } from "/console/numbers.js";

const KEY = "pidkeeper-token";
const ANSWER_MS = 3000;
const SILENCE_MS = 6000; // The stream shows life every 2 s.
const RELEVANT_SKEW_MS = 2000; // The header Date has whole seconds.

let skew = 0;

/** The member's clock: the times of blocks are those of members. */
export const memberTime = () => Date.now() + skew;

export const token = {
  get: () => sessionStorage.getItem(KEY),
  set: (value) => sessionStorage.setItem(KEY, value),
  clear: () => sessionStorage.removeItem(KEY),
};

/** A refusal, as the member worded it. */
export class Problem extends Error {
  constructor(status, document, retryAfter) {
    super(document.detail ?? `HTTP ${status}`);
    this.status = status;
    this.title = document.title ?? "refused";
    this.detail = document.detail ?? "";
    this.code = document.code ?? `HTTP ${status}`;
    this.leader = document.leader ?? null;
    this.retryAfter = retryAfter;
  }
}

async function ask(path, options, signal) {
  const headers = { Accept: "application/json", ...options.headers };
  if (token.get() !== null) headers.Authorization = `Bearer ${token.get()}`;
  const response = await fetch(path, { ...options, headers, signal, cache: "no-store", redirect: "error" });
  const difference = Date.parse(response.headers.get("Date") ?? "") - Date.now();
  if (Number.isFinite(difference)) skew = Math.abs(difference) > RELEVANT_SKEW_MS ? difference : 0;
  if (response.ok) return response;
  const text = await response.text();
  let document = {};
  try {
    document = parse(text);
  } catch {
    document = { detail: `the answer is no problem document: ${text.slice(0, 200)}` };
  }
  throw new Problem(response.status, document, Number(response.headers.get("Retry-After") ?? 0));
}

export async function getText(path) {
  return (await ask(path, {}, AbortSignal.timeout(ANSWER_MS))).text();
}

export async function get(path) {
  return parse(await getText(path));
}

/** `body` is JSON text: a Number could not hold every ID. */
export async function post(path, body) {
  const options = { method: "POST", body, headers: { "Content-Type": "application/json" } };
  return parse(await (await ask(path, options, AbortSignal.timeout(15000))).text());
}

/** The events of the member, until it ends the stream or falls silent. `opened()` is called once it stands. EventSource
 * would be shorter, and cannot bring a token. */
export async function* listen(opened) {
  const ending = new AbortController();
  const watch = () => setTimeout(() => ending.abort(), SILENCE_MS);
  let timer = watch();
  // A browser opens six connections to a member: tabs that nobody sees must not hold them.
  const hide = () => document.hidden && ending.abort();
  document.addEventListener("visibilitychange", hide);
  try {
    const response = await ask("/v1/events", { headers: { Accept: "text/event-stream" } }, ending.signal);
    opened();
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const { value, done } = await reader.read();
      clearTimeout(timer);
      timer = watch();
      if (done) return;
      const parts = (rest + value).split("\n\n");
      rest = parts.pop();
      for (const part of parts) {
        const found = /^event: (\w+)\ndata: (.*)$/.exec(part);
        if (found !== null) yield { event: found[1], data: parse(found[2]) };
      }
    }
  } finally {
    document.removeEventListener("visibilitychange", hide);
    clearTimeout(timer);
    ending.abort();
  }
}
