// The console: asks its member what it knows, says so, and says as plainly when that is old.

import { get, listen, memberTime, post, Problem, token } from "/console/client.js";
import { askGroups } from "/console/groups.js";
import { add, history, load } from "/console/history.js";
import { askedAt, known, leads } from "/console/known.js";
import { clock, grouped, MAX_ID, moment, typedId } from "/console/numbers.js";
import { at, consoleOf, link, make, problemText, reasonOf, write } from "/console/page.js";
import { askTopics } from "/console/topics.js";
import { showAll, showBlocks } from "/console/views.js";
import { nameOf, said, spoken } from "/console/words.js";

const EVERY_MS = 1000;
const BROKERS_MS = 2000;
const TRANSACTIONS_MS = 5000; // The leader goes through its transactional ids for it.
const TOPICS_MS = 5000; // A dozen calls, and the metrics.
const GROUPS_MS = 5000; // Two calls.
const MANY_BROKERS = 200;
const OLD_MS = 3000;
const SHOWN_EVENTS = 200;
const SHOWN_TRANSACTIONS = 50;

let heardAt = null; // When the member last answered, by the clock that never jumps; and by that of the wall.
let heardTime = null;
let failures = 0;
let failure = null;
let hears = false; // A stream of events has stood.
let silentSince = null; // Since when none stands, in ms of the wall clock.
let streamProblem = null;
let visibleSince = performance.now();
let hiddenSince = Date.now();
let paused = false;
let wanted = []; // Events that are not shown yet.

// Asking.

async function refresh() {
  if (known.who === null) known.who = await get("/v1/whoami");
  const quorum = await get("/v1/quorum");
  const before = known.quorum;
  if (before !== null && (before.cluster_id !== quorum.cluster_id || before.node_id !== quorum.node_id)) location.reload();
  known.quorum = quorum;
  heardAt = performance.now();
  heardTime = Date.now();
  failures = 0;
  failure = null;
  if (due("brokers", brokersEvery())) {
    known.brokers = (await get("/v1/brokers")).brokers;
    askedAt.brokers = performance.now();
  }
  if (!leads()) {
    known.transactions = known.topics = known.groups = null;
    askedAt.transactions = askedAt.topics = askedAt.groups = -Infinity;
  } else if (due("transactions", TRANSACTIONS_MS)) {
    known.transactions = await get(`/v1/transactions?state=Ongoing&limit=${SHOWN_TRANSACTIONS}`);
    askedAt.transactions = performance.now();
  }
  if (leads() && due("topics", TOPICS_MS)) {
    known.topics = await askTopics();
    askedAt.topics = performance.now();
  }
  if (leads() && due("groups", GROUPS_MS)) {
    known.groups = await askGroups();
    askedAt.groups = performance.now();
  }
  if (history.since() === null) await begin(quorum);
}

const due = (part, every) => performance.now() - askedAt[part] > every - EVERY_MS / 2;
const brokersEvery = () => BROKERS_MS * ((known.brokers ?? []).length > MANY_BROKERS ? 5 : 1);

async function begin(quorum) {
  await load(quorum);
  // A young quorum is looked at closely.
  const young = history.blocks.length > 0 && history.blocks[0].at > memberTime() - 300000;
  document.querySelector(`input[name=span][value="${young ? 300 : 3600}"]`).checked = true;
}

async function follow() {
  for (;;) {
    await seen();
    try {
      await refresh();
      signedIn(true);
    } catch (error) {
      if (strange(error)) signedIn(false, error);
      else if (!(error instanceof Problem && error.code === "NOT_CONTROLLER")) {
        failures += 1;
        failure = error;
      }
    }
    show();
    await asleep(known.quorum === null && !at("sign-in").hidden ? 60000 : EVERY_MS);
  }
}

let wake = () => {};
const asleep = (ms) =>
  new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    wake = () => {
      clearTimeout(timer);
      resolve();
    };
  });

