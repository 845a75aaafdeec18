"""A member in memory whose quorum is changed by the real code, from the request to the log."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from pidkeeper.controller.node.assembly import ClusterMember
from pidkeeper.controller.node.driver import addresses
from pidkeeper.controller.node.interface import MemberInterface
from pidkeeper.controller.node.proposals import Proposals
from pidkeeper.controller.node.voter_changes import VoterChanges
from pidkeeper.controller.raft.core import RaftConfig, RaftCore
from pidkeeper.controller.raft.messages import AppendEntries, Entry, HardState
from pidkeeper.controller.state.machine import StateMachine
from pidkeeper.controller.transport.identity import Peer
from pidkeeper.protocol.messages import AddVoterRequest
from pidkeeper.protocol.metadata_version import LATEST
from pidkeeper.protocol.records import FeatureLevelRecord, QuorumMember, VotersRecord, encode_batch, read_voters
from pidkeeper.snapshots.snapshot_id import SnapshotId
from tests.support.memory_member import MemoryMember, RunningLoop
from tests.support.raft_network import NoJitter, accepted, make_leader

LEARNER = QuorumMember(7, None, "127.0.0.1:9007", "http://127.0.0.1:8007", False)
_FIRST = VotersRecord((QuorumMember(1, None, "127.0.0.1:9001", "http://127.0.0.1:8001", True), LEARNER))


class ChangingMember(MemoryMember):
    """Leader 1 with learner 7, which has caught up. Whoever is added answers at once."""

    def __init__(self) -> None:
        super().__init__()
        self.renew_quorum()

    def renew_quorum(self) -> None:
        """Begin with the first configuration again."""
        self.core = RaftCore(
            RaftConfig(node_id=1, voters=(1,)),
            NoJitter(1),
            hard_state=HardState(1, None, 1),
            snapshot=SnapshotId(0, 0),
            entries=[Entry(1, 1, encode_batch([_FIRST]))],
            leader_change_data=b"",
        )
        make_leader(self.core)
        self.core.step(accepted(self.core, LEARNER.id, self.core.last_index))
        machine = StateMachine("fuzzed")
        machine.replay([FeatureLevelRecord(LATEST)])
        self.proposals = Proposals(self.core)
        peers = {7: Peer("directory-7")}
        parts = SimpleNamespace(
            node_id=1,
            core=self.core,
            settings=SimpleNamespace(peer_keys=(b"a key",), cluster_id=self.cluster_id),
            voter_changes=VoterChanges(self.core, machine, self.proposals),
            links=SimpleNamespace(peers=peers, identity=SimpleNamespace(directory_id="directory-1")),
            driver=SimpleNamespace(pump=self._pump),
            ports=SimpleNamespace(loop=RunningLoop()),
        )
        self._interface = MemberInterface(cast("ClusterMember", parts))
        self._pump()

    def quorum(self) -> tuple[Any, ...]:
        """What a refused change may not change."""
        return self.core.memberships_version, self.core.membership.record

    def check_quorum(self) -> None:
        """Raise whatever would stop a member that holds this log: a record or an address that cannot be read."""
        for entry in self.core.log.slice(1, self.core.last_index):
            read_voters(entry.data)
        addresses(self.core)

    def add_voter(self, wanted: AddVoterRequest) -> asyncio.Future[Any]:  # type: ignore[override]
        """As a member of a cluster does it."""
        answer: asyncio.Future[Any] = self._interface.add_voter(wanted)
        return answer

    def remove_voter(self, member_id: int) -> asyncio.Future[Any]:  # type: ignore[override]
        """As a member of a cluster does it."""
        answer: asyncio.Future[Any] = self._interface.remove_voter(member_id)
        return answer

    def _pump(self) -> None:
        while (ready := self.core.ready()) is not None:
            if ready.token is not None:
                self.core.written(ready.token)
            for entry in ready.committed:
                self.core.applied_to(entry.index)
                self.proposals.applied(entry)
            for message in ready.messages:
                if isinstance(message, AppendEntries):
                    index = message.prev_log_index + len(message.entries)
                    self.core.step(accepted(self.core, message.to, index))
