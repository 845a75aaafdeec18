from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pidkeeper.snapshots.snapshot_id import SnapshotId


def test_the_name_of_a_file_is_pinned() -> None:
    assert SnapshotId(42, 5).name == "snapshot-00000000000000000042-0000000005.snap"


@given(st.integers(0, 2**63 - 1), st.integers(0, 10**10 - 1))
def test_a_name_comes_back_as_it_went(index: int, term: int) -> None:
    assert SnapshotId.from_name(SnapshotId(index, term).name) == SnapshotId(index, term)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "snapshot-42-5.snap",
        "snapshot-00000000000000000042-0000000005.snap.tmp",
        "received-snapshot-00000000000000000042-0000000005.snap",
        "00000000000000000000-00000000000000000042.arc",
    ],
)
def test_other_files_are_no_snapshots(name: str) -> None:
    assert SnapshotId.from_name(name) is None


def test_ids_ascend_by_index_and_then_by_term() -> None:
    ids = [SnapshotId(10, 1), SnapshotId(2, 3), SnapshotId(2, 1)]
    assert sorted(ids) == [SnapshotId(2, 1), SnapshotId(2, 3), SnapshotId(10, 1)]
