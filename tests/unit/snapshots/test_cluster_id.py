from __future__ import annotations

import pytest

from pidkeeper.snapshots.cluster_id import pack_cluster_id, unpack_cluster_id


@pytest.mark.parametrize("cluster_id", ["c", "x" * 64, "a b~!"])
def test_cluster_id_round_trip(cluster_id: str) -> None:
    assert unpack_cluster_id(pack_cluster_id(cluster_id)) == cluster_id


@pytest.mark.parametrize("cluster_id", ["", "x" * 65, "a\nb", "ä", "a\0b"])
def test_impossible_cluster_id_is_refused(cluster_id: str) -> None:
    with pytest.raises(ValueError, match="printable ASCII"):
        pack_cluster_id(cluster_id)


@pytest.mark.parametrize("field", [b"", b"a".ljust(63, b"\0"), bytes(64), b"\xff".ljust(64, b"\0"), b"a\0b".ljust(64)])
def test_impossible_cluster_id_field_is_refused(field: bytes) -> None:
    with pytest.raises(ValueError, match="cluster id"):
        unpack_cluster_id(field)
