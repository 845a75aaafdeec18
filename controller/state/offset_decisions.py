"""The decisions about offsets of consumer groups: who may commit them, and which are forgotten (KIP-447, KIP-211)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from itertools import accumulate
from typing import Final

from pidkeeper.controller.state import requests, transitions
from pidkeeper.controller.state.draft import Draft
from pidkeeper.controller.state.groups import limits
from pidkeeper.controller.state.groups.group import Group
from pidkeeper.protocol.errors import ErrorCode, RequestError
from pidkeeper.protocol.group_messages import CommitOffsetsResponse, DeleteOffsetsResponse, OffsetsTransaction
from pidkeeper.protocol.groups import (
    MAX_COMMITTED_OFFSETS,
    MAX_OFFSET_METADATA_BYTES,
    MAX_OFFSETS_BYTES,
    OFFSETS_RECORD_BYTES,
    OFFSETS_TOPIC,
    OffsetsRecord,
    PartitionOffset,
    RemoveGroupRecord,
    RemoveOffsetsRecord,
    TopicOffsets,
    offsets_partition,
)
from pidkeeper.protocol.logs import JOIN_BYTES
from pidkeeper.protocol.metadata_version import GROUPS, TRANSACTION_EPOCHS
from pidkeeper.protocol.transactions import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    PARTITION_BYTES,
    TOPIC_BYTES,
    AddPartitionsRecord,
    TopicPartitions,
    TransactionRecord,
)

_NO_PAIR: Final = (NO_PRODUCER_ID, NO_PRODUCER_EPOCH)


def commit_offsets(draft: Draft, request: requests.CommitOffsets) -> CommitOffsetsResponse:
    """Kafka's `validateOffsetCommit` and `validateTransactionalOffsetCommit`; the codes of the partitions in order.

    Raises BROKER_ID_NOT_REGISTERED, STALE_BROKER_EPOCH; about a transaction as `transitions.check_joined` or
    `add_partitions`; about the group ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, and NON_EMPTY_GROUP to
    an operator; INVALID_COMMIT_OFFSET_SIZE, COORDINATOR_NOT_AVAILABLE at a bound. All offsets that are kept are in one
    record.
    """
    draft.require(GROUPS)
    if request.broker is not None:
        draft.check_broker(*request.broker)
    transaction, joined = request.transaction, None
    if transaction is not None:
        joined = _check_transaction(draft, request.group_id, transaction)
    _check_committer(draft.groups.get(request.group_id), request)
    codes, kept = _sift(draft, request.topics)
    if kept:
        pair = _NO_PAIR if transaction is None else (transaction.producer_id, transaction.producer_epoch)
        record = OffsetsRecord(request.group_id, *pair, kept, draft.timestamp_ms)
        _check_room(draft, record)
        if joined is not None:
            draft.write_transaction(*joined)
        draft.write_group(record)
    return CommitOffsetsResponse(codes)


def delete_offsets(draft: Draft, request: requests.DeleteOffsets) -> DeleteOffsetsResponse:
    """Forget those of the offsets that are committed. Raises GROUP_ID_NOT_FOUND, MESSAGE_TOO_LARGE, and
    NON_EMPTY_GROUP to an operator: what the members read only their coordinator knows."""
    draft.require(GROUPS)
    if request.broker is not None:
        draft.check_broker(*request.broker)
    group = draft.groups.get(request.group_id)
    if group is None:
        raise RequestError(ErrorCode.GROUP_ID_NOT_FOUND, f"nothing is known of group {request.group_id!r}")
    if request.broker is None and group.members:
        raise _not_empty(group)
    named = dict.fromkeys((one.topic, number) for one in request.topics for number in one.partitions)
    gone = [place for place in named if group.committed(*place) is not None]
    if gone:
        topics = _by_topic(gone)
        _check_size(topics, ErrorCode.MESSAGE_TOO_LARGE)
        draft.write_group(RemoveOffsetsRecord(request.group_id, topics, draft.timestamp_ms))
    return DeleteOffsetsResponse(len(gone))


def expire_offsets(draft: Draft, request: requests.ExpireOffsets) -> None:
    """Forget offsets of a group without members that nobody committed anew, and with the last of them the group.

    What a transaction is about to commit anew is kept, and so is its group. Of more than one record holds the first.
    """
    draft.require(GROUPS)
    group = draft.groups.get(request.group_id)
    if group is None or group.version != request.version or group.members:
        return
    old = []
    for topic, partition, record_offset in dict.fromkeys(request.offsets):
        kept = group.committed(topic, partition)
        if kept is not None and kept.record_offset == record_offset and not group.is_pending(topic, partition):
            old.append((topic, partition))
    if len(old) == group.offsets and not group.pending:
        draft.write_group(RemoveGroupRecord(request.group_id, draft.timestamp_ms))
    elif old:
        topics = _by_topic(old)[:MAX_COMMITTED_OFFSETS]
        sizes = list(accumulate(one.encoded_bytes for one in topics))
        fitting = topics[: bisect_right(sizes, MAX_OFFSETS_BYTES)]
        draft.write_group(RemoveOffsetsRecord(request.group_id, fitting, draft.timestamp_ms))


def _check_transaction(
    draft: Draft, group_id: str, transaction: OffsetsTransaction
) -> tuple[TransactionRecord, AddPartitionsRecord] | None:
    """Raise RequestError unless a transaction may settle a group's offsets; what is to be written before them."""
    producer = transaction.producer_id, transaction.producer_epoch
    name, partition = transaction.transactional_id, offsets_partition(group_id)
    before = draft.transaction(name)
    if not transaction.joining:
        transitions.check_joined(before, name, producer=producer, topic=OFFSETS_TOPIC, partition=partition)
        return None
    draft.require(TRANSACTION_EPOCHS)
    topics = (TopicPartitions(OFFSETS_TOPIC, (partition,)),)
    record, joined = transitions.add_partitions(
        before, name, producer=producer, topics=topics, now_ms=draft.timestamp_ms
    )
    return None if joined is None else (record, joined)


