"""The records of transactional ids: their bytes, and what a damaged one is told."""

from __future__ import annotations

import tracemalloc

import msgpack  # type: ignore[import-untyped]
import pytest

from pidkeeper.protocol.metadata_version import ADDED_PARTITIONS, TRANSACTIONS
from pidkeeper.protocol.records import Record, RecordError, decode_batch, encode_batch, needed_version
from pidkeeper.protocol.transactions import (
    AddPartitionsRecord,
    ForgetTransactionRecord,
    TopicPartitions,
    TransactionRecord,
    lean,
    shared,
)

GOLDEN: list[tuple[Record, int, str]] = [
    (
        TransactionRecord("tx", 7, 2, 7, 1, 60_000, 1, 5, (TopicPartitions("t", (0, 300)),), 4),
        TRANSACTIONS,
        "91 93 09 00 9a a2 7478 07 02 07 01 cd ea60 01 05 91 92 a1 74 92 00 cd 012c 04",
    ),
    (ForgetTransactionRecord("tx"), TRANSACTIONS, "91 93 0a 00 91 a2 7478"),
    (
        AddPartitionsRecord("tx", 7, 2, (TopicPartitions("t", (0, 300)), TopicPartitions("u", (1,))), 5),
        ADDED_PARTITIONS,
        "91 93 0e 00 95 a2 7478 07 02 92 92 a1 74 92 00 cd 012c 92 a1 75 91 01 05",
    ),
]
"""What is on the disks of running clusters. A new version is a new row, never a changed one."""


@pytest.mark.parametrize(("record", "version", "golden"), GOLDEN, ids=lambda value: type(value).__name__)
def test_the_bytes_on_disk_never_change(record: Record, version: int, golden: str) -> None:
    data = bytes.fromhex(golden)
    assert encode_batch([record]) == data
    assert decode_batch(data) == [record]
    assert needed_version(record) == version


@pytest.mark.parametrize("at", range(5))
@pytest.mark.parametrize("value", [None, -2, 2**63, [[]], "x" * 250])
def test_joined_partitions_that_are_malformed_are_refused_by_name(at: int, value: object) -> None:
    fields: list[object] = ["tx", 7, 2, [["t", [0]]], 5]
    fields[at] = value
    if at == 4 and isinstance(value, int):
        return  # whatever a clock says
    with pytest.raises(RecordError, match="malformed AddPartitionsRecord version 0"):
        decode_batch(msgpack.packb([[14, 0, fields]]))


def test_partitions_take_one_object_for_a_number_however_many_transactions_have_it() -> None:
    whole = TransactionRecord("tx", 7, 0, -1, -1, 1, 1, 5, (TopicPartitions("t", tuple(range(60_000, 60_009))),), 4)
    decoded = [decode_batch(encode_batch([whole]))[0] for _ in range(2)]
    kept = [record for record in decoded if isinstance(record, TransactionRecord)]
    assert kept == decoded
    numbers = [record.partitions[0].partitions for record in kept]
    assert numbers[0][3] is not numbers[1][3], "else this test tests nothing"
    leaner = [lean(record) for record in kept]
    assert leaner == [whole, whole]
    one, other = (record.partitions[0].partitions for record in leaner)
    assert all(number is same for number, same in zip(one, other, strict=True))


def test_numbers_that_are_seldom_are_kept_as_they_are() -> None:
    largest = TransactionRecord("tx", 7, 0, -1, -1, 1, 1, 5, (TopicPartitions("t", (5, 2**31 - 1)),), 4)
    assert lean(largest) == largest
    for numbers in ((5, 2**31 - 1), (2**16, 5), (2**16 - 1,), (2**16,)):
        assert shared(numbers) == numbers
    assert shared(()) == ()


@pytest.mark.parametrize(
    ("names", "numbers"),
    [
        ([f"{n:05}" for n in range(300)], (0,)),
        ([f"{n:05}" + "x" * 244 for n in range(100)], (0, 1)),
        ([f"{n:05}" + "\U0001f600" * 244 for n in range(30)], (0,)),
        ([f"{n:05}" + "\u0101" * 244 for n in range(30)], (0,)),
        (["x"], tuple(range(60_000, 65_536))),
        (["x"], tuple(range(65_500, 71_000))),
        (["x"], tuple(range(70_000, 79_000))),
    ],
    ids=["many topics", "long names", "emoji", "two-byte letters", "shared numbers", "few are shared", "large numbers"],
)
def test_what_partitions_are_said_to_take_they_do_not_take_more_of(names: list[str], numbers: tuple[int, ...]) -> None:
    """A topic of one partition takes nine times the memory of its encoding: with those counted, 64 MiB were 560."""
    topics = tuple(TopicPartitions(name, numbers) for name in names)
    batch = encode_batch([TransactionRecord("tx", 7, 0, -1, -1, 1, 1, 5, topics, 4)])
    kept: list[TransactionRecord] = []
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(20):
            (record,) = decode_batch(batch)
            assert isinstance(record, TransactionRecord)
            kept.append(lean(record))
        del record
        taken = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert taken <= sum(one.kept_bytes for one in kept) + 20 * 400, "400 bytes for the id itself"
    assert taken > 0.5 * kept[0].kept_bytes * len(kept)
