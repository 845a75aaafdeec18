"""The probes' own listener: what is there and what is not, whatever goes on at the main one."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest

from pidkeeper.protocol.addresses import HostPort
from pidkeeper.service.app import App
from pidkeeper.service.probe_listener import PROBE_CONNECTIONS, probes_served
from pidkeeper.service.server import HttpServer, ListenError
from tests.support.waiting import until
from tests.unit.service.conftest import Arithmetic
from tests.unit.service.test_server import ASKING

ANY = HostPort("127.0.0.1", 0)


async def test_probes_and_metrics_are_there_and_nothing_else(app: App) -> None:
    async with probes_served(app, ANY) as listen, aiohttp.ClientSession(f"http://{listen}") as session:
        for path, status in (("/livez", 200), ("/readyz", 200), ("/readyz/divider", 200), ("/metrics", 200)):
            assert (await session.get(path)).status == status, path
        assert (await session.post("/greet", json={"name": "x"})).status == 404
        assert "pidkeeper_probe_connections 1.0\n" in await (await session.get("/metrics")).text()
        assert app.counters.connections == 0, "they are counted apart from those of the main listener"


async def test_they_answer_while_every_place_of_the_main_listener_is_taken(app: App, arithmetic: Arithmetic) -> None:
    arithmetic.may.clear()
    server = HttpServer(app, max_connections=1)
    reader, writer = await asyncio.open_connection(*await server.start("127.0.0.1", 0))
    writer.write(ASKING)
    await until(lambda: len(arithmetic.callers) == 1)
    async with probes_served(app, ANY) as listen, aiohttp.ClientSession(f"http://{listen}") as session:
        assert (await session.get("/livez")).status == 200
        server.begin_drain()
        assert (await session.get("/readyz")).status == 503
        assert (await session.get("/livez")).status == 200
    arithmetic.may.set()
    assert (await reader.readline()).startswith(b"HTTP/1.1 200 ")
    writer.close()
    await server.stop(1.0)


async def test_a_crowd_of_its_own_does_not_fill_it(app: App) -> None:
    async with probes_served(app, ANY) as listen:
        assert listen is not None
        crowd = [await asyncio.open_connection(listen.host, listen.port) for _ in range(2 * PROBE_CONNECTIONS)]
        async with aiohttp.ClientSession(f"http://{listen}") as session:
            assert (await session.get("/livez")).status == 200
        assert app.probes.counters.connections <= PROBE_CONNECTIONS + 1
        for _, writer in crowd:
            writer.close()


async def test_it_says_where_it_listens_and_is_gone_with_what_it_serves(
    app: App, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    async with probes_served(app, ANY) as listen:
        assert listen is not None
        assert f"probes and metrics on {listen}" in caplog.text
        reader, writer = await asyncio.open_connection(listen.host, listen.port)
    assert await reader.read() == b""
    writer.close()
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection(listen.host, listen.port)


async def test_without_an_address_nothing_listens(app: App) -> None:
    async with probes_served(app, None) as listen:
        assert listen is None
        assert app.probes.counters.connections == 0


async def test_an_address_that_is_taken_is_named_with_its_setting(app: App) -> None:
    async with probes_served(app, ANY) as listen:
        with pytest.raises(ListenError, match=f"^probe_listen: cannot listen on {listen}: the port is in use"):
            async with probes_served(app, listen):
                pass
