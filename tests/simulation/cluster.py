"""One seed: members, clients, faults; a phase of safety under faults, and one of progress without."""

from __future__ import annotations

import gc
import logging
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import ExitStack
from typing import Any, Final
from unittest.mock import patch

import msgspec

from pidkeeper.controller.node import storage_worker, transaction_duties
from pidkeeper.controller.raft.core import Role
from pidkeeper.controller.state import transitions
from pidkeeper.protocol.messages import AllocatedBlock, AllocatedBlocksPage
from pidkeeper.protocol.metadata_version import BASE, LATEST
from pidkeeper.protocol.migration import MigrationPhase
from pidkeeper.protocol.records import AllocateProducerIdsRecord
from pidkeeper.protocol.transactions import TransactionalBlockRecord
from tests.simulation.agent import Agent
from tests.simulation.budget import Budget
from tests.simulation.client import ATTEMPT, Client
from tests.simulation.data_agent import COMPLAINTS
from tests.simulation.data_plane import DataLoad, DataPlane
from tests.simulation.drawn import Drawn, draw
from tests.simulation.evidence import Witnesses
from tests.simulation.expiry import Crowd, Crowding, Expiry, bounds
from tests.simulation.floors import Floors
from tests.simulation.founder import Founder
from tests.simulation.full_disks import FullDisks, Lines
from tests.simulation.history import History
from tests.simulation.impostor import Impostor
from tests.simulation.invariants import Monitor
from tests.simulation.kill_points import KillPoints
from tests.simulation.kinds import check_kinds
from tests.simulation.log_bounds import check_files
from tests.simulation.loop import enter
from tests.simulation.member import Member
from tests.simulation.migration_invariants import MigrationMonitor
from tests.simulation.migration_operator import MigrationOperator
from tests.simulation.nemesis import Nemesis
from tests.simulation.network import Network
from tests.simulation.own_blocks import OwnBlocks
from tests.simulation.process import Process
from tests.simulation.producer import Producers, Transactional
from tests.simulation.quorum_operator import QuorumOperator
from tests.simulation.slow_disks import SlowDisks
from tests.simulation.swarm import Migrating, Swarm
from tests.simulation.total_loss import TotalLoss
from tests.simulation.transaction_history import TransactionChecker, Written
from tests.simulation.transaction_model import ONGOING, OUTCOME
from tests.simulation.world import MILLISECOND, SECOND, Violation, World
from tests.simulation.zookeeper import ZooKeeper

PROGRESS: Final = 10 * SECOND
"""After everything is healed, an allocation that is asked for from then on must be answered within this time."""

CONVERGENCE: Final = 20 * SECOND
"""And all members must hold everything, within this."""

SUPERVISOR_DELAY: Final = SECOND
"""Until a process that ended by itself runs again, as under systemd or a kubelet."""

UNDER_WAY: Final = (ONGOING, *OUTCOME)

STEPPING: Final = {MigrationPhase.IMPORT, MigrationPhase.FINALIZING, MigrationPhase.ROLLING_BACK}
"""Phases of the migration that the leader ends by itself."""


class Result(msgspec.Struct):
    """What one seed showed. `faults` counts by kind and phase; `violation` is None if all promises held."""

    seed: int
    digest: int
    simulated_us: int
    events: int
    elections: int
    snapshots_installed: int
    entries: int
    blocks_checked: int
    ids_checked: int
    transactional_answers_checked: int
    batches_checked: int
    recovered_after_us: int
    old_blocks_checked: int
    leaders_lost: Counter[str]
    faults: Counter[tuple[str, str]]
    violation: str | None