def _check_committer(group: Group | None, request: requests.CommitOffsets) -> None:
    """Raise RequestError unless the group lets the caller commit: one that has no members lets everybody."""
    if group is None and request.generation >= 0:
        detail = f"nothing is known of group {request.group_id!r}, so of no generation {request.generation}"
        raise RequestError(ErrorCode.ILLEGAL_GENERATION, detail)
    if group is None or (not group.members and request.generation < 0):
        return
    if request.broker is None:
        raise _not_empty(group)
    if request.generation >= 0 or request.member_id or request.instance_id is not None:
        _check_member(group, request)
    elif request.transaction is None:
        raise RequestError(ErrorCode.UNKNOWN_MEMBER_ID, f"group {group.group_id!r} has members, and none is named")


def _check_member(group: Group, request: requests.CommitOffsets) -> None:
    """Raise RequestError unless it is a member of the newest generation, and a static one is the newest of its id."""
    instance_id, where = request.instance_id, f"of group {group.group_id!r}"
    if instance_id is not None:
        owner = next((one.member_id for one in group.members if one.instance_id == instance_id), None)
        if owner is None:
            raise RequestError(ErrorCode.UNKNOWN_MEMBER_ID, f"{instance_id!r} is no static member {where}")
        if owner != request.member_id:
            raise RequestError(
                ErrorCode.FENCED_INSTANCE_ID, f"static member {instance_id!r} {where} is another one now"
            )
    if all(one.member_id != request.member_id for one in group.members):
        raise RequestError(ErrorCode.UNKNOWN_MEMBER_ID, f"{request.member_id!r} is no member {where}")
    generation = None if group.record is None else group.record.generation
    if request.generation != generation:
        detail = f"generation {request.generation} {where} is not the current one, {generation}"
        raise RequestError(ErrorCode.ILLEGAL_GENERATION, detail)


