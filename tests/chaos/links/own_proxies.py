"""Our own proxy, in a process of its own: where there is no Toxiproxy."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec

from tests.chaos.links.forwarder import Order, Reply
from tests.chaos.links.proxies import Link, ProxyError, Toxic, Traffic

REPOSITORY: Final = Path(__file__).resolve().parents[3]
ANSWER_SECONDS: Final = 20.0
MAX_ANSWER_BYTES: Final = 1024 * 1024
"""Traffic of a link takes some 150 bytes."""


class OwnProxies:
    """`Proxies` by `forwarder`, which counts bytes as they pass."""

    program = "our own proxy"

    def __init__(self) -> None:
        self._process: asyncio.subprocess.Process | None = None
        self._one_at_a_time = asyncio.Lock()
        self._number = 0

    async def start(self) -> None:
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tests.chaos.links.forwarder",
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            cwd=REPOSITORY,
            limit=MAX_ANSWER_BYTES,
        )

    async def close(self) -> None:
        if self._process is None:
            return
        process, self._process = self._process, None
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()

    async def open(self, links: Iterable[Link]) -> None:
        for link in links:
            await self._order("open", link)

    async def add(self, link: Link, toxic: Toxic) -> None:
        await self._order("add", link, toxic)

    async def remove(self, link: Link, toxic: Toxic) -> None:
        await self._order("remove", link, toxic)

    async def clear(self, link: Link) -> None:
        await self._order("clear", link)

    async def disable(self, link: Link) -> None:
        await self._order("disable", link)

    async def enable(self, link: Link) -> None:
        await self._order("enable", link)

    async def traffic(self) -> Traffic:
        return (await self._order("traffic")).traffic or {}

    async def _order(self, action: str, link: Link | None = None, toxic: Toxic | None = None) -> Reply:
        async with self._one_at_a_time:
            self._number += 1
            reply = await self._ask(Order(self._number, action, link, toxic))
        if reply.error:
            raise ProxyError(reply.error)
        return reply

    async def _ask(self, order: Order) -> Reply:
        if self._process is None or self._process.stdin is None or self._process.stdout is None:
            raise ProxyError("our own proxy does not run")
        self._process.stdin.write(msgspec.json.encode(order) + b"\n")
        async with asyncio.timeout(ANSWER_SECONDS):
            while line := await self._process.stdout.readline():
                reply = msgspec.json.decode(line, type=Reply)
                if reply.number == order.number:  # not that to an order which nobody waited for any more
                    return reply
        raise ProxyError(f"our own proxy ended ({await self._process.wait()})")
