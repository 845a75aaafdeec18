"""One history: a small cluster of real members and agents over one store, all about partition logs, for some seconds.

It is a seed of the simulation (`tests/simulation`) with settings of its own: few members, agents and topics, thresholds
so low that tails are rolled, objects collected and producers forgotten within a second, and all faults of agents. Then
all faults end, and everything has to come right:

- producers get on, every transaction ends, and all that there is can be read;
- retention keeps no more than it should, and silent producers are forgotten;
- the store has what logs need, and nothing else;
- an offset that is asked for by time leaves out no record;
- in those with consumer groups what `grouping.py` says.
"""

from __future__ import annotations

import gc
import logging
import random
from collections import Counter
from collections.abc import Callable
from typing import Final

import msgspec

from tests.histories.administrator import Administrator
from tests.histories.epochs import Epochs
from tests.histories.grouping import Grouping, draw_groups
from tests.histories.hurry import in_a_hurry
from tests.histories.plan import Plan, draw, draw_plan
from tests.histories.points import BACK, Points
from tests.histories.restoring import Restoring
from tests.histories.seeking import Seeker
from tests.simulation.agent import Agent
from tests.simulation.cluster import Cluster
from tests.simulation.data_plane import DataLoad, DataPlane
from tests.simulation.log_invariants import LogMonitor
from tests.simulation.log_starts import kept_too_long
from tests.simulation.loop import enter
from tests.simulation.member import Member
from tests.simulation.world import MILLISECOND, SECOND, Violation, World

FOUNDED: Final = 100 * MILLISECOND
"""Until an operator founds the quorum, at most."""

SOUND: Final = 20 * SECOND
CLEAN: Final = 60 * SECOND
"""After all faults ended: until all members serve, and until nothing is left that is not needed. A producer is silent
for 1.5 s, found twice, each so long after the other, and forgotten with the others; the last roll of a tail is due
after a second, read, put and committed, what it takes the place of is collected 1.2 s later, and swept a second on. A
long tail is rolled a few rows at a time, a dozen a second where the store is slow."""

YEAR: Final = 365 * 24 * 3_600 * SECOND
WRONG: Final = (10, 120)
RIGHT: Final = (500, 2_000)
"""Milliseconds for which a clock is wrong, less than between two looks at retention or at silent producers, and between
two such times."""

CALL_SECONDS: Final = 0.8
"""Of an agent's call to the quorum; the product's is 3 s, and Produce waits for half a minute at most."""

ZOMBIE: Final = (300, 4_000)
"""Milliseconds for which an agent stands still."""

GONE_ON: Final = 300 * MILLISECOND
"""After a restore, within which agents are started."""

FOREVER_MS: Final = 60_000
MAX_KNOWN: Final = 10_000


class Outcome(msgspec.Struct):
    """What one history showed. `faults` by kind; `mechanisms`: how often each thing happened to logs and store."""

    seed: int
    digest: int
    simulated_us: int
    events: int
    batches_checked: int
    faults: Counter[str]
    mechanisms: Counter[str]
    violation: str | None


class HistoryPlane(DataPlane):
    """Topics come from an administrator. `more`: places beyond those that are written and read without a group."""

    soon = SECOND

    def __init__(self, cluster: Cluster, load: DataLoad) -> None:
        super().__init__(cluster, load)
        self.more: list[tuple[str, int]] = []

    def place(self, number: int) -> tuple[str, int]:
        return super().place(number) if number < self.places else self.more[number - self.places]

    def read_again(self) -> None:
        """And so is what groups read and write."""
        self.consumed = self.places + len(self.more)
        super().read_again()

    def start(self) -> None:
        self.store.start()
        self.start_clients()


