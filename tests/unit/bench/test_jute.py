"""Frames for ZooKeeper against those of kazoo, which are not ours."""

from __future__ import annotations

from typing import Any

import pytest
from kazoo.protocol.serialization import Close, Connect, Create, GetData, SetData
from kazoo.security import OPEN_ACL_UNSAFE

from bench.peers import jute

DATA = b'{"version":1}'


def framed(request: Any, *, header: bool = True) -> bytes:
    payload = bytes(request.serialize())
    if header:
        payload = (1).to_bytes(4, "big") + request.type.to_bytes(4, "big", signed=True) + payload
    return len(payload).to_bytes(4, "big") + payload


def test_requests_are_kazoos() -> None:
    connect = Connect(0, 0, jute.SESSION_MILLISECONDS, 0, bytes(16), False)
    assert jute.connect_request() == framed(connect, header=False)
    assert jute.get_data("/block") == framed(GetData("/block", None))
    assert jute.set_data("/block", DATA, 7) == framed(SetData("/block", DATA, 7))
    assert jute.set_data("/block", b"", -1) == framed(SetData("/block", b"", -1))
    assert jute.create("/block", DATA) == framed(Create("/block", DATA, OPEN_ACL_UNSAFE, 0))
    assert jute.close_request() == framed(Close())


def test_a_frame_in_pieces_is_waited_for() -> None:
    frame = jute.set_data("/block", DATA, 7)
    assert [jute.whole_frame(frame[:end]) for end in range(len(frame))] == [None] * len(frame)
    assert jute.whole_frame(frame) == frame[4:]


@pytest.mark.parametrize(
    "data", [jute.close_request() * 2, b"\xff" * 8, (jute.MAX_FRAME_BYTES + 1).to_bytes(4, "big") + b"1"]
)
def test_what_is_no_frame_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="not one frame"):
        jute.whole_frame(data)
