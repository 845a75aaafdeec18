"""The state machine: replays committed batches, and drafts the next batch on top of what is applied."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from controller.state import requests
from controller.state.brokers import MAX_BROKERS, BrokersState, check_epoch, registered
from controller.state.producer_ids import ProducerIdsState, check_block_left
from protocol.errors import ErrorCode, RequestError
from protocol.ids import DEFAULT_BLOCK_SIZE
from protocol.messages import (
    AllocateProducerIdsResponse,
    BrokerHeartbeatResponse,
    RaiseFloorResponse,
    RegisterBrokerResponse,
    UnregisterBrokerResponse,
)
from protocol.metadata_version import BASE, LATEST
from protocol.records import (
    AllocateProducerIdsRecord,
    BrokerRegistrationChangeRecord,
    FeatureLevelRecord,
    LeaderChangeRecord,
    ProducerIdFloorRecord,
    Record,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
    VotersRecord,
    needed_version,
)
from snapshots.image import BrokerRegistration, StateImage


class UnsupportedMetadataVersion(Exception):  # noqa: N818 - what the operator reads
    """The quorum uses records that this build cannot read: the member must stop, and be started as a newer build."""


class StateMachine:
    """Everything that the quorum agrees on. `next_offset` numbers the next record.

    `voters`: the newest applied configuration of the quorum; None while it is the configured one. `metadata_version` is
    in force; `supported` the newest that this build reads.
    """

    def __init__(self, cluster_id: str, block_size: int = DEFAULT_BLOCK_SIZE, supported: int = LATEST) -> None:
        self.cluster_id: Final = cluster_id
        self.block_size: Final = block_size
        self.next_offset = 0
        self.producer_ids = ProducerIdsState()
        self.brokers = BrokersState()
        self.voters: VotersRecord | None = None
        self.metadata_version = BASE
        self.supported: Final = supported

    def draft(self, timestamp_ms: int) -> Draft:
        """Start a batch of decisions on the applied state. `timestamp_ms` labels its records and decides nothing."""
        return Draft(self, timestamp_ms)

    def replay(self, records: Iterable[Record]) -> None:
        """Apply one committed batch. Total and deterministic: a violated assertion means this member must stop.

        Raises UnsupportedMetadataVersion.
        """
        for record in records:
            offset = self.next_offset
            assert needed_version(record) <= self.metadata_version, (
                f"S7: offset {offset} holds {record}, but the metadata version is {self.metadata_version}"
            )
            match record:
                case AllocateProducerIdsRecord():
                    registration = self.brokers.get(record.broker_id)
                    assert registration is not None and registration.broker_epoch == record.broker_epoch, (
                        f"S5: offset {offset} allocates for epoch {record.broker_epoch} of broker {record.broker_id}, "
                        f"which has {registration}"
                    )
                    self.producer_ids.replay_allocation(record, offset)
                case ProducerIdFloorRecord():
                    self.producer_ids.replay_floor(record, offset)
                case LeaderChangeRecord():
                    pass
                case VotersRecord():
                    self.voters = record
                case FeatureLevelRecord():
                    self._take_version(record.metadata_version)
                case _:
                    self.brokers.replay(record, offset)
            self.next_offset = offset + 1

    def _take_version(self, version: int) -> None:
        assert version >= self.metadata_version, (
            f"S8: the metadata version would fall from {self.metadata_version} to {version}"
        )
        if version > self.supported:
            raise UnsupportedMetadataVersion(
                f"the quorum has the metadata version {version}, this build reads {self.supported} at most: upgrade it"
            )
        self.metadata_version = version

    def image(self, index: int, term: int) -> StateImage:
        """The state as a snapshot's value; `index` and `term` name the last applied entry."""
        return StateImage(
            version=self.metadata_version,
            index=index,
            term=term,
            next_offset=self.next_offset,
            next_producer_id=self.producer_ids.next_producer_id,
            last_block=self.producer_ids.last_block,
            brokers=self.brokers.all(),
            voters=self.voters,
        )

    def restore(self, image: StateImage) -> None:
        """Replace the state by a snapshot's. The next ID never goes back: an older image stops the process.

        Raises UnsupportedMetadataVersion.
        """
        assert image.next_producer_id >= self.producer_ids.next_producer_id, (
            f"S6: a snapshot at index {image.index} would move the next producer ID back from "
            f"{self.producer_ids.next_producer_id} to {image.next_producer_id}"
        )
        self._take_version(image.version)
        self.next_offset = image.next_offset
        self.producer_ids = ProducerIdsState(image.next_producer_id, image.last_block)
        self.brokers = BrokersState(image.brokers)
        self.voters = image.voters