def _sift(draft: Draft, topics: Iterable[TopicOffsets]) -> tuple[list[int], tuple[TopicOffsets, ...]]:
    """A code for each partition, and what may be committed. Raises INVALID_COMMIT_OFFSET_SIZE."""
    codes: list[int] = []
    found = []
    for asked in topics:
        topic = draft.logs.topic(asked.topic)
        known = 0 if topic is None else topic.partitions
        kept = []
        for one in asked.partitions:
            codes.append(_refusal(one, known))
            if codes[-1] == 0:
                kept.append(one)
        if kept:
            found.append(TopicOffsets(asked.topic, tuple(kept)))
    if len(codes) > MAX_COMMITTED_OFFSETS:
        detail = f"{len(codes)} partitions, at most {MAX_COMMITTED_OFFSETS} are committed at once"
        raise RequestError(ErrorCode.INVALID_COMMIT_OFFSET_SIZE, detail)
    kept_topics = tuple(found)
    _check_size(kept_topics, ErrorCode.INVALID_COMMIT_OFFSET_SIZE)
    return codes, kept_topics


def _refusal(told: PartitionOffset, partitions: int) -> int:
    if told.partition >= partitions:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.kafka_code
    if len(told.metadata.encode()) > MAX_OFFSET_METADATA_BYTES:
        return ErrorCode.OFFSET_METADATA_TOO_LARGE.kafka_code
    return 0


def _check_size(topics: tuple[TopicOffsets, ...] | tuple[TopicPartitions, ...], code: ErrorCode) -> None:
    """Raise RequestError unless they fit into a record."""
    size = sum(one.encoded_bytes for one in topics)
    if size > MAX_OFFSETS_BYTES or len(topics) > MAX_COMMITTED_OFFSETS:
        limit = f"{MAX_OFFSETS_BYTES} and {MAX_COMMITTED_OFFSETS} are allowed: name fewer of them at once"
        raise RequestError(code, f"the offsets take {size} bytes, of {len(topics)} topics; {limit}")


def _check_room(draft: Draft, record: OffsetsRecord) -> None:
    """Raise RequestError if a bound would be passed. A group that has offsets may always commit them anew."""
    groups = draft.groups
    count, size = groups.growth(record)
    held = groups.held_by(record.producer_id) + count
    if record.producer_id != NO_PRODUCER_ID and held > limits.MAX_PENDING:
        detail = f"the transaction would hold {held} offsets, {limits.MAX_PENDING} are allowed: end it first"
        raise RequestError(ErrorCode.INVALID_COMMIT_OFFSET_SIZE, detail)
    many = groups.offsets + groups.pending + count > limits.MAX_OFFSETS
    large = groups.offset_bytes + size > limits.MAX_OFFSET_BYTES
    if many or large or (groups.get(record.group_id) is None and len(groups) >= limits.MAX_GROUPS):
        raise RequestError(
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
            f"{len(groups)} groups have {groups.offsets + groups.pending} offsets with {groups.offset_bytes} bytes of "
            f"names and metadata, {limits.MAX_GROUPS}, {limits.MAX_OFFSETS} and {limits.MAX_OFFSET_BYTES} are the "
            "bounds: delete groups or offsets",
        )


def _not_empty(group: Group) -> RequestError:
    return RequestError(ErrorCode.NON_EMPTY_GROUP, f"group {group.group_id!r} has {len(group.members)} members")


def _by_topic(places: Iterable[tuple[str, int]]) -> tuple[TopicPartitions, ...]:
    found: dict[str, list[int]] = {}
    for topic, partition in places:
        found.setdefault(topic, []).append(partition)
    return tuple(TopicPartitions(topic, tuple(numbers)) for topic, numbers in found.items())


def most_bytes(request: requests.CommitOffsets | requests.DeleteOffsets | requests.ExpireOffsets) -> int:
    """Bytes that the records take at most. What would take more than one may is refused, and needs no more room."""
    if isinstance(request, requests.ExpireOffsets):
        size = sum(TOPIC_BYTES + len(topic.encode()) + PARTITION_BYTES for topic, _, _ in request.offsets)
    else:
        size = sum(one.encoded_bytes for one in request.topics)
    joined = 0
    if isinstance(request, requests.CommitOffsets) and request.transaction is not None and request.transaction.joining:
        joined = JOIN_BYTES + len(request.transaction.transactional_id.encode())
    return joined + OFFSETS_RECORD_BYTES + len(request.group_id.encode()) + min(size, MAX_OFFSETS_BYTES)
