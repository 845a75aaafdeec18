"""ZooKeeper as one linearizable register, data and version, with conditional writes; who is registered beside it; and
how calls of it go wrong.

A call takes effect at one instant, or never. Whoever made it learns of the outcome, or hears nothing until its timeout
has passed: then the write may have happened, may never happen, or may happen later still, when its caller is long dead
and others have written. Apart from such late writes the calls of one process are carried out in order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import msgspec

from pidkeeper.controller.migration.zookeeper import Cause, Failure, LiveBrokers, Znode
from pidkeeper.protocol.migration import MigrationPhase
from tests.simulation.swarm import Migrating
from tests.simulation.world import MILLISECOND, SECOND, World

if TYPE_CHECKING:
    from tests.simulation.migration_invariants import MigrationMonitor
    from tests.simulation.process import Process

Done = Callable[[Znode | Failure], None]
Outcome = Znode | LiveBrokers | Failure
Later = Callable[..., None]

CLAIMS: Final = "claims"
STEPS: Final = "steps"
ORDERS: Final = "orders"

STEP_WRITES: Final = {MigrationPhase.FINALIZING: "seal", MigrationPhase.ROLLING_BACK: "set_back"}
"""What the leader's steps write in a phase."""

LATEST_LANDING: Final = 8 * SECOND
"""How long after its caller's timeout a write may still be under way."""


class Write(msgspec.Struct, frozen=True):
    """A write as it was asked for. `node`: the member that asks, None for an old broker, which has `broker_id`.

    `kind`: claim, seal, set_back, start, or broker. `phase`: in force at the member when it asked.
    """

    kind: str
    node: int | None
    broker_id: int
    phase: MigrationPhase
    data: bytes | None
    version: int


class ZooKeeper:
    """The znode; who can reach it, and how fast. Its version only rises."""

    def __init__(self, world: World, settings: Migrating) -> None:
        self.world = world
        self.settings = settings
        self.znode = Znode(settings.initial(), 0)
        self.exists = not settings.absent
        self.monitor: MigrationMonitor
        self.slowness = 1
        self.healed = False
        self._cut: set[int | None] = set()
        self._away = 0
        self._off = False
        # When each lost or regained its session, as seen from outside.
        self._changed: dict[int | None, int] = {}
        # The ephemeral children of /brokers/ids: (broker id, which of its processes).
        self._registered: set[tuple[int, int]] = set()
        self._vacant_until = 0

    def create(self) -> None:
        """An old broker that starts makes the znode, without data."""
        self.exists = True

    def read(self) -> Znode | Failure:
        """The znode as it is."""
        return self.znode if self.exists else Failure(Cause.ABSENT, "no such znode")

    def write(self, wanted: Write) -> Znode | Failure:
        """Take a write if its version is still the one in force."""
        if not self.exists:
            return Failure(Cause.ABSENT, "no such znode")
        if wanted.version != self.znode.version:
            return Failure(Cause.CONFLICT, f"the version is {self.znode.version}, not {wanted.version}")
        before, self.znode = self.znode, Znode(wanted.data, self.znode.version + 1)
        self.world.mix(self.znode.version)
        if self.world.trace is not None:
            self.world.note(f"ZooKeeper takes {wanted}")
        self.monitor.written(wanted, before, self.znode)
        return self.znode

    # Old brokers.

    def brokers(self) -> LiveBrokers:
        """Whose session lasts."""
        return LiveBrokers(tuple(sorted({broker_id for broker_id, _ in self._registered})))

    def register(self, broker_id: int, life: int) -> None:
        """An old broker has a session."""
        if not self._registered:
            self._vacant_until = self.world.now
        self._registered.add((broker_id, life))

    def expire(self, broker_id: int, life: int) -> None:
        """Its session has ended, whether it lives or not."""
        self._registered.discard((broker_id, life))

    def vacant_since(self, moment: int) -> bool:
        """Whether there was a time from `moment` on at which no broker was registered."""
        return not self._registered or self._vacant_until >= moment

    # Outages.

    def reaches(self, node: int | None) -> bool:
        """Whether calls of a member, or of the old brokers (None), arrive."""
        return not self._off and not self._away and node not in self._cut

    def since(self, node: int | None) -> int:
        """When `reaches` changed last."""
        return max(self._changed.get(node, -SECOND), self._changed.get(0, -SECOND))

    def go_away(self, length: int) -> None:
        """Nobody reaches it for a while."""
        self._away += 1
        self._changed[0] = self.world.now
        self.world.at(length, self._come_back)

    def cut(self, node: int, length: int) -> None:
        """One member does not reach it for a while."""
        self._cut.add(node)
        self._changed[node] = self.world.now
        self.world.at(length, self._mend, node)

    def slow_down(self, factor: int, length: int) -> None:
        """Every call takes longer for a while."""
        self.slowness = factor
        self.world.at(length, setattr, self, "slowness", 1)

    def heal(self) -> None:
        """Everybody reaches it, and it answers, from now on."""
        self.healed = True
        self.slowness = 1
        if self._away or self._cut:
            self._changed[0] = self.world.now
        self._away = 0
        self._cut.clear()

    def switch_off(self) -> None:
        """It is gone for good, as its operators want it after the migration."""
        self._off = True
        self._changed[0] = self.world.now

    def _come_back(self) -> None:
        if self._away and not self.healed:
            self._away -= 1
            self._changed[0] = self.world.now

    def _mend(self, node: int) -> None:
        if node in self._cut:
            self._cut.discard(node)
            self._changed[node] = self.world.now


