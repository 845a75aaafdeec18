"""Groups in a snapshot file: the bytes are what one encoder makes, and what no member writes is refused."""

from __future__ import annotations

from typing import Any

import google_crc32c
import msgspec
import pytest

from pidkeeper.protocol.groups import GroupMember, GroupRecord
from pidkeeper.protocol.metadata_version import LATEST
from pidkeeper.snapshots.groups_image import GroupsImage, KeptOffset, KnownGroup, OffsetRow, PendingRow
from pidkeeper.snapshots.image import StateImage
from pidkeeper.snapshots.snapshot_format import PIECE_BYTES, SnapshotError, decode_snapshot, encode_snapshot
from tests.support.snapshot_file import encoded_at_once, snapshot_file

KEPT = KeptOffset(2**63 - 1, 2**31 - 1, "m", 40, 1_700_000_000_000)
RECORD = GroupRecord("g", -1, 2**31 - 1, "consumer", (GroupMember("m", "s", "c", "h"),), 1, 3, 9)
GROUPS = GroupsImage([KnownGroup(41, RECORD)], [OffsetRow("g", "t", 0, KEPT)], [PendingRow("g", "t", 0, 7, KEPT)])


def image(groups: GroupsImage | None) -> StateImage:
    return StateImage(LATEST, 7, 2, 90, 1000, None, [], groups=groups)


@pytest.mark.parametrize("count", [0, 1, 15, 16, 2**16])
def test_the_pieces_are_what_an_encoder_makes_of_the_whole_state(count: int) -> None:
    whole = image(
        GroupsImage(
            [KnownGroup(number, msgspec.structs.replace(RECORD, group_id=f"{number:06}")) for number in range(count)],
            [OffsetRow("g", "t", number % 10_000, KEPT) for number in range(count)],
            [PendingRow("g", "t", 0, number, KEPT) for number in range(count)],
        )
    )
    pieces = list(encode_snapshot("cluster-a", whole))
    assert b"".join(pieces)[100:-4] == encoded_at_once(whole)
    assert all(len(piece) < PIECE_BYTES + 1000 for piece in pieces)
    assert decode_snapshot(b"".join(pieces), "x.snap", "cluster-a") == whole


def refused(**changed: Any) -> str:
    """Why a file whose groups somebody changed is refused. Its checksum is right."""
    whole = snapshot_file("c", image(GROUPS))
    state = msgspec.msgpack.decode(whole[100:-4])
    state["groups"] |= changed
    body = msgspec.msgpack.encode(state)
    data = whole[:92] + len(body).to_bytes(8, "big") + body
    data += google_crc32c.value(data).to_bytes(4, "big")
    with pytest.raises(SnapshotError, match=r"snapshot x\.snap: ") as error:
        decode_snapshot(data, "x.snap", "c")
    return str(error.value)


def test_groups_that_no_member_writes_are_refused() -> None:
    kept = msgspec.to_builtins(KEPT)
    known = msgspec.to_builtins(GROUPS.groups[0])
    assert "do not ascend" in refused(groups=[known, known])
    assert "$.groups.groups[0][0]" in refused(groups=[[-1, *known[1:]]])
    assert "$.groups.offsets[0]" in refused(offsets=[["g", "t", -1, kept]])
    assert "$.groups.offsets[0][1]" in refused(offsets=[["g", "", 0, kept]])
    assert "$.groups.pending[0]" in refused(pending=[["g", "t", 0, kept]])
    assert "$.groups.offsets[0][3]" in refused(offsets=[["g", "t", 0, [*kept, 1]]])
    assert "unknown field `more`" in refused(more=1)
    assert "missing required field" in str(_without("pending"))


def _without(field: str) -> msgspec.ValidationError:
    body = msgspec.msgpack.decode(msgspec.msgpack.encode(image(GROUPS)))
    del body["groups"][field]
    with pytest.raises(msgspec.ValidationError) as error:
        msgspec.msgpack.decode(msgspec.msgpack.encode(body), type=StateImage)
    return error.value
