"""A process that writes one key over each of N connections, by gRPC.

`python -m bench.peers.etcd_load` with a spec on stdin. Either it takes blocks: read the key, put the next block under
the condition that nobody else did, and begin again if somebody did. Or plain puts, the most that the members can do,
whose numbers are the revisions that they made.
"""

from __future__ import annotations

from typing import Final

import msgspec

from bench.closed_loop import SUCCESS, Caller, LoadResult, Tally, run_closed_loop
from bench.load_process import serve
from bench.peers import etcd_messages as etcd
from bench.peers.grpc_frames import Calls, ConnectionOverError, header_block, opening
from bench.peers.nodes import HOST

BLOCK_KEY: Final = b"/latest_producer_id_block"
PLAIN_KEY: Final = b"/plain"
BLOCK_IDS: Final = 1000
LOST: Final = "lost"
"""The status of a conditional put that came too late."""

RANGE, PUT, TXN = (header_block(method, HOST) for method in (etcd.RANGE, etcd.PUT, etcd.TXN))


class EtcdLoadSpec(msgspec.Struct, frozen=True):
    """What to do at the member that listens on `port`; `conditional` or plain."""

    port: int
    conditional: bool
    callers: int
    seconds: float
    warmup: float


class EtcdCaller(Caller):
    """One connection. Allocates by putting the key of blocks on condition."""

    def __init__(self, tally: Tally) -> None:
        super().__init__(opening(), tally)
        self._calls = Calls()
        self._unsent = self._request
        self._start = -1

    def send(self) -> None:
        """The next allocation."""
        self._request, self._unsent = self._unsent + self.first(), b""
        super().send()

    def first(self) -> bytes:
        """What an allocation begins with."""
        return self._calls.call(RANGE, etcd.range_request(BLOCK_KEY))

    def take(self, data: bytes) -> None:
        """Parts of frames are kept where frames are read."""
        try:
            answer, reply = self._calls.take(data)
            if reply:
                self._transport.write(reply)
            if answer.done and self.waiting:
                self._take_message(answer.message)
        except (ConnectionOverError, ValueError) as error:
            self.fail(str(error))

    def _take_message(self, message: bytes | None) -> None:
        """Of the read, then of the put on condition."""
        if message is None:
            self._start = -1
            self.answered("refused", -1)
        elif self._start < 0:
            stored = etcd.read_range(message)
            self._start = int(stored.value)
            request = etcd.swap_request(BLOCK_KEY, b"%d" % (self._start + BLOCK_IDS), stored.revision)
            self.proceed(self._calls.call(TXN, request))
        else:
            start, self._start = self._start, -1
            if etcd.read_swap(message):
                self.answered(SUCCESS, start)
            else:
                self.again(LOST, self.first())


class PlainCaller(EtcdCaller):
    """The same with one put, of no condition, in place of both steps."""

    def first(self) -> bytes:
        """The put."""
        return self._calls.call(PUT, etcd.put_request(PLAIN_KEY, b"0"))

    def _take_message(self, message: bytes | None) -> None:
        if message is None:
            self.answered("refused", -1)
        else:
            self.answered(SUCCESS, etcd.read_put(message))


async def run(spec: EtcdLoadSpec) -> LoadResult:
    """Run the load. Raises OSError if a connection is refused, ValueError if nobody got a block."""
    kind = EtcdCaller if spec.conditional else PlainCaller
    return await run_closed_loop(HOST, spec.port, spec.callers, kind, warmup=spec.warmup, seconds=spec.seconds)


if __name__ == "__main__":
    serve(EtcdLoadSpec, run)