class Cluster:
    """Everything of one seed. `bug`: a planted one, for controls. `drawn`: by default as the seed has it."""

    def __init__(
        self,
        seed: int,
        *,
        trace: Callable[[str], object] | None = None,
        bug: str | None = None,
        drawn: Callable[[World], Drawn] = draw,
    ) -> None:
        self.world = World(seed, trace)
        self.rng = self.world.stream("cluster")
        settings = drawn(self.world)
        self.migrating: Migrating = settings.migrating
        self.swarm: Swarm = settings.swarm
        self.transactional: Transactional = settings.transactional
        self.crowding: Crowding = settings.crowding
        self.written: list[Written] = []
        self.bug = bug
        self.operator = QuorumOperator(self, tuple(range(1, self.swarm.members + 1)))
        self.budget = Budget(self)
        self.history = History(self.world)
        machines = range(1, len(self.swarm.clock_rates) + 1)
        self.monitor = Monitor(self.world, self.history, self.voters, machines)
        self.zookeeper = ZooKeeper(self.world, self.migrating)
        self.migration = self.zookeeper.monitor = MigrationMonitor(self.world, self.zookeeper)
        if self.migrating.present:
            self.monitor.on_commit.append(self.migration.committed)
        self.kill_points = KillPoints(self)
        self.network = Network(self.world, self.swarm)
        clocks = zip(machines, self.swarm.clock_rates, strict=True)
        self.data = self._data(settings.load) if settings.load.partitions else None
        self.members = {node: Member(self, node, rate) for node, rate in clocks}
        self.network.members = self.members
        self.clients = [Client(self, 100 + number) for number in range(self.swarm.clients)]
        self.agents = [Agent(self, number, 0) for number in range(self.swarm.agents)]
        self.gone: list[Agent] = []
        self.producers = Producers(self)
        self.founder = Founder(self)
        self.witnesses = Witnesses(self)
        self.impostor = Impostor(self)
        self.floors = Floors(self)
        self.full_disks = FullDisks(self)
        self.expiry = Expiry(self)
        self.crowd = Crowd(self)
        self.monitor.on_commit += [self.founder.committed, self.floors.committed]
        if self.transactional.ids:
            self.monitor.on_commit.append(self.expiry.committed)
        self.migration_operator = MigrationOperator(self, self.zookeeper)
        self.nemesis = Nemesis(self)
        self.healed = False
        self.loaded = True
        self.attempt = ATTEMPT
        self.recovered_after = 0
        self.transactional_answers = 0

    def _data(self, load: DataLoad) -> DataPlane:
        return DataPlane(self, load)

    # What others ask.

    def may_allocate(self) -> bool:
        """Whether IDs may be asked for: not before a migration that begins without a bridge."""
        migrating = self.migrating
        return not migrating.present or migrating.bridge or self.migration.phase is not MigrationPhase.NONE

    @property
    def voters(self) -> tuple[int, ...]:
        """The voters, as far as their operator knows."""
        return self.operator.voters

    def machines(self) -> list[Member]:
        """The machines in use: of voters, of learners, and of removed members that are still up."""
        return [member for member in self.members.values() if member.deployed]

    def processes(self) -> list[Process]:
        """Whatever runs."""
        return [member.process for member in self.members.values() if member.process is not None]

    def leader(self) -> Process | None:
        """The leader of the newest term, if there is one."""
        leaders = [process for process in self.processes() if process.core.role is Role.LEADER]
        return max(leaders, key=lambda process: process.core.term, default=None)

    def next_id_seen(self) -> int:
        """The next producer ID, as of the newest committed entry."""
        return self.monitor.next_id

    def metadata_version(self) -> int:
        """The highest that a running member has applied."""
        return max((process.machine.metadata_version for process in self.processes()), default=BASE)

    def phase(self) -> str:
        """What the cluster is doing."""
        running = self.processes()
        leader = self.leader()
        checks = (
            ("installing", any(process.core.receiving for process in running)),
            ("transferring", leader is not None and leader.core.transferring is not None),
            ("electing", leader is None or not leader.core.serving),
            ("snapshotting", any(process.taking_snapshot() for process in running)),
            ("recovering", any(process.core.recovering for process in running)),
            ("changing", self.operator.busy),
            ("replicating", leader is not None and leader.core.commit < leader.core.last_index),
        )
        return next((name for name, holds in checks if holds), "idle")

    # The run.

    def run(self) -> Result:
        """Both phases and the final checks. Raises Violation."""
        for member in self.members.values():
            self.world.at(self.rng.randrange(200 * MILLISECOND), member.start)
        self.founder.start()
        self.witnesses.start()
        self.impostor.start()
        self.floors.start()
        self.crowd.start()
        for client in self.clients:
            client.start()
        for agent in self.agents:
            agent.start()
        self.producers.start()
        if self.data is not None:
            self.data.start()
        self.world.at(50 * MILLISECOND, self._look)
        self.world.at(self.rng.randrange(10 * SECOND), self._replace_agent)
        self.nemesis.start()
        if self.migrating.present:
            self.migration_operator.start()
        if self.swarm.spares:
            self.operator.start()
        self.world.run(self.swarm.safety_time)
        self._heal()
        self.world.run(self.world.now + PROGRESS, self._progressed)
        self._demand(self._progressed, "no-progress", PROGRESS)
        self.recovered_after = self.world.now - self.swarm.safety_time
        self.world.run(self.world.now + PROGRESS, self._registered)
        self._demand(self._registered, "not-registered", PROGRESS)
        self.world.run(self.world.now + CONVERGENCE, self.sound)
        self._demand(self.sound, "no-convergence", CONVERGENCE)
        self.world.run(self.world.now + PROGRESS, self.floors.agents_know)
        self._demand(self.floors.agents_know, "exhaustion-untold", PROGRESS)
        self.crowd.check()
        if self.data is not None:
            self.data.finish()
        if self.may_allocate() and self.floors.plenty_left():
            self.full_disks.check()
            SlowDisks(self).run()
        self.loaded = False
        self.world.run(self.world.now + CONVERGENCE, self._converged)
        self._demand(self._converged, "no-convergence", CONVERGENCE)
        bridge = self.migrating.present and self.migrating.bridge
        self._own_blocks = OwnBlocks(self.history.commits, bridge=bridge, hears=self.founder.hears)
        self._check_members()
        claims = [agent.claims for agent in (*self.agents, *self.gone)]
        blocks = self.history.check(claims)
        self.migration.check_floors(self.history.operations)
        checker = TransactionChecker(
            self.history.commits,
            self.history.transactional,
            self.written,
            self.transactional.max_epoch,
            self._own_blocks,
        )
        self.transactional_answers = checker.check(claims)
        loss = TotalLoss(self)
        if loss.happens:
            loss.run()
        check_kinds(kind for kind, _ in self.world.faults)
        return self.result(blocks, None)

    def result(self, blocks: int, violation: str | None) -> Result:
        """The figures as they stand."""
        return Result(
            seed=self.world.seed,
            digest=self.world.digest,
            simulated_us=self.world.now,
            events=self.world.events,
            elections=self.monitor.elections,
            snapshots_installed=self.monitor.snapshots_installed,
            entries=len(self.monitor.committed),
            blocks_checked=blocks,
            ids_checked=sum(
                last - first + 1 for agent in (*self.agents, *self.gone) for first, last in agent.claims.runs
            ),
            transactional_answers_checked=self.transactional_answers,
            batches_checked=0 if self.data is None else self.data.checked,
            recovered_after_us=self.recovered_after,
            old_blocks_checked=len(self.migration.blocks_of_brokers),
            leaders_lost=self.kill_points.lost,
            faults=self.world.faults,
            violation=violation,
        )

    def _look(self) -> None:
        self.world.phase = self.phase()
        self.world.at(50 * MILLISECOND, self._look)

    def _replace_agent(self) -> None:
        """An agent dies and another process takes over its broker id; sometimes the old one lives on for a while."""
        if self.healed:
            return
        old = self.rng.choice(self.agents)
        self.world.fault("agent_restart")
        self.world.at(self.rng.choice((0, 0, 2 * SECOND)), old.stop)
        self._succeed(old)
        self.world.at(self.rng.randrange(15 * SECOND), self._replace_agent)

    def agent_refused(self, agent: Agent) -> None:
        """`agent` was refused for good and ended. Its supervisor starts it again if no other process has its place."""
        self.world.at(SUPERVISOR_DELAY, self._start_again, agent)

    def _start_again(self, agent: Agent) -> None:
        if self.loaded and agent in self.agents:
            self.world.fault("agent_started_again")
            self._succeed(agent)

    def _succeed(self, old: Agent) -> None:
        self.gone.append(old)
        new = Agent(self, old.broker_id, old.incarnation + 1)
        self.agents[self.agents.index(old)] = new
        new.start()

    def _heal(self) -> None:
        self.world.note("all faults end")
        self.world.phase = "healed"
        self.healed = True
        if self.data is not None:
            self.data.store.healed = True
        self.nemesis.stop()
        if self.migration.finalized:
            self.zookeeper.switch_off()

    def _progressed(self) -> bool:
        answered = self.history.newest_invocation >= self.swarm.safety_time
        return (answered or not self.may_allocate()) and self.migration.phase not in STEPPING

    def _registered(self) -> bool:
        """Whether the quorum knows every agent as the agent knows itself, so that all of them are given blocks."""
        leader = self.leader()
        if leader is None:
            return False
        known = {broker.broker_id: broker.broker_epoch for broker in leader.machine.brokers.all() if not broker.fenced}
        epochs = {agent.broker_id: agent.broker_epoch for agent in self.agents if agent.broker_epoch is not None}
        return len(epochs) == len(self.agents) and epochs.items() <= known.items()

    def sound(self) -> bool:
        """Whether each voter runs, is not recovering and holds what is committed."""
        leader = self.leader()
        processes = [self.members[voter].process for voter in self.voters]
        return (
            self.operator.settled()
            and leader is not None
            and leader.core.serving
            and all(
                process is not None
                and process.started()
                and not process.node.stopping
                and not process.core.recovering
                and not process.core.disk.slow
                and process.core.leader_id == leader.node_id
                and process.core.applied >= leader.core.commit
                for process in processes
            )
        )

    def _converged(self) -> bool:
        processes = [self.members[voter].process for voter in self.voters]
        leader = self.leader()
        return (
            self.operator.settled()
            and leader is not None
            and all(
                process is not None
                and not process.core.recovering
                and not process.node.stopping
                and process.machine.metadata_version == LATEST
                and process.core.applied == leader.core.last_index == leader.core.applied
                and process.quiet()
                for process in processes
            )
            and not any(leader.machine.transactions.by_status[status] for status in UNDER_WAY)
            # Nobody sends heartbeats any more.
            and all(broker.fenced for broker in leader.machine.brokers.all())
        )

    def _demand(self, holds: Callable[[], bool], rule: str, limit: int) -> None:
        if not holds():
            state = [
                f"{node}: "
                + (
                    "down"
                    if member.process is None
                    else f"{member.process.core.role.value} of {member.process.core.term}, leader "
                    f"{member.process.core.leader_id}, applied {member.process.core.applied} of "
                    f"{member.process.core.last_index}, recovering {member.process.core.recovering}"
                )
                for node, member in self.members.items()
                if member.deployed
            ]
            state.append(f"migration {self.migration.phase.name}, may allocate {self.may_allocate()}")
            state.append(f"agents {[(agent.claims.name, agent.broker_epoch) for agent in self.agents]}")
            state.append(f"voters {self.voters}, wanted {sorted(self.operator.wanted())}")
            raise Violation(rule, f"{limit // SECOND} s after all faults ended: {'; '.join(state)}")

    def _check_members(self) -> None:
        """Converged members hold the same state byte for byte, and a history without a wrong or missing row."""
        expected = [
            AllocatedBlock(
                first=record.producer_id_start,
                last=record.producer_id_end,
                offset=commit.offset,
                broker_epoch=record.broker_epoch,
                timestamp_ms=record.timestamp_ms,
                broker_id=record.broker_id,
            )
            for commit in self.history.commits
            if isinstance(record := commit.record, AllocateProducerIdsRecord | TransactionalBlockRecord)
        ]
        images = set()
        for node in self.voters:
            process = self.members[node].process
            assert process is not None, f"member {node} is down after convergence"
            self.floors.check_health(process)
            check_files(process)
            images.add(msgspec.json.encode(process.machine.image(0, 0), enc_hook=list))
            page: AllocatedBlocksPage = _answer(process, process.node.ledger.page(-1, len(expected) + 1))
            found = [block for block in page.blocks if block.first >= page.complete_from]
            wanted = [block for block in expected if block.first >= page.complete_from]
            rows = {block.first: block for block in expected}
            if found != wanted or any(rows.get(block.first) != block for block in page.blocks):
                raise Violation(
                    "archive", f"member {node} has {len(found)} rows from {page.complete_from} on, not {len(wanted)}"
                )
            self._check_owners(process, page.complete_from)
        if len(images) != 1:
            raise Violation("state-diverged", f"{images}")

    def _check_owners(self, process: Process, complete_from: int) -> None:
        """Every ID of the quorum's own has the transactional id that the log gave it to, also a forgotten one."""
        for owner in self._own_blocks.owners:
            found = _answer(process, process.node.ledger.transactional_owner(owner.producer_id))
            if found != owner and (found is not None or owner.producer_id >= complete_from):
                raise Violation("owner", f"member {process.node_id} says {found}, the log {owner}")


