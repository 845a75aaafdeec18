"""What a member does while it leads: it takes requests, and has duties of its own.

Requests are routed to the decider, by way of a claim in ZooKeeper where ZooKeeper has a say. The duties are to fence
silent brokers, to raise the metadata version, to bring transactions to their end, to go on with the migration, and to
claim blocks for transactional producers ahead.
Pure: ticks, applied records and the wall clock come in, requests go to the decider.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, Protocol

from pidkeeper.controller.answers import Answer, Callback, Loop, not_controller
from pidkeeper.controller.migration.member_side import Migration
from pidkeeper.controller.migration.zookeeper import BlockZnode
from pidkeeper.controller.node.decider import Decider
from pidkeeper.controller.node.founding_duty import FoundingDuty
from pidkeeper.controller.node.garbage_watch import GarbageWatch
from pidkeeper.controller.node.group_duties import GroupDuties
from pidkeeper.controller.node.log_duties import LogDuties
from pidkeeper.controller.node.log_watch import LogWatch
from pidkeeper.controller.node.markers import MarkerWriter
from pidkeeper.controller.node.own_ids_duty import OwnIdsDuty
from pidkeeper.controller.node.proposals import Proposals
from pidkeeper.controller.node.segment_duties import SegmentDuties
from pidkeeper.controller.node.sessions import BrokerSessions
from pidkeeper.controller.node.settings import MemberSettings
from pidkeeper.controller.node.transaction_duties import TransactionDuties
from pidkeeper.controller.node.version_duty import VersionDuty
from pidkeeper.controller.raft.core import RaftCore, Role
from pidkeeper.controller.state import requests
from pidkeeper.controller.state.machine import Allocation, StateMachine
from pidkeeper.protocol.errors import RequestError
from pidkeeper.protocol.founding import Founded
from pidkeeper.protocol.log_messages import WatchedLog
from pidkeeper.protocol.metadata_version import BASE, MEMBERSHIP
from pidkeeper.protocol.records import AllocateProducerIdsRecord, Record
from pidkeeper.service.broker_counts import BrokerCounts

logger = logging.getLogger(__name__)

DUTY_TICKS: Final = 10
"""Between two looks at the duties: a fifth of the shortest heartbeat interval that makes sense, and cheap."""


class Surroundings(Protocol):
    """What a leader needs from outside. `Ports` is made of these, among others."""

    @property
    def loop(self) -> Loop:
        """Makes the futures that callers wait for."""

    @property
    def wall_clock(self) -> Callable[[], float]:
        """Seconds since the epoch: a label in records, and the age of idle transactional ids."""

    @property
    def znode(self) -> BlockZnode:
        """ZooKeeper's znode of the latest block."""

    @property
    def markers(self) -> MarkerWriter:
        """Writes the markers of transactions to partitions."""

    @property
    def new_name(self) -> Callable[[], str]:
        """Makes a name for this quorum's claims in ZooKeeper that nobody ever had."""

    @property
    def new_founding_id(self) -> Callable[[], uuid.UUID]:
        """Makes a uuid for a quorum that an early build began."""


