"""What runs beside the server of a service."""

from __future__ import annotations

import asyncio
import time

from yarl import URL

from pidkeeper.service.app import UPKEEP_SECONDS, App
from pidkeeper.service.exchange import HttpRequest
from tests.unit.service.conftest import Arithmetic

BLOCKED_SECONDS = 0.25


async def lag(app: App) -> float:
    text = (await app.dispatch(HttpRequest("GET", URL("/metrics"), {}))).body.decode()
    (line,) = [line for line in text.splitlines() if line.startswith("pidkeeper_event_loop_lag_seconds ")]
    return float(line.split()[1])


async def test_a_blocked_event_loop_is_still_seen_when_it_runs_again(app: App, arithmetic: Arithmetic) -> None:
    upkeep = asyncio.create_task(app.keep_up())
    await asyncio.sleep(0)
    time.sleep(BLOCKED_SECONDS)  # noqa: ASYNC251 - what a faulty handler does
    async with asyncio.timeout(20):
        while arithmetic.upkeep < 3:  # noqa: ASYNC110 - the upkeep is what is waited for
            await asyncio.sleep(0.01)
    assert await lag(app) >= BLOCKED_SECONDS - UPKEEP_SECONDS
    assert await lag(app) >= BLOCKED_SECONDS - UPKEEP_SECONDS, "one scrape takes nothing from the next"
    upkeep.cancel()
