"""A member with all that a process runs between the network and the disk: its core, its driver, its leader's side and
the replicated state. What it is asked for, it answers when the answer is committed.
"""

from __future__ import annotations

import copyreg
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, cast

import msgspec

from pidkeeper.controller.migration.zookeeper import NoZookeeper
from pidkeeper.controller.node.decider import BATCH_BOUNDS
from pidkeeper.controller.node.driver import Driver
from pidkeeper.controller.node.election_clock import ElectionClock
from pidkeeper.controller.node.leadership import Leadership
from pidkeeper.controller.node.markers import RecordedMarkers
from pidkeeper.controller.node.proposals import Proposals
from pidkeeper.controller.node.round_trips import RoundTrips
from pidkeeper.controller.raft.messages import Entry, HardState, Message
from pidkeeper.controller.raft.ready import ChunkRequest, Ready
from pidkeeper.controller.state import requests
from pidkeeper.controller.state.foundings import Foundings
from pidkeeper.controller.state.machine import Allocation, StateMachine
from pidkeeper.controller.transport.identity import Identity
from pidkeeper.protocol.errors import ErrorCode, RequestError
from pidkeeper.protocol.founding import FoundingRecord
from pidkeeper.protocol.messages import AllocateProducerIdsResponse, HeldIds
from pidkeeper.protocol.metadata_version import LATEST
from pidkeeper.protocol.records import (
    FeatureLevelRecord,
    LeaderChangeRecord,
    QuorumMember,
    RegisterBrokerRecord,
    VotersRecord,
    encode_batch,
)
from pidkeeper.service.broker_counts import BrokerCounts
from pidkeeper.service.histogram import Histogram, durations
from pidkeeper.snapshots.image import StateImage
from pidkeeper.snapshots.owner_format import Owner
from pidkeeper.snapshots.snapshot_id import SnapshotId
from tests.explore.member import Member
from tests.support.memory_leader import SETTINGS

FOUNDING: Final = FoundingRecord(uuid.UUID(int=1), 1, False, 0)
"""Of a quorum whose blocks have one ID each: whoever has a block has handed it out."""

IDENTITY: Final = Identity("c", 1, "d")
ADDRESS: Final = "127.0.0.1:1"
BROKER, EPOCH = 1, 0


# It is made of more than its message.
copyreg.pickle(RequestError, lambda refusal: (RequestError, (refusal.code, refusal.detail)))


class Ask(msgspec.Struct, frozen=True, array_like=True, tag=101):
    """The `number`-th request of the agent for a block; `highest`: the highest ID that it ever held, -1 for none."""

    sender: int
    to: int
    number: int
    highest: int


class Grant(msgspec.Struct, frozen=True, array_like=True, tag=102):
    """The answer to the request with that number: a block."""

    sender: int
    to: int
    number: int
    first: int
    length: int


