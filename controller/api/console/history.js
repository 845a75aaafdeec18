// The blocks that were given out lately: from the member's history, and then from its events.

import { get } from "/console/client.js";

const KEPT = 20000;
const LOADED = 3000n;
const PAGE = 1000;
const PAGES = 4;

const blocks = [];
let from = null; // Since when, in ms, every block is here; 0: since the first one. null: not loaded yet.

export const history = { blocks, since: () => from };

const asBlock = (block) => ({
  first: BigInt(block.first),
  last: BigInt(block.last),
  length: Number(BigInt(block.last) - BigInt(block.first)) + 1,
  broker: block.broker_id,
  at: block.timestamp_ms,
});

/** In order of ID, each once: an event may come before the page of the history that it is in. */
export function add(found) {
  for (const block of found.map(asBlock)) {
    let place = blocks.length;
    while (place > 0 && blocks[place - 1].first > block.first) place -= 1;
    if (place === 0 || blocks[place - 1].first !== block.first) blocks.splice(place, 0, block);
  }
  if (blocks.length > KEPT) {
    blocks.splice(0, blocks.length - KEPT);
    from = blocks[0].at;
  }
}

let loading = null;

/** Read what is missing. Where that is much, read the newest alone. */
export function load(quorum) {
  loading ??= read(quorum).finally(() => {
    loading = null;
  });
  return loading;
}

async function read(quorum) {
  const next = BigInt(quorum.next_producer_id);
  const oldest = next - LOADED * BigInt(quorum.block_size) - 1n;
  let after = blocks.length === 0 ? -1n : blocks.at(-1).first;
  if (after < oldest || from === null) {
    blocks.length = 0;
    from = null;
    after = oldest > -1n ? oldest : -1n;
  }
  const whole = after === -1n;
  for (let page = 0; page < PAGES; page += 1) {
    const answer = await get(`/v1/producer-ids/blocks?after=${after}&limit=${PAGE}`);
    add(answer.blocks);
    if (from === null) from = whole && BigInt(answer.complete_from) === 0n ? 0 : (blocks[0]?.at ?? Date.now());
    if (answer.next_after === null) return;
    after = BigInt(answer.next_after);
  }
}

/** IDs a second in the last `seconds`, or since as long as is known: `{perSecond, since}`; null if that is too short. */
export function pace(now, seconds) {
  if (from === null) return null;
  const since = Math.max(now - seconds * 1000, from, blocks[0]?.at ?? 0);
  if (blocks.length > 0 && now - since < 5000) return null;
  let ids = 0;
  for (let place = blocks.length - 1; place >= 0 && blocks[place].at >= since; place -= 1) ids += blocks[place].length;
  return { perSecond: blocks.length === 0 ? 0 : (ids * 1000) / (now - since), since };
}
