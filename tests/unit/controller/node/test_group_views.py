"""What callers are told of consumer groups: which rows, in which order, and how many on a page."""

from __future__ import annotations

import uuid

import msgspec
import pytest

from pidkeeper.controller.node.group_views import fetch_offsets, find_group, group_offsets, groups_page
from pidkeeper.controller.state.groups.state import GroupsState
from pidkeeper.protocol.errors import ErrorCode
from pidkeeper.protocol.group_messages import MAX_FETCHED_OFFSETS, MAX_PAGE_BYTES, FetchOffsetsRequest, OffsetsPage
from pidkeeper.protocol.groups import GroupMember, GroupRecord, OffsetsRecord, PartitionOffset, TopicOffsets
from pidkeeper.protocol.transactions import TopicPartitions

UNSTABLE = ErrorCode.UNSTABLE_OFFSET_COMMIT.kafka_code
PRODUCER = 4


class Groups:
    """A state, and its records one after the other."""

    def __init__(self) -> None:
        self.state = GroupsState()
        self._offset = 0

    def commit(
        self, topic: str, *offsets: tuple[int, int], group: str = "g", held: bool = False, text: str = ""
    ) -> None:
        rows = TopicOffsets(topic, tuple(PartitionOffset(*place, -1, text) for place in offsets))
        producer = (PRODUCER, 0) if held else (-1, -1)
        self._replay(OffsetsRecord(group, *producer, (rows,), 1000 + self._offset))

    def join(self, group: str, *members: GroupMember) -> None:
        self._replay(GroupRecord(group, -1, 0, "consumer", members, 1, 1, 0))

    def _replay(self, record: GroupRecord | OffsetsRecord) -> None:
        self.state.replay(record, self._offset)
        self._offset += 1

    def fetch(
        self, *topics: tuple[str, list[int]], after: tuple[str, int] | None = None, stable: bool = False
    ) -> OffsetsPage:
        wanted = [TopicPartitions(topic, tuple(numbers)) for topic, numbers in topics] if topics else None
        return fetch_offsets(self.state, FetchOffsetsRequest("g", wanted, stable, after))


def places(page: OffsetsPage) -> list[tuple[str, int, int]]:
    return [(one.topic, one.partition, one.offset) for one in page.offsets]


@pytest.fixture
def groups() -> Groups:
    """Committed in `b` and `a`; a transaction holds offsets of b-1, and of c-0, where nothing is committed."""
    one = Groups()
    one.commit("b", (3, 30), (1, 10))
    one.commit("a", (0, 5), text="meta")
    one.commit("b", (1, 11), held=True)
    one.commit("c", (0, 9), held=True)
    return one


def test_all_offsets_are_fetched_by_topic_and_partition(groups: Groups) -> None:
    page = groups.fetch()
    assert places(page) == [("a", 0, 5), ("b", 1, 10), ("b", 3, 30)]
    first = page.offsets[0]
    assert (first.metadata, first.leader_epoch, first.error_code, first.timestamp_ms) == ("meta", -1, 0, 1001)


def test_each_wanted_partition_is_answered_once(groups: Groups) -> None:
    page = groups.fetch(("b", [3, 0, 3]), ("z", [2]), ("a", [0]), ("b", [1]))
    assert places(page) == [("a", 0, 5), ("b", 0, -1), ("b", 1, 10), ("b", 3, 30), ("z", 2, -1)]
    assert page.offsets[-1].metadata == ""
    assert places(groups.fetch(("b", [3, 0]), ("a", [0]), after=("b", 0))) == [("b", 3, 30)]


def test_what_a_transaction_holds_is_unstable(groups: Groups) -> None:
    """`OffsetMetadataManagerTest.testFetchOffsetsWithPendingTransactionalOffsets`, and `…AllOffsets…`."""
    fetched = groups.fetch(("b", [1, 3]), ("c", [0]), stable=True).offsets
    assert [(one.offset, one.error_code, one.timestamp_ms) for one in fetched] == [
        (-1, UNSTABLE, -1),
        (30, 0, 1000),
        (-1, UNSTABLE, -1),
    ]
    assert [(one.topic, one.error_code) for one in groups.fetch(stable=True).offsets] == [
        ("a", 0),
        ("b", UNSTABLE),
        ("b", 0),
    ]
    assert not any(one.error_code for one in groups.fetch(("b", [1]), ("c", [0])).offsets), "unless it shall be stable"
    groups.state.end_transaction(PRODUCER, committed=True)
    assert places(groups.fetch(stable=True)) == [("a", 0, 5), ("b", 1, 11), ("b", 3, 30), ("c", 0, 9)]


