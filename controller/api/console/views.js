// What is known, as it is shown.

import { draw, shares } from "/console/chart.js";
import { memberTime, token } from "/console/client.js";
import { showGroups } from "/console/groups.js";
import { history, pace } from "/console/history.js";
import { known, leads, may } from "/console/known.js";
import { ago, clock, counted, grouped, lasting, MAX_ID, moment, rate, share } from "/console/numbers.js";
import { at, consoleOf, fill, link, make, write } from "/console/page.js";
import { showTopics } from "/console/topics.js";
import { nameOf } from "/console/words.js";

const MEMBER_TAGS = { leader: "good", unreachable: "bad", recovering: "warn", snapshot: "warn", candidate: "warn", "pre-candidate": "warn" };

export function showAll(quorum) {
  showQuorum(quorum);
  showBurnDown(quorum);
  showBlocks();
  showBrokers();
  showTransactions(quorum);
  showTopics();
  showGroups();
  showOrders(quorum);
}

function showQuorum(quorum) {
  document.title = `pidkeeper · ${quorum.cluster_id} · member ${quorum.node_id}`;
  write("cluster", quorum.cluster_id);
  write("member", `Seen from member ${quorum.node_id}, ${leads() ? "the leader" : `a ${quorum.role}`}`);
  write("leader", quorum.leader_id === null ? "none" : `member ${quorum.leader_id}`, quorum.leader_id === null ? "bad" : "");
  write("term", `term ${grouped(quorum.term)}, committed ${grouped(quorum.commit_index)}`);
  write("health", quorum.healthy ? "healthy" : "not healthy", quorum.healthy ? "good" : "bad");
  const spare = quorum.failure_tolerance;
  write("tolerance", spare === null ? "the leader knows how many may fail" : `${spare === 0 ? "none" : grouped(spare)} more may fail`);
  const note = at("quorum-note");
  if (leads()) note.replaceChildren("Lag is in entries behind the end of the leader's log.");
  else if (quorum.leader_http === null) note.replaceChildren("Only a leader knows how far the others are.");
  else if (note.dataset.leader !== quorum.leader_http || note.firstElementChild === null) {
    note.replaceChildren("Only the leader knows how far the others are: see ", link("its console", consoleOf(quorum.leader_http)), ".");
  }
  note.dataset.leader = quorum.leader_http ?? "";
  fill(at("voters"), [...quorum.voters.map((one) => memberRow(one, "")), ...quorum.learners.map((one) => memberRow(one, ", learner"))]);
  const wrong = [...quorum.reasons.map((text) => ["bad", text]), ...quorum.warnings.map((text) => ["warn", text])];
  const shown = JSON.stringify(wrong);
  if (at("reasons").dataset.shown !== shown) at("reasons").replaceChildren(...wrong.map(([kind, text]) => make("li", text, kind)));
  at("reasons").dataset.shown = shown;
}

function heard(ms) {
  if (ms === null) return "–";
  return ms < 1000 ? "just now" : `${ago(ms)} ago`;
}

function memberRow(one, more) {
  const here = one.id === known.quorum.node_id;
  return {
    key: one.id,
    cells: [
      { text: `member ${one.id}${here ? " (this one)" : ""}`, href: here ? null : consoleOf(one.http), kind: here ? "here" : "" },
      { text: one.state + more, tag: MEMBER_TAGS[one.state] ?? "" },
      { text: one.lag === null ? "–" : grouped(one.lag), kind: "n" },
      { text: here ? "–" : heard(one.last_contact_ms), kind: "n" },
      { text: one.match_index === null ? "–" : grouped(one.match_index), kind: "n rest" },
    ],
  };
}

function showBurnDown(quorum) {
  const next = BigInt(quorum.next_producer_id);
  write("next", grouped(next), grouped(next).length > 14 ? "long" : "");
  write("used", share(next));
  const now = memberTime();
  const [short, long] = [pace(now, 300), pace(now, 3600)];
  write("rate", short === null ? "–" : rate(short.perSecond));
  write("rate-note", short === null ? "known in some seconds" : short.perSecond === 0 ? "no ID, in the last 5 min" : `IDs, since ${clock(short.since)}`);
  const used = long !== null && long.perSecond > 0 ? long : null;
  write("left", next > MAX_ID - BigInt(quorum.block_size) ? "used up" : used === null ? "–" : lasting(Number(MAX_ID - next) / used.perSecond));
  at("left").classList.toggle("long", at("left").textContent.length > 14);
  write("left-note", used === null ? "no rate is known" : `at the rate since ${moment(used.since)}`);
}