class _Call:
    __slots__ = ("carried_out", "done", "lost", "over", "timed_out")

    def __init__(self, done: Callable[[Any], None]) -> None:
        self.done = done
        self.carried_out = self.lost = self.over = self.timed_out = False


class Session:
    """The client of one process. `later` calls back within that process, or never if it is dead by then.

    `seen`: the data of the znode as it was answered to this process.
    """

    def __init__(
        self, zookeeper: ZooKeeper, node: int | None, name: str, later: Later, alive: Callable[[], bool]
    ) -> None:
        self.zookeeper = zookeeper
        self.world = zookeeper.world
        self.node = node
        self.seen: set[bytes] = set()
        self._rng = self.world.stream(f"zookeeper-{name}")
        self._later = later
        self._alive = alive
        self._arrival = 0
        self._connected_from = self.world.now + self._rng.randrange(1, zookeeper.settings.detection)

    def disconnected(self) -> str | None:
        """None while there is a session, as far as the client has noticed."""
        noticed = self.world.now >= self.zookeeper.since(self.node) + self.zookeeper.settings.detection
        if self.world.now < self._connected_from or self.zookeeper.reaches(self.node) != noticed:
            return "no session with ZooKeeper"
        return None

    def read(self, done: Done, reached: Callable[[str], None]) -> None:
        """Read the znode."""
        self._send(self.zookeeper.read, done, None, reached)

    def write(self, wanted: Write, done: Done, reached: Callable[[str], None]) -> None:
        """Write it. `reached` is told how far the call has come."""
        self._send(lambda: self.zookeeper.write(wanted), done, wanted, reached)

    def brokers(self, done: Callable[[LiveBrokers | Failure], None]) -> None:
        """Look who is registered."""
        self._send(self.zookeeper.brokers, done, None, _nowhere)

    def _send(
        self,
        operate: Callable[[], Outcome],
        done: Callable[[Any], None],
        wanted: Write | None,
        reached: Callable[[str], None],
    ) -> None:
        if self.disconnected() is not None:
            self._later(0, done, Failure(Cause.UNAVAILABLE, "no session with ZooKeeper"))
            return
        settings, rng = self.zookeeper.settings, self._rng
        call = _Call(done)
        self._later(settings.timeout, self._time_out, call, wanted)
        reached("sent")
        arrival = self.world.now + self._delay()
        chance = 1.0 if self.zookeeper.healed else rng.random()
        answered = True
        if chance < settings.unknown:
            answered = False
            way = rng.random()
            if way < 0.3:
                call.lost = True
                return
            if way < 0.65 and wanted is not None:
                # Behind calls that are made later: the session was lost with it.
                late = settings.timeout + int(MILLISECOND * 10 ** rng.uniform(0.0, 3.9))
                self.world.at(min(late, LATEST_LANDING), self._carry_out, call, operate, wanted, reached, answered)
                return
        self._arrival = arrival = max(arrival, self._arrival)
        self.world.at(arrival - self.world.now, self._carry_out, call, operate, wanted, reached, answered)

    def _delay(self) -> int:
        return int(self.zookeeper.settings.delay * self.zookeeper.slowness * (0.2 + 1.6 * self._rng.random())) + 1

    def _carry_out(
        self,
        call: _Call,
        operate: Callable[[], Outcome],
        wanted: Write | None,
        reached: Callable[[str], None],
        answered: bool,
    ) -> None:
        late = call.timed_out or not self._alive()
        if not late and not self.zookeeper.reaches(self.node):
            call.lost = True
            return
        outcome = operate()
        call.carried_out = not isinstance(outcome, Failure)
        if late and wanted is not None:
            self.world.fault("zookeeper_late_write" if call.carried_out else "zookeeper_late_write_refused")
        if call.carried_out:
            reached("carried_out")
        if answered and self.zookeeper.reaches(self.node):
            self._later(self._delay(), self._answer, call, outcome, reached)

    def _answer(self, call: _Call, outcome: Outcome, reached: Callable[[str], None]) -> None:
        if call.over:
            return
        call.over = True
        if isinstance(outcome, Znode):
            if outcome.data is not None:
                self.seen.add(outcome.data)
            reached("acknowledged")
        call.done(outcome)

    def _time_out(self, call: _Call, wanted: Write | None) -> None:
        if call.over:
            return
        call.over = call.timed_out = True
        if wanted is None:
            self.world.fault("zookeeper_read_timeout")
        elif call.carried_out:
            self.world.fault("zookeeper_timeout_applied")
        elif call.lost:
            self.world.fault("zookeeper_timeout_lost")
        call.done(Failure(Cause.UNAVAILABLE, "no answer in time"))


