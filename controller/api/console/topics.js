// Topics and their partitions, and how much of what the quorum can keep of them is used.

import { boundsOf, showBounds } from "/console/bounds.js";
import { get, getText, memberTime, Problem } from "/console/client.js";
import { known, leads } from "/console/known.js";
import { ago, counted, grouped } from "/console/numbers.js";
import { at, fill } from "/console/page.js";

const SHOWN_TOPICS = 10;
const SHOWN_PARTITIONS = 20; // Of each topic.
const LONG_MS = 60000;

/** What the leader knows: the first topics, each with its first partitions, and the bounds. */
export async function askTopics() {
  const page = await get(`/v1/topics?limit=${SHOWN_TOPICS}`);
  if (page.topics.length === 0) return { described: [], more: false, bounds: [] };
  const described = await Promise.all(page.topics.map(describe));
  return { described: described.filter((one) => one !== null), more: page.next_after !== null, bounds: boundsOf(await getText("/metrics"), "logs") };
}

async function describe({ name }) {
  try {
    return await get(`/v1/topics/describe?name=${encodeURIComponent(name)}&limit=${SHOWN_PARTITIONS}`);
  } catch (error) {
    // It was deleted since it was listed.
    if (error instanceof Problem && error.code === "UNKNOWN_TOPIC_OR_PARTITION") return null;
    throw error;
  }
}

export function showTopics() {
  const found = known.topics;
  at("topics-section").hidden = !leads() || found === null || found.described.length === 0;
  if (at("topics-section").hidden) return;
  const cut = found.described.some((one) => one.next_after !== null);
  const more = found.more || cut ? " There are more: `pidkeeper topics list` and `describe` have all." : "";
  at("topics-note").textContent = `${counted(found.described.length, "topic")}. From the last stable offset on, consumers that read what is committed wait for a transaction.${more}`;
  const now = memberTime();
  fill(at("topics"), found.described.flatMap((one) => one.partitions.map((partition) => partitionRow(one.topic.name, partition, now))));
  showBounds("bounds", found.bounds);
}

function partitionRow(topic, [partition, , start, end, stable, bytes, batches, heldBy, since], now) {
  const lag = Number(BigInt(end) - BigInt(stable));
  const held = since === null ? null : Math.max(0, now - since);
  return {
    key: `${topic}/${partition}`,
    cells: [
      { text: `${topic}-${partition}` },
      { text: grouped(end), kind: "n" },
      { text: lag === 0 ? "at the end" : `${grouped(stable)}, ${grouped(lag)} behind`, tag: lag === 0 ? "good" : held !== null && held > LONG_MS ? "warn" : "note" },
      { text: heldBy === null ? "–" : `${heldBy}${held === null ? "" : `, for ${ago(held)}`}` },
      { text: size(bytes), kind: "n rest" },
      { text: grouped(batches), kind: "n rest" },
      { text: grouped(start), kind: "n rest" },
    ],
  };
}

function size(bytes) {
  if (bytes < 1024) return counted(bytes, "byte");
  const power = Math.min(4, Math.floor(Math.log2(bytes) / 10));
  return `${(bytes / 1024 ** power).toPrecision(3)} ${["", "KiB", "MiB", "GiB", "TiB"][power]}`;
}
