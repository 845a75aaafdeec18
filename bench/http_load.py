"""A process that posts one request after the other on each of N connections.

`python -m bench.http_load` with a spec on stdin. A raw client of keep-alive HTTP/1.1, which reads answers with a
Content-Length only.
"""

from __future__ import annotations

from typing import Final

import msgspec

from bench.closed_loop import SUCCESS, Caller, LoadResult, run_closed_loop
from bench.load_process import serve

MAX_HEAD_BYTES: Final = 4096
"""Longest head of an answer; aiohttp's are under 200 bytes."""

_LENGTH_FIELD: Final = b"content-length:"


class LoadSpec(msgspec.Struct, frozen=True):
    """What to do: POST `body` to `path` over `connections`, one request in flight on each."""

    host: str
    port: int
    path: str
    body: str
    connections: int
    seconds: float
    warmup: float


class _Answer(msgspec.Struct):
    producer_id_start: int


_decode_answer: Final = msgspec.json.Decoder(_Answer).decode


class HttpCaller(Caller):
    """One connection of HTTP."""

    def take(self, data: bytes) -> None:
        """One answer: a head with a length, and the body."""
        body_at = data.find(b"\r\n\r\n") + 4
        if body_at < 4:
            self._keep_if(data, len(data) <= MAX_HEAD_BYTES)
            return
        try:
            end = body_at + content_length(data[:body_at])
        except ValueError as error:
            self.fail(str(error))
            return
        if len(data) != end:
            self._keep_if(data, len(data) < end)
            return
        status = data[9:12].decode()
        self.answered(status, _decode_answer(data[body_at:]).producer_id_start if status == SUCCESS else -1)

    def _keep_if(self, data: bytes, fits: bool) -> None:
        if fits:
            self.keep(data)
        else:
            self.fail(f"{len(data)} bytes are more than one answer")


def content_length(head: bytes) -> int:
    """The value of Content-Length. Raises ValueError without one."""
    at = head.find(b"Content-Length:")
    if at < 0:
        at = head.lower().find(_LENGTH_FIELD)
    if at < 0:
        raise ValueError(f"an answer without Content-Length: {head[:200]!r}")
    return int(head[at + len(_LENGTH_FIELD) : head.index(b"\r\n", at)])


def request_bytes(spec: LoadSpec) -> bytes:
    """The whole request."""
    body = spec.body.encode()
    head = (
        f"POST {spec.path} HTTP/1.1\r\nHost: {spec.host}:{spec.port}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


async def run(spec: LoadSpec) -> LoadResult:
    """Run the load. Raises OSError if a connection is refused, ValueError if nobody got a block."""
    request = request_bytes(spec)
    return await run_closed_loop(
        spec.host,
        spec.port,
        spec.connections,
        lambda tally: HttpCaller(request, tally),
        warmup=spec.warmup,
        seconds=spec.seconds,
    )


if __name__ == "__main__":
    serve(LoadSpec, run)