class Draft:
    """Decisions on the applied state plus the decisions before them in this batch; the applied state stays untouched.

    `records` is what to commit before any of the answers may leave.
    """

    __slots__ = ("_brokers", "_machine", "_metadata_version", "_next_producer_id", "_timestamp_ms", "records")

    def __init__(self, machine: StateMachine, timestamp_ms: int) -> None:
        self._machine = machine
        self._timestamp_ms = timestamp_ms
        self._next_producer_id = machine.producer_ids.next_producer_id
        self._metadata_version = machine.metadata_version
        self._brokers: dict[int, BrokerRegistration | None] = {}
        self.records: list[Record] = []

    def decide(self, request: requests.Request) -> Any:
        """Decide one request and return its answer.

        Raises RequestError to refuse, which changes nothing. An answer that needs no record (a repeated registration,
        a heartbeat of an unfenced broker) leaves `records` as it is.
        """
        return _DECIDERS[type(request)](self, request)

    def _broker(self, broker_id: int) -> BrokerRegistration | None:
        if broker_id in self._brokers:
            return self._brokers[broker_id]
        return self._machine.brokers.get(broker_id)

    def _allocate(self, request: requests.AllocateProducerIds) -> AllocateProducerIdsResponse:
        check_epoch(self._broker(request.broker_id), request.broker_id, request.broker_epoch)
        first, size = self._next_producer_id, self._machine.block_size
        check_block_left(first, size)
        self._next_producer_id = first + size
        self.records.append(
            AllocateProducerIdsRecord(
                broker_id=request.broker_id,
                broker_epoch=request.broker_epoch,
                producer_id_end=first + size - 1,
                producer_id_start=first,
                length=size,
                timestamp_ms=self._timestamp_ms,
            )
        )
        return AllocateProducerIdsResponse(error_code=0, producer_id_start=first, producer_id_len=size)

    def _register(self, request: requests.RegisterBroker) -> RegisterBrokerResponse:
        before = self._broker(request.broker_id)
        cluster_id = self._machine.cluster_id
        if before is None and len(self._machine.brokers) + len(self._brokers) >= MAX_BROKERS:
            raise RequestError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, f"{MAX_BROKERS} brokers are registered already")
        if before is not None and before.incarnation_id == request.incarnation_id:
            return RegisterBrokerResponse(broker_epoch=before.broker_epoch, cluster_id=cluster_id)
        if before is not None and request.incarnation_id in before.superseded:
            raise RequestError(
                ErrorCode.DUPLICATE_BROKER_REGISTRATION,
                f"incarnation {request.incarnation_id} of broker {request.broker_id} was replaced by "
                f"{before.incarnation_id}: stop one of the two processes or give it another broker id",
            )
        record = RegisterBrokerRecord(
            broker_id=request.broker_id,
            broker_epoch=self._machine.next_offset + len(self.records),
            incarnation_id=request.incarnation_id,
        )
        self.records.append(record)
        self._brokers[request.broker_id] = registered(record, before)
        return RegisterBrokerResponse(broker_epoch=record.broker_epoch, cluster_id=cluster_id)

    def _unregister(self, request: requests.UnregisterBroker) -> UnregisterBrokerResponse:
        check_epoch(self._broker(request.broker_id), request.broker_id, request.broker_epoch)
        self.records.append(UnregisterBrokerRecord(request.broker_id, request.broker_epoch))
        self._brokers[request.broker_id] = None
        return UnregisterBrokerResponse(broker_id=request.broker_id)

    def _heartbeat(self, request: requests.BrokerHeartbeat) -> BrokerHeartbeatResponse:
        return self._set_fenced(request.broker_id, request.broker_epoch, fenced=False)

    def _fence(self, request: requests.FenceBroker) -> BrokerHeartbeatResponse:
        return self._set_fenced(request.broker_id, request.broker_epoch, fenced=True)

    def _set_fenced(self, broker_id: int, broker_epoch: int, *, fenced: bool) -> BrokerHeartbeatResponse:
        before = check_epoch(self._broker(broker_id), broker_id, broker_epoch)
        if before.fenced != fenced:
            self.records.append(BrokerRegistrationChangeRecord(broker_id, broker_epoch, fenced))
            self._brokers[broker_id] = BrokerRegistration(
                broker_id, broker_epoch, before.incarnation_id, fenced, before.superseded
            )
        return BrokerHeartbeatResponse(fenced=fenced)

    def _raise_metadata_version(self, request: requests.RaiseMetadataVersion) -> int:
        if request.version > self._metadata_version:
            self.records.append(FeatureLevelRecord(request.version))
            self._metadata_version = request.version
        return self._metadata_version

    def _raise_floor(self, request: requests.RaiseFloor) -> RaiseFloorResponse:
        raised = request.at_least > self._next_producer_id
        if raised:
            self.records.append(ProducerIdFloorRecord(request.at_least, self._timestamp_ms))
            self._next_producer_id = request.at_least
        return RaiseFloorResponse(next_producer_id=self._next_producer_id, raised=raised)


_DECIDERS: Final[dict[type[Any], Callable[[Draft, Any], Any]]] = {
    requests.AllocateProducerIds: Draft._allocate,
    requests.BrokerHeartbeat: Draft._heartbeat,
    requests.FenceBroker: Draft._fence,
    requests.RaiseFloor: Draft._raise_floor,
    requests.RaiseMetadataVersion: Draft._raise_metadata_version,
    requests.RegisterBroker: Draft._register,
    requests.UnregisterBroker: Draft._unregister,
}


def allocations(records: Sequence[Record], first_offset: int) -> list[tuple[int, AllocateProducerIdsRecord]]:
    """The allocation records of a batch whose first record has `first_offset`, each with its own offset."""
    return [
        (first_offset + position, record)
        for position, record in enumerate(records)
        if isinstance(record, AllocateProducerIdsRecord)
    ]
