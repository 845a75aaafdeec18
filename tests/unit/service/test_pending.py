"""Waiting requests: bounded in number and in time."""

from __future__ import annotations

import asyncio

import pytest

from pidkeeper.protocol.errors import ErrorCode, RequestError
from pidkeeper.service.pending import PendingRequests

MILLISECOND = 1_000_000


def new_future() -> asyncio.Future[int]:
    return asyncio.get_running_loop().create_future()


async def started(pending: PendingRequests, future: asyncio.Future[int], now_ns: int) -> asyncio.Task[int]:
    task = asyncio.create_task(pending.wait(future, now_ns))
    await asyncio.sleep(0)
    return task


async def test_an_answer_ends_the_wait() -> None:
    pending, future = PendingRequests(2, 100), new_future()
    task = await started(pending, future, 0)
    assert len(pending) == 1
    future.set_result(7)
    assert await task == 7
    assert len(pending) == 0


async def test_a_refusal_ends_the_wait() -> None:
    pending, future = PendingRequests(2, 100), new_future()
    task = await started(pending, future, 0)
    future.set_exception(RequestError(ErrorCode.NOT_CONTROLLER))
    with pytest.raises(RequestError, match="NOT_CONTROLLER"):
        await task
    assert len(pending) == 0


async def test_only_requests_whose_time_is_over_are_given_up() -> None:
    pending, early, late = PendingRequests(2, 100), new_future(), new_future()
    first = await started(pending, early, 0)
    second = await started(pending, late, MILLISECOND)
    pending.expire(100 * MILLISECOND - 1)
    assert len(pending) == 2
    pending.expire(100 * MILLISECOND)
    with pytest.raises(RequestError) as caught:
        await first
    assert caught.value.code is ErrorCode.REQUEST_TIMED_OUT
    assert early.cancelled()
    late.set_result(1)
    assert await second == 1


async def test_a_cancelled_caller_is_no_timeout() -> None:
    pending, future = PendingRequests(2, 100), new_future()
    task = await started(pending, future, 0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(pending) == 0


async def test_no_room_above_the_limit() -> None:
    pending, future = PendingRequests(1, 100), new_future()
    pending.check_room()
    task = await started(pending, future, 0)
    with pytest.raises(RequestError) as caught:
        pending.check_room()
    assert caught.value.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert caught.value.throttle_time_ms > 0
    future.set_result(1)
    await task
    pending.check_room()
