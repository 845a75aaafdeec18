"""All disks are lost while brokers live, once everything else of a seed is done; an operator founds the quorum anew.

The quorum cannot know what it handed out. Brokers that live do, and one of them is started again meanwhile and knows
nothing. The operator does as little as gets IDs handed out again: raises the floor just above what is shown. Or he
names the quorum that was lost, and how far he believes its IDs had gone; that may be too low. In some seeds he has
a copy of one disk, which lacks what was handed out since, and restores that; the other members are blank.

- Blank members hand out nothing, and elect nobody, until the operator has founded a quorum of them.
- Nothing that it hands out lies below what a broker that lives has ever held; so no ID leaves two brokers.
- It does hand out IDs soon after that, to each of them.
- A broker that lives goes on with what it holds, if the operator has named the lost quorum, and a floor above that.
"""

from __future__ import annotations

import itertools
import uuid
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from pidkeeper.controller.state.requests import RaiseFloor
from pidkeeper.protocol.errors import RequestError
from pidkeeper.protocol.founding import Succession
from pidkeeper.protocol.ids import MAX_FLOOR_JUMP
from pidkeeper.protocol.messages import InitProducerIdRequest
from pidkeeper.protocol.metadata_version import LATEST
from pidkeeper.protocol.records import AllocateProducerIdsRecord, Record
from tests.simulation.agent import Agent
from tests.simulation.client import Endpoint
from tests.simulation.disk import DiskCopy
from tests.simulation.founder import Founder
from tests.simulation.history import History
from tests.simulation.invariants import Monitor
from tests.simulation.restored import RestoredMonitor
from tests.simulation.world import MILLISECOND, SECOND, Violation

if TYPE_CHECKING:
    from tests.simulation.cluster import Cluster

SHARE: Final = 0.2
"""Of the seeds without ZooKeeper, whose znode would tell what was handed out, and without floors so high that nobody
would believe a broker that holds such IDs."""

FIRST_INCARNATION: Final = 1_000
USED: Final = 10 * SECOND
"""Until every broker has handed out some IDs."""

NAMED: Final = 0.6
"""Of the losses, after which the operator names the quorum that was lost."""

RESTORED: Final = 0.4
"""Of the losses before which a disk is copied, if the quorum has a founding to name."""

PAIRS: Final = 3
"""Transactional ids that are new to each broker, before the loss and after it."""

BLANK: Final = 2 * SECOND
"""For how long nobody founds the quorum."""

HEARING_MS: Final = 10_000
"""The product's own. An agent that meets nobody who leads may take some seconds until it asks again."""

PATIENCE: Final = 30 * SECOND
"""From the order to found until every broker hands out IDs of the new quorum."""

LOOK: Final = 200 * MILLISECOND