/** Until somebody sees this page: one in the background asks for nothing. */
function seen() {
  if (!document.hidden) return Promise.resolve();
  return new Promise((resolve) => document.addEventListener("visibilitychange", () => seen().then(resolve), { once: true }));
}

const strange = (error) => error instanceof Problem && [401, 403].includes(error.status);

async function hear() {
  for (;;) {
    await seen();
    let pause = known.quorum === null ? EVERY_MS / 10 : EVERY_MS;
    if (at("sign-in").hidden && known.quorum !== null) {
      try {
        for await (const event of listen(stands)) happen(event);
      } catch (error) {
        streamProblem = error instanceof Problem ? error : null;
        pause = Math.max(EVERY_MS, 1000 * (error.retryAfter ?? 0));
        if (strange(error)) signedIn(false, error);
      }
      if (!document.hidden) silentSince ??= Date.now();
    }
    await new Promise((resolve) => setTimeout(resolve, pause));
  }
}

function stands() {
  hears = true;
  silentSince = null;
  streamProblem = null;
  reload();
}

/** What came while no stream stood, or was too much for one. */
function reload() {
  if (known.quorum !== null) load(known.quorum).catch(() => {}); // Then the next stream or event does it.
}

function happen({ event, data }) {
  if (event === "allocations") {
    add(data.blocks);
    if (data.left_out > 0) reload();
    wanted.push(...spoken(data));
  } else {
    wanted.push(said(event, data));
    wake();
  }
  wanted.splice(0, wanted.length - SHOWN_EVENTS);
}

function showEvents() {
  write("pause", paused ? `Go on${wanted.length > 0 ? ` (${wanted.length})` : ""}` : "Pause");
  if (paused || wanted.length === 0) return;
  const list = at("events");
  const lines = wanted.map(({ time, text, kind }) => {
    const when = make("time", clock(time));
    when.dateTime = new Date(time).toISOString();
    return make("li", [when, make("span", text, kind)]);
  });
  wanted = [];
  list.prepend(...lines.reverse());
  while (list.children.length > SHOWN_EVENTS) list.lastChild.remove();
}

// Showing.

function show() {
  const quorum = known.quorum;
  at("main").hidden = quorum === null || !at("sign-in").hidden;
  if (quorum !== null) {
    showAll(quorum);
  }
  showFreshness();
  showEvents();
}

/** Nothing old is shown as if it were of now. */
function showFreshness() {
  const now = performance.now();
  const age = heardAt === null ? 0 : now - heardAt;
  const quorum = known.quorum;
  const cut = heardAt !== null && (failures >= 2 || age > OLD_MS) && (failures > 0 || now - visibleSince > OLD_MS);
  const leaderless = quorum !== null && quorum.leader_id === null;
  const deaf = silentSince !== null && Date.now() - silentSince > OLD_MS;
  at("main").classList.toggle("old", cut || age > OLD_MS || leaderless);
  const section = (name, old) => document.querySelector(`section[aria-labelledby=${name}-title]`).classList.toggle("old", old);
  section("events", deaf);
  section("agents", now - askedAt.brokers > brokersEvery() + OLD_MS);
  section("transactions", leads() && now - askedAt.transactions > TRANSACTIONS_MS + OLD_MS);
  section("topics", leads() && now - askedAt.topics > TOPICS_MS + OLD_MS);
  section("groups", leads() && now - askedAt.groups > GROUPS_MS + OLD_MS);
  const state = !at("sign-in").hidden ? ["", "not signed in"] : cut ? ["bad", "cut off"] : leaderless ? ["warn", "no leader"] : quorum === null ? ["", "connecting"] : deaf ? ["warn", "no events"] : !hears ? ["", "connecting"] : ["good", "live"];
  write("state", state[1], `tag ${state[0]}`);
  for (const id of ["transfer", "raise"]) at(id).disabled = cut;
  const banners = [];
  if (cut) banners.push(["bad", `Cut off from member ${quorum.node_id} since ${clock(heardTime)}`, [`${capital(reasonOf(failure ?? {}))}. What is shown is of then, and may have changed since. Other members: `, "members"]]);
  else if (heardAt === null && failures > 0) banners.push(["bad", "This member does not answer", [failure instanceof Problem ? failure.detail : reasonOf(failure), ". Trying again."]]);
  const also = leaderless ? quorum.reasons.filter((reason) => reason !== "no leader is known").join("; ") : "";
  if (!cut && leaderless) banners.push(["warn", `Member ${quorum.node_id} knows no leader`, [`It may be cut off from the others: what is shown is what it last knew. Nothing is handed out by it. ${also === "" ? "" : `It says: ${also}. `}Other members: `, "members"]]);
  if (!cut && deaf && quorum !== null) banners.push(["warn", `No events since ${clock(silentSince)}`, [streamProblem === null ? "The stream broke, and is opened again. All else on this page is asked for each second." : `${streamProblem.detail}.`]]);
  const shown = JSON.stringify([banners, cut || leaderless ? quorum.voters.map((one) => one.http) : []]);
  if (at("banners").dataset.shown === shown) return;
  at("banners").dataset.shown = shown;
  at("banners").replaceChildren(...banners.map(([kind, title, parts]) => {
    const body = parts.flatMap((part) => (part === "members" ? others(quorum) : [part]));
    return make("div", [make("b", title), make("span", body)], `banner ${kind}`);
  }));
}