class Leadership:
    """The leader's side of one member, of which nothing happens while another member leads.

    `versions()`: the newest metadata version that each connected peer reads, by id. `own()`, `foundings()`: as in
    `FoundingDuty`. `wake()` has the driver call `decide` at the end of this turn of the event loop, so that whatever
    else arrives in it joins the batch.
    """

    def __init__(
        self,
        core: RaftCore,
        machine: StateMachine,
        proposals: Proposals,
        settings: MemberSettings,
        surroundings: Surroundings,
        *,
        versions: Callable[[], Mapping[int, int]],
        own: Callable[[], Founded],
        foundings: Callable[[], Mapping[int, Founded]],
        wake: Callable[[], None],
    ) -> None:
        self._core = core
        self._machine = machine
        self._proposals = proposals
        self._surroundings = surroundings
        self._versions = versions
        self._wake = wake
        self._tick_ms = settings.timing.tick_ms
        self.decider = Decider(
            machine, proposals, wall_clock=surroundings.wall_clock, prepared=self._prepared, checked=self._checked
        )
        self.sessions = BrokerSessions(settings.timing.ticks(settings.broker_session_timeout_ms))
        self.version_duty = VersionDuty(
            machine,
            self.sessions,
            self._ask,
            members=self._known_to_members,
            patience_ticks=settings.timing.ticks(settings.broker_session_timeout_ms),
        )
        self.transactions = TransactionDuties(
            machine,
            surroundings.markers,
            self._ask,
            ticks=settings.timing.ticks,
            abort_check_ms=settings.transaction_abort_check_ms,
            expiration_ms=settings.transactional_id_expiration_ms,
        )
        self.migration = Migration(
            machine,
            surroundings.znode,
            surroundings.loop,
            self.decide_for,
            bridge=settings.bridge,
            new_name=surroundings.new_name,
        )
        self.log_watch = LogWatch()
        self.segments = SegmentDuties(machine, self._ask, ticks=settings.timing.ticks, settings=settings.segments)
        self.garbage = GarbageWatch()
        self.logs = LogDuties(
            machine, self._ask, ticks=settings.timing.ticks, expiration_ms=settings.producer_id_expiration_ms
        )
        self.groups = GroupDuties(
            machine,
            self._ask,
            ticks=settings.timing.ticks,
            retention_ms=settings.offsets_retention_ms,
            check_ms=settings.offsets_retention_check_ms,
        )
        self.own_ids = OwnIdsDuty(machine, self.migration.fill_own_ids)
        self.founding = FoundingDuty(
            machine,
            settings,
            surroundings.new_founding_id,
            self._ask,
            own=own,
            foundings=foundings,
            everybody_connected=self._everybody_connected,
        )
        self.blocks_allocated = BrokerCounts()
        self.closed = False
        self.ticks = 0
        self._led_term: int | None = None
        self._began = False

    # Requests.

    def garbage_seconds(self) -> float:
        """How long the oldest object that no log needs has waited, while this member led; 0 if it does not serve."""
        return self.garbage.age_ticks(self.ticks) * self._tick_ms / 1000 if self.serving() else 0.0

    def serving(self) -> bool:
        """Whether requests are taken: it leads, has applied its term's first entry, and is neither handing over nor
        stopping."""
        return self._core.serving and self._core.transferring is None and not self.closed

    def misses_leader(self) -> bool:
        """Whether one is to be expected shortly: by a voter that hears none, or by a leader that does not serve yet or
        hands over."""
        if self.closed:
            return False
        return self._core.misses_leader if self._core.leadership is None else not self.serving()

    def submit(self, request: requests.Request) -> Any:
        """Decide `request` in the next batch, once its IDs are claimed in ZooKeeper if need be.

        The returned future gives the answer once it is committed and applied. Raises RequestError: NOT_CONTROLLER if
        this member does not serve, THROTTLING_QUOTA_EXCEEDED if too many wait, and what `FoundingDuty.check` and
        `Migration.claim_for` raise.
        The future raises NOT_CONTROLLER when leadership is lost meanwhile: then nobody knows what comes of it.
        """
        if not self.serving():
            raise not_controller()
        self.founding.check(request)
        answer = self.migration.claim_for(request)
        if answer is None:
            answer = self._surroundings.loop.create_future()
            self._take(request, answer)
        # Only now that the request is taken: a member that refuses one keeps no session for it.
        if isinstance(request, requests.SignOfLife):
            self.sessions.heard(request.broker_id, self.ticks)
        if type(request) is requests.BrokerHeartbeat:
            self._hear_reserve(request)
        elif type(request) is requests.RegisterBroker:
            self.sessions.knows(request.broker_id, request.incarnation_id, request.metadata_version)
        elif type(request) is requests.InitProducerId or (type(request) is requests.EndTxn and request.new_epoch):
            self.own_ids.wanted()
        return answer

    def decide_for(self, request: requests.Request, answer: Answer) -> None:
        """Have a request of the leader's own decided. Raises RequestError as `submit`."""
        if not self.serving():
            raise not_controller()
        self._take(request, answer)

    def watch_logs(self, watched: Iterable[WatchedLog]) -> Any:
        """A future of WatchLogsResponse; raises RequestError, here or through the future. See `LogWatch`."""
        if not self.serving():
            raise not_controller()
        answer = self._surroundings.loop.create_future()
        self.log_watch.add(self._machine.logs, watched, answer)
        return answer

    def last_contact_ms(self, broker_id: int) -> int | None:
        """How long ago a broker was heard; None if it was not since this member leads, or too long ago."""
        silent = self.sessions.silent(broker_id, self.ticks) if self.serving() else None
        return None if silent is None else silent * self._tick_ms

    def reserve_ids(self, broker_id: int) -> int | None:
        """How many IDs a broker has at hand; None if it has not said so since this member leads."""
        return self.sessions.reserve(broker_id) if self.serving() else None

    def known_to(self, broker_id: int) -> int | None:
        """See `VersionDuty`; None from who does not lead."""
        return self.version_duty.known_to(broker_id) if self.serving() else None

    def version_waits(self) -> list[str]:
        """Likewise."""
        return self.version_duty.waits() if self.serving() else []

    def _hear_reserve(self, request: requests.BrokerHeartbeat) -> None:
        registration = self._machine.brokers.get(request.broker_id)
        # A process that another one has replaced speaks for nobody.
        if registration is not None and registration.broker_epoch == request.broker_epoch:
            self.sessions.has_at_hand(request.broker_id, request.reserve_ids)

    def _take(self, request: requests.Request, answer: Answer) -> None:
        self.decider.add(request, answer)
        self._wake()

    def _prepared(self, request: requests.Request) -> requests.Request:
        return self.founding.prepared(self.migration.prepared(request))

    def _checked(self, records: Sequence[Record]) -> None:
        self.founding.checked(records)
        unnamed = self._machine.metadata_version >= MEMBERSHIP and not self._core.membership.index
        blocks = [record for record in records if isinstance(record, Allocation)] if unnamed else []
        assert not blocks, f"D10: {blocks} before the log says who the voters are"

    def close(self) -> None:
        """Take no more requests: this member stops."""
        self.closed = True

    def fail(self, refusal: RequestError) -> None:
        """Answer everything that waits or is in the log with `refusal`, and take no more."""
        self.closed = True
        self._proposals.fail(refusal)
        self.decider.fail(refusal)
        self.log_watch.deposed()

    # What the driver tells.

    def observe(self) -> None:
        """The core may have come to lead, or lead no more. Called after every round of its work."""
        core = self._core
        led_term = core.term if core.role is Role.LEADER else None
        if self._led_term is None and led_term is None:
            return
        if self._led_term not in {None, led_term}:
            self._proposals.deposed()
            self.decider.fail(not_controller())
            self.log_watch.deposed()
            self.migration.deposed()
        self._led_term = led_term
        if core.serving != self._began:
            self._began = core.serving
            if self._began:
                self._begin()

    def decide(self) -> bool:
        """Decide what waits; whether that appended an entry."""
        return self.decider.decide()

    def applied(self, records: list[Record]) -> None:
        """These were committed and applied."""
        self.log_watch.applied(self._machine.logs)
        if self._began and self._core.serving:
            self.sessions.applied(records, self.ticks)
            self.transactions.applied(records, self.ticks)
            for record in records:
                if type(record) is AllocateProducerIdsRecord:
                    self.blocks_allocated.count(record.broker_id)

    def tick(self) -> None:
        """10 ms have passed."""
        self.ticks += 1
        if self.ticks % DUTY_TICKS == 0 and self.serving():
            now_ms = int(self._surroundings.wall_clock() * 1000)
            self._fence_silent_brokers()
            self.version_duty.tick(self.ticks)
            self.founding.tick(self.ticks)
            self.transactions.tick(self.ticks, now_ms)
            self.logs.tick(self.ticks, now_ms)
            self.segments.tick(self.ticks, now_ms)
            self.groups.tick(self.ticks, now_ms)
            self.garbage.tick(self._machine.logs.objects, self.ticks)
            self.migration.tick()
            if not self.founding.hearing():
                self.own_ids.tick()

    def _begin(self) -> None:
        registered = (registration.broker_id for registration in self._machine.brokers.all())
        self.sessions.restart(registered, self.ticks)
        self.version_duty.lead()
        self.transactions.lead(self._core.term, self.ticks)
        self.logs.lead(self.ticks)
        self.segments.lead(self.ticks)
        self.groups.lead(self.ticks)
        self.garbage.lead()
        self.own_ids.lead(self._core.term)
        self.founding.lead()

    # Duties.

    def _ask(self, request: requests.Request, refused: Callable[[], None]) -> None:
        def answered(_: Any, refusal: RequestError | None) -> None:
            if refusal is not None:
                refused()

        try:
            self.decide_for(request, Callback(answered))
        except RequestError:
            refused()

    def _fence_silent_brokers(self) -> None:
        for broker_id in self.sessions.expired(self.ticks):
            registration = self._machine.brokers.get(broker_id)
            if registration is not None and not registration.fenced:
                logger.warning("fencing broker %d: no heartbeat", broker_id)
                # It registered anew meanwhile, or too many requests wait: it is looked at again after a timeout.
                watch = partial(self.sessions.heard, broker_id, self.ticks)
                self._ask(requests.FenceBroker(broker_id, registration.broker_epoch), watch)

    def _known_to_members(self) -> dict[int, int]:
        known = {**self._versions(), self._core.node_id: self._machine.supported}
        return {member.id: known.get(member.id, BASE) for member in self._core.contacts()}

    def _everybody_connected(self) -> bool:
        others = {member.id for member in self._core.contacts()} - {self._core.node_id}
        return others <= self._versions().keys()