class TotalLoss:
    """The end of one seed, in some of them."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._world = cluster.world
        self._rng = cluster.world.stream("total-loss")
        believed = cluster.next_id_seen() < MAX_FLOOR_JUMP // 2
        self.happens = not cluster.migrating.present and believed and self._rng.random() < SHARE
        self._highest = -1
        self._raising = False
        self._lost: uuid.UUID | None = None
        self._keeping: dict[Agent, int] = {}
        self._copy: tuple[int, DiskCopy] | None = None
        self._given: list[Record] = []
        self._pairs: dict[str, int] = {}

    def run(self) -> None:
        """Lose everything, and found it anew. Raises Violation."""
        cluster = self._cluster
        self._begin()
        self._run_until(self._all_hand_out, USED, "every broker hands out IDs")
        if cluster.founder.recorded is not None and not cluster.founder.aged and self._rng.random() < RESTORED:
            self._copy_a_disk()
        self._lose_all_disks()
        self._world.run(self._world.now + BLANK)
        if self._copy is not None:
            self._restore(*self._copy)
        else:
            self._found()
        self._run_until(self._all_hand_out, PATIENCE, "every broker hands out IDs of the new quorum")
        if self._copy is not None:
            self._ask_for_pairs("after")
            self._run_until(lambda: self._pairs_given("after"), PATIENCE, "transactional ids get producer IDs")
        self._check_no_repeats()
        cluster.loaded = False
        self._world.run(self._world.now + SECOND)

    def _begin(self) -> None:
        """Brokers that know what they hold come into use: of this build, and without transactional producers."""
        cluster = self._cluster
        cluster.loaded = True
        cluster.witnesses.judges = False
        cluster.transactional = replace(cluster.transactional, ids=0)
        cluster.swarm = replace(cluster.swarm, first_build=LATEST, founding_hearing_ms=HEARING_MS, claims_per_second=20)
        cluster.gone += cluster.agents
        cluster.agents = [Agent(cluster, number, FIRST_INCARNATION) for number in range(max(2, len(cluster.agents)))]
        for agent in cluster.agents:
            agent.start()

    def _copy_a_disk(self) -> None:
        """Then the quorum goes on, and hands out what is not in the copy."""
        voter = self._rng.choice(sorted(self._cluster.voters))
        self._copy = voter, self._cluster.members[voter].disk.copy()
        self._ask_for_pairs("before")
        self._world.run(self._world.now + self._rng.randrange(SECOND, 5 * SECOND))

    def _ask_for_pairs(self, when: str) -> None:
        for agent in self._cluster.agents:
            for number in range(PAIRS):
                name = f"{when}-{agent.broker_id}-{number}"
                asked = partial(self._pair_given, name)
                self._world.at(
                    self._rng.randrange(SECOND), agent.ask, InitProducerIdRequest(name, 60_000), asked, number
                )

    def _pair_given(self, name: str, answer: Any, error: RequestError | None) -> None:
        if error is None:
            self._pairs[name] = answer.producer_id

    def _pairs_given(self, when: str) -> bool:
        return sum(name.startswith(when) for name in self._pairs) == PAIRS * len(self._cluster.agents)

    def _lose_all_disks(self) -> None:
        """Every machine loses its power and its disk, and one broker is started again."""
        cluster = self._cluster
        self._world.fault("all_disks_lost")
        for member in cluster.machines():
            member.crash(power=True, restart_after=None)
        cluster.history = History(self._world)
        watch = Monitor if self._copy is None else RestoredMonitor
        cluster.monitor = watch(self._world, cluster.history, cluster.voters, cluster.members)
        lost, cluster.founder = cluster.founder, Founder(cluster, "founder-of-the-next")
        self._lost = lost.recorded
        assert cluster.founder.founding_id != lost.founding_id, "agents could not tell the two quorums apart"
        cluster.monitor.on_commit += [cluster.founder.committed, self._given.extend]
        for member in cluster.machines():
            if member.node_id not in cluster.voters:
                member.retire()
                continue
            member.monitor = cluster.monitor
            member.install(LATEST)
            member.replace_disk()
            # A new quorum begins: nobody has anything to recover.
            member.damaged = member.damage_is_latent = False
            if self._copy is None:
                self._world.at(self._rng.randrange(200 * MILLISECOND), member.start)
        self._world.at(self._rng.randrange(BLANK), self._start_one_again)

    def _start_one_again(self) -> None:
        """Not the one that knows most, as of now: a block that was on its way may have come after the loss."""
        cluster = self._cluster
        knows_most = max(cluster.agents, key=_highest_held)
        agent = self._rng.choice([agent for agent in cluster.agents if agent is not knows_most])
        agent.stop()
        new = Agent(cluster, agent.broker_id, agent.incarnation + 1)
        cluster.gone.append(agent)
        cluster.agents[cluster.agents.index(agent)] = new
        new.start()

    def _found(self) -> None:
        if self._cluster.leader() is not None or self._cluster.monitor.committed:
            raise Violation("founded-by-itself", "a leader of blank members")
        self._highest = max(map(_highest_held, self._cluster.agents))
        if self._lost is not None and self._rng.random() < NAMED:
            self._name(self._lost)
        self._cluster.founder.start()
        self._world.at(LOOK, self._look)

    def _restore(self, voter: int, copy: DiskCopy) -> None:
        """As `pidkeeper storage recover` makes it ready. The other members start with blank disks."""
        cluster = self._cluster
        founder, monitor = cluster.founder, cluster.monitor
        assert self._lost is not None, "a copy of a quorum without a founding"
        assert isinstance(monitor, RestoredMonitor), "nobody watches that knows of the copy"
        self._highest = max(*map(_highest_held, cluster.agents), *self._pairs.values(), -1)
        floor = self._highest + self._rng.choice((1, 1_000))
        founder.succession, founder.ordered, founder.hears = Succession(self._lost, floor), True, False
        self._world.fault("copy_restored", f"of member {voter}, floor {floor}")
        self._note_who_keeps(self._lost, floor)
        monitor.copied = cluster.members[voter].restore(copy, floor, founder.founding_id).hard_state.term
        for one in cluster.voters:
            self._world.at(self._rng.randrange(200 * MILLISECOND), cluster.members[one].start)
        self._world.at(LOOK, self._look)

    def _name(self, lost: uuid.UUID) -> None:
        floor = self._rng.choice((self._highest + 1, self._highest + 1, self._highest + 1_000, self._highest // 2))
        self._cluster.founder.succession = Succession(lost, floor)
        self._world.fault("predecessor_named", f"{lost}, floor {floor}, held are IDs up to {self._highest}")
        self._note_who_keeps(lost, floor)

    def _note_who_keeps(self, lost: uuid.UUID, floor: int) -> None:
        for agent in self._cluster.agents:
            if agent.founding_id == lost and 0 <= _highest_block(agent) < floor:
                self._keeping[agent] = _claimed(agent)

    def _look(self) -> None:
        """What `pidkeeper health` shows is all that the operator looks at."""
        self._world.at(LOOK, self._look)
        leader = self._cluster.leader()
        if leader is None or self._raising:
            return
        machine = leader.machine
        shown = machine.foundings.open(machine.producer_ids.next_producer_id)
        if shown:
            self._raising = True
            floor = max(one.highest_producer_id for one in shown) + 1
            Endpoint(self._cluster, self._rng).call(RaiseFloor(floor), self._raised)

    def _raised(self, _: Any, error: RequestError | None) -> None:
        self._raising = False

    def _all_hand_out(self) -> bool:
        """Whether every broker has handed out an ID above those that were lost, or one of those that it may keep."""
        return all(map(self._hands_out, self._cluster.agents))

    def _hands_out(self, agent: Agent) -> bool:
        if agent in self._keeping:
            before = self._keeping[agent]
            return agent.founding_id == self._cluster.founder.founding_id and _claimed(agent) > before
        return bool(agent.claims.runs) and agent.claims.runs[-1][1] > self._highest

    def _run_until(self, holds: Any, limit: int, what: str) -> None:
        self._world.run(self._world.now + limit, holds)
        if not holds():
            facts = [(agent.claims.name, agent.broker_epoch, agent.claims.runs[-2:]) for agent in self._cluster.agents]
            raise Violation("total-loss", f"not within {limit // SECOND} s: {what}: {facts}, above {self._highest}")

    def _check_no_repeats(self) -> None:
        if len(set(self._pairs.values())) < len(self._pairs):
            raise Violation("repeated-id", f"transactional ids share one: {self._pairs}")
        for record in self._given:
            if isinstance(record, AllocateProducerIdsRecord) and record.producer_id_start <= self._highest:
                raise Violation("total-loss", f"{record}, but a broker that lives held IDs up to {self._highest}")
        succession = self._cluster.founder.succession
        for agent in self._keeping:
            # A block of the lost quorum may have been on its way for seconds, and lie above the floor.
            if succession is not None and agent.let_go and min(agent.let_go) < succession.floor:
                raise Violation("let-go-of-its-own", f"{agent.claims.name}, under {succession}")
        everybody = (*self._cluster.agents, *self._cluster.gone)
        claims = [agent.claims for agent in everybody if agent.incarnation >= FIRST_INCARNATION]
        runs = sorted((first, last, one.name) for one in claims for first, last in one.runs)
        for (_, end, one), (start, _, other) in itertools.pairwise(runs):
            if start <= end:
                raise Violation("repeated-id", f"ID {start} left {one} and {other}")


def _highest_held(agent: Agent) -> int:
    """The highest ID that this process ever held, or told to a transactional producer; -1 before the first."""
    return max(agent.highest_given, _highest_block(agent))


def _highest_block(agent: Agent) -> int:
    """The highest ID of the blocks that it ever held, -1 before the first."""
    return max((last for _, last in agent.claims.blocks), default=-1)


def _claimed(agent: Agent) -> int:
    return sum(last - first + 1 for first, last in agent.claims.runs)
