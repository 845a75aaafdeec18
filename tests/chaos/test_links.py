"""Both proxies do the same to bytes, and every process of a cluster goes through its own links."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from pidkeeper.cli.local_cluster import HOST, free_ports
from tests.chaos.links.own_proxies import OwnProxies
from tests.chaos.links.proxies import Link, Passed, PortKind, Proxies, ProxyError, Stream, Toxic, ToxicKind
from tests.chaos.links.toxiproxy import ToxiproxyProxies, why_no_toxiproxy
from tests.support.waiting import until

SILENCE_SECONDS = 0.3
"""For which nothing comes through a black hole; without one an answer takes a few milliseconds."""

PATIENCE_SECONDS = 15.0

MORE_THAN_BUFFERS_BYTES = 48 * 1024 * 1024
"""Linux grows the four buffers on the way to 20 MiB together."""

UPSTREAM, DOWNSTREAM = Stream.UPSTREAM, Stream.DOWNSTREAM


class Upstream:
    """A server that sends back what it gets, and tells what it got. `reads`: whether it reads at all."""

    def __init__(self) -> None:
        self.got = b""
        self.writers: list[asyncio.StreamWriter] = []
        self.address = ""
        self.reads = asyncio.Event()
        self.reads.set()

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[Upstream]:
        server = await asyncio.start_server(self._serve, HOST, 0)
        self.address = f"{HOST}:{server.sockets[0].getsockname()[1]}"
        try:
            yield self
        finally:
            server.close()
            for writer in self.writers:
                writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.append(writer)
        with contextlib.suppress(OSError):
            while await self.reads.wait() and (data := await reader.read(65_536)):
                self.got += data
                writer.write(data)
        writer.close()


class Stand:
    """One link to an upstream through a proxy."""

    def __init__(self, proxies: Proxies, link: Link, upstream: Upstream) -> None:
        self.proxies = proxies
        self.link = link
        self.upstream = upstream

    @contextlib.asynccontextmanager
    async def connection(self) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        host, _, port = self.link.listen.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        try:
            yield reader, writer
        finally:
            writer.transport.abort()

    @contextlib.asynccontextmanager
    async def suffering(self, kind: ToxicKind, stream: Stream, **attributes: int) -> AsyncIterator[Toxic]:
        toxic = Toxic(kind, stream, attributes)
        await self.proxies.add(self.link, toxic)
        yield toxic
        with contextlib.suppress(ProxyError):
            await self.proxies.remove(self.link, toxic)


@pytest.fixture(params=["toxiproxy", "own"])
def proxies(request: pytest.FixtureRequest) -> Proxies:
    if request.param == "own":
        return OwnProxies()
    if (reason := why_no_toxiproxy()) is not None:
        pytest.skip(reason)
    return ToxiproxyProxies()


@pytest_asyncio.fixture
async def stand(proxies: Proxies) -> AsyncIterator[Stand]:
    await proxies.start()
    try:
        async with Upstream().serving() as upstream, asyncio.timeout(60):
            link = Link("client-1", "agent-1", PortKind.KAFKA, upstream.address, f"{HOST}:{free_ports(1)[0]}")
            await proxies.open([link])
            yield Stand(proxies, link, upstream)
    finally:
        await proxies.close()


async def echoed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, data: bytes = b"ping") -> float:
    """Seconds until all of `data` has come back."""
    begun = time.monotonic()
    writer.write(data)
    assert await reader.readexactly(len(data)) == data
    return time.monotonic() - begun


async def silent(reader: asyncio.StreamReader) -> bool:
    """Whether nothing comes, not even the end."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(SILENCE_SECONDS):
            await reader.read(1)
            return False
    return True


async def ended(reader: asyncio.StreamReader) -> bytes:
    """What still comes before the connection ends, in whatever way."""
    rest = b""
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(65_536):
            rest += data
    return rest


