"""Files that are edited before the quorum is changed, or after members moved: the log says who votes."""

from __future__ import annotations

from pathlib import Path

import msgspec

from pidkeeper.cli.local_cluster import HOST
from pidkeeper.controller.node.settings import MemberSettings
from pidkeeper.controller.node.status import describe
from pidkeeper.controller.raft.core import Role
from pidkeeper.controller.transport.links import PeerLinks
from tests.support.loopback_cluster import LoopbackCluster, eventually


class FilesAhead(LoopbackCluster):
    """Three voters. The files of 4 and 5, and of whom `ahead` names, call all five voters already."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, voters=3, learners=2)
        self.ahead = {4, 5}

    def settings(self, node_id: int) -> MemberSettings:
        """What member `node_id` is told."""
        settings = super().settings(node_id)
        if node_id not in self.ahead:
            return settings
        return msgspec.structs.replace(settings, voters=(*self.voters, *self.learners.values()), learner=None)


async def test_members_that_only_their_files_call_voters_never_count(tmp_path: Path) -> None:
    """They meet a replaced disk first, and its file names them as well: together they would be three of five."""
    cluster = FilesAhead(tmp_path)
    try:
        await cluster.start(1, 2, 3)
        await cluster.settled()
        epoch = await cluster.register()
        first = await cluster.allocate(epoch, 2)
        await cluster.start(4, 5)
        await eventually(lambda: all(cluster.members[one].gate.founding is not None for one in (4, 5)))
        await cluster.stop(1, hand_over=False)
        cluster.wipe(1)
        cluster.ahead.add(1)
        links = [cluster.members[one].links for one in (2, 3)]
        dialled = [link._outbound[1] for link in links if isinstance(link, PeerLinks)]
        there = [link.address for link in dialled]
        for link in dialled:
            link.address = (HOST, 1)
        await cluster.start(1)
        await eventually(lambda: cluster.members[1].gate.founding is not None)
        founding = cluster.members[1].gate.founding
        assert founding is not None and [voter.id for voter in founding.voters] == [1, 2, 3, 4, 5]
        for link, address in zip(dialled, there, strict=True):
            link.address = address
        await eventually(lambda: not cluster.members[1].core.recovering)
        leader = await cluster.leader()
        await eventually(lambda: not leader.core.progress[1].recovery)
        leader.driver.transfer_leadership(1)
        await eventually(cluster.members[1].leadership.serving)
        assert await cluster.allocate(epoch) == [first[-1] + 10]
        for one in (1, 2, 3):
            assert cluster.members[one].core.voters == {1, 2, 3}
        assert all(cluster.members[one].core.recovering for one in (4, 5)), "nobody counts them, so nobody lets them"
    finally:
        await cluster.close()


async def test_a_quorum_whose_log_names_its_voters_moves_by_its_files(tmp_path: Path) -> None:
    """No change of the quorum is needed, nor possible, where all addresses are others after a stop."""
    cluster = LoopbackCluster(tmp_path)
    try:
        await cluster.start()
        await cluster.settled()
        epoch = await cluster.register()
        first = await cluster.allocate(epoch)
        await cluster.settle()
        assert all(member.core.membership.index for member in cluster.members.values())
        await cluster.stop(hand_over=False)
        cluster.move()
        await cluster.start()
        assert await cluster.allocate(epoch) == [first[-1] + 10]
        await eventually(lambda: all(member.core.leader_id is not None for member in cluster.members.values()))
        follower = next(one for one in cluster.members.values() if one.core.role is not Role.LEADER)
        told = describe(follower)
        assert [one.peer for one in follower.core.members] == [str(voter.peer) for voter in cluster.voters]
        assert told.leader_http in {voter.http for voter in cluster.voters}
        assert told.warnings == []
    finally:
        await cluster.close()
