"""What callers are told of consumer groups, from the applied state. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from pidkeeper.controller.state.group_decisions import described
from pidkeeper.controller.state.groups.group import Group
from pidkeeper.controller.state.groups.state import GroupsState
from pidkeeper.protocol.errors import ErrorCode
from pidkeeper.protocol.group_messages import (
    MAX_FETCHED_OFFSETS,
    MAX_PAGE_BYTES,
    FetchedOffset,
    FetchOffsetsRequest,
    GroupDescription,
    GroupsPage,
    OffsetsPage,
)
from pidkeeper.protocol.groups import NO_LEADER_EPOCH
from pidkeeper.protocol.transactions import TopicPartitions
from pidkeeper.snapshots.groups_image import KeptOffset

_UNSTABLE: Final = ErrorCode.UNSTABLE_OFFSET_COMMIT.kafka_code
_NO_OFFSET: Final = -1

Place = tuple[str, int]
"""A topic, and the number of a partition."""

_FIRST: Final[Place] = ("", -1)
"""Below all."""


def find_group(groups: GroupsState, group_id: str) -> GroupDescription | None:
    """A group, or None if nothing is known of it."""
    group = groups.get(group_id)
    return None if group is None else described(group)


def groups_page(groups: GroupsState, after: str | None, limit: int) -> GroupsPage:
    """At most `limit` groups whose ids are above `after`; fewer where they have many members."""
    page: list[GroupDescription] = []
    room = MAX_PAGE_BYTES
    for group in groups.after(after, limit + 1):
        one = described(group)
        room -= len(msgspec.json.encode(one))
        if len(page) == limit or (room < 0 and page):
            return GroupsPage(page, page[-1].group_id)
        page.append(one)
    return GroupsPage(page, None)


def fetch_offsets(groups: GroupsState, request: FetchOffsetsRequest) -> OffsetsPage:
    """Where a group is to go on; nothing of a partition for which a transaction holds an offset, if it shall be stable
    (KIP-447)."""
    group, after = groups.get(request.group_id), request.after or _FIRST
    places = _committed(group, after) if request.topics is None else _wanted(request.topics, after)

    def fetched(topic: str, partition: int) -> FetchedOffset:
        if request.require_stable and group is not None and group.is_pending(topic, partition):
            return _fetched(topic, partition, None, _UNSTABLE)
        return _fetched(topic, partition, None if group is None else group.committed(topic, partition))

    return _page((fetched(*place) for place in places), MAX_FETCHED_OFFSETS)


def group_offsets(groups: GroupsState, group_id: str, after: Place | None, limit: int) -> OffsetsPage:
    """At most `limit` offsets of a group above `after`, to be shown.

    What is committed is told also of a partition for which a transaction holds an offset, which the code says then.
    """
    group = groups.get(group_id)
    if group is None:
        return OffsetsPage([], None)
    shown = (
        _fetched(*place, group.committed(*place), _UNSTABLE if group.is_pending(*place) else 0)
        for place in _known(group, after or _FIRST)
    )
    return _page(shown, limit)


def _committed(group: Group | None, after: Place) -> Iterator[Place]:
    return iter(()) if group is None else ((topic, number) for topic, number, _ in group.committed_after(*after))


def _wanted(topics: list[TopicPartitions], after: Place) -> list[Place]:
    places = sorted({(one.topic, number) for one in topics for number in one.partitions})
    return places[bisect_right(places, after) :]


def _known(group: Group, after: Place) -> Iterator[Place]:
    """Partitions for which there is any offset, committed or held."""
    for topic in sorted(topic for topic in group.topics if topic >= after[0]):
        rows = group.topics[topic]
        for number in sorted(rows.committed.keys() | rows.held.keys()):
            if (topic, number) > after:
                yield topic, number


def _fetched(topic: str, partition: int, kept: KeptOffset | None, code: int = 0) -> FetchedOffset:
    if kept is None:
        return FetchedOffset(topic, partition, _NO_OFFSET, NO_LEADER_EPOCH, "", code)
    return FetchedOffset(topic, partition, kept.offset, kept.leader_epoch, kept.metadata, code, kept.timestamp_ms)


def _page(rows: Iterable[FetchedOffset], limit: int) -> OffsetsPage:
    """As many as a page takes; one at least."""
    page: list[FetchedOffset] = []
    room = MAX_PAGE_BYTES
    for row in rows:
        room -= len(msgspec.json.encode(row))
        if len(page) == limit or (room < 0 and page):
            return OffsetsPage(page, (page[-1].topic, page[-1].partition))
        page.append(row)
    return OffsetsPage(page, None)