const span = () => Number(document.querySelector("input[name=span]:checked").value);

export function showBlocks() {
  const now = memberTime();
  const found = shares(history.blocks, now, span());
  const since = history.since();
  const short = since !== null && since > now - span() * 1000;
  const total = found.reduce((sum, one) => sum + one.ids, 0);
  const rest = found.length > 7 ? " From the seventh broker on they share a colour." : "";
  write("blocks-note", since === null ? "Reading the history …" : `${counted(total, "ID")} to ${counted(found.length, "broker")}, by time and broker.${short ? ` Before ${moment(since)} this page knows of none.` : ""}${rest}`);
  draw(at("chart"), history.blocks, found, now, span());
  const rows = found.map(({ broker, blocks, ids, last, colour }) => ({
    key: broker,
    kind: `b${colour}`,
    cells: [
      { text: nameOf(broker) },
      { text: grouped(blocks), kind: "n" },
      { text: grouped(ids), kind: "n" },
      { text: `${grouped(last.first)} to ${grouped(last.last)}`, kind: "n rest" },
      { text: moment(last.at), kind: "n rest" },
    ],
  }));
  fill(at("shares"), rows.slice(0, 100));
}

function showBrokers() {
  const brokers = known.brokers ?? [];
  const fenced = brokers.filter((one) => one.fenced).length;
  const count = brokers.length === 0 ? "No broker is registered." : `${counted(brokers.length, "broker")}, ${fenced} fenced.`;
  write("agents-note", leads() ? count : `${count} IDs at hand and the last sign of life are known to the leader.`);
  const rows = brokers.slice(0, 500).map((one) => ({
    key: one.broker_id,
    cells: [
      { text: `broker ${one.broker_id}` },
      { text: one.fenced ? "fenced" : "active", tag: one.fenced ? "bad" : "good" },
      { text: one.reserve_ids === null || one.reserve_ids === undefined ? "–" : grouped(one.reserve_ids), kind: "n" },
      { text: heard(one.last_contact_ms), kind: "n" },
      { text: one.kafka ?? "–", kind: "rest" },
      { text: grouped(one.broker_epoch), kind: "n rest" },
    ],
  }));
  fill(at("brokers"), rows);
}

function showTransactions(quorum) {
  const page = known.transactions;
  at("transactions-table").hidden = page === null || page.transactions.length === 0;
  const note = at("transactions-note");
  if (!leads()) {
    if (quorum.leader_http === null) note.replaceChildren("Only a leader lists them, and none is known.");
    else if (note.dataset.leader !== quorum.leader_http) note.replaceChildren("Only the leader lists them: see ", link("its console", consoleOf(quorum.leader_http)), ".");
    note.dataset.leader = quorum.leader_http ?? "";
    return;
  }
  note.dataset.leader = "";
  if (page === null) return;
  const many = page.next_after === null ? "" : ", and maybe more: `pidkeeper transactions list` has all";
  note.textContent = page.transactions.length === 0 && many === "" ? "None." : counted(page.transactions.length, "transaction") + many;
  const now = memberTime();
  fill(at("transactions"), page.transactions.map((one) => transactionRow(one, now)));
}

function transactionRow(one, now) {
  const running = one.start_ms === null ? null : Math.max(0, now - one.start_ms);
  const late = running !== null && running > one.timeout_ms;
  return {
    key: one.transactional_id,
    cells: [
      { text: one.transactional_id },
      { text: late ? `${one.state}, over its timeout` : one.state, tag: late ? "bad" : "note" },
      { text: running === null ? "–" : ago(running), kind: "n" },
      { text: ago(one.timeout_ms), kind: "n rest" },
      { text: grouped(one.topics.reduce((sum, topic) => sum + topic.partitions.length, 0)), kind: "n rest" },
      { text: `${grouped(one.producer_id)}, epoch ${one.producer_epoch}`, kind: "n rest" },
    ],
  };
}

function showOrders(quorum) {
  const operator = may("operator");
  at("transfer").hidden = !(operator && leads() && quorum.voters.length > 1);
  at("orders").hidden = !(operator && leads());
  const who = known.who;
  write("who", who === null ? "" : `${who.name}${operator ? ", operator" : ", viewer"}`);
  at("sign-in-open").hidden = token.get() !== null || who === null || who.name !== "anonymous";
  at("sign-out").hidden = token.get() === null;
}
