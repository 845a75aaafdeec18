"""How much may be lost at once. With more no protocol keeps its word, so faults are placed within it.

As in TigerBeetle's fault atlas, one rule stands above the dice: by every configuration that any member may count by,
fewer voters than a majority have a damaged disk, counted until they have recovered (see `elections.py`, which says why
that is what recovery needs). A removed member's empty disk counts too from the moment when it comes back, for a member
that has missed the removal may still ask for its vote. Crashes, power cuts, full disks and failing syncs may hit all
members at the same time: they take away only what was never acknowledged.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.simulation.cluster import Cluster
    from tests.simulation.member import Member
    from tests.simulation.process import Process


class Budget:
    """Looks at the machines, not at what their members say of themselves."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    def candidates(self) -> list[Member]:
        """The members whose disk may be damaged now."""
        members = [member for member in self.cluster.members.values() if member.deployed and not member.damaged]
        return [member for member in members if self._may_lose(member)]

    def may_forget(self) -> list[Process]:
        """The running members whose disk may go back to an older state now, unnoticed.

        A copy of a disk cannot know what it lacks: its member votes and acknowledges as if it had kept its word, which
        no protocol survives that asks two of three. Such a member has broken promises of three kinds, and must have no
        chance to be taken at its word:

        - It helped to commit entries, by acknowledging them. So every other voter holds all that was on its disk.
        - It voted, and knew of terms. So all others know the newest term, hold an entry of that term and follow its
          leader, who lives: nobody can win in that term or below it any more, and nobody stands above it.
        - It counts by a configuration. So that one has been in force since the copy was taken, no change is under way,
          and nobody else is about who could be counted by another.

        And everybody else's disk is good, and stays so until the member holds again what it has forgotten: damage is
        counted until then.
        """
        cluster, leader = self.cluster, self.cluster.leader()
        if leader is None or not self._is_calm(leader):
            return []
        core, voters = leader.core, [cluster.members[voter] for voter in cluster.voters]
        found = []
        for member in voters:
            process = member.process
            if process is None or process is leader:
                continue
            noop_index = 0 if core.leadership is None else core.leadership.noop_index
            least = max(process.durable_last, core.progress[member.node_id].match, noop_index)
            if all(core.progress[other.node_id].match >= least for other in voters if other is not member):
                found.append(process)
        return found

    def _is_calm(self, leader: Process) -> bool:
        """One leader is followed by all, and nothing is damaged or being changed."""
        cluster, core = self.cluster, leader.core
        if not core.serving or core.transferring is not None or not cluster.operator.settled():
            return False
        machines = cluster.machines()
        return len(machines) == len(cluster.voters) and all(
            not member.damaged
            and (process := member.process) is not None
            and process.core.term == core.term
            and process.core.leader_id == leader.node_id
            and self.knows_configuration(process)
            and not process.core.recovering
            and cluster.monitor.remembers(member.node_id, core.term)
            for member in machines
        )

    def knows_configuration(self, process: Process) -> bool:
        """Whether a member's disk holds the newest committed configuration, and its log no other behind it."""
        newest, log = self.cluster.monitor.configuration.index, process.core.log
        return log.memberships.committed and newest <= log.memberships.newest.index <= log.stable

    def may_deploy(self, member: Member) -> bool:
        """Whether `member` may come into use with an empty disk. Where it once voted, it counts as recovering."""
        return self._may_lose(member)

    def allows(self, voters: frozenset[int]) -> bool:
        """Whether `voters` may be in force now. Half of them may be damaged, but not while anything changes."""
        return self._damaged(voters) <= (len(voters) - 1) // 2

    def at_its_end(self) -> bool:
        """Whether half of the voters of some configuration are damaged, so that every voice may be needed."""
        return any(2 * self._damaged(voters) >= len(voters) for voters in self._configurations())

    def _may_lose(self, member: Member) -> bool:
        changing = self._changing()
        for voters in self._configurations():
            if member.node_id in voters:
                limit = (len(voters) - 1) // 2 if changing else len(voters) // 2
                if self._damaged(voters) >= limit:
                    return False
        return True

    def _damaged(self, voters: frozenset[int]) -> int:
        members = self.cluster.members
        return sum(members[voter].damaged for voter in voters)

    def _configurations(self) -> Iterator[frozenset[int]]:
        yield self.cluster.operator.wanted()
        for member in self.cluster.members.values():
            if member.deployed:
                yield from member.counts_by

    def _changing(self) -> bool:
        """Whether somebody may be asked for a voice who is no settled voter, so that half of an even number is no more
        than safe: the other half could not elect anybody until that one answers.
        """
        members = self.cluster.members
        known = frozenset().union(*self._configurations())
        return not self.cluster.operator.settled() or any(not members[node].deployed for node in known)
