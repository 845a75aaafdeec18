"""Follows consumer groups through the records of one member's log, and compares them with its snapshots.

What is evidence of what (docs/decisions/0055): a group's record names the record that it replaces, its generation, its
members, and the epoch of its coordinator. One of offsets names the pair of its transaction, and who committed is in no
record: that it was a member is not provable. The record that ends a transaction settles its offsets without a record
of their own, so that they moved, or did not, is in snapshots alone: these name with each offset the record that
committed it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from pidkeeper.pipeline.engine.blobs import evidence
from pidkeeper.pipeline.engine.engine import Named
from pidkeeper.pipeline.findings import VIOLATION, WARNING
from pidkeeper.pipeline.quorum.partitions.tables import GROUP_FAULTS, MAX_FAULTS, as_time
from pidkeeper.pipeline.quorum.partitions.transactions import COMMITTED, IDLE, Transaction, Transactions
from pidkeeper.protocol.groups import (
    NO_VERSION,
    OFFSETS_TOPIC,
    GroupRecord,
    OffsetsRecord,
    RemoveGroupRecord,
    RemoveOffsetsRecord,
    offsets_partition,
)
from pidkeeper.protocol.records import RegisterBrokerRecord, UnregisterBrokerRecord
from pidkeeper.protocol.transactions import NO_PRODUCER_ID
from pidkeeper.snapshots.groups_image import GroupsImage, KeptOffset, KnownGroup
from pidkeeper.snapshots.image import StateImage

Place = tuple[str, str, int]
"""A group's id, a topic and a partition."""
Kept = tuple[dict[str, KnownGroup], dict[Place, KeptOffset], dict[tuple[str, str, int, int], KeptOffset]]
"""Groups by id, what is committed by its place, and what is pending by its place and producer."""
EndOf = Callable[[str, int], int | None]
"""Where the log of a topic's partition ends; None if there is no such partition."""


class GroupFaults:
    """What is wrong with groups in one view. `at`: member, file, index and byte of what shows it, and the offset of the
    record in the quorum's log; for a snapshot that of the next one."""

    def __init__(self) -> None:
        self.at: tuple[Any, ...] = ()
        self._rows: list[tuple[Any, ...]] = []

    def add(
        self,
        check: str,
        where: str | Place,
        detail: str,
        *,
        severity: str = VIOLATION,
        producer_id: int | None = None,
        timestamp_ms: int | None = None,
    ) -> None:
        """About a group as a whole, or about one partition that it reads."""
        place = (where, None, None) if isinstance(where, str) else where
        if len(self._rows) < MAX_FAULTS:
            self._rows.append((*self.at, check, severity, *place, producer_id, as_time(timestamp_ms), detail))

    def rows(self) -> Iterator[Named]:
        """Evidence by `tables.GROUP_FAULTS`."""
        return evidence("group_faults", GROUP_FAULTS, self._rows)


