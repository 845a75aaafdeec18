"""Consumer groups of one history: their topics, who writes the input, their members, and what befalls these.

- Of each input record there is just one output record, read committed, whatever happened (KIP-447).
- Nobody is assigned what another member of the same generation has.
- Once all faults have ended, all members are in one generation and all input is done within `SETTLED`, also when one
  more is gone; nothing is held by a transaction then, and nobody waits for an answer that does not come.

What the log has of groups, and what members are told, is judged by `tests/simulation/group_model.py`.
"""

from __future__ import annotations

import random
import uuid
from collections import Counter
from typing import TYPE_CHECKING, Final

import msgspec

from pidkeeper.broker_agent.groups.settings import GroupSettings
from pidkeeper.protocol.logs import UNLIMITED
from tests.histories.group_agent import GroupAgent
from tests.histories.group_client import GroupClient
from tests.histories.group_work import EXACT, MIXED, Committer, Transformer
from tests.simulation.agent import Agent
from tests.simulation.appending import Delivery
from tests.simulation.sent_batches import Sent
from tests.simulation.world import MILLISECOND, SECOND, Violation
from tests.support.segment_builder import NO_PRODUCER

if TYPE_CHECKING:
    from tests.histories.history import LogHistory

SHARE: Final = 0.4
"""Of the histories, which have groups."""

SETTLED: Final = 25 * SECOND
LOOK: Final = 200 * MILLISECOND
BACK: Final = (50, 1_000)
"""Milliseconds until another process has the place of a member that is gone."""

STANDS_STILL: Final = (300, 3_000)
MISLED: Final = (300, 2_000)
"""Milliseconds for which a member stands still, and for which an agent hears of itself alone."""

FIRST_NUMBER: Final = 5_000_000
"""Of members, among the numbers of producers."""


class GroupPlan(msgspec.Struct, frozen=True):
    """Of one history. `inputs`, `outputs`: partitions; `transformers`, `committers`: members, none for no groups.

    `static`: the share of members that are static; `own_names`: whether each process has a transactional id of its own,
    so that nothing but its generation fences it. `faults`, `misled`: so often something befalls a member, or an agent
    believes to be the only one, on the average, in microseconds; 0 for never. `lost`: of the answers. `own_epochs`: the
    share of members whose transactions each have an epoch of their own.
    """

    inputs: int
    outputs: int
    transformers: int
    committers: int
    static: float
    own_names: bool
    session_ms: int
    rebalance_ms: int
    initial_delay_ms: int
    think_ms: int
    faults: int
    misled: int
    lost: float
    own_epochs: float


def draw_groups(rng: random.Random) -> GroupPlan:
    """Of one history."""
    present = rng.random() < SHARE
    return GroupPlan(
        inputs=rng.choice((1, 2, 3)),
        outputs=rng.choice((1, 2)),
        transformers=rng.choice((1, 2, 3)) if present else 0,
        committers=rng.choice((0, 1, 2)) if present else 0,
        static=rng.choice((0.0, 0.0, 0.5, 1.0)),
        own_names=rng.random() < 0.6,
        session_ms=rng.choice((500, 1_500)),
        rebalance_ms=rng.choice((500, 1_500)),
        initial_delay_ms=rng.choice((0, 50, 200)),
        think_ms=rng.choice((20, 60, 150)),
        faults=rng.choice((0, 250, 500, 1_000)) * MILLISECOND,
        misled=rng.choice((0, 500, 2_000)) * MILLISECOND,
        lost=rng.choice((0.0, 0.02, 0.05)),
        own_epochs=rng.choice((0.0, 0.5, 1.0, 1.0)),
    )


