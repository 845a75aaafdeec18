"""The demonstration's judge: what it must not overlook."""

from __future__ import annotations

from pidkeeper.cli.demo.evidence import Verdict, judge, quantile
from pidkeeper.protocol.messages import AllocatedBlock


def block(first: int, last: int, broker_id: int) -> AllocatedBlock:
    return AllocatedBlock(first, last, broker_id, broker_epoch=1, offset=first, timestamp_ms=0)


HISTORY = [block(0, 9, 1), block(10, 19, 2), block(50, 59, 1)]


def test_a_clean_run() -> None:
    assert judge({1: [[0, 1, 2], [50, 59]], 2: [range(10, 20)]}, HISTORY) == Verdict(15, 0, 0, 0, 3, 59)


def test_an_id_that_comes_twice_is_a_duplicate_whoever_gave_it() -> None:
    assert judge({1: [[3, 4], [4]]}, HISTORY).duplicates == 1
    assert judge({1: [[3, 3, 3]]}, HISTORY).duplicates == 2


def test_an_id_outside_of_the_agents_own_blocks_is_a_stray() -> None:
    assert judge({1: [[10]]}, HISTORY).strays == 1, "a block of broker 2"
    assert judge({None: [[10]]}, HISTORY).strays == 0, "whosoever gave it"
    assert judge({1: [[30]]}, HISTORY).strays == 1, "a block of nobody"
    assert judge({1: [[60]]}, HISTORY).strays == 1, "above all blocks"
    assert judge({1: [[-1]]}, HISTORY).strays == 1, "below all blocks"
    assert judge({1: [[5]]}, []).strays == 1, "no history at all"


def test_overlapping_blocks_are_seen_without_any_claim() -> None:
    assert judge({}, [block(0, 9, 1), block(9, 18, 2), block(19, 20, 1)]).overlaps == 1


def test_quantiles() -> None:
    values = [float(value) for value in range(100, 0, -1)]
    assert (quantile(values, 0.5), quantile(values, 0.99), quantile([7.0], 0.99), quantile([], 0.5)) == (51, 100, 7, 0)
