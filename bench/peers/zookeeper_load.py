"""A process that writes one znode over each of N connections, in ZooKeeper's own protocol.

`python -m bench.peers.zookeeper_load` with a spec on stdin. Either KIP-730's way to take a block without a controller:
read the latest one, write the next under the condition that nobody else did, and begin again if somebody did. Or plain
writes, the most that the ensemble can do, whose numbers are the versions that they made.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final

import msgspec

from bench.closed_loop import SUCCESS, Caller, LoadResult, Tally, run_closed_loop
from bench.load_process import serve
from bench.peers import jute
from bench.peers.nodes import HOST

BLOCK_PATH: Final = "/latest_producer_id_block"
PLAIN_PATH: Final = "/plain"
BLOCK_IDS: Final = 1000

_CONNECTED_BYTES: Final = 37
_SESSION: Final = struct.Struct(">4xiq")


class ZooKeeperLoadSpec(msgspec.Struct, frozen=True):
    """What to do at the server that listens on `port`; `conditional` or plain."""

    port: int
    conditional: bool
    callers: int
    seconds: float
    warmup: float


class Block(msgspec.Struct):
    """The znode, as Kafka's brokers write it."""

    version: int
    broker: int
    block_start: str
    block_end: str


_decode_block: Final = msgspec.json.Decoder(Block).decode


def block_from(start: int) -> bytes:
    """The contents of the znode for the block that begins there."""
    return msgspec.json.encode(Block(1, 1, str(start), str(start + BLOCK_IDS - 1)))


def next_start(data: bytes) -> int:
    """Where the block after this one begins. Raises ValueError for what is no block."""
    return int(_decode_block(data).block_end) + 1


def check_session(payload: bytes) -> None:
    """Raises ValueError if this does not open a session."""
    if len(payload) != _CONNECTED_BYTES or not all(_SESSION.unpack_from(payload)):
        raise ValueError(f"no session: {payload.hex()}")


class ZooKeeperCaller(Caller):
    """One connection, with a session of its own. Allocates by writing the znode of blocks on condition."""

    first: bytes = jute.get_data(BLOCK_PATH)

    def __init__(self, tally: Tally) -> None:
        super().__init__(self.first, tally)
        self._on_frame: Callable[[bytes], None] | None = None
        self._start = -1

    def send(self) -> None:
        """The next allocation; the first one waits for the session."""
        if self._on_frame is not None:
            super().send()
            return
        self.waiting = True
        self._on_frame = self._begin
        self._transport.write(jute.connect_request())

    def close(self) -> None:
        """End session and connection."""
        if not self._transport.is_closing():
            self._transport.write(jute.close_request())
        super().close()

    def take(self, data: bytes) -> None:
        """One frame: there is one request at a time."""
        assert self._on_frame is not None, "nobody answers before the first request"
        try:
            payload = jute.whole_frame(data)
            if payload is None:
                self.keep(data)
            else:
                self._on_frame(payload)
        except ValueError as error:
            self.fail(str(error))

    def _begin(self, payload: bytes) -> None:
        check_session(payload)
        self._partial = b""
        self._on_frame = self._reply
        super().send()

    def _reply(self, payload: bytes) -> None:
        """Of the read, then of the write."""
        error, body = jute.read_reply(payload)
        if error == jute.BAD_VERSION:
            self._start = -1
            self.again(str(error), self.first)
        elif error:
            self.answered(str(error), -1)
        elif self._start < 0:
            self._start = next_start(jute.data_of(body))
            self.proceed(jute.set_data(BLOCK_PATH, block_from(self._start), jute.stat_version(body)))
        else:
            start, self._start = self._start, -1
            self.answered(SUCCESS, start)


class PlainCaller(ZooKeeperCaller):
    """The same with one write, of no condition, in place of both steps."""

    first = jute.set_data(PLAIN_PATH, block_from(0), -1)

    def _reply(self, payload: bytes) -> None:
        error, body = jute.read_reply(payload)
        if error:
            self.answered(str(error), -1)
        else:
            self.answered(SUCCESS, jute.stat_version(body))


async def run(spec: ZooKeeperLoadSpec) -> LoadResult:
    """Run the load. Raises OSError if a connection is refused, ValueError if nobody got a block."""
    kind = ZooKeeperCaller if spec.conditional else PlainCaller
    return await run_closed_loop(HOST, spec.port, spec.callers, kind, warmup=spec.warmup, seconds=spec.seconds)


if __name__ == "__main__":
    serve(ZooKeeperLoadSpec, run)
