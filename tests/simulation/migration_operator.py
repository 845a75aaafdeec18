"""Whoever orders the migration: at random times, at any member, repeatedly, and while another step is under way."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, Final

from pidkeeper.protocol.errors import RequestError
from pidkeeper.protocol.migration import MigrationPhase
from tests.simulation.kill_points import FINALIZE_POINTS, FIRST_POINTS, ROLL_BACK_POINTS, START_POINTS
from tests.simulation.old_broker import OldBroker
from tests.simulation.process import listen
from tests.simulation.world import MILLISECOND, SECOND, Violation
from tests.simulation.zookeeper import ZooKeeper

if TYPE_CHECKING:
    from tests.simulation.cluster import Cluster
    from tests.simulation.process import Process

START: Final = "start"
FINALIZE: Final = "finalize"
ROLL_BACK: Final = "rollback"
DESCRIBE: Final = "describe"
FORCED: Final = 0.5
"""Of the orders to finalise; the others want to see no broker."""
REPEATED: Final = 0.8
"""Of the orders to finalise that were refused."""
_PHASES: Final = {FINALIZE: MigrationPhase.FINALIZING, ROLL_BACK: MigrationPhase.ROLLING_BACK}
_POINTS: Final = {START: (START_POINTS, 0.05), FINALIZE: (FINALIZE_POINTS, 0.8), ROLL_BACK: (ROLL_BACK_POINTS, 0.1)}

SENSIBLE: Final = {
    MigrationPhase.NONE: (START,),
    MigrationPhase.BRIDGE: (START,),
    MigrationPhase.IMPORT: (FINALIZE, ROLL_BACK),
    MigrationPhase.DUAL_WRITE: (FINALIZE, ROLL_BACK),
    MigrationPhase.FINALIZING: (ROLL_BACK,),
    MigrationPhase.FINALIZED: (START,),
    MigrationPhase.ROLLING_BACK: (START,),
    MigrationPhase.ROLLED_BACK: (START,),
}


class MigrationOperator:
    """Orders at members; starts the old brokers, stops them all now and then, and starts those again that stopped."""

    def __init__(self, cluster: Cluster, zookeeper: ZooKeeper) -> None:
        self.cluster = cluster
        self.world = cluster.world
        self.settings = zookeeper.settings
        self.rng: random.Random = cluster.world.stream("migration-operator")
        self.brokers = [
            OldBroker(cluster, zookeeper, 900 + number, copies=self.rng.random() < 0.2)
            for number in range(self.settings.brokers)
        ]
        # The old brokers have draws of their own, so that the orders do not depend on them.
        self._moves: random.Random = cluster.world.stream("migration-moves")
        self._moved_until = 0

    def start(self) -> None:
        """Begin."""
        self.cluster.kill_points.arm_among(FIRST_POINTS, 0.6)
        for broker in self.brokers:
            # What another quorum left must be met before an old broker writes over it.
            latest = 20 * SECOND if self.settings.foreign else SECOND
            self.world.at(self.rng.randrange(latest), broker.start)
        self.world.at(SECOND, self._order_something)
        self.world.at(2 * SECOND, self._restart_brokers)
        self.world.at(self._moves.randrange(20 * SECOND), self._stop_brokers)

    def _stop_brokers(self) -> None:
        """As whoever moves a cluster does; and sometimes goes back."""
        if self.cluster.healed:
            return
        self._moved_until = self.world.now + self._moves.randrange(8 * SECOND)
        for broker in self.brokers:
            if not broker.stopped:
                broker.stop(killed=self._moves.random() < 0.5)
        self.world.at(self._moves.randrange(5 * SECOND, 25 * SECOND), self._stop_brokers)

    def _restart_brokers(self) -> None:
        if not self.cluster.loaded:
            return
        self.world.at(2 * SECOND, self._restart_brokers)
        if self.world.now < self._moved_until:
            return
        for broker in self.brokers:
            if broker.stopped and self.rng.random() < 0.5:
                broker.start()

    def _order_something(self) -> None:
        if self.cluster.healed:
            return
        pause = int(self.settings.order_interval * self.rng.expovariate(1.0)) + MILLISECOND
        if self.rng.random() < 0.4:
            pause = self.rng.randrange(MILLISECOND, 300 * MILLISECOND)
        self.world.at(pause, self._order_something)
        what = self._choose()
        process = self._target()
        if what is not None and process is not None:
            self.world.at(self.rng.randrange(5 * MILLISECOND), self._order, process, what)

    def _choose(self) -> str | None:
        if self.rng.random() < 0.1:
            return DESCRIBE
        sensible = self.rng.random() < 0.8
        choices = SENSIBLE[self.cluster.migration.phase] if sensible else (START, FINALIZE, ROLL_BACK)
        what = self.rng.choice(choices)
        if what == FINALIZE and self.world.now < self.settings.finalize_from:
            return ROLL_BACK if ROLL_BACK in choices and self.rng.random() < 0.5 else None
        return what

    def _target(self) -> Process | None:
        leader = self.cluster.leader()
        if leader is not None and self.rng.random() < 0.85:
            return leader
        running = self.cluster.processes()
        return self.rng.choice(running) if running else None

    def _order(self, process: Process, what: str) -> None:
        if process.node.stopping or not process.runs(self._order, process, what):
            return
        member, asked, forced = process.interface, self.world.now, self._moves.random() < FORCED
        if self.world.trace is not None:
            self.world.note(f"the operator orders member {process.node_id}: {what}")
        self.cluster.witnesses.ordered(rollback=what == ROLL_BACK)
        try:
            if what == DESCRIBE:
                member.describe_migration()
                return
            self.cluster.kill_points.arm_among(*_POINTS[what])
            if what == FINALIZE:
                self.cluster.migration.finalize_ordered(process, forced)
            answer = member.start_migration() if what == START else member.order_migration(_PHASES[what], forced=forced)
        except AssertionError as error:
            raise Violation("member-fault", f"member {process.node_id}, ordered to {what}: {error!r}") from error

        def answered(phase: Any, refusal: RequestError | None) -> None:
            if self.world.trace is not None:
                self.world.note(f"the operator is told: {what}: {phase if refusal is None else refusal}")
            if what == FINALIZE:
                self.cluster.migration.finalize_answered(process, asked, forced, refusal)
                self._insist(process, refusal)
            if phase is not None:
                # The answer leaves in the event in which its entry is applied.
                self.world.at(1, self.cluster.migration.check_phase, asked, self.world.now, phase)
                self.world.fault(f"order_{what}")

        listen(answer, answered)
        process.watch()

    def _insist(self, process: Process, refusal: RequestError | None) -> None:
        """Whoever is refused the end asks again soon, when ZooKeeper answers otherwise, or fewer brokers are left."""
        if refusal is not None and not self.cluster.healed and self._moves.random() < REPEATED:
            self.world.at(self._moves.randrange(SECOND), self._order, process, FINALIZE)
