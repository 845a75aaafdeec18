"""Disks that hang or are slow once all other faults have ended: what the quorum owes its callers all the same.

- While the leader's disk hangs, another member leads, and blocks are given; the leadership changes once. The member
  whose disk it is says so in `/readyz`, and its health too, and no other one does.
- While all disks are equally slow, nobody else comes to lead, and blocks are committed, for callers that wait for them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pidkeeper.controller.node.status import describe, readiness
from pidkeeper.controller.raft.disk_pace import CALM_TIMEOUTS
from tests.simulation.client import ATTEMPT
from tests.simulation.world import MILLISECOND, SECOND, Violation

if TYPE_CHECKING:
    from tests.simulation.cluster import Cluster
    from tests.simulation.process import Process

LENGTH: Final = 8 * SECOND
"""How long it lasts. Less than `cluster.CONVERGENCE`, within which whoever hung has to catch up."""

PATIENCE: Final = 6 * SECOND
"""Until a block is given while one disk hangs: five of the longest election timeouts, and as long for a caller to find
the leader. While all are slow it may take as long as that lasts: who has to register first waits for two writes, and
where ZooKeeper counts a claim comes before the block."""

AHEAD: Final = 200 * MILLISECOND
"""By so much the disks of the others become slow before the leader's: to one whose disk is the first, the others are
faster for once, and it hands over."""

AFTERWARDS: Final = 3 * SECOND
"""Until every caller has been heard again, and nobody is late in taking over."""

SLOW_SYNC: Final = 1000 * MILLISECOND
"""What every piece of work on a disk takes: more than any election timeout."""


class SlowDisks:
    """Drawn from a stream of its own: one of the two in each seed."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._world = cluster.world
        self._one = cluster.world.stream("slow-disks").random() < 0.5
        self._begin = self._next_id = 0

    def run(self) -> None:
        """Let disks be slow for a while. All members are up and sound. Raises Violation."""
        self._world.run(self._world.now + self._memory())
        self._begin, self._next_id = self._world.now, self._cluster.next_id_seen()
        elections = self._cluster.monitor.elections
        leader = self._cluster.leader()
        assert leader is not None, "a sound cluster has a leader"
        if self._one:
            self._world.note(f"the disk of member {leader.node_id} hangs")
            leader.member.hangs_until = self._begin + LENGTH
        else:
            self._slow_down(SLOW_SYNC, but=leader.node_id)
            # Callers that gave up sooner would never learn that they are not registered any more.
            self._cluster.attempt = LENGTH
            self._world.run(self._begin + AHEAD)
            self._slow_down(SLOW_SYNC)
            self._world.note("all disks are slow")
        patience = PATIENCE if self._one else LENGTH
        self._world.run(self._begin + patience, self._allocated)
        if not self._allocated():
            raise Violation("slow-disk", f"no block within {patience // SECOND} s: {self._what}")
        self._world.run(self._begin + LENGTH)
        if self._one:
            self._check_told(leader)
        self._slow_down(0)
        self._cluster.attempt = ATTEMPT
        self._world.run(self._world.now + AFTERWARDS)
        changes = self._cluster.monitor.elections - elections
        if changes != self._one:
            raise Violation("slow-disk", f"{changes} elections: {self._what}")

    def _check_told(self, hung: Process) -> None:
        """Only by now: a write that stalls is a matter of health after a second, by the slowest clock some more."""
        for process in self._cluster.processes():
            checks = [check for check in readiness(process.node) if check.name == "disk_pace" and not check.ok]
            told = (bool(checks), any("the disk is slow" in reason for reason in describe(process.node).reasons))
            if told != (process is hung, process is hung):
                facts = f"/readyz and health of member {process.node_id} tell {told} of it"
                raise Violation("slow-disk-told", f"the disk of member {hung.node_id} hangs: {facts}")

    def _memory(self) -> int:
        """For how long a leader remembers who lagged, by the slowest clock."""
        ticks = CALM_TIMEOUTS * self._cluster.swarm.election_ticks
        return ticks * max(member.tick_us for member in self._cluster.members.values())

    @property
    def _what(self) -> str:
        return "the leader's disk hangs" if self._one else f"work on any disk takes {SLOW_SYNC // MILLISECOND} ms"

    def _slow_down(self, least: int, but: int | None = None) -> None:
        for node, member in self._cluster.members.items():
            if node != but:
                member.least_disk_delay = least

    def _allocated(self) -> bool:
        if self._one:
            return self._cluster.history.newest_invocation >= self._begin
        return self._cluster.next_id_seen() > self._next_id
