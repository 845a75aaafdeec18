"""How much may be lost at once. With more no protocol keeps its word, so faults are placed within it.

As in TigerBeetle's fault atlas, one rule stands above the dice: by every configuration that any member may count by,
fewer voters than a majority have a damaged disk, counted until they have recovered (see `elections.py`, which says why
that is what recovery needs). Crashes, power cuts, full disks and failing syncs may hit all members at the same time:
they take away only what was never acknowledged.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.simulation.cluster import Cluster
    from tests.simulation.member import Member


class Budget:
    """Looks at the machines, not at what their members say of themselves."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    def candidates(self) -> list[Member]:
        """The members whose disk may be damaged now."""
        members = [member for member in self.cluster.members.values() if member.deployed and not member.damaged]
        return [member for member in members if self._may_lose(member)]

    def may_deploy(self, member: Member) -> bool:
        """Whether `member` may come into use with an empty disk: where it once voted, its voice is a weak one."""
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
