"""Leaders that migrate from a znode in memory: the product's leader's side over a log that is a list.

Every leader replays the same log. One that was succeeded is deposed at once, or goes on without knowing it: then it
proposes still, and what it proposes is never committed.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any, Final, cast

import msgspec

from pidkeeper.controller.migration.znode import ZnodeBlock, parse
from pidkeeper.controller.node.leadership import Leadership
from pidkeeper.controller.node.markers import MarkerWriter, RecordedMarkers
from pidkeeper.controller.node.proposals import Proposals
from pidkeeper.controller.node.settings import PROFILES, MemberSettings, Voter
from pidkeeper.controller.raft.core import RaftCore, Role
from pidkeeper.controller.raft.membership import Membership, plain_record
from pidkeeper.controller.raft.messages import MAX_ENTRY_BYTES, Entry
from pidkeeper.controller.state.foundings import Foundings
from pidkeeper.controller.state.machine import StateMachine
from pidkeeper.controller.state.requests import AllocateProducerIds, RaiseFloor, Request
from pidkeeper.controller.transport.identity import Identity
from pidkeeper.protocol.addresses import HostPort
from pidkeeper.protocol.errors import ErrorCode
from pidkeeper.protocol.founding import FoundingRecord
from pidkeeper.protocol.metadata_version import FOUNDING, LATEST
from pidkeeper.protocol.migration import CONTROLLER, MigrationPhase
from pidkeeper.protocol.records import (
    FeatureLevelRecord,
    LeaderChangeRecord,
    QuorumMember,
    RegisterBrokerRecord,
    VotersRecord,
    decode_batch,
    encode_batch,
)
from tests.support.memory_znode import MAX_TURNS, MemoryAnswer, MemoryLoop, MemoryZnode

SETTINGS: Final = MemberSettings(
    node_id=1,
    cluster_id="c",
    data_dir="/data",
    voters=(Voter(1, HostPort("127.0.0.1", 1), "http://127.0.0.1:1"),),
    peer_listen=HostPort("127.0.0.1", 1),
    timing=PROFILES["lan"],
    block_size=10,
    broker_session_timeout_ms=6_000,
    founding_hearing_ms=2_000,
    snapshot_entries=1_000,
    snapshot_allocations=1_000,
    segment_bytes=1 << 20,
    peer_keys=(None,),
)
SIZE = 10
NAME = "pidkeeper/c/0"
ALLOCATE = AllocateProducerIds(1, 0)
STALE = AllocateProducerIds(1, 99)


class MemoryQuorum:
    """A log, the znode, and whoever leads. Broker 1 is registered with epoch 0."""

    def __init__(self, *, version: int = LATEST, bridge: bool = False, size: int = SIZE) -> None:
        self.znode = MemoryZnode()
        self.bridge = bridge
        self.size = size
        self.log: list[bytes] = [encode_batch([RegisterBrokerRecord(1, 0, "a"), FeatureLevelRecord(version)])]
        self.names = 0
        self.leader = MemoryLeader(self)

    def new_name(self) -> str:
        """`pidkeeper/c/0` and so on."""
        self.names += 1
        return f"pidkeeper/c/{self.names - 1}"

    def succeed(self, *, aware: bool = True) -> MemoryLeader:
        """Another leader takes over; the one before is told so only if `aware`. Returns that one."""
        before = self.leader
        before.succeeded = True
        if aware:
            before.depose()
        self.log.append(encode_batch([LeaderChangeRecord(2)]))
        self.leader = MemoryLeader(self)
        return before

    def run(self, *, ticks: int = 1) -> None:
        """Everything that is under way, on the znode too, comes to its end, with `ticks` of the leader in between."""
        for _ in range(ticks):
            self.leader.migration.tick()
            self.settle()

    def settle(self) -> None:
        """`run` without a tick."""
        for _ in range(MAX_TURNS):
            self.leader.settle()
            if not self.znode.calls:
                return
            self.znode.answer()
        raise AssertionError(f"still busy after {MAX_TURNS} calls")

    def enter(self, phase: MigrationPhase) -> None:
        """From BRIDGE or NONE to `phase`, on the shortest way there."""
        if phase is MigrationPhase.NONE:
            return
        if phase is MigrationPhase.BRIDGE:
            self.bridge = self.leader.migration.bridge = True
            self.leader.found()
            self.run()
        else:
            self.order("start")
            if phase is not MigrationPhase.IMPORT:
                self.run()
        if phase in {MigrationPhase.FINALIZING, MigrationPhase.FINALIZED}:
            self.order(MigrationPhase.FINALIZING)
        if phase in {MigrationPhase.ROLLING_BACK, MigrationPhase.ROLLED_BACK}:
            self.order(MigrationPhase.ROLLING_BACK)
        if phase in {MigrationPhase.FINALIZED, MigrationPhase.ROLLED_BACK}:
            self.run()
        assert self.leader.phase() is phase, f"in {self.leader.phase().name}, not in {phase.name}"

    def order(self, order: str | MigrationPhase) -> MigrationPhase:
        """Give an order, and wait for what comes of it. Raises RequestError."""
        orders = self.leader.migration.orders
        answer = orders.order(order) if isinstance(order, MigrationPhase) else orders.start()
        self.settle()
        phase: MigrationPhase = answer.result()
        return phase


class MemoryCore:
    """The part of the consensus core that a leader's side sees. It keeps what is proposed, for a test to commit."""

    def __init__(self) -> None:
        self.node_id = 1
        self.term = 1
        self.role = Role.LEADER
        self.serving = True
        self.transferring: int | None = None
        self.last_index = 0
        self.membership = Membership(1, plain_record([1]))
        self.proposed: list[Entry] = []

    @property
    def applied(self) -> int:
        """Nothing but the decider writes to this log, and it waits for its own entries."""
        return self.last_index

    def propose(self, data: bytes) -> tuple[int, int]:
        """Append."""
        assert len(data) <= MAX_ENTRY_BYTES, f"an entry of {len(data)} bytes"
        self.last_index += 1
        self.proposed.append(Entry(self.term, self.last_index, data))
        return self.term, self.last_index

    def change_members(self, record: VotersRecord) -> tuple[int, int]:
        """Append."""
        return self.propose(encode_batch([record]))

    def contacts(self) -> list[QuorumMember]:
        """It is alone."""
        return [QuorumMember(self.node_id, None, "", "", True)]


