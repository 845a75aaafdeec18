"""All consumer groups: replays what was decided of them, and becomes and comes from a snapshot.

Invariants, asserted where the state changes (docs/invariants.md):
G1  a group's record follows the newest one: of two coordinators that go on from the same one, one does;
G2  a group's generation never falls, and its members and static members are all different ones;
G3  offsets are of partitions that there are: a topic that is deleted takes its offsets along;
G4  pending offsets are of a transaction under way: the record that ends it settles them;
G5  no bound of `limits` is passed;
G6  a group is forgotten without members and pending offsets alone, and an offset once.

Which partitions and transactions there are the state machine knows: it asserts G3 and G4.
"""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable
from typing import Any

from pidkeeper.controller.state.groups import limits
from pidkeeper.controller.state.groups.group import Group, TopicRows
from pidkeeper.controller.state.groups.layered import Index, Layered
from pidkeeper.controller.state.groups.limits import text_bytes
from pidkeeper.protocol.groups import (
    GroupMember,
    GroupRecord,
    GroupsRecord,
    OffsetsRecord,
    RemoveGroupRecord,
    RemoveOffsetsRecord,
)
from pidkeeper.protocol.transactions import NO_PRODUCER_ID
from pidkeeper.snapshots.groups_image import GroupsImage, KeptOffset, KnownGroup, OffsetRow, PendingRow
from pidkeeper.snapshots.rows import Rows

Place = tuple[str, str, int]
"""A group's id, a topic and a partition."""