class GroupsReplay:
    """Groups of one view, from a state on, or from the first record. `transactions` is followed by its owner."""

    def __init__(self, image: StateImage | None, transactions: Transactions, end_of: EndOf) -> None:
        self.faults = GroupFaults()
        self._transactions = transactions
        self._end_of = end_of
        self._brokers: dict[int, int] = {}
        self._groups: dict[str, KnownGroup] = {}
        self._committed: dict[tuple[str, str], dict[int, KeptOffset]] = {}
        self._pending: dict[int, dict[Place, KeptOffset]] = {}
        # By producer the offsets of the records in its transaction; of each whether that was committed, None before.
        self._records: dict[int, list[int]] = {}
        self._outcomes: dict[int, bool | None] = {}
        self._warned: set[Place] = set()
        if image is not None:
            self._begin(image)

    def _begin(self, image: StateImage) -> None:
        self._brokers = {one.broker_id: one.broker_epoch for one in image.brokers}
        self._groups, committed, pending = kept_in(image.groups)
        for place, kept in committed.items():
            self._commit_at(place, kept)
        for (group_id, topic, number, producer_id), kept in pending.items():
            self._hold(producer_id, (group_id, topic, number), kept)

    # Records. `offset`: its own, in the quorum's log.

    def register(self, record: RegisterBrokerRecord, _: int) -> None:
        """A broker has another epoch."""
        self._brokers[record.broker_id] = record.broker_epoch

    def unregister(self, record: UnregisterBrokerRecord, _: int) -> None:
        """A broker has none."""
        self._brokers.pop(record.broker_id, None)

    def advance(self, record: GroupRecord, offset: int) -> None:
        """A group has other members: G1 and G2 of the state, and S5 of its coordinator."""
        known = self._groups.get(record.group_id)
        self._groups[record.group_id] = KnownGroup(offset, record)
        epoch, version = self._brokers.get(record.broker_id), NO_VERSION if known is None else known.version
        if epoch != record.broker_epoch:
            has = "is not registered" if epoch is None else f"is registered with epoch {epoch}"
            detail = f"its coordinator is broker {record.broker_id} with epoch {record.broker_epoch}, which {has}"
            self.faults.add("stale_epoch", record.group_id, detail, timestamp_ms=record.timestamp_ms)
        why = _not_next(None if known is None else known.record, record)
        if record.after != version:
            follows = f"{_at(record.after)}, and the newest was {_at(version)}"
            why = f"generation {record.generation} goes on from {follows}: two coordinators had the group"
        if why is not None:
            self.faults.add("group_generation", record.group_id, why, timestamp_ms=record.timestamp_ms)

    def commit(self, record: OffsetsRecord, offset: int) -> None:
        """Offsets are committed, or held by a transaction."""
        group_id, producer_id = record.group_id, record.producer_id
        if held := producer_id != NO_PRODUCER_ID:
            pair, joined = (producer_id, record.producer_epoch), (OFFSETS_TOPIC, offsets_partition(group_id))
            why = self._transactions.why_not("offsets", pair, joined, transactional=True)
            if why is not None:
                about = "transaction_pair", group_id, why
                self.faults.add(*about, producer_id=producer_id, timestamp_ms=record.timestamp_ms)
        for topic in record.topics:
            for told in topic.partitions:
                place = group_id, topic.topic, told.partition
                kept = KeptOffset(told.offset, told.leader_epoch, told.metadata, offset, record.timestamp_ms)
                self._check_log(place, kept)
                if held:
                    self._hold(producer_id, place, kept)
                else:
                    self._commit_at(place, kept)

    def _check_log(self, place: Place, kept: KeptOffset) -> None:
        end = self._end_of(*place[1:])
        if end is None:
            detail = f"offset {kept.offset} was committed, and there is no such partition"
            self.faults.add("group_offsets", place, detail, timestamp_ms=kept.timestamp_ms)
        elif kept.offset > end and place not in self._warned:
            # Kafka takes any offset. Who commits one like that goes on to do so: it is said once.
            self._warned.add(place)
            detail = f"offset {kept.offset} was committed, and the log ended at {end}: that is out of its range"
            self.faults.add("group_offsets", place, detail, severity=WARNING, timestamp_ms=kept.timestamp_ms)

    def remove(self, record: RemoveOffsetsRecord, _: int) -> None:
        """Offsets are forgotten."""
        for topic in record.topics:
            for number in topic.partitions:
                if self._forget_at(record.group_id, topic.topic, number) is None:
                    where = record.group_id, topic.topic, number
                    detail = "its offset is forgotten, and none was committed"
                    self.faults.add("group_offsets", where, detail, timestamp_ms=record.timestamp_ms)

    def forget(self, record: RemoveGroupRecord, _: int) -> None:
        """A group is forgotten, with its offsets: it must have no members, and none of them be pending."""
        group_id = record.group_id
        known = self._groups.pop(group_id, None)
        topics = [names for names in self._committed if names[0] == group_id]
        held = sum(place[0] == group_id for places in self._pending.values() for place in places)
        members = 0 if known is None else len(known.record.members)
        if (known is None and not topics) or members or held:
            detail = f"it is forgotten with {members} members and {held} pending offsets"
            if not members and not held:
                detail = "it is forgotten, and nothing was known of it"
            self.faults.add("group_offsets", group_id, detail, timestamp_ms=record.timestamp_ms)
        for names in topics:
            del self._committed[names]

    def end(self, transaction: Transaction, status: int | None, timestamp_ms: int | None = None) -> None:
        """A transaction is under way no more. status: of the record behind it; None if its id is forgotten."""
        producer_id = transaction.producer_id
        held = self._pending.pop(producer_id, {})
        if held and status not in IDLE:
            what = "is forgotten" if status is None else f"goes on to state {status}"
            detail = f"its transaction {what}, which settles no offset, and {len(held)} are pending"
            self.faults.add("group_offsets", min(held), detail, producer_id=producer_id, timestamp_ms=timestamp_ms)
        committed = status == COMMITTED
        self._outcomes.update(dict.fromkeys(self._records.pop(producer_id, ()), committed))
        for place, kept in held.items():
            known = self._committed.get(place[:2], {}).get(place[2])
            if committed and (known is None or known.record_offset < kept.record_offset):
                self._commit_at(place, kept)

    def drop_topic(self, topic: str) -> None:
        """A topic is deleted, and all offsets in it with that."""
        for names in [names for names in self._committed if names[1] == topic]:
            del self._committed[names]
        for producer_id, places in self._pending.items():
            self._pending[producer_id] = {place: kept for place, kept in places.items() if place[1] != topic}

    def _commit_at(self, place: Place, kept: KeptOffset) -> None:
        self._committed.setdefault(place[:2], {})[place[2]] = kept

    def _forget_at(self, group_id: str, topic: str, partition: int) -> KeptOffset | None:
        known = self._committed.get((group_id, topic), {})
        kept = known.pop(partition, None)
        if not known:
            self._committed.pop((group_id, topic), None)
        return kept

    def _hold(self, producer_id: int, place: Place, kept: KeptOffset) -> None:
        self._pending.setdefault(producer_id, {})[place] = kept
        self._records.setdefault(producer_id, []).append(kept.record_offset)
        self._outcomes[kept.record_offset] = None

    # Snapshots.

    def kept(self) -> Kept:
        """All that is known by now."""
        committed = {(*names, number): kept for names, rows in self._committed.items() for number, kept in rows.items()}
        held = {(*place, who): kept for who, places in self._pending.items() for place, kept in places.items()}
        return self._groups, committed, held

    def compare(self, image: GroupsImage | None) -> None:
        """A snapshot has each group and each offset as the log gives them."""
        (known, logged, held), (groups, committed, pending) = self.kept(), kept_in(image)
        for name in _differing(known, groups):
            saved, due = _generation(groups.get(name)), _generation(known.get(name))
            self.faults.add("replicas_disagree", name, f"the snapshot has {saved}, by the log it is {due}")
        for place in _differing(logged, committed):
            check, detail = self._misplaced(logged.get(place), committed.get(place))
            timestamp_ms = (committed.get(place) or logged[place]).timestamp_ms
            self.faults.add(check, place, detail, timestamp_ms=timestamp_ms)
        for key in _differing(held, pending):
            detail = f"the snapshot has {_offset(pending.get(key))} pending, by the log it is {_offset(held.get(key))}"
            self.faults.add("group_offsets", key[:3], detail, producer_id=key[3])

    def _misplaced(self, mine: KeptOffset | None, other: KeptOffset | None) -> tuple[str, str]:
        """The check, and what a snapshot has instead of what is committed."""
        detail = f"the snapshot has {_offset(other)}, by the log it is {_offset(mine)}"
        if other is not None and not (outcome := self._outcomes.get(other.record_offset, True)):
            state = "is under way" if outcome is None else "was aborted"
            return "group_offsets", f"{detail}: it moved, and its transaction {state}"
        older = other is None or (mine is not None and other.record_offset < mine.record_offset)
        if older and mine is not None and self._outcomes.get(mine.record_offset):
            return "group_offsets", f"{detail}: its transaction was committed, and it did not move"
        return "replicas_disagree", detail