class MemorySurroundings(msgspec.Struct):
    """What a leader needs from outside, in memory."""

    loop: Any
    znode: Any
    new_name: Callable[[], str]
    new_founding_id: Callable[[], uuid.UUID] = uuid.uuid4
    markers: MarkerWriter = RecordedMarkers()
    wall_clock: Callable[[], float] = lambda: 1.5


class MemoryLeader:
    """One leadership: the product's, over a core whose log is a list."""

    def __init__(self, quorum: MemoryQuorum) -> None:
        self.quorum = quorum
        self.machine = StateMachine("c", quorum.size)
        for data in quorum.log:
            self.machine.replay(decode_batch(data))
        self.found()
        self.loop = MemoryLoop()
        self.succeeded = False
        self.core = MemoryCore()
        self.proposals = Proposals(self.core)
        self.leadership = Leadership(
            cast("RaftCore", self.core),
            self.machine,
            self.proposals,
            msgspec.structs.replace(SETTINGS, bridge=quorum.bridge),
            MemorySurroundings(self.loop, quorum.znode, quorum.new_name),
            versions=dict,
            own=lambda: Identity("c", 1, "d"),
            foundings=dict,
            wake=lambda: self.loop.call_soon(self._decide),
        )
        self.leadership.observe()
        self.decider, self.migration = self.leadership.decider, self.leadership.migration

    def found(self) -> None:
        """The quorum was founded as it is told to be."""
        if self.machine.metadata_version >= FOUNDING:
            self.machine.foundings = Foundings(
                FoundingRecord(uuid.UUID(int=1), self.quorum.size, self.quorum.bridge, 0)
            )

    def phase(self) -> MigrationPhase:
        """The phase in force."""
        return self.machine.migration.phase

    def _decide(self) -> None:
        self.leadership.decide()

    def commit(self) -> bool:
        """Commit and apply the oldest proposed entry; whether there was one. Never for who was succeeded."""
        if self.succeeded or not self.core.proposed:
            return False
        entry = self.core.proposed.pop(0)
        self.quorum.log.append(entry.data)
        records = self.proposals.records_of(entry) or decode_batch(entry.data)
        self.machine.replay(records)
        self.leadership.applied(records)
        self.proposals.applied(entry)
        self.decider.decide()
        return True

    def settle(self) -> None:
        """Run what is due and commit what is proposed, until nothing is left but calls to the znode."""
        for _ in range(MAX_TURNS):
            if not self.loop.run() and not self.commit():
                return
        raise AssertionError(f"still busy after {MAX_TURNS} commits")

    def depose(self) -> None:
        """It learns that it does not lead any more."""
        self.core.role, self.core.serving = Role.FOLLOWER, False
        self.leadership.observe()

    def ask(self, request: Request = ALLOCATE) -> MemoryAnswer:
        """As the HTTP interface does. Raises RequestError."""
        answer: Any = self.leadership.submit(request)
        assert isinstance(answer, MemoryAnswer)
        return answer

    def floor(self, at_least: int) -> MemoryAnswer:
        """Ask for a floor."""
        return self.ask(RaiseFloor(at_least))


def ours(first: int, last: int, name: str = NAME) -> ZnodeBlock:
    """A claim of this quorum."""
    return ZnodeBlock(CONTROLLER, first, last, name)


def start_of(answer: MemoryAnswer) -> int:
    """The first ID of a granted block. Raises the refusal."""
    start: int = answer.result().producer_id_start
    return start


def code_of(answer: MemoryAnswer) -> ErrorCode:
    """Of a refusal."""
    assert answer.done()
    assert answer.refusal is not None, f"answered {answer.result()}"
    return answer.refusal.code


def stands(quorum: MemoryQuorum) -> ZnodeBlock | None:
    """The block in the znode."""
    return parse(quorum.znode.data)


def granted(quorum: MemoryQuorum, count: int = 1) -> list[int]:
    """The first IDs of blocks that are asked for together. Raises a refusal."""
    answers = [quorum.leader.ask() for _ in range(count)]
    quorum.settle()
    return [start_of(answer) for answer in answers]


CLAIM_STATES = ("waiting", "reading", "writing", "handed over", "proposed")


def reach(leader: MemoryLeader, state: str) -> None:
    """Bring the claim for what was asked to one of CLAIM_STATES; what it waits for then has not happened."""
    if state == "waiting":
        return
    leader.settle()
    if state == "reading":
        return
    leader.quorum.znode.answer()
    if state == "writing":
        return
    leader.quorum.znode.answer()
    if state == "proposed":
        leader.loop.run()