async def counted(stand: Stand, stream: Stream, expected: Passed) -> None:
    """Return once so many bytes are counted."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while (await stand.proxies.traffic())[stand.link.name][stream] != expected:  # noqa: ASYNC110 - a process counts
            await asyncio.sleep(0.01)


async def test_bytes_pass_as_they_are_both_ways(stand: Stand) -> None:
    data = bytes(range(256)) * 8192  # 2 MiB, more than any buffer on the way
    async with stand.connection() as (reader, writer):
        await echoed(reader, writer, data)
        assert stand.upstream.got == data
        await echoed(reader, writer)


@pytest.mark.parametrize("stream", list(Stream))
async def test_latency_delays_what_passes_and_no_longer_once_it_is_removed(stand: Stand, stream: Stream) -> None:
    async with stand.connection() as (reader, writer):
        await echoed(reader, writer)
        async with stand.suffering(ToxicKind.LATENCY, stream, latency=200, jitter=0):
            # A timer of the event loop may be early by a millisecond.
            assert await echoed(reader, writer) > 0.19
        # What was on its way may still be late, and a busy machine is late by itself: it is so once.
        async with asyncio.timeout(PATIENCE_SECONDS):
            while await echoed(reader, writer) >= 0.2:
                pass


async def test_latency_is_no_limit_of_what_passes_in_a_second(stand: Stand) -> None:
    async with (
        stand.connection() as (reader, writer),
        stand.suffering(ToxicKind.LATENCY, UPSTREAM, latency=300, jitter=0),
    ):
        begun = time.monotonic()
        for _ in range(10):
            writer.write(b"piece")
            await asyncio.sleep(0.01)
        await reader.readexactly(50)
        assert time.monotonic() - begun < 10 * 0.3


async def test_jitter_keeps_the_order(stand: Stand) -> None:
    data = bytes(range(200))
    async with (
        stand.connection() as (reader, writer),
        stand.suffering(ToxicKind.LATENCY, DOWNSTREAM, latency=20, jitter=20),
    ):
        for one in data:
            writer.write(bytes([one]))
            await asyncio.sleep(0.001)
        assert await reader.readexactly(len(data)) == data


@pytest.mark.parametrize("stream", list(Stream))
async def test_bandwidth_limits_what_passes_in_a_second(stand: Stand, stream: Stream) -> None:
    async with stand.connection() as (reader, writer), stand.suffering(ToxicKind.BANDWIDTH, stream, rate=100):
        assert await echoed(reader, writer, bytes(50_000)) >= 0.4


@pytest.mark.parametrize("stream", list(Stream))
async def test_a_black_hole_swallows_one_way_alone_and_takes_its_connections_with_it(
    stand: Stand, stream: Stream
) -> None:
    async with stand.connection() as (reader, writer):
        await echoed(reader, writer)
        async with stand.suffering(ToxicKind.TIMEOUT, stream, timeout=0):
            writer.write(b"lost")
            assert await silent(reader)
            assert stand.upstream.got == (b"ping" if stream is UPSTREAM else b"pinglost")
            if stream is UPSTREAM:
                stand.upstream.writers[0].write(b"heard")
                assert await reader.readexactly(5) == b"heard"
        assert await ended(reader) == b""
    async with stand.connection() as (reader, writer):
        await echoed(reader, writer)


async def test_a_black_hole_swallows_new_connections_as_well(stand: Stand) -> None:
    async with (
        stand.suffering(ToxicKind.TIMEOUT, DOWNSTREAM, timeout=0),
        stand.connection() as (reader, writer),
    ):
        writer.write(b"lost")
        assert await silent(reader)


async def test_a_timeout_closes_the_connection(stand: Stand) -> None:
    async with (
        stand.suffering(ToxicKind.TIMEOUT, UPSTREAM, timeout=100),
        stand.connection() as (reader, writer),
    ):
        writer.write(b"lost")
        assert await ended(reader) == b""
        assert stand.upstream.got == b""


async def test_a_reset_connection_is_reset(stand: Stand) -> None:
    async with (
        stand.suffering(ToxicKind.RESET_PEER, UPSTREAM, timeout=0),
        stand.connection() as (reader, writer),
    ):
        writer.write(b"lost")
        with pytest.raises(ConnectionResetError):
            await reader.read(1)
        assert stand.upstream.got == b""


async def test_a_slicer_passes_slices_with_pauses_and_all_of_them(stand: Stand) -> None:
    data = bytes(range(250)) * 4
    async with (
        stand.suffering(ToxicKind.SLICER, DOWNSTREAM, average_size=50, size_variation=10, delay=20_000),
        stand.connection() as (reader, writer),
    ):
        # 60 bytes at most in a slice, and 20 ms behind each.
        assert await echoed(reader, writer, data) >= (len(data) // 60 - 1) * 0.02


@pytest.mark.parametrize("stream", list(Stream))
async def test_a_limit_closes_the_connection_behind_so_many_bytes(stand: Stand, stream: Stream) -> None:
    async with (
        stand.suffering(ToxicKind.LIMIT_DATA, stream, bytes=10),
        stand.connection() as (reader, writer),
    ):
        writer.write(b"0123456789abcdef")
        rest = await ended(reader)
        if stream is UPSTREAM:
            await until(lambda: stand.upstream.got == b"0123456789")
        else:
            assert rest == b"0123456789"


@pytest.mark.parametrize("stream", list(Stream))
async def test_a_slow_close_delays_the_end(stand: Stand, stream: Stream) -> None:
    async with stand.suffering(ToxicKind.SLOW_CLOSE, stream, delay=300), stand.connection() as (reader, writer):
        await echoed(reader, writer)
        begun = time.monotonic()
        writer.write_eof()
        assert await reader.read(1) == b""
        # The timers of an event loop count whole milliseconds, and may begin one early.
        assert time.monotonic() - begun >= 0.298


async def test_toxicity_is_the_share_of_connections_that_suffer(stand: Stand) -> None:
    await stand.proxies.add(stand.link, Toxic(ToxicKind.LIMIT_DATA, DOWNSTREAM, {"bytes": 1}, toxicity=0.5))
    whole = 0
    for _ in range(40):
        async with stand.connection() as (reader, writer):
            writer.write(b"xy")
            with contextlib.suppress(asyncio.IncompleteReadError):
                assert await reader.readexactly(2) == b"xy"
                whole += 1
    assert 0 < whole < 40, "by chance once in 2 to the power of 39"


async def test_a_disabled_link_refuses_and_an_enabled_one_passes_again(stand: Stand) -> None:
    async with stand.connection() as (reader, writer):
        await echoed(reader, writer)
        await stand.proxies.disable(stand.link)
        assert await ended(reader) == b""
    with pytest.raises(ConnectionRefusedError):
        async with stand.connection():
            pass
    await stand.proxies.enable(stand.link)
    async with stand.connection() as (reader, writer):
        await echoed(reader, writer)


async def test_clearing_removes_all_toxics_and_lets_go_what_they_hold(stand: Stand) -> None:
    async with stand.connection() as (reader, writer):
        await echoed(reader, writer)
        for stream in Stream:
            await stand.proxies.add(stand.link, Toxic(ToxicKind.LATENCY, stream, {"latency": 20_000, "jitter": 0}))
            await stand.proxies.add(stand.link, Toxic(ToxicKind.BANDWIDTH, stream, {"rate": 1}))
        writer.write(b"held")
        assert await silent(reader)
        await stand.proxies.clear(stand.link)
        async with asyncio.timeout(PATIENCE_SECONDS):
            assert await reader.readexactly(4) == b"held"
            await echoed(reader, writer, bytes(20_000))


async def test_no_more_is_taken_from_a_source_than_its_sink_takes(stand: Stand) -> None:
    stand.upstream.reads.clear()
    async with stand.connection() as (_, writer):
        writer.write(bytes(MORE_THAN_BUFFERS_BYTES))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await writer.drain()
    stand.upstream.reads.set()


async def test_a_toxic_twice_on_one_way_and_none_at_all_are_refused(stand: Stand) -> None:
    toxic = Toxic(ToxicKind.LATENCY, UPSTREAM, {"latency": 1, "jitter": 0})
    with pytest.raises(ProxyError):
        await stand.proxies.remove(stand.link, toxic)
    await stand.proxies.add(stand.link, toxic)
    with pytest.raises(ProxyError):
        await stand.proxies.add(stand.link, toxic)


async def test_a_port_that_is_taken_is_told(stand: Stand) -> None:
    taken = Link("client-2", "agent-1", PortKind.KAFKA, stand.link.upstream, stand.link.listen)
    with pytest.raises(ProxyError):
        await stand.proxies.open([taken])


async def test_a_target_that_is_down_ends_the_connection(stand: Stand) -> None:
    nobody = Link("client-2", "agent-1", PortKind.HTTP, *(f"{HOST}:{port}" for port in free_ports(2)))
    await stand.proxies.open([nobody])
    async with Stand(stand.proxies, nobody, stand.upstream).connection() as (reader, _):
        assert await ended(reader) == b""


async def test_what_passed_is_counted_by_stream_once_connections_have_ended(stand: Stand) -> None:
    async with stand.connection() as (reader, writer):
        await echoed(reader, writer, bytes(1000))
        writer.write_eof()
        assert await reader.read(1) == b""
    for stream in Stream:
        await counted(stand, stream, Passed(1000, 1000))


async def test_what_a_black_hole_swallowed_came_in_and_did_not_go_out(stand: Stand) -> None:
    async with stand.suffering(ToxicKind.TIMEOUT, UPSTREAM, timeout=0), stand.connection() as (_, writer):
        writer.write(bytes(1000))
        writer.write_eof()
        await counted(stand, UPSTREAM, Passed(1000, 0))