const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);

function others(quorum) {
  const found = quorum.voters.filter((one) => one.id !== quorum.node_id);
  return found.length === 0 ? ["none."] : found.flatMap((one, place) => [place > 0 ? ", " : "", link(`member ${one.id}`, consoleOf(one.http))]);
}

// Who looks.

function signedIn(yes, error) {
  const form = at("sign-in");
  if (yes) {
    if (!form.hidden) at("token").value = "";
    form.hidden = true;
    return;
  }
  known.who = null;
  const had = token.get() !== null;
  if (form.hidden) {
    form.hidden = false;
    at("main").hidden = true;
    at("token").focus();
  }
  at("sign-in-wrong").textContent = had || error.status === 403 ? error.detail : "";
  token.clear();
  at("sign-out").hidden = true;
  write("who", "");
}

at("sign-in").addEventListener("submit", async (event) => {
  event.preventDefault();
  token.set(at("token").value.trim());
  try {
    known.who = await get("/v1/whoami");
    if (known.who.name === "anonymous") {
      token.clear();
      at("sign-in-wrong").textContent = "This member knows no such token.";
      return;
    }
    at("sign-in-wrong").textContent = "";
    at("sign-in").hidden = true;
    at("token").value = "";
    show();
    wake();
  } catch (error) {
    token.clear();
    at("sign-in-wrong").textContent = error instanceof Problem ? error.detail : `${capital(reasonOf(error))}.`;
  }
});

at("sign-in-open").addEventListener("click", () => {
  at("sign-in").hidden = !at("sign-in").hidden;
  if (!at("sign-in").hidden) at("token").focus();
  show();
});

at("sign-out").addEventListener("click", () => {
  token.clear();
  location.reload();
});

// What one asks for.

at("owner-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  const id = typedId(at("owner-id").value);
  if (id === null) {
    at("owner").replaceChildren(make("p", `A producer ID is a number from 0 to ${grouped(MAX_ID)}.`, "none"));
    return;
  }
  try {
    at("owner").replaceChildren(ownership(id, await get(`/v1/producer-ids/${id}/owner`)));
  } catch (error) {
    const nobody = error instanceof Problem && error.status === 404;
    at("owner").replaceChildren(nobody ? make("p", `Nobody has ID ${grouped(id)}: ${error.detail}`, "none") : problemText(error));
  }
});

