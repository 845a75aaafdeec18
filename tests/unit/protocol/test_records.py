"""The record encoding: round trips, an independent decoder as oracle, refusals by name, and the bytes on disk."""

from __future__ import annotations

import sys
import tracemalloc
from typing import Any

import msgpack  # type: ignore[import-untyped]
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pidkeeper.protocol.ids import MAX_BROKER_ID, MAX_PRODUCER_ID
from pidkeeper.protocol.records import (
    MAX_BATCH_RECORDS,
    MAX_INCARNATION_LENGTH,
    AllocateProducerIdsRecord,
    BrokerRegistrationChangeRecord,
    LeaderChangeRecord,
    ProducerIdFloorRecord,
    QuorumMember,
    Record,
    RecordError,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
    VotersRecord,
    decode_batch,
    encode_batch,
    read_voters,
)

broker_ids = st.integers(0, MAX_BROKER_ID)
offsets = st.integers(0, 2**63 - 1)
producer_ids = st.integers(0, MAX_PRODUCER_ID)
times = st.integers(-(2**63), 2**63 - 1)
incarnations = st.text(min_size=1, max_size=MAX_INCARNATION_LENGTH)

records: st.SearchStrategy[Record] = st.one_of(
    st.builds(LeaderChangeRecord, st.integers(0, 2**31 - 1)),
    st.builds(
        AllocateProducerIdsRecord, broker_ids, offsets, producer_ids, producer_ids, st.integers(1, 2**63 - 1), times
    ),
    st.builds(RegisterBrokerRecord, broker_ids, offsets, incarnations),
    st.builds(UnregisterBrokerRecord, broker_ids, offsets),
    st.builds(BrokerRegistrationChangeRecord, broker_ids, offsets, st.booleans()),
    st.builds(ProducerIdFloorRecord, producer_ids, times),
)

GOLDEN: list[tuple[Record, str]] = [
    (LeaderChangeRecord(3), "91 93 01 00 91 03"),
    (
        AllocateProducerIdsRecord(7, 2, 1999, 1000, 1000, 1_700_000_000_000),
        "91 93 02 00 96 07 02 cd 07cf cd 03e8 cd 03e8 cf 0000018bcfe56800",
    ),
    (RegisterBrokerRecord(7, 2, "one"), "91 93 03 00 93 07 02 a3 6f6e65"),
    (UnregisterBrokerRecord(7, 2), "91 93 04 00 92 07 02"),
    (BrokerRegistrationChangeRecord(7, 2, True), "91 93 05 00 93 07 02 c3"),
    (ProducerIdFloorRecord(2**63 - 1, 5), "91 93 06 00 92 cf 7fffffffffffffff 05"),
]
"""What is on the disks of running clusters. A new version is a new row, never a changed one."""


@given(st.lists(records, min_size=1, max_size=8))
def test_a_batch_comes_back_as_it_went(batch: list[Record]) -> None:
    assert decode_batch(encode_batch(batch)) == batch


@given(st.lists(records, min_size=1, max_size=8))
def test_an_independent_decoder_reads_the_same_arrays(batch: list[Record]) -> None:
    expected = [[record.TYPE, record.VERSION, list(msgspec.structs.astuple(record))] for record in batch]
    assert msgpack.unpackb(encode_batch(batch)) == expected


@pytest.mark.parametrize(("record", "golden"), GOLDEN, ids=lambda value: type(value).__name__)
def test_the_bytes_on_disk_never_change(record: Record, golden: str) -> None:
    data = bytes.fromhex(golden)
    assert encode_batch([record]) == data
    assert decode_batch(data) == [record]


def test_every_type_has_a_golden_row() -> None:
    assert {record.TYPE for record, _ in GOLDEN} == set(range(1, 7))


