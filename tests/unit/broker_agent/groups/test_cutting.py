from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from pidkeeper.broker_agent.groups.cutting import Commit, Named, cut_commits, cut_named
from pidkeeper.protocol.group_messages import CommitOffsetsRequest, FetchOffsetsRequest, OffsetsTransaction
from pidkeeper.protocol.groups import (
    MAX_COMMITTED_OFFSETS,
    MAX_GROUP_ID_LENGTH,
    MAX_OFFSET_METADATA_BYTES,
    MAX_OFFSETS_BYTES,
    PartitionOffset,
)
from pidkeeper.service.content import MAX_BODY_BYTES

WORST = "\x01" * MAX_GROUP_ID_LENGTH
"""Each of these takes six bytes of JSON."""

LARGEST = PartitionOffset(9999, 2**63 - 1, 2**31 - 1, "\x01" * MAX_OFFSET_METADATA_BYTES)


def commit(topic: str, place: int, metadata: str = "") -> Commit:
    return Commit(topic, PartitionOffset(place % 10_000, 5, -1, metadata), place)


def check(commits: list[Commit]) -> int:
    """The parts are lawful requests with the longest ids, and together what was to be cut; how many there are."""
    transaction = OffsetsTransaction(WORST, 2**63 - 1, 2**15 - 1)
    together: list[Commit] = []
    count = 0
    for part, topics in cut_commits(commits):
        request = CommitOffsetsRequest(2**31 - 1, 2**63 - 1, WORST, topics, 2**31 - 1, WORST, WORST, transaction)
        body = msgspec.json.encode(request)
        assert len(body) <= MAX_BODY_BYTES
        assert msgspec.json.decode(body, type=CommitOffsetsRequest) == request
        assert sum(one.encoded_bytes for one in topics) <= MAX_OFFSETS_BYTES
        assert sum(len(one.partitions) for one in topics) == len(part) <= MAX_COMMITTED_OFFSETS
        assert [(one.topic, each) for one in topics for each in one.partitions] == [(x.topic, x.offset) for x in part]
        together += part
        count += 1
    assert together == commits
    return count


texts = st.text(st.characters(codec="utf-8"), max_size=300)


@given(
    st.lists(
        st.tuples(st.sampled_from(["a", "b" * 249, "ü" * 249, "\x01" * 249]), texts, st.integers(1, 40)), max_size=60
    )
)
def test_the_parts_are_lawful_and_nothing_is_lost_or_overtaken(runs: list[tuple[str, str, int]]) -> None:
    check([commit(topic, at, text) for at, (topic, text, times) in enumerate(runs) for _ in range(times)])


def test_what_fits_is_one_request() -> None:
    assert check([]) == 0
    assert check([commit("t", at) for at in range(MAX_COMMITTED_OFFSETS)]) == 1


def test_more_partitions_than_a_record_has_are_cut() -> None:
    assert check([commit("t", at) for at in range(2 * MAX_COMMITTED_OFFSETS + 1)]) == 3


def test_more_bytes_than_a_body_has_are_cut() -> None:
    assert check([commit("\x01" * 249, at) for at in range(MAX_COMMITTED_OFFSETS)]) == 1
    assert check([commit(f"{at:04}" + "\x01" * 245, at) for at in range(MAX_COMMITTED_OFFSETS)]) > 30
    assert check([Commit("t", LARGEST, at) for at in range(5)]) == 5


def test_named_partitions_are_cut_likewise() -> None:
    named = [Named(f"{at // 2:04}" + "ü" * 245, at % 2 + 2**31 - 2) for at in range(1500)]
    together = []
    for topics in cut_named(named):
        body = msgspec.json.encode(FetchOffsetsRequest(WORST, topics, True, (WORST, 2**31 - 1)))
        assert len(body) <= MAX_BODY_BYTES
        assert sum(len(one.partitions) for one in topics) <= MAX_COMMITTED_OFFSETS
        together += [Named(one.topic, each) for one in topics for each in one.partitions]
    assert together == named
