"""A process that asks a node's control port for one id after the other over each of N connections.

`python -m bench.peers.control_load` with a spec on stdin.
"""

from __future__ import annotations

from typing import Final

import msgspec

from bench.closed_loop import SUCCESS, Caller, LoadResult, run_closed_loop
from bench.load_process import serve
from bench.peers.nodes import HOST

ALLOCATE: Final = b'{"op": "allocate"}\n'
STATE: Final = b'{"op": "state"}\n'


class ControlLoadSpec(msgspec.Struct, frozen=True):
    """What to do at the node whose control port is `port`."""

    port: int
    callers: int
    seconds: float
    warmup: float


class Reply(msgspec.Struct):
    """What a control port answers: one of them."""

    id: int | None = None
    role: str | None = None
    error: str | None = None


read_reply: Final = msgspec.json.Decoder(Reply).decode
"""Raises msgspec.DecodeError, which is a ValueError, for what is none."""


class ControlCaller(Caller):
    """One connection."""

    def take(self, data: bytes) -> None:
        """One line: there is one request at a time."""
        if not data.endswith(b"\n"):
            self.keep(data)
            return
        try:
            reply = read_reply(data)
        except msgspec.DecodeError as error:
            self.fail(f"{error}: {data[:60]!r}")
        else:
            self.answered(reply.error or SUCCESS, -1 if reply.id is None else reply.id)


async def run(spec: ControlLoadSpec) -> LoadResult:
    """Run the load. Raises OSError if a connection is refused, ValueError if nobody got an id."""
    return await run_closed_loop(
        HOST,
        spec.port,
        spec.callers,
        lambda tally: ControlCaller(ALLOCATE, tally),
        warmup=spec.warmup,
        seconds=spec.seconds,
    )


if __name__ == "__main__":
    serve(ControlLoadSpec, run)