def test_the_block_of_an_allocation() -> None:
    block = AllocateProducerIdsRecord(7, 2, 1999, 1000, 1000, 0).block
    assert (block.first, block.last) == (1000, 1999)
    with pytest.raises(ValueError, match="would pass"):
        _ = AllocateProducerIdsRecord(7, 2, 0, MAX_PRODUCER_ID, 1, 0).block


def test_an_unknown_type_is_refused_by_number() -> None:
    with pytest.raises(RecordError, match=r"unknown record type 99 \(version 4\): upgrade this member"):
        decode_batch(msgpack.packb([[99, 4, [1]]]))


@pytest.mark.parametrize("version", [1, -1, 2**40])
def test_an_unknown_version_is_refused_by_name(version: int) -> None:
    with pytest.raises(RecordError, match=f"unknown version {version} of AllocateProducerIdsRecord: upgrade"):
        decode_batch(msgpack.packb([[2, version, [1]]]))


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ([2, [7, 2, 1999, 1000, 1000]], "AllocateProducerIdsRecord"),  # a field short
        ([2, [7, 2, 1999, 1000, 1000, 0, 1]], "AllocateProducerIdsRecord"),  # one too many
        ([2, [-1, 2, 1999, 1000, 1000, 0]], "AllocateProducerIdsRecord"),
        ([2, [7, 2, 2**63, 1000, 1000, 0]], "AllocateProducerIdsRecord"),
        ([2, [7, 2, 1999, 1000, 0, 0]], "AllocateProducerIdsRecord"),
        ([3, [7, 2, ""]], "RegisterBrokerRecord"),
        ([3, [7, 2, "x" * 65]], "RegisterBrokerRecord"),
        ([3, [2**31, 2, "x"]], "RegisterBrokerRecord"),
        ([5, [7, 2, 1]], "BrokerRegistrationChangeRecord"),
        ([6, ["9", 1]], "ProducerIdFloorRecord"),
        ([6, {"next_producer_id": 1}], "ProducerIdFloorRecord"),
    ],
)
def test_fields_out_of_bounds_are_refused_by_name(fields: list[Any], name: str) -> None:
    with pytest.raises(RecordError, match=f"malformed {name} version 0"):
        decode_batch(msgpack.packb([[fields[0], 0, fields[1]]]))


@pytest.mark.parametrize(
    "payload",
    [b"", b"\xc1", b"\x90", b"\x91", b"\x01", msgpack.packb([[1, 0]]), msgpack.packb({"a": 1})],
    ids=["nothing", "no msgpack", "empty batch", "cut", "a number", "a pair", "a map"],
)
def test_a_malformed_batch_is_refused(payload: bytes) -> None:
    with pytest.raises(RecordError, match="malformed record batch"):
        decode_batch(payload)


@given(st.binary(max_size=64))
def test_garbage_is_refused_or_is_a_batch(payload: bytes) -> None:
    try:
        batch = decode_batch(payload)
    except RecordError:
        return
    assert batch


@given(st.lists(records, min_size=1, max_size=3), st.data())
def test_every_cut_is_noticed(batch: list[Record], data: st.DataObject) -> None:
    payload = encode_batch(batch)
    with pytest.raises(RecordError):
        decode_batch(payload[: data.draw(st.integers(0, len(payload) - 1))])


def test_a_batch_has_at_least_one_record_and_a_limit() -> None:
    record = LeaderChangeRecord(1)
    full = [record] * MAX_BATCH_RECORDS
    assert decode_batch(encode_batch(full)) == full
    for batch in ([], [*full, record]):
        with pytest.raises(RecordError, match=f"1 to {MAX_BATCH_RECORDS} records, not {len(batch)}"):
            encode_batch(batch)