class Grouping:
    """`sources`: of each batch of the output, which offsets of which input it was made of. `calm_since`: when all
    faults had ended and all agents were registered. `counted`: what happened to members, by kind."""

    def __init__(self, history: LogHistory, plan: GroupPlan) -> None:
        self.history = history
        self.world = history.world
        self.plane = history.plane
        self.plan = plan
        self.rng: random.Random = self.world.stream("grouping")
        first = self.plane.places
        self.inputs = range(first, first + plan.inputs)
        self.outputs = range(self.inputs.stop, self.inputs.stop + plan.outputs)
        self.plane.more += [("input", number) for number in range(plan.inputs)]
        self.plane.more += [("output", number) for number in range(plan.outputs)]
        self.sources: dict[Sent, tuple[int, range]] = {}
        self.calm_since: int | None = None
        self.counted: Counter[str] = Counter()
        self._agents: dict[Agent, GroupAgent] = {}
        self._slots: list[GroupClient | None] = [None] * (plan.transformers + plan.committers)
        self._wanted = {EXACT: plan.transformers, MIXED: plan.committers}
        self._static = [self.rng.random() < plan.static for _ in self._slots]
        self._others: list[GroupClient] = []
        self._members = 0
        self._shares: dict[tuple[str, int], dict[int, str]] = {}
        self._topics = {name: uuid.UUID(int=self.rng.getrandbits(128)) for name in ("input", "output")}

    # Agents.

    def equip(self, agent: Agent) -> None:
        """A new process of an agent coordinates groups."""
        plan = self.plan
        settings = GroupSettings(min_session_timeout_ms=1, initial_rebalance_delay_ms=plan.initial_delay_ms)
        self._agents[agent] = GroupAgent(agent, settings, self.world)

    def groups_of(self, agent: Agent) -> GroupAgent:
        """What coordinates groups there."""
        return self._agents[agent]

    def _mislead(self) -> None:
        if self.history.healed:
            return
        self.world.at(self._pause(self.plan.misled), self._mislead)
        agent = self.plane.any_agent()
        if agent is not None:
            self.world.fault("agent_hears_of_itself_alone")
            self.world.at(self.rng.randrange(*MISLED) * MILLISECOND, self._agents[agent].mislead())

    # Members.

    def start(self) -> None:
        """Begin."""
        self._look()
        self.start_members()
        for place in self.inputs:
            self.world.at(self.rng.randrange(SECOND), self._write, place)
        if self.plan.faults:
            self.world.at(SECOND + self._pause(self.plan.faults), self._disturb)
        if self.plan.misled:
            self.world.at(self._pause(self.plan.misled), self._mislead)

    def start_members(self) -> None:
        """A process for each member that has none."""
        for slot in range(len(self._slots)):
            self.world.at(self.rng.randrange(300) * MILLISECOND, self._start, slot)

    def stop(self) -> None:
        """All processes are gone. A copy may give the same generations again."""
        for client in (*self._slots, *self._others):
            if client is not None:
                client.stop()
        self._slots = [None] * len(self._slots)
        self._others.clear()
        self._shares.clear()

    def ended(self, client: GroupClient) -> None:
        """A process has ended by itself: if it had a place still, another one takes that."""
        self.counted["members fenced"] += 1
        if client in self._slots:
            self._gone(self._slots.index(client))

    def assigned(self, client: GroupClient) -> None:
        """A member was assigned its share. Raises Violation if another one of this generation has some of it."""
        shares = self._shares.setdefault((client.group, client.generation), {})
        owner = client.instance_id or client.member_id
        taken = {place: shares[place] for place in client.assigned if shares.get(place, owner) != owner}
        if taken:
            raise Violation("assigned-twice", f"{client.name} has {client.assigned}, but {taken}")
        shares.update(dict.fromkeys(client.assigned, owner))

    def loses_an_answer(self, seconds: float | None) -> bool:
        """Whether an answer to a member is lost, if it waits for so long only."""
        if seconds is None or self.history.healed or self.rng.random() >= self.plan.lost:
            return False
        self.world.fault("group_answer_lost")
        return True

    def _pause(self, average: int) -> int:
        return int(average * (0.3 + 1.4 * self.rng.random()))

    def _start(self, slot: int) -> None:
        if self._slots[slot] is not None or self.history.restoring.busy or self.plane.draining:
            return
        self._members += 1
        exact = slot < self.plan.transformers
        name = f"{EXACT if exact else MIXED}-{slot}"
        instance_id = name if self._static[slot] else None
        number = FIRST_NUMBER + self._members
        kind = Transformer if exact else Committer
        self._slots[slot] = kind(self, f"{name}-{number}" if self.plan.own_names else name, number, instance_id)

    def _gone(self, slot: int, delay: int | None = None) -> None:
        self._slots[slot] = None
        self.world.at(self.rng.randrange(*BACK) * MILLISECOND if delay is None else delay, self._start, slot)

    def _disturb(self) -> None:
        """A member dies, leaves, or stands still: then another process has its place meanwhile, or none does."""
        if self.history.healed:
            return
        rng = self.rng
        self.world.at(self._pause(self.plan.faults), self._disturb)
        slot = rng.randrange(len(self._slots))
        client = self._slots[slot]
        if client is None:
            return
        way = rng.random()
        if way < 0.2:
            self.world.fault("member_killed")
            client.stop()
            self._gone(slot)
        elif way < 0.35:
            self.world.fault("member_left")
            client.leave()
            self._gone(slot)
        else:
            client.loop.pause(rng.randrange(*STANDS_STILL) * MILLISECOND)
            self.world.fault("member_paused" if way < 0.65 else "member_replaced_while_paused")
            if way >= 0.65:
                self._others.append(client)
                self._gone(slot, 0)

    # The input.

    def _look(self) -> None:
        """Have the topics created that are not there."""
        if self.plane.draining:
            return
        self.world.at(LOOK, self._look)
        agent = self.plane.any_agent()
        for name, partitions in (("input", self.plan.inputs), ("output", self.plan.outputs)):
            if agent is not None and agent.data is not None and self.plane.monitor.model.log_of(name, 0) is None:
                agent.data.create_topic(self._topics[name], name, partitions, UNLIMITED, UNLIMITED)

    def _write(self, place: int) -> None:
        if self.calm_since is not None:
            return
        rest = int(self.plane.load.think_time * (1.0 + 3.0 * self.rng.random()))
        sent = self.plane.make("source", place)
        Delivery(self.plane, [(sent, NO_PRODUCER)], None, lambda _: self.world.at(rest, self._write, place))

    # In the end.

    def settle(self) -> None:
        """All is done that there is to do, once more without one of the members, and all go. Raises Violation."""
        self.calm_since = self.world.now
        for client in self._others:
            client.stop()
        self.start_members()
        self._demand()
        lost = self._slots[0]
        if lost is not None and self.plan.transformers > 1:
            # Without a word, and nobody comes in its place: that has to be found out.
            lost.stop()
            self._slots[0] = None
            self._wanted[EXACT] -= 1
            self._demand()
        self.stop()

    def _demand(self) -> None:
        self.world.run(self.world.now + SETTLED, lambda: not self.left())
        if left := self.left():
            raise Violation("groups-unsettled", f"{SETTLED // SECOND} s after all faults ended: {left}")

    def left(self) -> str:
        """What is not as it is to be in the end; empty if all is."""
        model = self.plane.monitor.model
        for place in self.inputs:
            log, held = self.plane.log(place), model.groups.is_held((EXACT, *self.plane.place(place)))
            end = None if log is None else log.ends.end
            if self._done(place) != end or held:
                return f"{self.plane.place(place)} is done up to {self._done(place)} of {end}, held {held}"
        for group in (EXACT, MIXED):
            clients = [one for one in self._slots if one is not None and one.group == group]
            wanted = self._wanted[group]
            newest = model.groups.newest(group)
            members = {one.member_id for one in clients}
            if wanted and (newest is None or set(newest.members) != members or len(members) < wanted):
                return f"{group} has {newest}, its members are {members}"
            if any(one.rebalancing or newest is None or one.generation != newest.number for one in clients):
                return f"{group} is at {newest}: {[(one.name, one.generation, one.rebalancing) for one in clients]}"
        return ""

    def _done(self, place: int) -> int:
        """Up to which offset the input is done, by what the group committed."""
        return max(0, self.plane.monitor.model.groups.offset((EXACT, *self.plane.place(place))))

    def check(self) -> None:
        """Of all input that is done there is just one output. Raises Violation."""
        done: dict[int, Counter[int]] = {place: Counter() for place in self.inputs}
        for place in self.outputs:
            log = self.plane.log(place)
            rows = [] if log is None else log.visible(0, log.ends.end, committed=True)
            for row in rows:
                sent = self.plane.batches.covered_by(row.covered)
                assert sent is not None, "batches of nobody were found before"
                source, offsets = self.sources[sent]
                done[source].update(offsets)
        for place, counts in done.items():
            wanted = Counter(range(self._done(place)))
            if counts != wanted:
                wrong = {offset: counts[offset] for offset in counts | wanted if counts[offset] != wanted[offset]}
                raise Violation("not-exactly-once", f"offsets of {self.plane.place(place)} and their outputs: {wrong}")
            self.counted["inputs done once"] += counts.total()

    def mechanisms(self) -> Counter[str]:
        """What happened, by kind."""
        groups = self.plane.monitor.model.groups
        rooms = [one.room.coordinator for one in self._agents.values()]
        return self.counted + Counter(
            {
                "generations": groups.generations,
                "generations lost to another": sum(one.lost for one in rooms),
                "offsets settled": groups.settled,
                "offsets aborted": groups.aborted,
                "offsets overtaken": groups.overtaken,
            }
        )
