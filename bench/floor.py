"""What the product's work costs at the very least in Python: the same arrows without consensus, checks and limits.

Four processes on loopback. A leader takes `POST` requests through aiohttp, gathers a batch while the one before it is
in flight, writes it with one fdatasync on a storage thread, and sends it to two followers, which write it, fdatasync,
and acknowledge; the batch is answered when the leader and one follower hold it. It takes Kafka's AllocateProducerIds
v0 as well, by a bare `asyncio.Protocol`. And a server that answers InitProducerId v4 from a counter. No term, no vote,
no checksum, no recovery: nothing here is safe to use.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import socket
import ssl
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Final, Self, cast

import msgspec
import uvloop
from aiohttp import web

from bench.disk import PREALLOCATED_BYTES, open_preallocated
from bench.kafka_load import answer_frame
from pidkeeper.cli.local_cluster import free_ports, import_root
from pidkeeper.protocol.ids import DEFAULT_BLOCK_SIZE
from pidkeeper.protocol.messages import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from pidkeeper.service.tls import server_context
from pidkeeper.service.tls_files import TlsFiles

HOST: Final = "127.0.0.1"
ALLOCATE_PATH: Final = "/v1/producer-ids/allocate"
START_SECONDS: Final = 10.0

_HEAD: Final = struct.Struct(">IQ")
_ACK: Final = struct.Struct(">Q")
_RECORD: Final = struct.Struct(">qiiqq")
_ANSWER: Final = struct.Struct(">i4sBihqhB")
_ENCODE: Final = msgspec.json.Encoder().encode
_DECODE: Final = msgspec.json.Decoder(AllocateProducerIdsRequest).decode


class Log:
    """A zero-filled file that is written front to back, and over again."""

    def __init__(self, path: Path) -> None:
        self._fd = open_preallocated(path)
        self._offset = 0

    def append(self, payload: bytes) -> None:
        """Write and fdatasync."""
        if self._offset + len(payload) > PREALLOCATED_BYTES:
            self._offset = 0
        os.pwrite(self._fd, payload, self._offset)
        os.fdatasync(self._fd)
        self._offset += len(payload)


class Follower(asyncio.Protocol):
    """Writes each frame (length, sequence number, payload) and answers with its sequence number."""

    _transport: asyncio.Transport

    def __init__(self, log: Log) -> None:
        self._log = log
        self._partial = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        data = self._partial + data
        position = 0
        while len(data) - position >= _HEAD.size:
            length, sequence = _HEAD.unpack_from(data, position)
            end = position + _HEAD.size + length
            if end > len(data):
                break
            self._log.append(data[position + _HEAD.size : end])
            self._transport.write(_ACK.pack(sequence))
            position = end
        self._partial = data[position:]


class Leader:
    """Group commit with one batch in flight over its own log and two followers."""

    def __init__(self, path: Path) -> None:
        self._log = Log(path)
        self._loop = asyncio.get_running_loop()
        self._followers: list[asyncio.Transport] = []
        self._jobs: queue.SimpleQueue[tuple[int, bytes] | None] = queue.SimpleQueue()
        self._waiting: list[asyncio.Future[int]] = []
        self._in_flight: list[asyncio.Future[int]] = []
        self._sequence = 0
        self._durable = -1
        self._acknowledged = -1
        self.next_id = 0
        threading.Thread(target=self._write, daemon=True).start()

    def add_follower(self) -> asyncio.Protocol:
        """A link that reports to this leader."""
        return _FollowerLink(self)

    def allocate(self) -> asyncio.Future[int]:
        """The start of the next block, once it is durable on two of three."""
        future: asyncio.Future[int] = self._loop.create_future()
        self._waiting.append(future)
        if len(self._waiting) == 1 and not self._in_flight:
            # Not at once: what the same turn of the loop reads goes into the same batch.
            self._loop.call_soon(self._send_batch)
        return future

    def linked(self, transport: asyncio.Transport) -> None:
        """A follower is there."""
        self._followers.append(transport)

    def acknowledged(self, sequence: int) -> None:
        """A follower holds everything up to `sequence`."""
        self._acknowledged = max(self._acknowledged, sequence)
        self._commit()

    def _send_batch(self) -> None:
        self._in_flight, self._waiting = self._waiting, []
        now_ms = time.time_ns() // 1_000_000
        payload = b"".join(
            _RECORD.pack(self.next_id + index * DEFAULT_BLOCK_SIZE, DEFAULT_BLOCK_SIZE, 1, 1, now_ms)
            for index in range(len(self._in_flight))
        )
        self._jobs.put((self._sequence, payload))
        frame = _HEAD.pack(len(payload), self._sequence) + payload
        for follower in self._followers:
            follower.write(frame)

    def _write(self) -> None:
        while (job := self._jobs.get()) is not None:
            self._log.append(job[1])
            self._loop.call_soon_threadsafe(self._written, job[0])

    def _written(self, sequence: int) -> None:
        self._durable = sequence
        self._commit()

    def _commit(self) -> None:
        if not self._in_flight or min(self._durable, self._acknowledged) < self._sequence:
            return
        for future in self._in_flight:
            if not future.done():
                future.set_result(self.next_id)
            self.next_id += DEFAULT_BLOCK_SIZE
        self._in_flight = []
        self._sequence += 1
        if self._waiting:
            self._send_batch()


class _FollowerLink(asyncio.Protocol):
    def __init__(self, leader: Leader) -> None:
        self._leader = leader
        self._partial = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._leader.linked(cast("asyncio.Transport", transport))

    def data_received(self, data: bytes) -> None:
        data = self._partial + data
        whole = len(data) - len(data) % _ACK.size
        self._partial = data[whole:]
        if whole:
            self._leader.acknowledged(_ACK.unpack_from(data, whole - _ACK.size)[0])


class BareAllocator(asyncio.Protocol):
    """Answers every AllocateProducerIds v0 request with the next block of a leader."""

    _transport: asyncio.Transport

    def __init__(self, leader: Leader) -> None:
        self._leader = leader
        self._partial = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        if self._partial:
            data = self._partial + data
        position = 0
        while len(data) - position >= 4:
            end = position + 4 + int.from_bytes(data[position : position + 4], "big")
            if end > len(data):
                break
            number = int.from_bytes(data[position + 8 : position + 12], "big")
            self._leader.allocate().add_done_callback(partial(self._answer, number))
            position = end
        self._partial = data[position:]

    def _answer(self, number: int, block: asyncio.Future[int]) -> None:
        self._transport.write(answer_frame(number, block.result(), DEFAULT_BLOCK_SIZE))


class ClaimServer(asyncio.Protocol):
    """Answers every InitProducerId v4 request with the next number."""

    _transport: asyncio.Transport

    def __init__(self, next_id: list[int]) -> None:
        self._next_id = next_id
        self._partial = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        if self._partial:
            data = self._partial + data
        position, end_of_data, next_id = 0, len(data), self._next_id[0]
        answers: list[bytes] = []
        while end_of_data - position >= 4:
            end = position + 4 + int.from_bytes(data[position : position + 4], "big")
            if end > end_of_data:
                break
            answers.append(_ANSWER.pack(_ANSWER.size - 4, data[position + 8 : position + 12], 0, 0, 0, next_id, 0, 0))
            next_id += 1
            position = end
        self._next_id[0] = next_id
        self._partial = data[position:]
        self._transport.write(b"".join(answers))


async def serve_leader(port: int, path: Path, kafka_port: int, follower_ports: list[int]) -> web.AppRunner:
    """Link the followers, then take requests."""
    leader = Leader(path)
    loop = asyncio.get_running_loop()
    for follower_port in follower_ports:
        await loop.create_connection(leader.add_follower, HOST, follower_port)
    await loop.create_server(lambda: BareAllocator(leader), HOST, kafka_port)

    async def allocate(request: web.Request) -> web.Response:
        _DECODE(await request.read())
        start = await leader.allocate()
        answer = AllocateProducerIdsResponse(0, start, DEFAULT_BLOCK_SIZE)
        return web.Response(body=_ENCODE(answer), content_type="application/json")

    app = web.Application()
    app.router.add_post(ALLOCATE_PATH, allocate)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, HOST, port).start()
    return runner


async def serve_follower(port: int, path: Path) -> asyncio.Server:
    """Take batches from a leader."""
    log = Log(path)
    return await asyncio.get_running_loop().create_server(lambda: Follower(log), HOST, port)


async def serve_claims(port: int, context: ssl.SSLContext | None = None) -> asyncio.Server:
    """Answer InitProducerId v4; with a `context` over TLS."""
    next_id = [0]
    return await asyncio.get_running_loop().create_server(lambda: ClaimServer(next_id), HOST, port, ssl=context)


@contextlib.contextmanager
def tls_claims(files: TlsFiles) -> Iterator[tuple[int, int]]:
    """The server of claims over TLS, where clients show a certificate; gives its port and its pid."""
    (port,) = free_ports(1)
    paths = [str(path) for path in msgspec.structs.astuple(files)]
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.floor", "tls-claims", str(port), *paths], cwd=import_root()
    )
    try:
        wait_listening(port)
        yield port, process.pid
    finally:
        process.kill()
        process.wait()


class Floor:
    """The four processes. Use as a context manager."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self._processes: list[subprocess.Popen[bytes]] = []
        self.http_port, self.kafka_port, self.claims_port, *self._follower_ports = free_ports(5)

    def __enter__(self) -> Self:
        try:
            for port in self._follower_ports:
                self._spawn("follower", port, f"follower-{port}.log")
            for port in self._follower_ports:
                wait_listening(port)
            self._spawn("leader", self.http_port, "leader.log", *map(str, [self.kafka_port, *self._follower_ports]))
            self._spawn("claims", self.claims_port, "-")
            for port in (self.http_port, self.kafka_port, self.claims_port):
                wait_listening(port)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.wait()

    def _spawn(self, role: str, port: int, file: str, *arguments: str) -> None:
        command = [sys.executable, "-m", "bench.floor", role, str(port), str(self._directory / file), *arguments]
        self._processes.append(subprocess.Popen(command, cwd=import_root()))


def wait_listening(port: int) -> None:
    """Wait until something accepts on the port. Raises TimeoutError."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        try:
            socket.create_connection((HOST, port), timeout=1.0).close()
        except OSError:
            time.sleep(0.02)
        else:
            return
    raise TimeoutError(f"nothing listens on port {port} after {START_SECONDS:g} s")


async def _serve(role: str, port: int, path: Path, *rest: str) -> None:
    starts: dict[str, Callable[[], object]] = {
        "leader": lambda: serve_leader(port, path, int(rest[0]), [int(each) for each in rest[1:]]),
        "follower": lambda: serve_follower(port, path),
        "claims": lambda: serve_claims(port),
        "tls-claims": lambda: serve_claims(port, _context(str(path), *rest)),
    }
    started = starts[role]()
    assert asyncio.iscoroutine(started)
    _server = await started
    await asyncio.Event().wait()


def _context(certificate_file: str, key_file: str, ca_file: str) -> ssl.SSLContext:
    return server_context(TlsFiles(certificate_file=certificate_file, key_file=key_file, ca_file=ca_file))


if __name__ == "__main__":
    uvloop.run(_serve(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]), *sys.argv[4:]))
