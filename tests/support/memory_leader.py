"""Leaders that migrate from a znode in memory: real decider, state machine and record encoding; the log is a list.

Every leader replays the same log. One that was succeeded is deposed at once, or goes on without knowing it: then it
proposes still, and what it proposes is never committed.
"""

from __future__ import annotations

from typing import Any

from pidkeeper.controller.answers import not_controller
from pidkeeper.controller.migration.member_side import Migration
from pidkeeper.controller.migration.znode import ZnodeBlock, parse
from pidkeeper.controller.node.decider import Decider
from pidkeeper.controller.raft.messages import MAX_ENTRY_BYTES, Entry
from pidkeeper.controller.state.machine import StateMachine
from pidkeeper.controller.state.requests import AllocateProducerIds, RaiseFloor, Request
from pidkeeper.protocol.errors import ErrorCode
from pidkeeper.protocol.metadata_version import LATEST
from pidkeeper.protocol.migration import CONTROLLER, MigrationPhase
from pidkeeper.protocol.records import (
    FeatureLevelRecord,
    LeaderChangeRecord,
    RegisterBrokerRecord,
    decode_batch,
    encode_batch,
)
from tests.support.memory_znode import MAX_TURNS, MemoryAnswer, MemoryLoop, MemoryZnode

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


class MemoryLeader:
    """One leadership: the part of the driver that the decider needs, and the migration."""

    def __init__(self, quorum: MemoryQuorum) -> None:
        self.quorum = quorum
        self.machine = StateMachine("c", quorum.size)
        for data in quorum.log:
            self.machine.replay(decode_batch(data))
        self.loop = MemoryLoop()
        self.is_serving = True
        self.succeeded = False
        self.proposed: list[Entry] = []
        self.entries = 0
        self.decider = Decider(self, self.machine, lambda: 1.5, self.loop)
        self.migration = Migration(
            self.machine,
            quorum.znode,
            self.loop,
            self.decider.submit,
            self.serving,
            bridge=quorum.bridge,
            new_name=quorum.new_name,
        )

    def phase(self) -> MigrationPhase:
        """The phase in force."""
        return self.machine.migration.phase

    def serving(self) -> bool:
        """Whether it believes to lead."""
        return self.is_serving

    def settled(self) -> bool:
        """Nothing but the decider writes to this log."""
        return True

    def propose(self, data: bytes) -> tuple[int, int]:
        """Append; a test commits."""
        assert len(data) <= MAX_ENTRY_BYTES, f"an entry of {len(data)} bytes"
        self.entries += 1
        self.proposed.append(Entry(1, self.entries, data))
        return 1, self.entries

    def confirm(self) -> tuple[int, int]:
        """Append what changes nothing."""
        return self.propose(encode_batch([LeaderChangeRecord(1)]))

    def pump(self) -> None:
        """Decide."""
        self.decider.decide()

    def commit(self) -> bool:
        """Commit and apply the oldest proposed entry; whether there was one. Never for who was succeeded."""
        if self.succeeded or not self.proposed:
            return False
        entry = self.proposed.pop(0)
        self.quorum.log.append(entry.data)
        self.machine.replay(self.decider.records_of(entry) or decode_batch(entry.data))
        self.decider.applied(entry)
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
        self.is_serving = False
        self.migration.deposed()
        self.decider.fail(not_controller())

    def ask(self, request: Request = ALLOCATE) -> MemoryAnswer:
        """As the member does: by way of ZooKeeper if it has a say, else to the decider. Raises RequestError."""
        answer: Any = self.migration.claim_for(request)
        if answer is None:
            answer = self.decider.submit(request)
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