def counted(kept: Kept) -> tuple[int, int]:
    """Groups, and their offsets."""
    groups, committed, pending = kept
    return len({*groups, *(place[0] for place in (*committed, *pending))}), len(committed) + len(pending)


def saved_groups(image: StateImage, member_id: int, file_id: int) -> Iterator[Named]:
    """What a snapshot shows by itself: offsets are of partitions that there are, pending ones of transactions."""
    _, committed, pending = kept_in(image.groups)
    faults, transactions = GroupFaults(), Transactions(image.transactions)
    faults.at = member_id, file_id, image.index, None, image.next_offset
    partitions = {} if image.logs is None else {topic.name: topic.partitions for topic in image.logs.topics}
    for place in sorted({*committed, *(held[:3] for held in pending)}):
        if place[2] >= partitions.get(place[1], 0):
            faults.add("group_offsets", place, "the snapshot has an offset of it, and there is no such partition")
    for group_id, topic, number, producer_id in sorted(pending):
        transaction, joined = transactions.of(producer_id), (OFFSETS_TOPIC, offsets_partition(group_id))
        if transaction is None or not transaction.ongoing or joined not in transaction.joined:
            detail = f"the snapshot has an offset pending, and producer {producer_id} has no transaction that holds it"
            faults.add("group_offsets", (group_id, topic, number), detail, producer_id=producer_id)
    return faults.rows()


def kept_in(image: GroupsImage | None) -> Kept:
    """What a snapshot has."""
    if image is None:
        return {}, {}, {}
    return (
        {one.record.group_id: one for one in image.groups},
        {(row.group_id, row.topic, row.partition): row.kept for row in image.offsets},
        {(row.group_id, row.topic, row.partition, row.producer_id): row.kept for row in image.pending},
    )


def _differing(one: Mapping[Any, Any], other: Mapping[Any, Any]) -> list[Any]:
    return sorted(key for key in one.keys() | other.keys() if one.get(key) != other.get(key))


def _not_next(before: GroupRecord | None, after: GroupRecord) -> str | None:
    """Why the members of one record cannot follow those of another."""
    if min(len(_standing(after)), len({one.member_id for one in after.members})) < len(after.members):
        return f"a member of generation {after.generation} is in it twice"
    if before is None or before.generation < after.generation:
        return None
    if before.generation > after.generation:
        return f"generation {after.generation} follows {before.generation}"
    # A static member that comes again keeps the generation, and has another member id (KIP-345).
    same = _standing(before) == _standing(after)
    return None if same else f"generation {after.generation} is there twice, with different members"


def _standing(record: GroupRecord) -> set[tuple[str | None, str | None]]:
    return {(one.instance_id, one.member_id if one.instance_id is None else None) for one in record.members}


def _at(version: int) -> str:
    return "nothing" if version == NO_VERSION else f"the record at offset {version}"


def _generation(known: KnownGroup | None) -> str:
    if known is None:
        return "none"
    return f"generation {known.record.generation} with {len(known.record.members)} members, of {_at(known.version)}"


def _offset(kept: KeptOffset | None) -> str:
    return "none" if kept is None else f"offset {kept.offset} of {_at(kept.record_offset)}"