def _answer(process: Process, query: Coroutine[Any, Any, Any]) -> Any:
    """The ledger's answer to a query, while time stands still."""
    enter(process.loop)
    process.loop.at_once = True
    try:
        query.send(None)
    except StopIteration as end:
        return end.value
    raise AssertionError("a query of the ledger waits for more than its archive")


def simulate(seed: int, *, trace: Callable[[str], object] | None = None, bug: str | None = None) -> Result:
    """Run one seed to its end or to its first violation."""
    disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    gc.collect()
    gc.disable()
    try:
        return run_to_end(Cluster(seed, trace=trace, bug=bug))
    finally:
        # Only now that nothing holds the cluster: it is looked through once, and not kept for another look.
        gc.enable()
        logging.disable(disabled)


def run_to_end(cluster: Cluster) -> Result:
    """Run a cluster that was set up to its end or to its first violation."""
    try:
        with (
            patch.object(transitions, "MAX_EPOCH", cluster.transactional.max_epoch),
            patch.object(transaction_duties, "FORGET_CHECK_MS", cluster.transactional.forget_check_ms),
            patch.object(storage_worker, "logger", Lines()),
            bounds(cluster.crowding),
            ExitStack() as stack,
        ):
            for module, log in COMPLAINTS:
                stack.enter_context(patch.object(module, "_log", log))
            return cluster.run()
    except Violation as violation:
        cluster.world.note(f"VIOLATION {violation}")
        return cluster.result(0, str(violation))
    finally:
        for agent in (*cluster.agents, *cluster.gone):
            agent.stop()
        for member in cluster.members.values():
            if member.process is not None:
                member.process.end()
        enter(None)
