"""The requests that wait for their commit: how many there may be, and for how long."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Any

from pidkeeper.protocol.errors import ErrorCode, RequestError

FULL_RETRY_MS = 100
"""Wait asked of a caller when too many requests are pending: several commits fit in it, on a slow disk too."""


class PendingRequests:
    """At most `limit` waiting requests, each for `timeout_ms`.

    All wait equally long, so the order of arrival is the order of expiry and one sweep replaces a timer per request.
    """

    def __init__(self, limit: int, timeout_ms: int) -> None:
        self._limit = limit
        self._timeout_ns = timeout_ms * 1_000_000
        self._deadlines: dict[asyncio.Future[Any], int] = {}

    def __len__(self) -> int:
        return len(self._deadlines)

    @property
    def room(self) -> int:
        """How many more may wait."""
        return self._limit - len(self._deadlines)

    def check_room(self) -> None:
        """Raises RequestError (THROTTLING_QUOTA_EXCEEDED) when `limit` requests wait already."""
        if len(self._deadlines) >= self._limit:
            detail = f"{len(self._deadlines)} requests are waiting already, which is the limit; wait and ask again"
            raise RequestError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, detail, throttle_time_ms=FULL_RETRY_MS)

    async def wait(self, answer: Awaitable[Any], now_ns: int) -> Any:
        """The result of `answer`. Raises what it raises, and REQUEST_TIMED_OUT once it has expired."""
        return await self._result(self._enter(answer, now_ns))

    def tell(self, answer: Awaitable[Any], now_ns: int, done: Callable[[Any], None]) -> None:
        """As `wait`, for whoever has no task to wait in: `done` gets the result, or the RequestError, in a later turn
        of the event loop."""
        self._enter(answer, now_ns).add_done_callback(partial(self._tell, done))

    def _tell(self, done: Callable[[Any], None], future: asyncio.Future[Any]) -> None:
        self._deadlines.pop(future, None)
        if future.cancelled():
            done(self._timed_out())
        else:
            done(future.exception() or future.result())

    async def wait_for_all(self, answers: Iterable[Awaitable[Any]], now_ns: int) -> list[Any]:
        """The results of all, in order, with the RequestError in place of the result where one raises that.

        There has to be `room` for them.
        """
        futures = [self._enter(answer, now_ns) for answer in answers]
        try:
            return [await self._result_or_refusal(future) for future in futures]
        finally:
            for future in futures:
                self._deadlines.pop(future, None)
                if not future.cancel() and not future.cancelled():
                    future.exception()  # else asyncio would log what nobody waited for

    def _enter(self, answer: Awaitable[Any], now_ns: int) -> asyncio.Future[Any]:
        future = asyncio.ensure_future(answer)
        if not future.done():
            assert self.room > 0, f"{len(self._deadlines)} requests wait, the limit is {self._limit}"
            self._deadlines[future] = now_ns + self._timeout_ns
        return future

    async def _result_or_refusal(self, future: asyncio.Future[Any]) -> Any:
        try:
            return await self._result(future)
        except RequestError as refusal:
            return refusal

    async def _result(self, future: asyncio.Future[Any]) -> Any:
        try:
            return await future
        except asyncio.CancelledError:
            if future in self._deadlines:
                raise
            raise self._timed_out() from None
        finally:
            self._deadlines.pop(future, None)

    def _timed_out(self) -> RequestError:
        detail = f"no answer within {self._timeout_ns // 1_000_000} ms; the request may still take effect"
        return RequestError(ErrorCode.REQUEST_TIMED_OUT, detail)

    def expire(self, now_ns: int) -> None:
        """Give up the requests whose time is over at `now_ns`."""
        while self._deadlines:
            future, deadline = next(iter(self._deadlines.items()))
            if deadline > now_ns:
                return
            del self._deadlines[future]
            future.cancel()