class GroupsState:
    """Groups by their ids. `offsets`, `pending`: committed and pending ones of all groups; `offset_bytes`: of those,
    and `members_bytes`: of all members, as `limits` counts them.

    A batch of decisions is tried out on one that has `below` what is applied. That stays as it is: what belongs to it
    is cloned before it is changed, as it is while a snapshot is made of it.
    """

    __slots__ = (
        "_count",
        "_groups",
        "_holders",
        "_names",
        "_owner",
        "_readers",
        "members_bytes",
        "offset_bytes",
        "offsets",
        "pending",
    )

    def __init__(self, below: GroupsState | None = None) -> None:
        self.offsets = self.pending = self.offset_bytes = self.members_bytes = self._count = 0
        if below is not None:
            self.offsets, self.pending, self._count = below.offsets, below.pending, below._count
            self.offset_bytes, self.members_bytes = below.offset_bytes, below.members_bytes
        self._groups: Layered[str, Group] = Layered(None if below is None else below._groups)
        # Topic -> ids of the groups that have offsets in it; producer id -> what its transaction holds.
        self._readers: Index[str, str] = Index(None if below is None else below._readers)
        self._holders: Index[int, Place] = Index(None if below is None else below._holders)
        # What has this number may be changed: another one with each capture, and none of below's.
        self._owner = 0 if below is None else -1
        # Ascending; None when groups came or went since the last look.
        self._names: list[str] | None = None

    # Questions.

    def __len__(self) -> int:
        return self._count

    def get(self, group_id: str) -> Group | None:
        """A group of which anything is known, to be looked at only."""
        return self._groups.get(group_id)

    def after(self, group_id: str | None, limit: int) -> list[Group]:
        """The first groups whose ids are above `group_id`, or of all, ascending, at most `limit`."""
        if self._names is None:
            self._names = sorted(self._groups.copied())
        first = 0 if group_id is None else bisect_right(self._names, group_id)
        found = map(self._groups.get, self._names[first : first + limit])
        return [group for group in found if group is not None]

    def held_by(self, producer_id: int) -> int:
        """Offsets that a producer's transaction holds."""
        return len(self._holders.of(producer_id))

    def growth(self, record: OffsetsRecord) -> tuple[int, int]:
        """Offsets and bytes that come with a record, at most: what it names twice counts twice."""
        group = self._groups.get(record.group_id)
        count = size = 0
        for one in record.topics:
            rows = None if group is None else group.topics.get(one.topic)
            name_bytes = text_bytes(record.group_id) + text_bytes(one.topic)
            for told in one.partitions:
                known = None if rows is None else rows.find(told.partition, record.producer_id)
                count += known is None
                size += text_bytes(told.metadata) + (name_bytes if known is None else -text_bytes(known.metadata))
        return count, size

    # Replay.

    def replay(self, record: GroupsRecord, offset: int) -> None:
        """Apply one committed record. Total and deterministic: a violated assertion stops the process."""
        match record:
            case OffsetsRecord():
                self._commit(record, offset)
            case GroupRecord():
                self._advance(record, offset)
            case RemoveOffsetsRecord():
                self._remove(record, offset)
            case RemoveGroupRecord():
                self._forget(record.group_id, offset)
        kept = self.offsets + self.pending
        assert kept <= limits.MAX_OFFSETS, f"G5: offset {offset} makes {kept} offsets of groups"
        assert self.offset_bytes <= limits.MAX_OFFSET_BYTES, f"G5: offset {offset} makes {self.offset_bytes} bytes"
        assert self._count <= limits.MAX_GROUPS, f"G5: offset {offset} makes {self._count} groups"
        assert self.members_bytes <= limits.MAX_MEMBERS_BYTES, (
            f"G5: offset {offset} makes {self.members_bytes} bytes of members"
        )

    def _advance(self, record: GroupRecord, offset: int) -> None:
        group = self._own(record.group_id)
        before = group.record
        assert record.after == group.version, f"G1: offset {offset} has {record} after version {group.version}"
        assert before is None or before.generation <= record.generation, (
            f"G2: offset {offset} has generation {record.generation} after {before}"
        )
        assert not any_twice(record.members), f"G2: offset {offset} has a member twice: {record}"
        self.members_bytes += members_bytes(record.members) - members_bytes(group.members)
        group.record, group.version = record, offset

    def _commit(self, record: OffsetsRecord, offset: int) -> None:
        group, producer_id = self._own(record.group_id), record.producer_id
        for one in record.topics:
            rows = self._change(group, one.topic)
            for told in one.partitions:
                kept = KeptOffset(told.offset, told.leader_epoch, told.metadata, offset, record.timestamp_ms)
                if producer_id == NO_PRODUCER_ID:
                    rows.commit(told.partition, kept)
                else:
                    rows.hold(told.partition, producer_id, kept)
                    self._holders.add(producer_id, (record.group_id, one.topic, told.partition))
            self._changed(group, one.topic, rows)
        self._let_go(group)
        held = self.held_by(producer_id)
        assert held <= limits.MAX_PENDING, f"G5: offset {offset} makes {held} offsets of producer {producer_id}"

    def _remove(self, record: RemoveOffsetsRecord, offset: int) -> None:
        group = self._known(record.group_id, offset)
        for one in record.topics:
            rows = self._change(group, one.topic)
            for partition in one.partitions:
                known = rows.forget(partition)
                assert known, f"G6: offset {offset} has {record}, and {one.topic}-{partition} is not committed"
            self._changed(group, one.topic, rows)
        self._let_go(group)

    def _forget(self, group_id: str, offset: int) -> None:
        group = self._known(group_id, offset)
        assert not group.members and not group.pending, f"G6: offset {offset} removes {group_id!r}, which is in use"
        for topic in list(group.topics):
            self._drop(group, topic)
        group.record = None
        self._let_go(group)

    def end_transaction(self, producer_id: int, *, committed: bool) -> None:
        """The transaction of a producer ended: what it holds is settled (`replayEndTransactionMarker` in Kafka)."""
        held: dict[tuple[str, str], list[int]] = defaultdict(list)
        for group_id, topic, partition in self._holders.clear(producer_id):
            held[group_id, topic].append(partition)
        for (group_id, topic), partitions in held.items():
            group = self._own(group_id)
            rows = self._change(group, topic)
            for partition in partitions:
                rows.settle(partition, producer_id, committed=committed)
            self._changed(group, topic, rows)
            self._let_go(group)

    def drop_topic(self, topic: str) -> None:
        """A topic is deleted, and all offsets in it with that."""
        for group_id in self._readers.clear(topic):
            group = self._own(group_id)
            rows = group.topics.pop(topic)
            for partition, producer_id in rows.pending:
                self._holders.discard(producer_id, (group_id, topic, partition))
            self._add(rows, -1)
            self._let_go(group)

    # What changes, and what is counted of it.

    def _known(self, group_id: str, offset: int) -> Group:
        assert self._groups.get(group_id) is not None, f"G6: offset {offset} removes what {group_id!r} does not have"
        return self._own(group_id)

    def _own(self, group_id: str) -> Group:
        """A group, to be changed: a new one if it is not known, a clone if it belongs to somebody else too."""
        known = self._groups.get(group_id)
        if known is None:
            known = Group(self._owner, group_id)
            self._count += 1
            self._names = None
        elif known.owner == self._owner:
            return known
        else:
            known = known.clone(self._owner)
        self._groups.put(group_id, known)
        return known

    def _change(self, group: Group, topic: str) -> TopicRows:
        """What a group of its own has in a topic, which is counted again once it is `_changed`."""
        rows = group.rows(topic)
        self._add(rows, -1)
        return rows

    def _changed(self, group: Group, topic: str, rows: TopicRows) -> None:
        self._add(rows, 1)
        self._readers.add(topic, group.group_id)
        if not len(rows):
            self._drop(group, topic)

    def _drop(self, group: Group, topic: str) -> None:
        self._add(group.topics.pop(topic), -1)
        self._readers.discard(topic, group.group_id)

    def _add(self, rows: TopicRows, sign: int) -> None:
        self.offsets += sign * len(rows.committed)
        self.pending += sign * len(rows.pending)
        self.offset_bytes += sign * rows.bytes

    def _let_go(self, group: Group) -> None:
        """Forget a group of which nothing is known any more."""
        if group.record is None and not group.topics:
            self._groups.remove(group.group_id)
            self._count -= 1
            self._names = None

    # Snapshots.

    def captured(self) -> Callable[[], GroupsImage | None]:
        """What gives the image of this moment, on any thread, whatever is replayed meanwhile; None for no groups."""
        if not self._count:
            return _nothing
        # From here on all of it belongs to somebody else too.
        self._owner += 1
        groups, offsets, pending = self._groups.copied(), self.offsets, self.pending

        def image() -> GroupsImage:
            ordered = [groups[name] for name in sorted(groups)]
            known = [KnownGroup(group.version, group.record) for group in ordered if group.record is not None]
            return GroupsImage(
                known,
                Rows(
                    offsets, lambda: (OffsetRow(one.group_id, *row) for one in ordered for row in one.committed_after())
                ),
                Rows(pending, lambda: (PendingRow(one.group_id, *row) for one in ordered for row in one.all_pending())),
            )

        return image

    def restore(self, image: GroupsImage) -> None:
        """Become what a snapshot kept; for a state in which nothing is yet. Raises ValueError."""
        for known in image.groups:
            group = self._own(known.record.group_id)
            group.record, group.version = known.record, known.version
            self.members_bytes += members_bytes(group.members)
        _check_order((row.group_id, row.topic, row.partition) for row in image.offsets)
        for (group_id, topic), found in itertools.groupby(image.offsets, _of_topic):
            group = self._own(group_id)
            rows = self._change(group, topic)
            for row in found:
                rows.commit(row.partition, row.kept)
            self._changed(group, topic, rows)
        _check_order((row.group_id, row.topic, row.partition, row.producer_id) for row in image.pending)
        for (group_id, topic), pending in itertools.groupby(image.pending, _of_topic):
            group = self._own(group_id)
            rows = self._change(group, topic)
            for held in pending:
                rows.hold(held.partition, held.producer_id, held.kept)
                self._holders.add(held.producer_id, (group_id, topic, held.partition))
            self._changed(group, topic, rows)


def members_bytes(members: Iterable[GroupMember]) -> int:
    """Of the members of a group, at most, in a record."""
    return sum(member.encoded_bytes for member in members)


def any_twice(members: Collection[GroupMember]) -> bool:
    """Whether two members have one id, or two static ones one instance id."""
    static = [member.instance_id for member in members if member.instance_id is not None]
    return len({member.member_id for member in members}) < len(members) or len(set(static)) < len(static)


def _of_topic(row: OffsetRow | PendingRow) -> tuple[str, str]:
    return row.group_id, row.topic


def _check_order(places: Iterable[tuple[Any, ...]]) -> None:
    for one, other in itertools.pairwise(places):
        if one >= other:
            raise ValueError(f"the offset of {other} comes behind that of {one}")


def _nothing() -> None:
    """Of an empty state."""
