"""`decide`: from a request to its answer, and to the records that must be committed before the answer may leave."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, get_args

from pidkeeper.controller.state import (
    commit_decisions,
    group_decisions,
    id_decisions,
    migration_decisions,
    requests,
    segment_decisions,
    topic_decisions,
    transaction_decisions,
)
from pidkeeper.controller.state.draft import Draft
from pidkeeper.controller.state.foundings import is_news

_LOG_DECIDERS: Final[dict[type[Any], Callable[[Draft, Any], Any]]] = {
    requests.CommitObject: commit_decisions.commit_object,
    requests.CreateTopic: topic_decisions.create_topic,
    requests.DeleteTopic: topic_decisions.delete_topic,
    requests.ExpireProducers: topic_decisions.expire_producers,
    requests.ConfirmState: topic_decisions.confirm_state,
    requests.CommitSegment: segment_decisions.commit_segment,
    requests.DeleteRecords: segment_decisions.delete_records,
    requests.RetainLogs: segment_decisions.retain,
    requests.ObjectsDeleted: segment_decisions.objects_deleted,
    requests.ReleaseCollection: segment_decisions.release_collection,
}
_CONFIRMED: Final = (
    transaction_decisions.DECIDERS | migration_decisions.DECIDERS | _LOG_DECIDERS | group_decisions.DECIDERS
)
_DECIDERS: Final = id_decisions.DECIDERS | _CONFIRMED

_MOST_BYTES: Final[dict[type[Any], Callable[[Any], int]]] = {
    requests.CommitObject: commit_decisions.most_bytes,
    requests.CreateTopic: topic_decisions.most_bytes,
    requests.ExpireProducers: topic_decisions.most_bytes,
    **dict.fromkeys(get_args(requests.SegmentRequest), segment_decisions.most_bytes),
    **dict.fromkeys(group_decisions.DECIDERS, group_decisions.most_bytes),
}

REGISTRATION_BYTES: Final = 656
"""At most, of an encoded registration, endpoint and store: 64 characters of four bytes, 264 of one, 36 of a uuid, and
32 for the rest of the first two and 28 for that of the store."""

EVIDENCE_BYTES: Final = 80
"""At most, of an encoded EvidenceRecord: a uuid of 36 characters and three integers."""

FOUNDING_BYTES: Final = 176
"""At most, of an encoded FoundingRecord and SuccessionRecord: three uuids of 36 characters, and five integers."""

RECORD_BYTES: Final = 56
"""At most, of any other encoded record of a fixed length: an allocation takes 50 with all of its integers as large as
they get. A full batch of these fits into one entry; a full batch of registrations would not."""


def decide(draft: Draft, request: requests.Request) -> Any:
    """Decide one request on `draft` and return its answer.

    Raises RequestError to refuse, which changes nothing. An answer that needs no record (a repeated registration, a
    heartbeat of an unfenced broker) leaves `draft.records` as it is. An answer that is a RequestError goes with
    records: it is given like any other once they are committed.
    """
    return _DECIDERS[type(request)](draft, request)


def must_be_confirmed(request: requests.Request) -> bool:
    """Whether no answer to `request` may leave before an entry is committed behind it, be there a record or not.

    It says how a transactional id stands, or a log, or a group, or the migration. A leader that was deposed and does
    not know it yet would fence the newest producer, or grant what an older one asks for; or call a phase the current
    one that is over.
    """
    return type(request) in _CONFIRMED


def most_records(request: requests.Request) -> int:
    """Records that deciding `request` adds at most."""
    # The commonest first, here and below: the leader asks this of every request.
    if type(request) is requests.AllocateProducerIds:
        return 1 if request.claimed is None else 2
    if isinstance(request, requests.FillOwnIds | requests.RaiseFloor):
        return 1 if request.claimed is None else 2
    if isinstance(request, requests.InitProducerId):
        return 2 if request.may_take_block else 1
    if isinstance(request, requests.CommitObject):
        return 1 + len(request.joining)
    if isinstance(request, requests.CommitOffsets):
        return 1 if request.transaction is None else 1 + request.transaction.joining
    if isinstance(request, requests.EndTxn):
        return 1 + request.new_epoch + (request.new_epoch and request.may_take_block)
    if isinstance(request, requests.RegisterBroker):
        return 5
    if isinstance(request, requests.BrokerHeartbeat | requests.RecordFounding):
        return 2
    return 2 if isinstance(request, requests.AdvanceMigration) else 1


def most_bytes(draft: Draft, request: requests.Request) -> int:
    """Bytes that deciding `request` adds to the entry of `draft`, at most."""
    if type(request) is requests.AllocateProducerIds:
        if is_news(request.held, draft.next_producer_id):
            return RECORD_BYTES + EVIDENCE_BYTES
        return most_records(request) * RECORD_BYTES
    if isinstance(request, requests.RegisterBroker):
        return RECORD_BYTES + REGISTRATION_BYTES + EVIDENCE_BYTES
    if isinstance(request, requests.BrokerHeartbeat) and is_news(request.held, draft.next_producer_id):
        return RECORD_BYTES + EVIDENCE_BYTES
    if isinstance(request, requests.FillOwnIds):
        return most_records(request) * RECORD_BYTES
    if (known := _MOST_BYTES.get(type(request))) is not None:
        return known(request)
    if isinstance(request, requests.RecordFounding):
        return FOUNDING_BYTES
    return migration_decisions.most_bytes(request) or transaction_decisions.most_bytes(draft, request) or RECORD_BYTES
