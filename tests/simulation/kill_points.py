"""How far a leader has come with a claim or a step of the migration, and leaders that are lost just there.

Between every two steps the next leader finds another state, in the log, in the znode, or in neither. Faults at random
times hit a window of a millisecond seldom; so the nemesis also names a point, and the next leader to reach it is lost.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import TYPE_CHECKING, Final

from pidkeeper.controller.raft.core import Role
from pidkeeper.protocol.migration import CLAIMING, MigrationPhase, MigrationRecord
from pidkeeper.protocol.records import AllocateProducerIdsRecord, Record
from pidkeeper.protocol.transactions import TransactionalBlockRecord
from tests.simulation.world import MILLISECOND, SECOND
from tests.simulation.zookeeper import CLAIMS, STEPS

if TYPE_CHECKING:
    from tests.simulation.cluster import Cluster
    from tests.simulation.process import Process

CLAIM_POINTS: Final = ("claim_sent", "claim_carried_out", "claim_acknowledged", "claim_proposed")
STEP_POINTS: Final = (
    "bridge_proposed",
    "import_proposed",
    "import_applied",
    "import_read_acknowledged",
    "dual_write_proposed",
    "finalizing_proposed",
    "finalizing_applied",
    "finalizing_read_acknowledged",
    "finalizing_version_proposed",
    "seal_sent",
    "seal_carried_out",
    "seal_acknowledged",
    "finalized_proposed",
    "rolling_back_proposed",
    "rolling_back_applied",
    "rolling_back_read_acknowledged",
    "rolling_back_version_proposed",
    "set_back_sent",
    "set_back_carried_out",
    "set_back_acknowledged",
    "rolled_back_proposed",
)
"""What a leader may have reached last. Behind `version_proposed` it sends its write as soon as that is committed."""

FIRST_POINTS: Final = STEP_POINTS[:1]
START_POINTS: Final = STEP_POINTS[1:5]
FINALIZE_POINTS: Final = STEP_POINTS[5:13]
ROLL_BACK_POINTS: Final = STEP_POINTS[13:]
POINTS: Final = (*CLAIM_POINTS, *STEP_POINTS)
_ENTRIES: Final = frozenset(point for point in POINTS if point.endswith("_proposed"))
"""From there on others may commit it without this leader."""


_BLOCKS: Final = AllocateProducerIdsRecord | TransactionalBlockRecord


class KillPoints:
    """`lost`: leaders that died or were deposed, by the point that they had reached last."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.world = cluster.world
        self.lost: Counter[str] = Counter()
        self._rng: random.Random = cluster.world.stream("kill-points")
        self._traps: set[str] = set()

    def arm(self) -> None:
        """The next leader that reaches some point is lost there. Points that are seldom reached stay armed for long."""
        steps = self._rng.random() < 0.8
        self._traps.add(self._rng.choice(STEP_POINTS if steps else CLAIM_POINTS))

    def arm_among(self, points: tuple[str, ...], often: float) -> None:
        """As `arm`, for what comes next, with the chance `often`; only where leaders are lost like that at all."""
        if self.cluster.migrating.weights["kill_point"] and self._rng.random() < often:
            self._traps.update(self._rng.choices(points, k=len(points) // 2 + 1))

    def disarm(self) -> None:
        """No more."""
        self._traps.clear()

    def reached(self, process: Process, way: str, point: str) -> None:
        """A process has come to `point` with a claim or a step."""
        if not process.alive:
            return
        process.points[way] = point
        if point in self._traps and process.core.role is Role.LEADER:
            self._traps.discard(point)
            soon = self._rng.choice((0, self._rng.randrange(20 * MILLISECOND))) if point in _ENTRIES else 0
            self.world.at(soon, self._lose, process)

    def proposed(self, process: Process, records: list[Record]) -> None:
        """A leader proposes an entry."""
        for record in records:
            if isinstance(record, MigrationRecord):
                self.reached(process, STEPS, f"{_name(record)}_proposed")
        phase = process.storage.machine.migration.phase
        if phase in CLAIMING and any(isinstance(record, _BLOCKS) for record in records):
            self.reached(process, CLAIMS, "claim_proposed")

    def applied(self, process: Process, records: list[Record]) -> None:
        """A member applied an entry."""
        for record in records:
            if isinstance(record, MigrationRecord):
                if record.phase in {MigrationPhase.IMPORT, *_PAUSED} and record.znode_version < 0:
                    self.reached(process, STEPS, f"{_name(record)}_applied")
                elif record.znode_version < 0 or record.phase not in _PAUSED:
                    process.points.pop(STEPS, None)
            elif isinstance(record, _BLOCKS) and process.points.get(CLAIMS) == "claim_proposed":
                del process.points[CLAIMS]

    def gone(self, process: Process) -> None:
        """A leader died or was deposed."""
        for point in process.points.values():
            self.lost[point] += 1
        process.points.clear()

    def _lose(self, process: Process) -> None:
        if not process.alive or self.cluster.healed:
            return
        self.world.fault("kill_point", f"member {process.node_id} at {process.points}")
        way = self._rng.random()
        back = int(MILLISECOND * 10 ** self._rng.uniform(0.5, 3.5))
        if way < 0.75:
            process.member.crash(power=way > 0.6, restart_after=back)
        elif way < 0.9:
            process.loop.pause(self._rng.randrange(300 * MILLISECOND, 3 * SECOND))
        else:
            nodes = [member.node_id for member in self.cluster.machines() if member is not process.member]
            links = {(process.node_id, node) for node in nodes} | {(node, process.node_id) for node in nodes}
            self.cluster.network.block(links)
            self.world.at(self._rng.randrange(300 * MILLISECOND, 3 * SECOND), self.cluster.network.unblock, links)


_PAUSED: Final = {MigrationPhase.FINALIZING, MigrationPhase.ROLLING_BACK}


def _name(record: MigrationRecord) -> str:
    version = "_version" if record.phase in _PAUSED and record.znode_version >= 0 else ""
    return record.phase.name.lower() + version
