// Consumer groups: how many members each has and where these come together, and how much of what the quorum can keep is used.

import { boundsOf, showBounds } from "/console/bounds.js";
import { get, getText } from "/console/client.js";
import { known, leads } from "/console/known.js";
import { counted, grouped } from "/console/numbers.js";
import { at, fill } from "/console/page.js";

const SHOWN_GROUPS = 20;

/** What the leader knows: the first groups, and the bounds. */
export async function askGroups() {
  const page = await get(`/v1/groups?limit=${SHOWN_GROUPS}`);
  if (page.groups.length === 0) return { groups: [], more: false, bounds: [] };
  return { groups: page.groups, more: page.next_after !== null, bounds: boundsOf(await getText("/metrics"), "groups") };
}

export function showGroups() {
  const found = known.groups;
  at("groups-section").hidden = !leads() || found === null || found.groups.length === 0;
  if (at("groups-section").hidden) return;
  const more = found.more ? " There are more: `pidkeeper groups list` has all." : "";
  at("groups-note").textContent = `${counted(found.groups.length, "group")}. \`pidkeeper groups describe\` shows where each is to go on, and how far behind it is.${more}`;
  fill(at("groups"), found.groups.map(row));
  showBounds("group-bounds", found.bounds);
}

function row(one) {
  const members = one.members.length;
  return {
    key: one.group_id,
    cells: [
      { text: one.group_id },
      { text: members === 0 ? "nobody" : counted(members, "member"), tag: members === 0 ? "note" : "good" },
      { text: one.broker_id < 0 ? "–" : `broker ${one.broker_id}` },
      { text: grouped(one.offsets), kind: "n" },
      { text: grouped(one.pending), kind: "n rest" },
      { text: one.generation < 0 ? "–" : grouped(one.generation), kind: "n rest" },
      { text: one.protocol_type || "–", kind: "rest" },
    ],
  };
}
