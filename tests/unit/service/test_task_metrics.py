"""The metric of the event loop's tasks."""

from __future__ import annotations

import asyncio

from yarl import URL

from pidkeeper.service.app import App
from pidkeeper.service.exchange import HttpRequest


async def tasks(app: App) -> int:
    text = (await app.dispatch(HttpRequest("GET", URL("/metrics"), {}))).body.decode()
    (line,) = [line for line in text.splitlines() if line.startswith("pidkeeper_event_loop_tasks ")]
    return int(float(line.split()[1]))


async def test_tasks_are_counted_until_they_are_done(app: App) -> None:
    before = await tasks(app)
    ended = asyncio.Event()
    waiting = [asyncio.create_task(ended.wait()) for _ in range(7)]
    assert await tasks(app) == before + 7
    ended.set()
    await asyncio.gather(*waiting)
    assert await tasks(app) == before
