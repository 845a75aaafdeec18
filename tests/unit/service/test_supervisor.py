"""What systemd is told, by a socket that listens as it does."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from pidkeeper.service.supervisor import supervised

SECONDS = 5.0


@pytest.fixture(params=["path", "abstract"])
def told(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, socket.socket]]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        name = str(tmp_path / "notify")[-100:] if request.param == "path" else f"@pidkeeper-test-{os.getpid()}"
        listening.bind(name.replace("@", "\0", 1))
        listening.setblocking(False)
        yield name, listening


async def hear(listening: socket.socket) -> str:
    async with asyncio.timeout(SECONDS):
        return (await asyncio.get_running_loop().sock_recv(listening, 100)).decode()


async def test_it_says_that_it_has_started_lives_and_stops(told: tuple[str, socket.socket]) -> None:
    name, listening = told
    watched = {"NOTIFY_SOCKET": name, "WATCHDOG_USEC": "30000", "WATCHDOG_PID": str(os.getpid())}
    async with supervised(watched):
        assert [await hear(listening) for _ in range(3)] == ["READY=1", "WATCHDOG=1", "WATCHDOG=1"]
    heard = await hear(listening)
    while heard == "WATCHDOG=1":
        heard = await hear(listening)
    assert heard == "STOPPING=1"


@pytest.mark.parametrize(
    "watchdog", [{}, {"WATCHDOG_USEC": "x"}, {"WATCHDOG_USEC": "1000", "WATCHDOG_PID": "1"}, {"WATCHDOG_PID": "x"}]
)
async def test_whoever_is_not_watched_sends_no_beats(told: tuple[str, socket.socket], watchdog: dict[str, str]) -> None:
    name, listening = told
    async with supervised({"NOTIFY_SOCKET": name, **watchdog}):
        assert await hear(listening) == "READY=1"
    assert await hear(listening) == "STOPPING=1"


async def test_without_systemd_and_with_one_that_is_gone_it_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with supervised({}):
        assert not caplog.records
    async with supervised({"NOTIFY_SOCKET": str(tmp_path / "gone")}):
        assert "cannot be told READY=1" in caplog.text
