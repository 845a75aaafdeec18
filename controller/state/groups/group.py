"""One consumer group: the newest record of it, and the offsets that it committed, topic by topic."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from pidkeeper.controller.state.groups.limits import text_bytes
from pidkeeper.protocol.groups import NO_VERSION, GroupMember, GroupRecord
from pidkeeper.protocol.transactions import NO_PRODUCER_ID
from pidkeeper.snapshots.groups_image import KeptOffset


class TopicRows:
    """What a group has in one topic. It is changed by its `owner` alone; all others clone it first.

    `committed`: by partition. `pending`: by partition and producer id. `held`: how many pending ones a partition has,
    those that have any. `bytes`: of names and metadata, as `limits` counts them.
    """

    __slots__ = ("_name_bytes", "bytes", "committed", "held", "owner", "pending")

    def __init__(self, owner: int, name_bytes: int) -> None:
        self.owner = owner
        self.committed: dict[int, KeptOffset] = {}
        self.pending: dict[tuple[int, int], KeptOffset] = {}
        self.held: dict[int, int] = {}
        self.bytes = 0
        self._name_bytes = name_bytes

    def clone(self, owner: int) -> TopicRows:
        """An equal one, for another owner."""
        other = TopicRows(owner, self._name_bytes)
        other.committed, other.pending, other.held = self.committed.copy(), self.pending.copy(), self.held.copy()
        other.bytes = self.bytes
        return other

    def __len__(self) -> int:
        return len(self.committed) + len(self.pending)

    def find(self, partition: int, producer_id: int) -> KeptOffset | None:
        """What a producer's transaction holds for a partition; without a producer, what is committed."""
        if producer_id == NO_PRODUCER_ID:
            return self.committed.get(partition)
        return self.pending.get((partition, producer_id))

    def commit(self, partition: int, kept: KeptOffset) -> None:
        """An offset is committed."""
        self._replaced(self.committed.get(partition), kept)
        self.committed[partition] = kept

    def hold(self, partition: int, producer_id: int, kept: KeptOffset) -> None:
        """An offset is to be committed with a producer's transaction."""
        before = self.pending.get((partition, producer_id))
        if before is None:
            self.held[partition] = self.held.get(partition, 0) + 1
        self._replaced(before, kept)
        self.pending[partition, producer_id] = kept

    def settle(self, partition: int, producer_id: int, *, committed: bool) -> None:
        """The transaction that holds an offset has ended. What was committed by a later record stays."""
        kept = self.pending.pop((partition, producer_id))
        self._replaced(kept, None)
        left = self.held[partition] - 1
        if left:
            self.held[partition] = left
        else:
            del self.held[partition]
        known = self.committed.get(partition)
        if committed and (known is None or known.record_offset < kept.record_offset):
            self.commit(partition, kept)

    def forget(self, partition: int) -> bool:
        """No offset is committed any more; whether there was one."""
        known = self.committed.pop(partition, None)
        self._replaced(known, None)
        return known is not None

    def _replaced(self, before: KeptOffset | None, after: KeptOffset | None) -> None:
        self.bytes += self._size(after) - self._size(before)

    def _size(self, kept: KeptOffset | None) -> int:
        return 0 if kept is None else self._name_bytes + text_bytes(kept.metadata)


class Group:
    """A group. It is changed by its `owner` alone, as TopicRows.

    `record`: its newest one, None if offsets alone are known. `version`: the offset of that, or NO_VERSION. `topics`:
    those in which it has any offset.
    """

    __slots__ = ("group_id", "owner", "record", "topics", "version")

    def __init__(self, owner: int, group_id: str) -> None:
        self.owner = owner
        self.group_id = group_id
        self.record: GroupRecord | None = None
        self.version = NO_VERSION
        self.topics: dict[str, TopicRows] = {}

    def clone(self, owner: int) -> Group:
        """An equal one, for another owner; of its topics each is cloned once it is to be changed."""
        other = Group(owner, self.group_id)
        other.record, other.version, other.topics = self.record, self.version, self.topics.copy()
        return other

    def rows(self, topic: str) -> TopicRows:
        """What it has in a topic, to be changed by its owner."""
        known = self.topics.get(topic)
        if known is None:
            known = self.topics[topic] = TopicRows(self.owner, text_bytes(self.group_id) + text_bytes(topic))
        elif known.owner != self.owner:
            known = self.topics[topic] = known.clone(self.owner)
        return known

    @property
    def members(self) -> tuple[GroupMember, ...]:
        """Of its newest generation; none in an empty group."""
        return () if self.record is None else self.record.members

    @property
    def offsets(self) -> int:
        """Partitions with a committed offset."""
        return sum(len(rows.committed) for rows in self.topics.values())

    @property
    def pending(self) -> int:
        """Partitions for which a transaction holds an offset."""
        return sum(len(rows.held) for rows in self.topics.values())

    def committed(self, topic: str, partition: int) -> KeptOffset | None:
        """Where it is to go on in a partition, if it committed that."""
        rows = self.topics.get(topic)
        return None if rows is None else rows.committed.get(partition)

    def is_pending(self, topic: str, partition: int) -> bool:
        """Whether any transaction holds an offset for a partition (KIP-447)."""
        rows = self.topics.get(topic)
        return rows is not None and partition in rows.held

    def committed_after(self, topic: str = "", partition: int = -1) -> Iterator[tuple[str, int, KeptOffset]]:
        """The committed offsets behind that of a partition, by topic and partition; before the next replay."""
        names = sorted(self.topics)
        for name in names[bisect_left(names, topic) :]:
            committed = self.topics[name].committed
            numbers = sorted(committed)
            first = bisect_right(numbers, partition) if name == topic else 0
            yield from ((name, number, committed[number]) for number in numbers[first:])

    def all_pending(self) -> Iterator[tuple[str, int, int, KeptOffset]]:
        """The pending offsets, by topic, partition and producer id; before the next replay."""
        for name in sorted(self.topics):
            pending = self.topics[name].pending
            yield from ((name, *place, pending[place]) for place in sorted(pending))
