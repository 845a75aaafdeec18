"""Overlaps, falls and gaps of blocks in any disorder are those that comparing every block with every other gives."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import pytest

from tests.support.quorum_tables import QuorumTables, Row, run, tiny_tables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("pyspark")

from pyspark.errors import PySparkException

from pidkeeper.pipeline.checks.quorum.gap import gap
from pidkeeper.pipeline.checks.quorum.history import MAX_MEMBERS, distinct_blocks
from pidkeeper.pipeline.checks.quorum.overlap import overlap
from pidkeeper.pipeline.checks.quorum.regress import regress

OFFSET_STEP = 1 << 14
ID_STEP = 1 << 23
"""Blocks and holes between them cross the ranges by which the orders are cut, 2^16 offsets and 2^26 IDs."""


class Block(NamedTuple):
    """In order of ID."""

    first: int
    last: int
    offset: int


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> Iterator[SparkSession]:
    with tiny_tables(spark) as tiny:
        yield tiny


def disorderly(chance: random.Random, count: int) -> list[Block]:
    """Mostly each above the last; some fall, some reach into others, some leave a hole."""
    blocks = []
    for number in range(count):
        start = 3 * number + chance.choice((0, 0, 0, 0, 1, 2, -1, -3, -8, -40, 30))
        first = max(start, 0) * ID_STEP
        length = chance.choice((1, 3, 3, 3, 3, 4, 9)) * ID_STEP
        blocks.append(Block(first, first + length - 1 - chance.choice((0, 0, 0, 1)), number * OFFSET_STEP))
    return blocks


def tables_of(blocks: list[Block], members: int = 1) -> QuorumTables:
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


def spans(rows: list[Row]) -> list[tuple[int, int, int]]:
    return sorted((row["first_id"], row["last_id"], row["offset"]) for row in rows)


def expected_overlaps(blocks: list[Block]) -> list[tuple[int, int, int]]:
    found = []
    for block in blocks:
        before = [other for other in blocks if other < block]
        other = max(before, key=lambda one: (one.last, one.offset), default=None)
        if other is not None and other.last >= block.first:
            found.append((block.first, min(block.last, other.last), max(block.offset, other.offset)))
    return sorted(found)


def highest_before(blocks: list[Block], block: Block) -> Block | None:
    return max(
        (one for one in blocks if one.offset < block.offset), key=lambda one: (one.last, one.offset), default=None
    )


def expected_falls(blocks: list[Block]) -> list[tuple[int, int, int]]:
    highest = {block: highest_before(blocks, block) for block in blocks}
    fallen = (block for block, high in highest.items() if high is not None and block.last < high.first)
    return sorted((block.first, block.last, block.offset) for block in fallen)


def expected_gaps(blocks: list[Block]) -> list[tuple[int, int, int]]:
    """Of the blocks that raised the next ID alone."""
    raised = [one for one in blocks if (high := highest_before(blocks, one)) is None or one.last > high.last]
    found, reached = [], -1
    for block in sorted(raised):
        if block.first > reached + 1:
            found.append((reached + 1, block.first - 1, block.offset))
        reached = max(reached, block.last)
    return found


@pytest.mark.parametrize("seed", [1, 2])
def test_disorder_is_told_as_by_comparing_every_pair(session: SparkSession, seed: int) -> None:
    blocks = disorderly(random.Random(seed), 120)
    expected = (expected_overlaps(blocks), expected_falls(blocks), expected_gaps(blocks))
    assert min(len(rows) for rows in expected) > 3, "an order without faults shows nothing"
    found = run([("overlap", overlap), ("regress", regress), ("gap", gap)], tables_of(blocks).inputs(session))
    by_check = {name: [row for row in found if row["check"] == name] for name in ("overlap", "regress", "gap")}
    assert tuple(spans(rows) for rows in by_check.values()) == expected


def test_more_members_than_can_be_counted_are_refused(session: SparkSession) -> None:
    """Nothing is counted wrong in silence."""
    one = [Block(0, 9, 0)]
    assert distinct_blocks(tables_of(one, MAX_MEMBERS).inputs(session)).collect()[0]["members"] == MAX_MEMBERS
    with pytest.raises(PySparkException, match=f"more than {MAX_MEMBERS} members"):
        distinct_blocks(tables_of(one, MAX_MEMBERS + 1).inputs(session)).collect()
