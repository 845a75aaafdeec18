"""Whose the IDs are that wrote, beside every block looked at one by one."""

from __future__ import annotations

import random
from collections import Counter

import pyarrow as pa
import pytest

from pidkeeper.pipeline.engine.duck import connect
from pidkeeper.pipeline.segments import shares
from tests.unit.pipeline.segments.in_process import FINDINGS, findings_of

Block = tuple[int, int, int]

LAST_ID = (1 << 63) - 1


def owners(ids: list[int], blocks: list[Block]) -> Counter[int]:
    """Of the blocks that have an ID the one that reaches farthest."""
    found: Counter[int] = Counter()
    for number in ids:
        having = [(last, broker) for first, last, broker in blocks if first <= number <= last]
        if having:
            found[max(having)[1]] += 1
    return found


def told(ids: list[int], blocks: list[Block]) -> dict[int, tuple[int, int | None, int | None, str]]:
    """By broker: how many IDs wrote, the first and last ID that it had, and of how many."""
    with connect() as con:
        con.execute(FINDINGS)
        con.register("producer_ids", pa.table({"producer_id": pa.array(ids, pa.int64())}))
        con.execute("create table allocated_blocks (first_id bigint, last_id bigint, broker_id integer)")
        for block in blocks:
            con.execute("insert into allocated_blocks values (?, ?, ?)", block)
        shares.conclude(con)
        return {
            row.broker_id: (int(row.detail.split()[0]), row.first_id, row.last_id, row.detail.split(" IDs")[0])
            for row in findings_of(con)
            if row.broker_id is not None
        }


@pytest.mark.parametrize("seed", range(30))
def test_each_id_counts_once_for_the_block_that_reaches_farthest(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(seed)
    monkeypatch.setattr(shares, "PIECE_BLOCKS", 7)
    # No two end at the same ID: then either could be the one.
    blocks = [(max(0, last - chance.randrange(60)), last, last % 5) for last in chance.sample(range(1000), 80)]
    ids = chance.sample(range(1100), 300)
    assert {broker: row[0] for broker, row in told(ids, blocks).items()} == owners(ids, blocks)


def test_the_last_id_there_is_and_more_ids_than_64_bits_count() -> None:
    found = told([0, 5, LAST_ID], [(0, LAST_ID, 1), (LAST_ID - 1, LAST_ID, 1), (0, LAST_ID, 1)])
    assert found == {1: (3, 0, LAST_ID, f"3 of {2 * (LAST_ID + 1) + 2}")}


def test_nobody_wrote() -> None:
    assert told([], [(0, 999, 1)]) == told([5000], [(0, 999, 1)]) == told([5], []) == {}
