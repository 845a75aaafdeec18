from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pidkeeper.protocol.log_position import MAX_NUMBER
from pidkeeper.snapshots.snapshot_id import SnapshotId


def test_the_name_of_a_file_is_pinned() -> None:
    assert SnapshotId(42, 5).name == "snapshot-00000000000000000042-0000000005.snap"


def test_a_name_with_a_term_of_more_digits_is_pinned() -> None:
    assert SnapshotId(42, 11840707573).name == "snapshot-00000000000000000042-11840707573.snap"


@given(st.integers(0, MAX_NUMBER), st.integers(0, MAX_NUMBER))
@example(MAX_NUMBER, MAX_NUMBER)
@example(1, 10**10)
def test_a_name_comes_back_as_it_went(index: int, term: int) -> None:
    assert SnapshotId.from_name(SnapshotId(index, term).name) == SnapshotId(index, term)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "snapshot-42-5.snap",
        "snapshot-00000000000000000042-0000000005.snap.tmp",
        "snapshot-00000000000000000042-00000000005.snap",
        "snapshot-0000000000000000004²-0000000005.snap",
        "received-snapshot-00000000000000000042-0000000005.snap",
        "00000000000000000000-00000000000000000042.arc",
    ],
)
def test_other_files_are_no_snapshots(name: str) -> None:
    assert SnapshotId.from_name(name) is None


def test_ids_ascend_by_index_and_then_by_term() -> None:
    ids = [SnapshotId(10, 1), SnapshotId(2, 3), SnapshotId(2, 1)]
    assert sorted(ids) == [SnapshotId(2, 1), SnapshotId(2, 3), SnapshotId(10, 1)]