def test_an_oversized_array_is_refused_before_memory_is_taken() -> None:
    # An array header that announces 2^32-1 elements, and one element too many that really come.
    announced = b"\xdd\xff\xff\xff\xff"
    real = msgpack.packb([[1, 0, [1]]] * (MAX_BATCH_RECORDS + 1))
    tracemalloc.start()
    try:
        for payload in (announced, announced + b"\x93\x01\x00\x91\x01", real):
            tracemalloc.reset_peak()
            before = tracemalloc.get_traced_memory()[0]
            with pytest.raises(RecordError, match="malformed record batch"):
                decode_batch(payload)
            peak = tracemalloc.get_traced_memory()[1] - before
            # A list of MAX_BATCH_RECORDS references alone would take eight bytes each.
            assert peak < MAX_BATCH_RECORDS * sys.getsizeof(None) // 2, f"{peak} bytes for a refused batch"
    finally:
        tracemalloc.stop()


VOTERS = VotersRecord(
    (
        QuorumMember(1, None, "127.0.0.1:9001", "http://127.0.0.1:8001", True),
        QuorumMember(4, "8f3e1d2c-0000-4000-8000-000000000004", "[::1]:9004", "http://[::1]:8004", False),
    )
)


def test_the_bytes_of_a_configuration_are_pinned() -> None:
    payload = encode_batch([VOTERS])
    assert msgpack.unpackb(payload) == [
        [
            7,
            0,
            [
                [
                    [1, None, "127.0.0.1:9001", "http://127.0.0.1:8001", True],
                    [4, "8f3e1d2c-0000-4000-8000-000000000004", "[::1]:9004", "http://[::1]:8004", False],
                ]
            ],
        ]
    ]
    assert decode_batch(payload) == [VOTERS]
    assert read_voters(payload) == VOTERS


@given(st.lists(records, min_size=1, max_size=5))
def test_no_other_batch_is_taken_for_a_configuration(batch: list[Record]) -> None:
    assert read_voters(encode_batch(batch)) is None


@pytest.mark.parametrize("payload", [b"", b"\x91", b"anything"])
def test_what_is_no_batch_is_no_configuration(payload: bytes) -> None:
    assert read_voters(payload) is None


@pytest.mark.parametrize("head", [b"\x91\x93\xcc\x07\x00", b"\x91\xdc\x00\x03\x07\x00", b"\xdc\x00\x01\x93\x07\x00"])
def test_a_configuration_that_the_core_would_pass_over_is_none(head: bytes) -> None:
    """The same value with a longer head: the state machine may not replay what `read_voters` does not see."""
    payload = head + msgspec.msgpack.encode(VOTERS)
    assert msgpack.unpackb(payload) == msgpack.unpackb(encode_batch([VOTERS]))
    assert read_voters(payload) is None
    with pytest.raises(RecordError, match="another encoding than the shortest"):
        decode_batch(payload)


def test_a_configuration_stands_alone() -> None:
    message = "stands alone in its batch, not among 2 records"
    with pytest.raises(RecordError, match=message):
        encode_batch([LeaderChangeRecord(1), VOTERS])
    with pytest.raises(RecordError, match=message):
        decode_batch(msgpack.packb([[1, 0, [1]], *msgpack.unpackb(encode_batch([VOTERS]))]))


@pytest.mark.parametrize(
    ("members", "reason"),
    [
        ([], "length >= 1"),
        ([[number, None, "", "", True] for number in range(1, 11)], "length <= 9"),
        ([[2, None, "", "", True], [1, None, "", "", True]], r"members \[2, 1\] do not ascend"),
        ([[1, None, "", "", True], [1, None, "", "", False]], "do not ascend"),
        ([[1, None, "", "", False]], "none of the members"),
        ([[0, None, "", "", True]], ">= 1"),
        ([[1, "", "", "", True]], "length >= 1"),
        ([[1, None, "x" * 265, "", True]], "length <= 264"),
    ],
)
def test_a_configuration_that_no_leader_writes_is_refused(members: list[list[object]], reason: str) -> None:
    with pytest.raises(RecordError, match=f"malformed VotersRecord version 0.*{reason}"):
        read_voters(msgpack.packb([[7, 0, [members]]]))
