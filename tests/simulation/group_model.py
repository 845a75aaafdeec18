"""Consumer groups as the records of the quorum's log make them, told apart from the code under test.

A group has its newest record, and offsets in plain dicts; a transaction's end settles what it holds. What a partition
had at which time is kept, so whatever callers are told is judged by what was so at some moment since they asked.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from pidkeeper.controller.state.groups.state import GroupsState
from pidkeeper.protocol.errors import ErrorCode
from pidkeeper.protocol.groups import (
    NO_VERSION,
    GroupRecord,
    GroupsRecord,
    OffsetsRecord,
    RemoveGroupRecord,
    RemoveOffsetsRecord,
)
from tests.simulation.world import Violation

NO_OFFSET: Final = -1
NO_PRODUCER: Final = -1
UNSTABLE: Final = ErrorCode.UNSTABLE_OFFSET_COMMIT.kafka_code
MAX_SHOWN: Final = 1000

Place = tuple[str, str, int]
"""A group's id, a topic and a partition."""


class Kept(NamedTuple):
    """An offset, and that of the record which has it."""

    offset: int
    at: int


class Told(NamedTuple):
    """What a partition has from a moment on: its committed offset, and whether a transaction holds another one."""

    since: int
    offset: int
    held: bool


class Generation(NamedTuple):
    """Of a group, as one record has it. `since`: the moment at which that was applied first."""

    since: int
    version: int
    number: int
    members: tuple[str, ...]


class GroupsImage(NamedTuple):
    """What all groups are. `generations`: version, number and members; `pending`: by producer id and place."""

    generations: dict[str, tuple[int, int, tuple[str, ...]]]
    committed: dict[Place, Kept]
    pending: dict[tuple[int, Place], Kept]


