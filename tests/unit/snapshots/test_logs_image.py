"""Partition logs in a snapshot file: the bytes are what one encoder makes, and what no member writes is refused."""

from __future__ import annotations

import uuid
from typing import Any

import google_crc32c
import msgspec
import pytest

from pidkeeper.protocol.logs import TopicRecord
from pidkeeper.protocol.metadata_version import LATEST
from pidkeeper.protocol.segments import SegmentName
from pidkeeper.snapshots import snapshot_format
from pidkeeper.snapshots.image import StateImage
from pidkeeper.snapshots.logs_image import (
    LastCommit,
    LastRoll,
    LogImage,
    LogsImage,
    ProducerEntry,
    ProducerRow,
    SegmentsImage,
)
from pidkeeper.snapshots.snapshot_format import PIECE_BYTES, SnapshotError, decode_snapshot, encode_snapshot
from tests.support.snapshot_file import encoded_at_once, snapshot_file

ONE = uuid.UUID(int=1)
ENTRY = ProducerEntry(3, 9, -1, ((0, 2, 0), (3, 3, 7)))
LOGS = LogsImage(
    ONE,
    2,
    1,
    [TopicRecord(ONE, "t", 2, 0, -1, 5, 6)],
    [LogImage(0, 0, 4, (b"12345678",) * 6, (b"",) * 5, (b"",) * 4), LogImage(1, 0, 0, (b"",) * 6, (b"",) * 5, ())],
    (b"x",) * 7,
    [ONE],
    [LastCommit(1, 3, 9, (0, -45), referenced=True)],
    [ProducerRow(0, 7, ENTRY)],
    [SegmentsImage(0, (b"12345678",) * 6)],
    {0: SegmentName("t", 0, 0)},
    [LastRoll(1, 3, 9, joined=True)],
    (ONE,),
)


def image(logs: LogsImage | None) -> StateImage:
    return StateImage(LATEST, 7, 2, 9, 1000, None, [], logs=logs)


@pytest.mark.parametrize("count", [0, 1, 15, 16, 2**16])
def test_the_pieces_are_what_an_encoder_makes_of_the_whole_state(count: int) -> None:
    producers = [ProducerRow(0, number, ENTRY) for number in range(count)]
    whole = image(msgspec.structs.replace(LOGS, producers=producers))
    pieces = list(encode_snapshot("cluster-a", whole))
    assert b"".join(pieces)[100:-4] == encoded_at_once(whole)
    assert all(len(piece) < PIECE_BYTES + 1000 for piece in pieces)
    assert decode_snapshot(b"".join(pieces), "x.snap", "cluster-a") == whole


@pytest.mark.parametrize("length", [0, 255, 256, 65_535, 65_536, 100_000])
def test_long_columns_come_in_pieces_of_them(length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot_format, "PIECE_BYTES", 1000)
    columns = (bytes(length),) * 6
    logs = [LogImage(0, 0, 4, columns, (b"",) * 5, (b"x" * 2000,) * 4), LOGS.logs[1]]
    whole = image(msgspec.structs.replace(LOGS, logs=logs, objects=columns))
    pieces = list(encode_snapshot("cluster-a", whole))
    assert b"".join(pieces)[100:-4] == encoded_at_once(whole)
    assert all(len(piece) < 3000 for piece in pieces)


def test_nothing_and_nothing_yet_are_told_apart() -> None:
    empty = LogsImage(None, 0, 0, [], [], (), [], [], [])
    for logs in (None, empty, LOGS):
        assert decode_snapshot(snapshot_file("c", image(logs)), "x.snap", "c").logs == logs


def refused(**changed: Any) -> str:
    """Why a file whose logs somebody changed is refused. Its checksum is right."""
    whole = snapshot_file("c", image(LOGS))
    state = msgspec.msgpack.decode(whole[100:-4])
    state["logs"] |= changed
    body = msgspec.msgpack.encode(state)
    data = whole[:92] + len(body).to_bytes(8, "big") + body
    data += google_crc32c.value(data).to_bytes(4, "big")
    with pytest.raises(SnapshotError, match=r"snapshot x\.snap: ") as error:
        decode_snapshot(data, "x.snap", "c")
    return str(error.value)


def test_logs_that_no_member_writes_are_refused() -> None:
    assert "$.logs.next_log" in refused(next_log=-1)
    assert "$.logs.store_id" in refused(store_id="none")
    assert "$.logs.logs[0]" in refused(logs=[[0, 0]])
    assert "$.logs.producers[0]" in refused(producers=[[0, 7]])
    assert "unknown field `more`" in refused(more=1)
    assert "$.logs.topics[0]" in refused(topics=[[str(ONE), "", 2, 0, -1, 5, 6]])


def test_a_part_of_the_logs_is_no_state() -> None:
    body = msgspec.msgpack.decode(msgspec.msgpack.encode(image(LOGS)))
    del body["logs"]["commits"]
    with pytest.raises(msgspec.ValidationError, match=r"missing required field `commits` - at `\$\.logs`"):
        msgspec.msgpack.decode(msgspec.msgpack.encode(body), type=StateImage)