class Reply:
    """Where the answer to one request goes."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller
        self.ask: Ask | None = None

    def done(self) -> bool:
        """Whether nobody waits any more: somebody does always."""
        return False

    def set_result(self, result: AllocateProducerIdsResponse, /) -> None:
        """A block is granted."""
        assert self.ask is not None, "answered before it was decided"
        self._controller.grant(self.ask, result)

    def set_exception(self, exception: RequestError, /) -> None:
        """Nothing comes of it, and the agent asks another member, as if the answer had been lost."""
        if self._controller.driver.faulted:
            return
        assert exception.code is ErrorCode.NOT_CONTROLLER, f"a registered broker is refused: {exception}"


class Controller(Member):
    """A member between two events. It is its own network, disk and event loop, and its clock stands still."""

    __slots__ = ("driver", "fault", "leadership", "machine", "proposals", "sent")

    founded = True
    wall_clock = float
    new_name = str
    new_founding_id = staticmethod(uuid.uuid4)
    znode = NoZookeeper()
    markers = RecordedMarkers()

    def _start(self) -> None:
        self.entries = []
        self.sent: list[Any] = []
        self.fault: BaseException | None = None
        self.machine = StateMachine("c", FOUNDING.block_size)
        if self.disk.image:
            self.machine.restore(_image(self.disk.image))
        else:
            self.machine.replay([RegisterBrokerRecord(BROKER, EPOCH, "a"), FeatureLevelRecord(LATEST)])
            self.machine.foundings = Foundings(FOUNDING)
        configured = VotersRecord(tuple(QuorumMember(one, None, ADDRESS, "", True) for one in self.config.voters))
        self.core = self._make_core(encode_batch([LeaderChangeRecord(0)]), self.machine.voters, configured)
        self.proposals = Proposals(self.core)
        self.leadership = Leadership(
            self.core,
            self.machine,
            self.proposals,
            SETTINGS,
            cast("Any", self),
            versions=dict,
            own=self.own,
            foundings=dict,
            wake=self.wake,
        )
        self.driver = Driver(
            self.core,
            self.machine,
            self.proposals,
            self.leadership,
            links=self,
            writer=self,
            keeper=self,
            chunks=self,
            history=self,
            directory=self,
            loop=self,
            clock_ns=int,
            on_fault=self.stopped,
        )

    # Events.

    def receive(self, message: Any, impatient: bool) -> None:
        """A request of the agent, or a message of another member."""
        if not isinstance(message, Ask):
            super().receive(message, impatient)
            return
        held = None if message.highest < 0 else HeldIds(FOUNDING.founding_id, message.highest)
        reply = self.create_future()
        try:
            reply = self.leadership.submit(requests.AllocateProducerIds(BROKER, EPOCH, None, held))
        except RequestError as refusal:
            reply.set_exception(refusal)
        reply.ask = message

    def _drain(self) -> list[Message]:
        self.driver.pump()
        if self.fault is not None:
            raise AssertionError(str(self.fault) or repr(self.fault)) from self.fault
        sent, self.sent = self.sent, []
        return sent

    def _forget_numbers(self) -> None:
        super()._forget_numbers()
        driver, decider = self.driver, self.leadership.decider
        driver.leader_changes = driver._memberships_version = 0
        driver.round_trips, driver.election_clock = RoundTrips(int), ElectionClock(self.core.tally, int)
        decider.batches = decider.requests = 0
        decider.batch_requests, self.proposals.commit_duration = Histogram(BATCH_BOUNDS), durations()
        self.proposals.unknown = self.proposals.refused = 0
        self.leadership.blocks_allocated = BrokerCounts()

    def _image(self, snapshot: SnapshotId) -> bytes:
        return msgspec.msgpack.encode(self.machine.image(snapshot.index, snapshot.term), enc_hook=list)

    def _take_over(self, snapshot: SnapshotId) -> None:
        self.driver.snapshot_installed(snapshot, _image(self.incoming))

    def grant(self, ask: Ask, granted: AllocateProducerIdsResponse) -> None:
        """A committed answer leaves."""
        self.sent.append(
            Grant(self.config.node_id, ask.sender, ask.number, granted.producer_id_start, granted.producer_id_len)
        )

    # What the driver and the leader's side need.

    @property
    def loop(self) -> Controller:
        """Itself."""
        return self

    def create_future(self) -> Reply:
        """Where an answer goes."""
        return Reply(self)

    def call_soon(self, callback: Callable[[], None], /) -> None:
        """Everything is done at once."""
        callback()

    def wake(self) -> None:
        """The driver is pumped after every event."""

    def own(self) -> Identity:
        """What this member says of itself."""
        return IDENTITY

    def stopped(self, error: BaseException) -> None:
        """The driver has met a fault."""
        self.fault = error

    def send(self, messages: list[Message]) -> None:
        """On their way."""
        self.sent += messages

    def set_members(self, addresses: Mapping[int, tuple[str, int]]) -> None:
        """There are no addresses."""

    def read(self, request: ChunkRequest) -> None:
        """A part of a snapshot is wanted."""
        self.sent += self._chunks(request)

    def tell_voters(self, voters: tuple[QuorumMember, ...]) -> None:
        """Nobody joins."""

    def append(self, token: int, entries: list[Entry], hard_state: HardState | None) -> None:
        """A write is under way."""
        self.disk.pending.append(Ready(token, hard_state, entries, [], [], [], []))

    def applied(self, entry: Entry) -> None:
        """An entry was applied."""
        assert entry in self.disk.entries, f"{entry} was applied before it was durable"

    def record(
        self, allocations: Iterable[tuple[int, Allocation]], owners: Iterable[Owner] = (), jumps: Iterable[Any] = ()
    ) -> None:
        """The history is of no account."""

    def restart(self, next_offset: int, next_producer_id: int) -> None:
        """The history is of no account."""


def _image(data: bytes) -> StateImage:
    return msgspec.msgpack.decode(data, type=StateImage)