function ownership(id, found) {
  const facts = [
    ["ID", grouped(id)],
    ["Given to", `${nameOf(found.broker_id)}${found.broker_id === -1 ? ", for transactional producers" : `, epoch ${grouped(found.broker_epoch)}`}`],
    ["When", moment(found.timestamp_ms)],
    ["Block", `${grouped(found.first)} to ${grouped(found.last)}`],
    ["Log offset", grouped(found.offset)],
  ];
  if (found.transactional !== null) facts.push(["Transactional id", found.transactional.transactional_id]);
  if (found.free) facts.push(["Free", "nobody was given it yet"]);
  return make("dl", facts.flatMap(([name, value]) => [make("dt", name), make("dd", value)]));
}

// Orders: each is typed out before it is given.

let order = null;

function confirm(wantedOrder) {
  order = wantedOrder;
  write("dialog-title", order.title);
  write("dialog-text", order.text);
  write("dialog-do", order.title);
  write("confirm-label", `Type “${order.word}” to confirm`);
  at("confirm").value = "";
  at("dialog-do").disabled = true;
  at("dialog-target").hidden = !order.targets;
  at("target").replaceChildren(...(order.targets ?? []).map(([value, text]) => Object.assign(make("option", text), { value })));
  at("dialog-problem").replaceChildren();
  at("dialog").showModal();
}

at("confirm").addEventListener("input", () => {
  at("dialog-do").disabled = at("confirm").value.trim() !== order.word;
});

at("dialog-cancel").addEventListener("click", () => at("dialog").close());

at("dialog-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  if (at("confirm").value.trim() !== order.word) return;
  at("dialog-do").disabled = true;
  try {
    wanted.push({ time: Date.now(), kind: "warn", text: order.done(await order.give()) });
    at("dialog").close();
    wake();
  } catch (error) {
    at("dialog-problem").replaceChildren(problemText(error));
    at("dialog-do").disabled = false;
  }
});

at("transfer").addEventListener("click", () => {
  const voters = known.quorum.voters.filter((one) => one.id !== known.quorum.node_id);
  confirm({
    title: "Transfer leadership",
    text: `Member ${known.quorum.node_id} hands over. Requests wait for the moment that it takes.`,
    word: "transfer",
    targets: [["null", "whoever is furthest"], ...voters.map((one) => [String(one.id), `member ${one.id} (${one.state})`])],
    give: () => post("/v1/quorum/transfer", `{"target": ${at("target").value}}`),
    done: () => "a transfer of leadership was ordered",
  });
});

at("floor-form").addEventListener("submit", (event) => {
  event.preventDefault();
  const floor = typedId(at("floor").value);
  at("floor").setCustomValidity(floor === null ? `a number from 0 to ${MAX_ID}` : "");
  if (!at("floor").reportValidity()) return;
  const next = BigInt(known.quorum.next_producer_id);
  const skipped = floor > next ? `${grouped(floor - next)} IDs are skipped for good.` : "It is not above the next ID, so nothing changes.";
  confirm({
    title: "Raise the floor",
    text: `The next producer ID is ${grouped(next)}, and becomes ${grouped(floor)}. ${skipped}`,
    word: String(floor),
    give: () => post("/v1/producer-ids/floor", `{"at_least": ${floor}}`),
    done: (answer) => `${answer.raised ? "the floor was raised" : "the floor was high enough"}: the next ID is ${grouped(answer.next_producer_id)}`,
  });
});

at("floor").addEventListener("input", () => at("floor").setCustomValidity(""));

at("pause").addEventListener("click", () => {
  paused = !paused;
  at("pause").setAttribute("aria-pressed", String(paused));
  showEvents();
});

for (const choice of document.querySelectorAll("input[name=span]")) choice.addEventListener("change", show);
document.addEventListener("visibilitychange", () => {
  if (document.hidden) {
    hiddenSince = Date.now();
    return;
  }
  visibleSince = performance.now();
  silentSince = null;
  hears = false;
  wanted.push({ time: Date.now(), text: `nobody saw this page from ${clock(hiddenSince)} on: what happened meanwhile is not listed here` });
  wake();
});
window.addEventListener("resize", () => known.quorum !== null && showBlocks());

setInterval(() => {
  showFreshness();
  showEvents();
}, 500);
follow();
hear();