class LogHistory(Cluster):
    """Everything of one history."""

    plane: HistoryPlane

    def __init__(self, seed: int, *, trace: Callable[[str], object] | None = None) -> None:
        super().__init__(seed, trace=trace, drawn=draw)
        self.plan: Plan = draw_plan(self.world.stream("plan"))
        self._faults: random.Random = self.world.stream("agents-faults")
        self.points = Points(self)
        self.administrator = Administrator(self)
        self.restoring = Restoring(self)
        self.epochs = Epochs(self)
        groups = draw_groups(self.world.stream("groups"))
        self.grouping = Grouping(self, groups) if groups.transformers else None
        self._before: Counter[str] = Counter()
        self._ahead = 1
        for agent in self.agents:
            self._equip(agent)

    def _data(self, load: DataLoad) -> DataPlane:
        self.plane = HistoryPlane(self, load)
        return self.plane

    # Agents.

    def _equip(self, agent: Agent) -> None:
        self.points.watch(agent)
        assert agent.data is not None, "every agent of a history has data"
        # A commit whose answer does not come is asked for again before its producer gives up.
        agent._agent.client._call_seconds = CALL_SECONDS
        if self.grouping is not None:
            self.grouping.equip(agent)
        if self.plan.collects_eagerly:
            session = agent._agent.session
            agent.data.room.collector.is_chosen = lambda: session.store_known  # type: ignore[method-assign]

    def _succeed(self, old: Agent) -> None:
        super()._succeed(old)
        self._equip(next(one for one in self.agents if one.broker_id == old.broker_id))

    def kill_agent(self, agent: Agent, kind: str) -> None:
        """It dies, and another process has its place soon."""
        if not agent.alive or self.healed:
            return
        self.world.fault(kind)
        agent.stop()
        if agent in self.agents:
            self.world.at(self._faults.randrange(*BACK) * MILLISECOND, self._start_again, agent)

    def _start_again(self, agent: Agent) -> None:
        if self.loaded and agent in self.agents and not self.restoring.busy:
            self._succeed(agent)

    def _disturb(self) -> None:
        """An agent dies, or stands still: then another one takes its place meanwhile, or none does."""
        if self.healed:
            return
        rng = self._faults
        self.world.at(int(self.plan.agents * (0.3 + 1.4 * rng.random())), self._disturb)
        agent = rng.choice(self.agents)
        if not agent.alive or self.restoring.busy:
            return
        way = rng.random()
        if way < 0.4:
            self.kill_agent(agent, "agent_killed")
            return
        agent._loop.pause(rng.randrange(*ZOMBIE) * MILLISECOND)
        if way < 0.6:
            self.world.fault("agent_paused")
        else:
            self.world.fault("agent_replaced_while_paused")
            self._succeed(agent)

    def _jump_clock(self) -> None:
        """A wall clock is wrong for a moment: ahead once, for two looks could find it so twice, and then behind."""
        if self.healed:
            return
        rng = self._faults
        self.world.at(rng.randrange(*RIGHT) * MILLISECOND, self._jump_clock)
        member = rng.choice(list(self.members.values()))
        member.clock_offset = self._ahead * rng.choice((SECOND, 60 * SECOND, YEAR))
        self._ahead = -1
        self.world.fault("clock_jumped_and_came_back")
        self.world.at(rng.randrange(*WRONG) * MILLISECOND, self._right_clock, member)

    @staticmethod
    def _right_clock(member: Member) -> None:
        member.clock_offset = 0

    def stop_agents(self) -> None:
        """All of them stop, also those that were replaced."""
        for agent in (*self.agents, *self.gone):
            agent.stop()

    def go_on(self) -> None:
        """After a restore: agents start again, and so do faults."""
        for agent in list(self.agents):
            self.world.at(self._faults.randrange(GONE_ON), self._start_again, agent)
        if self.grouping is not None:
            self.grouping.start_members()
        if any(self.swarm.weights.values()):
            self.nemesis.active = True
            self.world.at(SECOND, self.nemesis._next)

    # The run.

    def live(self) -> None:
        """Faults, and the calm after them. Raises Violation."""
        world = self.world
        world.phase = "turmoil"
        for member in self.members.values():
            world.at(self.rng.randrange(50 * MILLISECOND), member.start)
        world.at(self.rng.randrange(FOUNDED), self.founder._ask)
        for agent in self.agents:
            agent.start()
        self.plane.start()
        self.administrator.start()
        self.restoring.start()
        if self.grouping is not None:
            self.grouping.start()
        if any(self.swarm.weights.values()):
            self.nemesis.start()
        if self.plan.agents:
            world.at(int(self.plan.agents * self._faults.random()) + SECOND, self._disturb)
        if self.plan.clocks:
            world.at(self._faults.randrange(1_000, 3_000) * MILLISECOND, self._jump_clock)
        world.run(self.swarm.safety_time)
        world.run(world.now + SOUND, lambda: not self.restoring.busy)
        self._end_faults()
        self._come_right()

    def _end_faults(self) -> None:
        self._heal()
        self.world.phase = "calm"
        self._run_until(self.sound, SOUND, "all members serve")
        # What living agents may commit yet is theirs: of those of before nothing is.
        self.stop_agents()
        for agent in list(self.agents):
            self._succeed(agent)
        self._run_until(self._registered, SOUND, "all agents are registered")

    def _come_right(self) -> None:
        plane = self.plane
        plane.append_again()
        if self.grouping is not None:
            self.grouping.settle()
        plane.settle()
        if self.restoring.done and not self.restoring.released:
            self.restoring.release()
        self._run_until(lambda: not self._left(), CLEAN, self._left)
        plane.read_again()
        Seeker(self).seek()
        plane.check()
        if self.grouping is not None:
            self.grouping.check()
        if not self.restoring.done:
            self.epochs.check()
        self._run_until(self._alike, SOUND, "all members are alike")

    def _left(self) -> str:
        """What is not as it is to be in the end; empty if all is."""
        if self.restoring.done and not self.restoring.released:
            return "the collection is not released"
        monitor = self.plane.monitor
        if kept := kept_too_long(monitor.model.present(), monitor.now_ms):
            return kept
        leader = self.leader()
        if leader is None:
            return "nobody leads"
        if self.plane.load.expiration_ms < FOREVER_MS:
            silent = leader.machine.logs.silent_longest(MAX_KNOWN)
            # One that a clock of the future has heard is silent from then on.
            if known := [place for place, one in silent if one.timestamp_ms <= monitor.now_ms]:
                return f"producers are remembered: {known}"
        left = monitor.references.left_over()
        return f"the store has {sorted(left)[:5]}, which no log needs" if left else ""

    def _alike(self) -> bool:
        """Whether all members hold the same state, byte for byte."""
        processes = [self.members[voter].process for voter in self.voters]
        if not self.sound():
            return False
        images = {
            msgspec.json.encode(process.machine.image(0, 0), enc_hook=list)
            for process in processes
            if process is not None
        }
        return len(images) == 1

    def _run_until(self, holds: Callable[[], bool], limit: int, what: str | Callable[[], str]) -> None:
        self.world.run(self.world.now + limit, holds)
        if not holds():
            facts = what if isinstance(what, str) else what()
            raise Violation("not-in-time", f"not within {limit // SECOND} s after all faults ended: {facts}")

    # What it showed.

    def outcome(self, violation: str | None) -> Outcome:
        """The figures as they stand."""
        faults: Counter[str] = Counter()
        for (kind, _), count in self.world.faults.items():
            faults[kind] += count
        return Outcome(
            seed=self.world.seed,
            digest=self.world.digest,
            simulated_us=self.world.now,
            events=self.world.events,
            batches_checked=self.plane.checked,
            faults=faults,
            mechanisms=+(self._before + _counted(self.plane.monitor) + self._of_agents()),
            violation=violation,
        )

    def go_back(self) -> None:
        """Note what has happened so far: the model is about to be made again from what a copy has."""
        self._before += _counted(self.plane.monitor)

    def gone_back(self) -> None:
        """Nor count again what the copy has."""
        self._before.subtract(_counted(self.plane.monitor))

    def _of_agents(self) -> Counter[str]:
        found: Counter[str] = Counter()
        for agent in (*self.agents, *self.gone):
            assert agent.data is not None, "every agent of a history has data"
            counters = agent.data.room.counters
            found["orphans swept"] += counters.orphans_deleted
            found["rolls overtaken"] += counters.rolls_refused
            found["reads from segments"] += counters.index_hits + counters.index_loads
            found["reads from tails"] += counters.store_reads + counters.recent_reads
        found["topics created"] = self.administrator.created
        found["restores"] = int(self.restoring.done)
        found += self.epochs.counted
        if self.grouping is not None:
            found += self.grouping.mechanisms()
        return found


def _counted(monitor: LogMonitor) -> Counter[str]:
    return Counter(
        {
            "tails rolled": monitor.segments,
            "objects collected": monitor.references.collected,
            "starts by retention": monitor.starts.by_retention,
            "starts on demand": monitor.starts.on_demand,
            "topics deleted": monitor.removed,
            "producers forgotten": monitor.expired,
            "transactions ended": monitor.model.ended,
        }
    )


def run_history(seed: int, *, trace: Callable[[str], object] | None = None) -> Outcome:
    """Run one history to its end or to its first violation."""
    disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    gc.disable()
    try:
        return _run(seed, trace)
    finally:
        gc.enable()
        logging.disable(disabled)


def _run(seed: int, trace: Callable[[str], object] | None) -> Outcome:
    with in_a_hurry(draw_plan(World(seed).stream("plan"))):
        history = LogHistory(seed, trace=trace)
        try:
            history.live()
            return history.outcome(None)
        except Violation as violation:
            history.world.note(f"VIOLATION {violation}")
            return history.outcome(str(violation))
        finally:
            history.stop_agents()
            if history.grouping is not None:
                history.grouping.stop()
            for member in history.members.values():
                if member.process is not None:
                    member.process.end()
            enter(None)