class Port:
    """`BlockZnode` for one part of a member: its claims, its steps, or its operators' orders."""

    def __init__(self, session: Session, process: Process, use: str) -> None:
        self._session = session
        self._process = process
        self._use = use

    def read(self, done: Done) -> None:
        """Read the znode."""
        phase = self._process.storage.machine.migration.phase
        self._session.read(done, self._reached("read", phase) if self._use == STEPS else _nowhere)

    def write(self, data: bytes | None, version: int, done: Done) -> None:
        """Write the znode."""
        phase = self._process.storage.machine.migration.phase
        kind = {CLAIMS: "claim", ORDERS: "start"}.get(self._use) or STEP_WRITES.get(phase, "step")
        wanted = Write(kind, self._process.node_id, -1, phase, data, version)
        self._session.write(wanted, done, _nowhere if self._use == ORDERS else self._reached(kind, phase))

    def brokers(self, done: Callable[[LiveBrokers | Failure], None]) -> None:
        """Look who is registered."""
        self._session.brokers(done)

    def disconnected(self) -> str | None:
        """As the session says."""
        return self._session.disconnected()

    def _reached(self, what: str, phase: MigrationPhase) -> Callable[[str], None]:
        name = f"{phase.name.lower()}_read" if what == "read" else what
        points, process = self._process.member.cluster.kill_points, self._process

        def reached(where: str) -> None:
            if what != "read" or where == "acknowledged":
                points.reached(process, self._use, f"{name}_{where}")

        return reached


def _nowhere(_: Any) -> None:
    """Nothing is noted."""
