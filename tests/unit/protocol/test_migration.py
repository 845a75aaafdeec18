"""The records of the migration: the bytes on disk, the numbers of the phases, and what is refused by name."""

from __future__ import annotations

from typing import Any

import msgpack  # type: ignore[import-untyped]
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pidkeeper.protocol.ids import MAX_BROKER_ID, MAX_PRODUCER_ID
from pidkeeper.protocol.metadata_version import MIGRATION
from pidkeeper.protocol.migration import MigrationPhase, MigrationRecord, ZooKeeperBlockRecord
from pidkeeper.protocol.records import Record, RecordError, decode_batch, encode_batch, needed_version

GOLDEN: list[tuple[Record, str]] = [
    (MigrationRecord(MigrationPhase.BRIDGE, "q", -1, 5), "91 93 0c 00 94 01 a1 71 ff 05"),
    (
        MigrationRecord(MigrationPhase.FINALIZING, "pidkeeper/c/0", 2**31 - 1, 1_700_000_000_000),
        "91 93 0c 00 94 04 ad 7069646b65657065722f632f30 ce 7fffffff cf 0000018bcfe56800",
    ),
    (MigrationRecord(MigrationPhase.ROLLED_BACK, "q", 0, -1), "91 93 0c 00 94 07 a1 71 00 ff"),
    (ZooKeeperBlockRecord(1000, 7, 3, 5), "91 93 0d 00 94 cd 03e8 07 03 05"),
    (
        ZooKeeperBlockRecord(MAX_PRODUCER_ID, -1, 2**31 - 1, -1),
        "91 93 0d 00 94 cf 7fffffffffffffff ff ce 7fffffff ff",
    ),
]
"""What is on the disks of running clusters. A new version is a new row, never a changed one."""

versions = st.integers(0, 2**31 - 1)
times = st.integers(-(2**63), 2**63 - 1)
records: st.SearchStrategy[Record] = st.one_of(
    st.builds(
        MigrationRecord,
        st.sampled_from(MigrationPhase),
        st.text(min_size=1, max_size=128),
        st.one_of(st.just(-1), versions),
        times,
    ),
    st.builds(ZooKeeperBlockRecord, st.integers(0, MAX_PRODUCER_ID), st.integers(-1, MAX_BROKER_ID), versions, times),
)


def test_the_numbers_of_the_phases_never_change() -> None:
    assert [(phase.name, phase.value) for phase in MigrationPhase] == [
        ("NONE", 0),
        ("BRIDGE", 1),
        ("IMPORT", 2),
        ("DUAL_WRITE", 3),
        ("FINALIZING", 4),
        ("FINALIZED", 5),
        ("ROLLING_BACK", 6),
        ("ROLLED_BACK", 7),
    ]


@pytest.mark.parametrize(("record", "golden"), GOLDEN, ids=lambda value: type(value).__name__)
def test_the_bytes_on_disk_never_change(record: Record, golden: str) -> None:
    data = bytes.fromhex(golden)
    assert encode_batch([record]) == data
    assert decode_batch(data) == [record]
    assert needed_version(record) == MIGRATION


@given(st.lists(records, min_size=1, max_size=4))
def test_a_batch_comes_back_as_it_went(batch: list[Record]) -> None:
    assert decode_batch(encode_batch(batch)) == batch
    expected = [[record.TYPE, record.VERSION, list(msgspec.structs.astuple(record))] for record in batch]
    assert msgpack.unpackb(encode_batch(batch)) == expected


PHASE = [2, "q", 1, 0]
BLOCK = [1000, 7, 1, 0]


def changed(fields: list[Any], at: int, value: object) -> list[Any]:
    return [*fields[:at], value, *fields[at + 1 :]]


@pytest.mark.parametrize(
    ("number", "fields", "name"),
    [
        (12, changed(PHASE, 0, 8), "MigrationRecord"),
        (12, changed(PHASE, 0, 9), "MigrationRecord"),
        (12, changed(PHASE, 0, -1), "MigrationRecord"),
        (12, changed(PHASE, 0, "BRIDGE"), "MigrationRecord"),
        (12, changed(PHASE, 1, ""), "MigrationRecord"),
        (12, changed(PHASE, 1, "x" * 129), "MigrationRecord"),
        (12, changed(PHASE, 1, None), "MigrationRecord"),
        (12, changed(PHASE, 2, -2), "MigrationRecord"),
        (12, changed(PHASE, 2, 2**31), "MigrationRecord"),
        (12, changed(PHASE, 3, "now"), "MigrationRecord"),
        (12, PHASE[:-1], "MigrationRecord"),
        (12, [*PHASE, 0], "MigrationRecord"),
        (13, changed(BLOCK, 0, -1), "ZooKeeperBlockRecord"),
        (13, changed(BLOCK, 0, 2**63), "ZooKeeperBlockRecord"),
        (13, changed(BLOCK, 1, -2), "ZooKeeperBlockRecord"),
        (13, changed(BLOCK, 1, 2**31), "ZooKeeperBlockRecord"),
        (13, changed(BLOCK, 2, -1), "ZooKeeperBlockRecord"),
        (13, changed(BLOCK, 2, 2**31), "ZooKeeperBlockRecord"),
        (13, changed(BLOCK, 3, 1.5), "ZooKeeperBlockRecord"),
        (13, BLOCK[:-1], "ZooKeeperBlockRecord"),
        (13, [*BLOCK, 0], "ZooKeeperBlockRecord"),
    ],
)
def test_fields_out_of_bounds_are_refused_by_name(number: int, fields: list[Any], name: str) -> None:
    with pytest.raises(RecordError, match=f"malformed {name} version 0"):
        decode_batch(msgpack.packb([[number, 0, fields]]))


@pytest.mark.parametrize(("number", "name"), [(12, "MigrationRecord"), (13, "ZooKeeperBlockRecord")])
def test_an_unknown_version_is_refused_by_name(number: int, name: str) -> None:
    with pytest.raises(RecordError, match=f"unknown version 1 of {name}: upgrade"):
        decode_batch(msgpack.packb([[number, 1, PHASE]]))


def test_the_longest_name_is_kept() -> None:
    record = MigrationRecord(MigrationPhase.IMPORT, "\U0001f511" * 128, 1, 0)
    assert decode_batch(encode_batch([record])) == [record]
