"""Whether the offsets of a partition have no hole but one for each end of a transaction."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tests.chaos.load.journal import Entry
from tests.chaos.load.kinds import FINAL_READ, TRANSACTION
from tests.chaos.load.records_process import UNCOMMITTED

Records = list[tuple[int, str]]
"""Offset and value, as one isolation level sees a partition from its beginning on."""


def holes(entries: Iterable[Entry]) -> list[str]:
    """What is wrong with the offsets that were read in the end, in words. One transactional producer may have written.

    The end of a transaction takes one offset in each partition that has records of it (Kafka's control batch).
    """
    transactions: dict[str, int] = {}
    reads: list[tuple[int, Records]] = []
    for entry in entries:
        if entry.kind == TRANSACTION:
            transactions |= {value: entry.number for _, value in entry.arguments["records"]}
        elif entry.kind == FINAL_READ and entry.arguments["isolation"] == UNCOMMITTED:
            records = [(offset, value) for offset, value in entry.result.get("records", ())]
            reads.append((entry.arguments["partition"], records))
    return [f"partition {number}: {text}" for number, records in reads for text in _wrong(records, transactions)]


def _wrong(records: Records, transactions: dict[str, int]) -> Iterator[str]:
    expected, under_way = 0, None
    for offset, value in records:
        if offset != expected:
            if offset != expected + 1 or under_way is None:
                yield f"the offsets from {expected} to {offset - 1} are nobody's"
            under_way = None
        transaction = transactions.get(value)
        if transaction is not None:
            if under_way not in {None, transaction}:
                yield f"{value} at {offset} is of another transaction than the one that is open there"
            under_way = transaction
        expected = offset + 1
