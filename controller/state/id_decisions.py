"""The decisions about producer IDs, brokers and the metadata version, on a draft."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any, Final

from msgspec.structs import replace

from pidkeeper.controller.state import requests
from pidkeeper.controller.state.brokers import MAX_BROKERS, registered
from pidkeeper.controller.state.draft import Draft
from pidkeeper.controller.state.foundings import check_room, is_open, said_of, weigh
from pidkeeper.controller.state.own_ids import NO_OWN_IDS
from pidkeeper.controller.state.producer_ids import check_block_left, check_floor
from pidkeeper.protocol.errors import ErrorCode, RequestError
from pidkeeper.protocol.founding import (
    EvidenceDismissedRecord,
    EvidenceRecord,
    FoundingRecord,
    Succession,
    SuccessionRecord,
)
from pidkeeper.protocol.ids import MAX_PRODUCER_ID
from pidkeeper.protocol.logs import BrokerStoreRecord
from pidkeeper.protocol.messages import (
    AllocateProducerIdsResponse,
    BrokerHeartbeatResponse,
    DismissEvidenceResponse,
    HeldIds,
    RaiseFloorResponse,
    RegisterBrokerResponse,
    UnregisterBrokerResponse,
)
from pidkeeper.protocol.metadata_version import FOUNDING, PARTITION_LOGS, SUCCESSION, TRANSACTIONAL_BLOCKS, TRANSACTIONS
from pidkeeper.protocol.migration import MigrationPhase
from pidkeeper.protocol.records import (
    AllocateProducerIdsRecord,
    BrokerEndpointRecord,
    BrokerRegistrationChangeRecord,
    FeatureLevelRecord,
    ProducerIdFloorRecord,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)


def allocate_producer_ids(
    draft: Draft, request: requests.AllocateProducerIds
) -> AllocateProducerIdsResponse | RequestError:
    """The next block for a registered broker (KIP-730).

    A returned RequestError is the answer that goes with a record: the evidence that the broker has left.
    """
    draft.check_broker(request.broker_id, request.broker_epoch)
    if _is_evidence(draft, request, request.broker_epoch):
        _check_founding(draft, request)
        return _leave_evidence(draft, request.broker_id, request.held)
    draft.check_handing_out()
    size = draft.machine.block_size
    check_block_left(draft.next_producer_id, size)
    draft.take_claim(request.claimed, length=size)
    first = draft.next_producer_id
    draft.next_producer_id = first + size
    draft.records.append(
        AllocateProducerIdsRecord(
            broker_id=request.broker_id,
            broker_epoch=request.broker_epoch,
            producer_id_end=first + size - 1,
            producer_id_start=first,
            length=size,
            timestamp_ms=draft.timestamp_ms,
        )
    )
    known = draft.foundings
    return AllocateProducerIdsResponse(0, first, size, founding_id=known.founding_id, succession=known.succession)


def fill_own_ids(draft: Draft, request: requests.FillOwnIds) -> bool:
    """Whether a block was taken for transactional producers; not if one is there ahead already."""
    draft.require(TRANSACTIONAL_BLOCKS)
    draft.check_handing_out()
    if draft.own_ids.full:
        return False
    size = draft.machine.block_size
    check_block_left(draft.next_producer_id, size)
    draft.take_claim(request.claimed, length=size)
    draft.take_own_block()
    return True


def register_broker(draft: Draft, request: requests.RegisterBroker) -> RegisterBrokerResponse:
    """A new epoch for a new incarnation; the same one for an incarnation that asks again.

    What it says it holds is weighed first, and left behind its registration: so a process leaves all of its evidence
    after the offset that is its epoch.
    """
    before = draft.broker(request.broker_id)
    cluster_id = draft.machine.cluster_id
    if before is not None and request.incarnation_id in before.superseded:
        raise RequestError(
            ErrorCode.DUPLICATE_BROKER_REGISTRATION,
            f"incarnation {request.incarnation_id} of broker {request.broker_id} was replaced by "
            f"{before.incarnation_id}: stop one of the two processes or give it another broker id",
        )
    _check_store(draft, request)
    known = before is not None and before.incarnation_id == request.incarnation_id
    evidence = _is_evidence(draft, request, before.broker_epoch if before is not None and known else None)
    if before is not None and known:
        registration = before
    else:
        # Behind all that refuses the newcomer, who would else have taken another's place for nothing.
        if before is None and draft.most_brokers() >= MAX_BROKERS:
            _make_room(draft)
        record = RegisterBrokerRecord(
            broker_id=request.broker_id, broker_epoch=draft.next_offset, incarnation_id=request.incarnation_id
        )
        draft.records.append(record)
        registration = registered(record, before)
    epoch = registration.broker_epoch
    if draft.metadata_version >= TRANSACTIONS and request.kafka is not None and request.kafka != registration.kafka:
        draft.records.append(BrokerEndpointRecord(request.broker_id, epoch, request.kafka))
        registration = replace(registration, kafka=request.kafka)
    if draft.metadata_version >= PARTITION_LOGS and request.store_id not in {None, registration.store_id}:
        draft.records.append(BrokerStoreRecord(request.broker_id, epoch, request.store_id))
        registration = replace(registration, store_id=request.store_id)
        draft.logs.store_id = request.store_id
    if registration is not before:
        draft.put_broker(request.broker_id, registration)
    if evidence:
        _leave_evidence(draft, request.broker_id, request.held)
    return RegisterBrokerResponse(epoch, cluster_id, draft.metadata_version, *_told(draft, untold=request.untold))


def _check_store(draft: Draft, request: requests.RegisterBroker) -> None:
    """Raise STORE_REFUSED for a broker that keeps objects where the others would not find them."""
    if request.store_id is None or draft.metadata_version < PARTITION_LOGS:
        return
    known = draft.logs.store_id
    if known not in {None, request.store_id}:
        detail = f"broker {request.broker_id} keeps objects in store {request.store_id}, and the cluster's is {known}"
        raise RequestError(ErrorCode.STORE_REFUSED, f"{detail}: configure the same one for all agents")


def _make_room(draft: Draft) -> None:
    """Let the oldest of the fenced registrations go, if there are as many as are kept.

    Else ids that nobody uses any more, as of pods that come and go, would keep every new broker out in the end. Whoever
    comes back after all registers anew. Raises THROTTLING_QUOTA_EXCEEDED if none is fenced.
    """
    kept = draft.brokers()
    if len(kept) < MAX_BROKERS:
        return
    oldest = min((one for one in kept if one.fenced), key=lambda one: one.broker_epoch, default=None)
    if oldest is None:
        detail = f"{MAX_BROKERS} brokers are registered already, and all of them are heard"
        raise RequestError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, detail)
    draft.records.append(UnregisterBrokerRecord(oldest.broker_id, oldest.broker_epoch))
    draft.put_broker(oldest.broker_id, None)


def _check_founding(draft: Draft, request: requests.AllocateProducerIds | requests.BrokerHeartbeat) -> None:
    """Raise STALE_BROKER_EPOCH if evidence is of a founding that is neither ours nor the one before it.

    The epochs of two clusters may be the same numbers. As it registers, the broker names its cluster.
    """
    own, held = draft.foundings, request.held
    if own.founding_id is None or held is None:
        return
    predecessor = None if own.succession is None else own.succession.predecessor
    if held.founding_id not in {own.founding_id, predecessor}:
        detail = f"broker {request.broker_id} holds IDs of founding {held.founding_id}, which is not known here"
        raise RequestError(ErrorCode.STALE_BROKER_EPOCH, f"{detail}: it has to register")


def _is_evidence(draft: Draft, request: requests.SignOfLife, epoch: int | None) -> bool:
    """Whether a broker holds what was not handed out here and is not known yet. Raises as `weigh` and `check_room`.

    epoch: of the process that says it; None for one that is not registered yet.
    """
    if request.held is None or draft.metadata_version < FOUNDING:
        return False
    known = draft.foundings
    before = known.of(request.broker_id)
    same_process = epoch is not None and before is not None and before.offset > epoch
    if not weigh(before, request.broker_id, request.held, draft.next_producer_id, same_process=same_process):
        return False
    check_room(known.evidence, request.broker_id, draft.next_producer_id)
    return True


def _leave_evidence(draft: Draft, broker_id: int, held: HeldIds | None) -> RequestError:
    """Commit what a broker holds; what follows from that for a request for a block."""
    assert held is not None, "nothing is no evidence"
    record = EvidenceRecord(broker_id, held.founding_id, held.highest_producer_id, draft.timestamp_ms)
    draft.foundings = draft.foundings.heard(record, draft.next_offset, draft.next_producer_id)
    draft.records.append(record)
    evidence = draft.foundings.of(broker_id)
    assert evidence is not None, f"{record} is kept nowhere"
    return RequestError(ErrorCode.EVIDENCE_OPEN, said_of(evidence, draft.next_producer_id))


def dismiss_evidence(draft: Draft, request: requests.DismissEvidence) -> DismissEvidenceResponse:
    """A broker's evidence counts no more. One that is not open is left as it is.

    Raises INVALID_REQUEST if it names another ID than the operator has judged.
    """
    draft.require(FOUNDING)
    known = draft.foundings.of(request.broker_id)
    if known is None or not is_open(known, draft.next_producer_id):
        return DismissEvidenceResponse(request.broker_id, dismissed=False)
    if request.highest_producer_id not in {None, known.highest_producer_id}:
        detail = f"{said_of(known, draft.next_producer_id)}; not dismissed: you named {request.highest_producer_id}"
        raise RequestError(ErrorCode.INVALID_REQUEST, detail)
    record = EvidenceDismissedRecord(request.broker_id, draft.timestamp_ms)
    draft.foundings = draft.foundings.dismissed(record, draft.next_offset)
    draft.records.append(record)
    return DismissEvidenceResponse(request.broker_id, dismissed=True)


def record_founding(draft: Draft, request: requests.RecordFounding) -> uuid.UUID:
    """The founding of the quorum, from the first record of it on; and whose place it takes, if it takes any."""
    draft.require(FOUNDING if request.succession is None else SUCCESSION)
    if draft.foundings.founding_id is None:
        record = FoundingRecord(request.founding_id, request.block_size, request.bridge, draft.timestamp_ms)
        draft.foundings = draft.foundings.founded(record, draft.next_offset)
        draft.records.append(record)
    if request.succession is not None:
        _record_succession(draft, request.founding_id, request.succession)
    return draft.foundings.founding_id or request.founding_id


def _record_succession(draft: Draft, founding_id: uuid.UUID, succession: Succession) -> None:
    """Unless it is in the log, the log is that of neither founding, it has handed out under the new one, or no block
    would be left."""
    known, floor = draft.foundings, succession.floor
    begun = known.founding_id == founding_id and draft.last_block is not None
    exhausts = floor > MAX_PRODUCER_ID - draft.machine.block_size
    if begun or exhausts or not known.can_be_followed(founding_id, succession.predecessor):
        return
    record = SuccessionRecord(founding_id, succession.predecessor, floor, draft.timestamp_ms)
    draft.foundings = known.followed(record, draft.next_offset)
    draft.records.append(record)
    draft.next_producer_id = max(draft.next_producer_id, floor)
    draft.own_ids = NO_OWN_IDS


def unregister_broker(draft: Draft, request: requests.UnregisterBroker) -> UnregisterBrokerResponse:
    """The end of a registration."""
    draft.check_broker(request.broker_id, request.broker_epoch)
    draft.records.append(UnregisterBrokerRecord(request.broker_id, request.broker_epoch))
    draft.put_broker(request.broker_id, None)
    return UnregisterBrokerResponse(broker_id=request.broker_id)


def heartbeat(draft: Draft, request: requests.BrokerHeartbeat) -> BrokerHeartbeatResponse:
    """A broker lives."""
    draft.check_broker(request.broker_id, request.broker_epoch)
    if _is_evidence(draft, request, request.broker_epoch):
        _check_founding(draft, request)
        _leave_evidence(draft, request.broker_id, request.held)
    return _set_fenced(draft, request, fenced=False)


def fence_broker(draft: Draft, request: requests.FenceBroker) -> BrokerHeartbeatResponse:
    """A broker was silent for too long."""
    return _set_fenced(draft, request, fenced=True)


def raise_metadata_version(draft: Draft, request: requests.RaiseMetadataVersion) -> int:
    """The version in force once this is committed (KIP-584)."""
    if request.version > draft.metadata_version:
        draft.records.append(FeatureLevelRecord(request.version))
        draft.metadata_version = request.version
    return draft.metadata_version


def raise_floor(draft: Draft, request: requests.RaiseFloor) -> RaiseFloorResponse:
    """Skip all IDs below a floor; one that is passed already changes nothing. Raises as `check_floor`."""
    check_floor(draft.next_producer_id, request.at_least, draft.machine.block_size, forced=request.forced)
    raised = request.at_least > draft.next_producer_id
    if raised and not _rollback_waits(draft):
        # The brokers of ZooKeeper have to jump over what lies below the floor, too.
        draft.take_claim(request.claimed, floor=request.at_least)
    if request.at_least > draft.next_producer_id:
        draft.records.append(ProducerIdFloorRecord(request.at_least, draft.timestamp_ms))
        draft.next_producer_id = request.at_least
        if draft.metadata_version >= SUCCESSION:
            draft.own_ids = NO_OWN_IDS
    return RaiseFloorResponse(next_producer_id=draft.next_producer_id, raised=raised)


def _rollback_waits(draft: Draft) -> bool:
    """Whether a rollback to ZooKeeper waits for evidence to be settled; then it leaves ZooKeeper above the floor."""
    return draft.phase is MigrationPhase.ROLLING_BACK and bool(draft.foundings.open(draft.next_producer_id))


def _set_fenced(
    draft: Draft, request: requests.BrokerHeartbeat | requests.FenceBroker, *, fenced: bool
) -> BrokerHeartbeatResponse:
    broker_id, broker_epoch = request.broker_id, request.broker_epoch
    before = draft.check_broker(broker_id, broker_epoch)
    if before.fenced != fenced:
        draft.records.append(BrokerRegistrationChangeRecord(broker_id, broker_epoch, fenced))
        draft.put_broker(broker_id, replace(before, fenced=fenced))
    untold = isinstance(request, requests.BrokerHeartbeat) and request.untold
    return BrokerHeartbeatResponse(fenced, draft.metadata_version, *_told(draft, untold=untold))


def _told(draft: Draft, *, untold: bool) -> tuple[uuid.UUID | None, Succession | None]:
    """The founding that a broker is told of, and how the quorum came to it."""
    own = draft.foundings
    return (None, None) if untold else (own.founding_id, own.succession)


DECIDERS: Final[dict[type[Any], Callable[[Draft, Any], Any]]] = {
    requests.AllocateProducerIds: allocate_producer_ids,
    requests.BrokerHeartbeat: heartbeat,
    requests.DismissEvidence: dismiss_evidence,
    requests.FenceBroker: fence_broker,
    requests.FillOwnIds: fill_own_ids,
    requests.RaiseFloor: raise_floor,
    requests.RaiseMetadataVersion: raise_metadata_version,
    requests.RecordFounding: record_founding,
    requests.RegisterBroker: register_broker,
    requests.UnregisterBroker: unregister_broker,
}