class GroupModel:
    """`now()`: the world's time. `at`: the offset of the record that is taken in. The others count what happened:
    generations, offsets that transactions committed and did not, and of the first those that a newer commit beat."""

    def __init__(self, now: Callable[[], int]) -> None:
        self._now = now
        self.at = 0
        self._groups: dict[str, list[Generation]] = defaultdict(list)
        self._committed: dict[Place, Kept] = {}
        self._pending: dict[tuple[int, Place], Kept] = {}
        self._told: dict[Place, list[Told]] = defaultdict(list)
        self._commits: dict[tuple[int, Place], list[tuple[int, int]]] = defaultdict(list)
        self._image: GroupsImage | None = None
        self.generations = self.settled = self.aborted = self.overtaken = 0

    # What the records say.

    def take(self, record: GroupsRecord) -> None:
        """Take in a record about a group. Raises Violation."""
        self._image = None
        match record:
            case GroupRecord():
                self._advance(record)
            case OffsetsRecord():
                for topic in record.topics:
                    for one in topic.partitions:
                        place = record.group_id, topic.topic, one.partition
                        self._commit(place, record.producer_id, Kept(one.offset, self.at))
            case RemoveOffsetsRecord():
                for gone in record.topics:
                    self._forget((record.group_id, gone.topic, number) for number in gone.partitions)
            case RemoveGroupRecord():
                self._forget([place for place in self._committed if place[0] == record.group_id])
                self._groups.pop(record.group_id, None)

    def settle(self, producer_id: int, *, committed: bool) -> None:
        """The transaction of a producer ended."""
        for held in [one for one in self._pending if one[0] == producer_id]:
            self._image = None
            kept, place = self._pending.pop(held), held[1]
            newer = committed and place in self._committed and self._committed[place].at > kept.at
            self.overtaken += newer
            self.settled += committed
            self.aborted += not committed
            if committed and not newer:
                self._committed[place] = kept
            self._note(place)

    def drop_topic(self, topic: str) -> None:
        """A topic is deleted, and all offsets in it with that."""
        self._image = None
        for held in [one for one in self._pending if one[1][1] == topic]:
            del self._pending[held]
            self._note(held[1])
        self._forget([place for place in self._committed if place[1] == topic])

    def _advance(self, record: GroupRecord) -> None:
        known = self._groups[record.group_id]
        version, number = (known[-1].version, known[-1].number) if known else (NO_VERSION, 0)
        if record.after != version or record.generation < number:
            raise Violation("group-forked", f"{record} comes after version {version} of generation {number}")
        self.generations += 1
        members = tuple(one.member_id for one in record.members)
        known.append(Generation(self._now(), self.at, record.generation, members))

    def _commit(self, place: Place, producer_id: int, kept: Kept) -> None:
        if producer_id == NO_PRODUCER:
            self._committed[place] = kept
        else:
            self._pending[producer_id, place] = kept
        self._commits[producer_id, place].append((self._now(), kept.offset))
        self._note(place)

    def _forget(self, places: Iterable[Place]) -> None:
        for place in places:
            del self._committed[place]
            self._note(place)

    def _note(self, place: Place) -> None:
        self._told[place].append(Told(self._now(), self.offset(place), self.is_held(place)))

    # What is so.

    def offset(self, place: Place) -> int:
        """What is committed, NO_OFFSET for nothing."""
        return self._committed[place].offset if place in self._committed else NO_OFFSET

    def is_held(self, place: Place) -> bool:
        """Whether a transaction holds an offset."""
        return any(one == place for _, one in self._pending)

    def newest(self, group_id: str) -> Generation | None:
        """The newest generation of a group."""
        known = self._groups.get(group_id)
        return known[-1] if known else None

    def image(self) -> GroupsImage:
        """All of it."""
        if self._image is None:
            newest = {group_id: known[-1] for group_id, known in self._groups.items() if known}
            generations = {group_id: (one.version, one.number, one.members) for group_id, one in newest.items()}
            self._image = GroupsImage(generations, self._committed.copy(), self._pending.copy())
        return self._image

    # What callers were told.

    def joined(self, group_id: str, generation: int, member_id: str) -> None:
        """A member was told that it is of a generation. Raises Violation unless that is committed."""
        known = self._groups.get(group_id, ())
        if not any(one.number == generation and member_id in one.members for one in known):
            raise Violation("joined-uncommitted", f"{member_id} was told that it is of {group_id}, {generation}")

    def committed(self, place: Place, asked: int, offset: int, producer_id: int, generation: int, member: str) -> None:
        """A member that asked at the moment `asked` was told that its offset is kept. Raises Violation unless it is,
        and the member was of the group's generation at some moment since."""
        if not any(since >= asked and one == offset for since, one in self._commits[producer_id, place]):
            raise Violation("offset-uncommitted", f"{offset} of {place}, producer {producer_id}, was said to be kept")
        known = self._groups.get(place[0], [])
        current = [*[one for one in known if one.since < asked][-1:], *[one for one in known if one.since >= asked]]
        if not any(one.number == generation and member in one.members for one in current):
            raise Violation("stale-committed", f"{member} of generation {generation} has {offset} kept of {place}")

    def fetched(self, place: Place, asked: int, code: int, offset: int, *, stable: bool) -> None:
        """A caller that asked at the moment `asked` was told this offset, or that it is unstable. Raises Violation."""
        told = self._told[place]
        before = [one for one in told if one.since < asked] or [Told(0, NO_OFFSET, held=False)]
        possible = [before[-1], *[one for one in told if one.since >= asked]]
        if code == UNSTABLE:
            holds = stable and any(one.held for one in possible)
        else:
            holds = any(one.offset == offset and not (stable and one.held) for one in possible)
        if not holds:
            raise Violation("offset-fetched", f"{place}: told {offset} with code {code}, stable {stable}: {possible}")


def image_of(groups: GroupsState) -> GroupsImage:
    """What a member has."""
    image = GroupsImage({}, {}, {})
    for group in groups.after(None, MAX_SHOWN):
        if group.record is not None:
            members = tuple(one.member_id for one in group.members)
            image.generations[group.group_id] = group.version, group.record.generation, members
        for topic, partition, kept in group.committed_after():
            image.committed[group.group_id, topic, partition] = Kept(kept.offset, kept.record_offset)
        for topic, partition, producer_id, kept in group.all_pending():
            image.pending[producer_id, (group.group_id, topic, partition)] = Kept(kept.offset, kept.record_offset)
    return image