def test_a_group_that_is_not_known_has_nothing() -> None:
    nothing = Groups()
    assert nothing.fetch() == OffsetsPage([], None)
    assert places(nothing.fetch(("a", [0]), stable=True)) == [("a", 0, -1)]
    assert group_offsets(nothing.state, "g", None, 5) == OffsetsPage([], None)
    assert find_group(nothing.state, "g") is None
    assert groups_page(nothing.state, None, 5).groups == []


def test_what_is_shown_has_held_and_committed_offsets(groups: Groups) -> None:
    page = group_offsets(groups.state, "g", None, 3)
    assert [(one.topic, one.partition, one.offset, one.error_code) for one in page.offsets] == [
        ("a", 0, 5, 0),
        ("b", 1, 10, UNSTABLE),
        ("b", 3, 30, 0),
    ]
    assert page.next_after == ("b", 3)
    page = group_offsets(groups.state, "g", page.next_after, 3)
    assert [(one.topic, one.offset, one.error_code) for one in page.offsets] == [("c", -1, UNSTABLE)]
    assert page.next_after is None


@pytest.mark.parametrize("wanted", [[], [("wide", list(range(2500)))]])
def test_pages_follow_each_other(wanted: list[tuple[str, list[int]]]) -> None:
    groups = Groups()
    for first in range(0, 2500, 500):
        groups.commit("wide", *((number, number) for number in range(first, first + 500)))
    found: list[int] = []
    sizes: list[int] = []
    after = None
    while not sizes or after is not None:
        page = groups.fetch(*wanted, after=after)
        found += [one.offset for one in page.offsets]
        after = page.next_after
        sizes.append(len(page.offsets))
    assert found == list(range(2500))
    assert sizes == [MAX_FETCHED_OFFSETS, MAX_FETCHED_OFFSETS, 500]


@pytest.mark.parametrize("text", ["x", "\x00"])
def test_a_page_of_long_metadata_is_short(text: str) -> None:
    """A control character takes six bytes of JSON, and agents read half a MiB."""
    groups = Groups()
    for number in range(100):
        groups.commit("t", (number, number), text=text * 4096)
    after, found = None, 0
    while after is not None or not found:
        page = groups.fetch(after=after)
        assert len(msgspec.json.encode(page)) <= MAX_PAGE_BYTES + 1000
        found, after = found + len(page.offsets), page.next_after
        assert len(page.offsets) > 9
    assert found == 100


def test_a_page_of_groups_with_many_members_is_short() -> None:
    groups = Groups()
    for number in range(40):
        groups.join(f"g{number:02}", *(GroupMember(f"{uuid.UUID(int=one)}", None, "", "") for one in range(300)))
    names: list[str] = []
    after = None
    while after is not None or not names:
        page = groups_page(groups.state, after, 1000)
        assert len(msgspec.json.encode(page)) <= MAX_PAGE_BYTES + 1000
        names, after = names + [one.group_id for one in page.groups], page.next_after
    assert names == [f"g{number:02}" for number in range(40)]


def test_one_group_is_a_page_however_large_it_is() -> None:
    groups = Groups()
    for name in ("a", "b"):
        groups.join(name, *(GroupMember(f"{uuid.UUID(int=one)}", None, "\x00" * 128, "") for one in range(350)))
    page = groups_page(groups.state, None, 10)
    assert len(msgspec.json.encode(page)) > MAX_PAGE_BYTES
    assert ([one.group_id for one in page.groups], page.next_after) == (["a"], "a")
    assert [one.group_id for one in groups_page(groups.state, "a", 10).groups] == ["b"]
