"""Overlaps, falls and gaps of blocks in any disorder are those that comparing every block with every other gives.

However the log is cut into shards: what a shard does not see is told over the seams.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final, NamedTuple

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.support.quorum_evidence import run
from tests.support.quorum_tables import QuorumTables, Row

OFFSET_STEP: Final = 3
ID_STEP: Final = 10
CHECKS: Final = ("overlap", "regress", "gap")

Spans = list[tuple[int, int, int]]


class Block(NamedTuple):
    """In order of ID."""

    first: int
    last: int
    offset: int


def disorderly(chance: random.Random, count: int) -> list[Block]:
    """Mostly each above the last; some fall, some reach into others, some leave a hole."""
    starts = (0, 0, 0, 0, 1, 2, -1, -3, -8, -40, 30)
    lengths = (1, 3, 3, 3, 3, 4, 9)
    return blocks_of(
        [(chance.choice(starts), chance.choice(lengths), chance.choice((0, 0, 0, 1))) for _ in range(count)]
    )


def blocks_of(drawn: Sequence[tuple[int, int, int]]) -> list[Block]:
    """Each by how far from its due place it starts, its length, both in steps, and how many IDs its end lacks."""
    blocks = []
    for number, (shift, length, lacking) in enumerate(drawn):
        first = max(3 * number + shift, 0) * ID_STEP
        blocks.append(Block(first, first + length * ID_STEP - 1 - lacking, number * OFFSET_STEP))
    return blocks


def rising(drawn: Sequence[tuple[int, int]]) -> list[Block]:
    """A lawful history: each begins above the last, by so many IDs, and has so many."""
    blocks, following = [], 0
    for number, (hole, length) in enumerate(drawn):
        first = following + hole
        blocks.append(Block(first, first + length - 1, number * OFFSET_STEP))
        following = first + length
    return blocks


def tables_of(blocks: Sequence[Block], members: int = 1) -> QuorumTables:
    tables = QuorumTables()
    for member in range(1, members + 1):
        place = {"member": f"{member:02}", "cluster_id": "c", "file": f"{member}/archive/all.arc"}
        for number, block in enumerate(blocks):
            ids = {
                "first_id": block.first,
                "last_id": block.last,
                "offset": block.offset,
                "position": 128 + 48 * number,
            }
            tables.blocks.append(place | ids | {"broker_id": 1, "broker_epoch": 0, "timestamp_ms": 0})
    return tables


def spans(rows: list[Row], check: str) -> Spans:
    return sorted((row["first_id"], row["last_id"], row["offset"]) for row in rows if row["check"] == check)


def expected_overlaps(blocks: Sequence[Block]) -> Spans:
    found = []
    for block in blocks:
        before = [other for other in blocks if other < block]
        other = max(before, key=lambda one: (one.last, one.first, one.offset), default=None)
        if other is not None and other.last >= block.first:
            found.append((block.first, min(block.last, other.last), max(block.offset, other.offset)))
    return sorted(found)


def highest_before(blocks: Sequence[Block], block: Block) -> Block | None:
    return max(
        (one for one in blocks if one.offset < block.offset),
        key=lambda one: (one.last, one.first, one.offset),
        default=None,
    )


def expected_falls(blocks: Sequence[Block]) -> Spans:
    highest = {block: highest_before(blocks, block) for block in blocks}
    fallen = (block for block, high in highest.items() if high is not None and block.last < high.first)
    return sorted((block.first, block.last, block.offset) for block in fallen)


def expected_gaps(blocks: Sequence[Block]) -> Spans:
    """Of the blocks that raised the next ID alone."""
    raised = [one for one in blocks if (high := highest_before(blocks, one)) is None or one.last > high.last]
    found, reached = [], -1
    for block in sorted(raised):
        if block.first > reached + 1:
            found.append((reached + 1, block.first - 1, block.offset))
        reached = max(reached, block.last)
    return found


def expected(blocks: Sequence[Block]) -> dict[str, Spans]:
    return {"overlap": expected_overlaps(blocks), "regress": expected_falls(blocks), "gap": expected_gaps(blocks)}


def found(blocks: Sequence[Block], cuts: Sequence[int]) -> dict[str, Spans]:
    rows = run(tables_of(blocks), cuts=cuts)
    return {check: spans(rows, check) for check in CHECKS}


def drawn_cuts(reach: int, most: int) -> st.SearchStrategy[list[int]]:
    return st.lists(st.integers(1, reach), unique=True, max_size=most).map(sorted)


@pytest.mark.parametrize("seed", [1, 2])
def test_disorder_is_told_as_by_comparing_every_pair(seed: int) -> None:
    chance = random.Random(seed)
    blocks = disorderly(chance, 120)
    due = expected(blocks)
    assert min(len(rows) for rows in due.values()) > 3, "an order without faults shows nothing"
    for cuts in ([], sorted(chance.sample(range(1, 120 * OFFSET_STEP), 12))):
        assert found(blocks, cuts) == due, cuts


@settings(max_examples=22, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@example([(0, 3, 0), (40, 3, 0), (-6, 3, 0)], [OFFSET_STEP, 2 * OFFSET_STEP])
@given(
    st.lists(
        st.tuples(st.sampled_from((0, 0, 0, 1, 2, -1, -3, -8, 30)), st.integers(1, 9), st.integers(0, 1)),
        min_size=1,
        max_size=16,
    ),
    drawn_cuts(16 * OFFSET_STEP, 5),
)
def test_any_few_blocks_are_told_so_too(drawn: list[tuple[int, int, int]], cuts: list[int]) -> None:
    blocks = blocks_of(drawn)
    assert found(blocks, cuts) == expected(blocks)


@settings(max_examples=20, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@example([(7, 1), (0, 5), (2, 1)], [OFFSET_STEP, 2 * OFFSET_STEP])
@given(
    st.lists(st.tuples(st.sampled_from((0, 0, 0, 1, 50)), st.integers(1, 9)), min_size=1, max_size=16),
    drawn_cuts(16 * OFFSET_STEP, 6),
)
def test_holes_in_a_rising_order_are_all_gaps_within_shards_and_between(
    drawn: list[tuple[int, int]], cuts: list[int]
) -> None:
    """The order that a lawful history has, of which no block is looked at twice."""
    blocks = rising(drawn)
    due = expected(blocks)
    assert (due["overlap"], due["regress"]) == ([], [])
    assert found(blocks, cuts) == due


def test_blocks_whose_offset_no_log_tells_are_in_the_order_of_ids() -> None:
    """Two with a hole between them, and one ID in both a third and the second."""
    tables = tables_of(rising([(0, 10), (0, 10)]))
    file = {"member": "01", "cluster_id": "c", "file": "1/wal/0.wal", "segment": "0.wal", "committed": True}
    for index, (first, last) in enumerate([(25, 34), (34, 40)], 1):
        record = {"record_type": "AllocateProducerIdsRecord", "first_id": first, "last_id": last, "broker_id": 1}
        place = {"position": 4096 + 64 * index, "index": index, "term": 1, "record_number": 0, "offset": None}
        tables.log.append(file | record | place | {"broker_epoch": 0, "timestamp_ms": 0})
    rows = [row for row in run(tables, cuts=[1, 2]) if row["check"] in CHECKS]
    assert {(row["check"], row["first_id"], row["last_id"]) for row in rows} == {("gap", 20, 24), ("overlap", 34, 34)}
    assert "the log that could explain it is gone" in next(row["detail"] for row in rows if row["check"] == "gap")
