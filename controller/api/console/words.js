// What happened, in words.

import { counted, grouped } from "/console/numbers.js";

const CAUSES = {
  no_quorum: "the one before heard no majority",
  higher_term: "a newer term came",
  transfer: "the one before handed over",
  stalled_disk: "the disk of the one before stalled",
  removed: "the one before was removed",
  silent: "the one before fell silent",
  disconnected: "the connection from the one before broke",
  superseded: "a newer term came",
};

export function spoken({ blocks, left_out }) {
  const runs = [];
  for (const block of blocks) {
    const run = runs.at(-1);
    if (run !== undefined && run.broker === block.broker_id) {
      run.count += 1;
      run.last = block.last;
    } else runs.push({ broker: block.broker_id, count: 1, first: block.first, last: block.last, time: block.timestamp_ms });
  }
  const events = runs.map(({ broker, count, first, last, time }) => ({
    time,
    text: `${nameOf(broker)} got ${count === 1 ? "IDs" : `${count} blocks,`} ${grouped(first)} to ${grouped(last)}`,
  }));
  if (left_out > 0) events.push({ time: runs[0].time, text: `and ${counted(left_out, "block")} more` });
  return events;
}

export const nameOf = (broker) => (broker === -1 ? "the quorum itself" : `broker ${broker}`);

export function said(event, data) {
  const time = data.timestamp_ms;
  if (event === "leader") {
    const why = data.cause === null ? "" : `: ${CAUSES[data.cause] ?? data.cause}`;
    if (data.leader_id === null) return { time, kind: "bad", text: `no leader is known in term ${data.term}${why}` };
    return { time, kind: "good", text: `member ${data.leader_id} leads term ${data.term}${why}` };
  }
  if (event === "broker") {
    const text = `broker ${data.broker_id} ${["fenced", "unfenced"].includes(data.change) ? "was " : ""}${data.change}`;
    return { time, kind: data.change === "fenced" ? "bad" : "", text };
  }
  if (event === "member") {
    const kind = { reachable: "good", unreachable: "bad", recovering: "warn" }[data.state] ?? "";
    return { time, kind, text: `member ${data.id} is ${data.state}` };
  }
  return { time: Date.now(), kind: "", text: `${event}: ${JSON.stringify(data)}` };
}
