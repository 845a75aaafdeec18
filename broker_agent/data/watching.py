"""One watcher for all consumers that wait: it has a few calls to the leader under way, whatever their number.

A long call watches all that somebody waits for when it begins. What comes later is watched by a short one, until the
next long one takes it along.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from typing import Final

from pidkeeper.broker_agent.backoff import Random, backoff_seconds
from pidkeeper.broker_agent.data.calls import LogCalls
from pidkeeper.protocol.errors import RequestError
from pidkeeper.protocol.log_messages import MAX_READ_LOGS, WatchedLog, WatchLogsRequest

MAX_WATCHES: Final = 4
"""Calls at a time: each holds a connection."""

LONG_MS: Final = 2000
SHORT_MS: Final = 100
"""How long the first call waits, and the others: so long may a log be unwatched while all of them are under way."""

RETRY_BASE_SECONDS: Final = 0.05
RETRY_MAX_SECONDS: Final = 1.0

_log = logging.getLogger(__name__)

Ends = tuple[int, int]
"""The end and the last stable offset of a log, as a consumer was told."""


class _Log:
    """A log that is waited for. `watched`: whether a call under way would tell."""

    __slots__ = ("ends", "waiters", "watched")

    def __init__(self, ends: Ends) -> None:
        self.ends = ends
        self.watched = False
        # In the order in which they came, in which they are woken.
        self.waiters: dict[asyncio.Future[None], None] = {}


class Watcher:
    """Tells when logs go on."""

    def __init__(self, calls: LogCalls, rng: Random) -> None:
        self._calls = calls
        self._rng = rng
        self._logs: dict[int, _Log] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._failures = 0

    @property
    def calls_under_way(self) -> int:
        """Calls that wait at the leader, or for the next try."""
        return len(self._tasks)

    async def wait(self, interests: Mapping[int, Ends], seconds: float) -> bool:
        """Wait until a log has other ends than those of `interests`, or is gone; False if the time is up before."""
        moved: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        for number, ends in interests.items():
            log = self._logs.get(number)
            if log is not None and log.ends < ends:
                # Those who wait have heard less, so it has gone on for them.
                self._wake(number)
                log = None
            elif log is not None and log.ends > ends:
                moved.set_result(None)
                break
            if log is None:
                log = self._logs[number] = _Log(ends)
            log.waiters[moved] = None
        self._watch()
        try:
            async with asyncio.timeout(seconds):
                await moved
        except TimeoutError:
            return False
        finally:
            for number in interests:
                self._leave(number, moved)
        return True

    def moved(self, logs: Iterable[int]) -> None:
        """These logs have gone on: somebody here knows it first."""
        for number in logs:
            self._wake(number)

    async def stop(self) -> None:
        """Watch no more."""
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _leave(self, number: int, waiter: asyncio.Future[None]) -> None:
        log = self._logs.get(number)
        if log is not None:
            log.waiters.pop(waiter, None)
            if not log.waiters:
                del self._logs[number]

    def _wake(self, number: int) -> None:
        log = self._logs.pop(number, None)
        for waiter in () if log is None else log.waiters:
            if not waiter.done():
                waiter.set_result(None)

    def _watch(self) -> None:
        """Have what is not watched be watched, if there is room for a call. After a failure one at a time is tried."""
        if len(self._tasks) >= (1 if self._failures else MAX_WATCHES):
            return
        unwatched = [(number, log) for number, log in self._logs.items() if not log.watched][:MAX_READ_LOGS]
        if not unwatched:
            return
        for _, log in unwatched:
            log.watched = True
        task = asyncio.get_running_loop().create_task(self._call(unwatched, SHORT_MS if self._tasks else LONG_MS))
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    async def _call(self, logs: list[tuple[int, _Log]], wait_ms: int) -> None:
        try:
            watched = [WatchedLog(number, *log.ends) for number, log in logs]
            answer = await self._calls.watch_logs(WatchLogsRequest(watched, wait_ms))
        except RequestError as error:
            self._failures += 1
            _log.debug("logs are not watched: %s", error)
            await asyncio.sleep(
                backoff_seconds(self._failures, self._rng, base=RETRY_BASE_SECONDS, maximum=RETRY_MAX_SECONDS)
            )
            return
        finally:
            for number, log in logs:
                log.watched = False
                if self._logs.get(number) is log:
                    # To the end of the line: more may wait than one call watches.
                    self._logs[number] = self._logs.pop(number)
        self._failures = 0
        told = set(answer.logs)
        for number, log in logs:
            if number in told and self._logs.get(number) is log:
                self._wake(number)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.result()
            self._watch()
