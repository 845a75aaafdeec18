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


async def started_all(pending: PendingRequests, futures: list[asyncio.Future[int]]) -> asyncio.Task[list[object]]:
    task = asyncio.create_task(pending.wait_for_all(futures, 0))
    await asyncio.sleep(0)
    return task


async def test_all_answers_of_a_request_are_waited_for_and_a_refusal_is_one() -> None:
    pending, futures = PendingRequests(3, 100), [new_future() for _ in range(3)]
    task = await started_all(pending, futures)
    assert (len(pending), pending.room) == (3, 0)
    refusal = RequestError(ErrorCode.NOT_CONTROLLER)
    futures[2].set_result(3)
    futures[1].set_exception(refusal)
    futures[0].set_result(1)
    assert await task == [1, refusal, 3]
    assert (len(pending), pending.room) == (0, 3)


async def test_all_answers_of_a_request_expire_together() -> None:
    pending, futures = PendingRequests(2, 100), [new_future() for _ in range(2)]
    task = await started_all(pending, futures)
    pending.expire(100 * MILLISECOND)
    assert [error.code for error in await task if isinstance(error, RequestError)] == [ErrorCode.REQUEST_TIMED_OUT] * 2
    assert all(future.cancelled() for future in futures)


@pytest.mark.parametrize("failed", [0, 1])
async def test_a_fault_of_one_answer_leaves_nobody_waiting(failed: int) -> None:
    pending, futures = PendingRequests(2, 100), [new_future() for _ in range(2)]
    task = await started_all(pending, futures)
    futures[1 - failed].set_exception(RequestError(ErrorCode.NOT_CONTROLLER))
    futures[failed].set_exception(OSError("the disk is gone"))
    with pytest.raises(OSError, match="gone"):
        await task
    assert len(pending) == 0


async def test_a_caller_of_several_that_hangs_up_leaves_nobody_waiting() -> None:
    pending, futures = PendingRequests(2, 100), [new_future() for _ in range(2)]
    task = await started_all(pending, futures)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(pending) == 0
    assert all(future.cancelled() for future in futures)


async def test_whoever_has_no_task_is_told_the_same() -> None:
    pending = PendingRequests(4, 100)
    told: list[object] = []
    futures = [new_future() for _ in range(3)]
    for future in futures:
        pending.tell(future, 0, told.append)
    assert len(pending) == 3
    futures[0].set_result(7)
    futures[1].set_exception(RequestError(ErrorCode.NOT_CONTROLLER))
    assert told == [], "only in a later turn of the event loop"
    await asyncio.sleep(0)
    pending.expire(100 * MILLISECOND)
    await asyncio.sleep(0)
    assert told[0] == 7
    assert [refusal.code for refusal in told[1:] if isinstance(refusal, RequestError)] == [
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.REQUEST_TIMED_OUT,
    ]
    assert len(pending) == 0


async def test_more_than_the_limit_cannot_be_told_either() -> None:
    pending = PendingRequests(1, 100)
    pending.tell(new_future(), 0, print)
    with pytest.raises(RequestError, match="THROTTLING_QUOTA_EXCEEDED"):
        pending.check_room()
