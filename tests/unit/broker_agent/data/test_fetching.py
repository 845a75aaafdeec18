"""Fetch requests: bytes, limits, waiting, transactions and holes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from msgspec.structs import replace

from pidkeeper.broker_agent.coordinator.caller import Caller
from pidkeeper.broker_agent.data.reading import ranges
from pidkeeper.broker_agent.data.store.port import StoreUnavailableError
from pidkeeper.broker_agent.data.watching import LONG_MS, MAX_WATCHES
from pidkeeper.broker_agent.kafka.wire.data.fetch import (
    FetchedPartition,
)
from pidkeeper.broker_agent.kafka.wire.data.isolation import IsolationLevel
from pidkeeper.broker_agent.kafka.wire.data.record_batch import check_crc
from pidkeeper.protocol.errors import ErrorCode, RequestError
from pidkeeper.protocol.log_messages import LogBatches, ReadLogsRequest, ReadLogsResponse, StoredBatch
from pidkeeper.protocol.logs import ObjectId
from tests.support.data_parts import raising, records
from tests.support.fetch_rig import FetchRig
from tests.support.log_leader import FOUNDING
from tests.support.split_batches import split_batches
from tests.support.waiting import until

SIZE = len(records(0))


@pytest.fixture
async def rig() -> AsyncIterator[FetchRig]:
    made = FetchRig()
    yield made
    await made.stop()


def offsets(one: FetchedPartition) -> list[int]:
    """The base offsets of what is answered, all of it with its CRC."""
    data = b"".join(one.records)
    headers = split_batches(data)
    for header in headers:
        check_crc(data, header)
    return [header.base_offset for header in headers]


async def test_what_was_produced_is_fetched(rig: FetchRig) -> None:
    await rig.append(records(0, (b"a", b"b")), records(2), records(3))
    await rig.append(records(0), log=1)
    first, second = await rig.fetch((0, 0), (1, 0))
    assert (offsets(first), first.error_code, first.high_watermark, first.log_start_offset) == ([0, 2, 3], 0, 4, 0)
    assert first.aborted_transactions is None
    assert offsets(second) == [0]
    # The middle of a batch: it is given whole. Batches side by side are read at once.
    assert offsets((await rig.fetch((0, 1)))[0]) == [0, 2, 3]
    assert [offsets(one) for one in await rig.fetch((0, 3), (0, 4))] == [[3], []]
    assert len(rig.store.reads) == 4


async def test_limits_and_the_first_batch(rig: FetchRig) -> None:
    for log in (0, 1):
        await rig.append(*(records(sequence) for sequence in range(4)), log=log)
    assert [offsets(one) for one in await rig.fetch((0, 0), (1, 0), max_bytes=3 * SIZE)] == [[0, 1, 2], []]
    assert [offsets(one) for one in await rig.fetch((0, 0), (1, 1), part_bytes=2 * SIZE)] == [[0, 1], [1, 2]]
    assert [offsets(one) for one in await rig.fetch((0, 0), (1, 0), part_bytes=1)] == [[0], []]
    assert [offsets(one) for one in await rig.fetch((0, 4), (1, 0), max_bytes=0)] == [[], [0]]


async def test_errors_of_partitions(rig: FetchRig) -> None:
    await rig.append(records(0))
    assert [one.error_code for one in await rig.fetch((0, 0), (3, 0), (0, 7), (0, -1), wait_ms=10_000)] == [0, 3, 1, 1]
    assert [one.error_code for one in await rig.fetch((0, 0), topic="gone", wait_ms=10_000)] == [3]
    assert [one.high_watermark for one in await rig.fetch((0, 7))] == [1]


async def test_out_of_range_takes_a_confirmed_word(rig: FetchRig) -> None:
    """A leader that was deposed without knowing it has less."""
    await rig.append(records(0), records(1))

    def behind(request: ReadLogsRequest, answer: ReadLogsResponse) -> None:
        if not request.confirmed:
            answer.logs[0] = LogBatches(0, 1, 0, 1, 1)

    rig.leader.edits["read_logs"] = behind
    assert offsets((await rig.fetch((0, 1)))[0]) == [1]
    assert [one.confirmed for one in rig.leader.asked("read_logs")] == [False, True]


async def test_the_quorum_does_not_answer(rig: FetchRig) -> None:
    rig.leader.fault("read_logs", raising(RequestError(ErrorCode.REQUEST_TIMED_OUT)))
    assert [one.error_code for one in await rig.fetch((0, 0), (9, 0))] == [6, 3]
    rig.topics.forget("t")
    rig.leader.fault("find_topics", raising(RequestError(ErrorCode.REQUEST_TIMED_OUT)))
    assert [one.error_code for one in await rig.fetch((0, 0))] == [6]


async def test_a_session_is_not_known(rig: FetchRig) -> None:
    assert await rig.fetch((0, 0), session_id=8, session_epoch=3) == []
    assert rig.code == 70
    await rig.fetch((0, 0), session_epoch=0)
    assert rig.code == 0


async def test_an_aborted_transaction(rig: FetchRig) -> None:
    await rig.append(records(0))
    producer_id, epoch = rig.leader.begin("x", "t", 0)
    data = records(0, transactional=True, producer_id=producer_id, epoch=epoch)
    assert await rig.append(data, transactional=True) == [1]
    level = IsolationLevel.READ_COMMITTED
    (one,) = await rig.fetch((0, 0), level=level)
    assert (offsets(one), one.last_stable_offset, one.high_watermark) == ([0], 1, 2)
    rig.leader.end("x", committed=False)
    (one,) = await rig.fetch((0, 0), level=level)
    assert one.aborted_transactions == [(producer_id, 1)]
    assert offsets(one) == [0, 1, 2]
    marker = split_batches(b"".join(one.records))[2]
    assert (marker.is_control, marker.is_transactional) == (True, True)
    assert (marker.producer_id, marker.producer_epoch) == (producer_id, epoch)
    (one,) = await rig.fetch((0, 2))
    assert (offsets(one), one.last_stable_offset) == ([2], 3)


async def test_a_consumer_waits_for_what_comes(rig: FetchRig) -> None:
    waiting = asyncio.create_task(rig.fetch((0, 0), (1, 0), wait_ms=10_000))
    await until(lambda: bool(rig.leader.asked("watch_logs")))
    await rig.append(records(0), log=1)
    assert [offsets(one) for one in await waiting] == [[], [0]]


async def test_enough_is_waited_for(rig: FetchRig) -> None:
    waiting = asyncio.create_task(rig.fetch((0, 0), wait_ms=10_000, min_bytes=2 * SIZE))
    await until(lambda: len(rig.leader.asked("watch_logs")) == 1)
    await rig.append(records(0))
    await until(lambda: len(rig.leader.asked("watch_logs")) == 2)
    assert not waiting.done()
    await rig.append(records(1))
    assert offsets((await waiting)[0]) == [0, 1]
    began = asyncio.get_running_loop().time()
    assert offsets((await rig.fetch((0, 1), wait_ms=50, min_bytes=1000))[0]) == [1]
    assert 0.04 < asyncio.get_running_loop().time() - began < 5


async def test_a_consumer_that_hangs_up_stops_waiting(rig: FetchRig) -> None:
    looks = iter([False] + [True] * 100)
    caller = Caller(has_hung_up=lambda: next(looks))
    began = asyncio.get_running_loop().time()
    await rig.fetch((0, 0), wait_ms=30_000, caller=caller)
    assert asyncio.get_running_loop().time() - began < 5


async def test_many_consumers_share_a_few_watches(rig: FetchRig) -> None:
    rig.leader.add_topic("many", 100)
    consumers = [
        asyncio.create_task(rig.fetch((partition, 0), topic="many", wait_ms=10_000)) for partition in range(100)
    ]
    await until(lambda: len(rig.leader.asked("read_logs")) == 100)
    await asyncio.sleep(0.3)
    assert len(rig.leader.asked("watch_logs")) <= 3 * MAX_WATCHES
    for partition in range(100):
        await rig.append(records(0, producer_id=partition), log=3 + partition)
    assert [offsets(one) for answer in await asyncio.gather(*consumers) for one in answer] == [[0]] * 100


async def test_a_watch_that_fails_is_begun_anew(rig: FetchRig) -> None:
    rig.leader.fault("watch_logs", *[raising(RequestError(ErrorCode.REQUEST_TIMED_OUT))] * 3)
    waiting = asyncio.create_task(rig.fetch((0, 0), wait_ms=10_000))
    await until(lambda: len(rig.leader.asked("watch_logs")) == 4)
    await rig.append(records(0))
    assert offsets((await waiting)[0]) == [0]
    # From then on several are under way again, and none waits for the one before it.
    began = asyncio.get_running_loop().time()
    others = [asyncio.create_task(rig.fetch((1, 0), wait_ms=10_000))]
    await until(lambda: len(rig.leader.asked("watch_logs")) == 5)
    others.append(asyncio.create_task(rig.fetch((2, 0), wait_ms=10_000)))
    await until(lambda: len(rig.leader.asked("watch_logs")) == 6)
    assert asyncio.get_running_loop().time() - began < LONG_MS / 2000
    for log in (1, 2):
        await rig.append(records(0), log=log)
    await asyncio.gather(*others)


async def test_a_batch_of_another_size_is_not_given(rig: FetchRig) -> None:
    await rig.append(records(0), records(1))

    def larger(_: ReadLogsRequest, answer: ReadLogsResponse) -> None:
        batches = answer.logs[0].batches
        batches[:] = [replace(one, size=SIZE + 10) if one.base_offset == 0 else one for one in batches]

    rig.leader.edits["read_logs"] = larger
    assert [(one.error_code, one.records) for one in await rig.fetch((0, 0))] == [(56, [])]
    assert [(one.error_code, offsets(one)) for one in await rig.fetch((0, 1))] == [(0, [1])]


async def test_what_is_missing_is_not_skipped(rig: FetchRig, caplog: pytest.LogCaptureFixture) -> None:
    for sequence in range(3):
        await rig.append(records(sequence))
    await rig.store.delete([rig.store.puts[1]])
    (one,) = await rig.fetch((0, 0))
    assert (one.error_code, offsets(one)) == (0, [0])
    for _ in range(2):
        (one,) = await rig.fetch((0, 1))
        assert (one.error_code, one.records) == (56, [])
    assert [one.getMessage().count(rig.store.puts[1]) > 0 for one in caplog.records] == [True]


async def test_a_store_that_is_away(rig: FetchRig) -> None:
    await rig.append(records(0))
    rig.store.read_faults.append(raising(StoreUnavailableError("away")))
    assert [one.error_code for one in await rig.fetch((0, 0))] == [56]
    assert [one.error_code for one in await rig.fetch((0, 0))] == [0]


async def test_a_hole_in_what_the_quorum_tells_ends_the_answer(rig: FetchRig) -> None:
    for sequence in range(3):
        await rig.append(records(sequence))

    def without(_: ReadLogsRequest, answer: ReadLogsResponse) -> None:
        batches = answer.logs[0].batches
        batches[:] = [one for one in batches if one.base_offset != 1]

    rig.leader.edits["read_logs"] = without
    assert offsets((await rig.fetch((0, 0)))[0]) == [0]
    assert [(one.error_code, one.records) for one in await rig.fetch((0, 1))] == [(56, [])]


async def test_recent_objects_are_not_read_from_the_store(rig: FetchRig) -> None:
    await rig.append(records(0), records(1))
    commit = rig.leader.commits[0]
    rig.recent.add(ObjectId(7, 5, commit.number).path(FOUNDING), [bytes(records(0)), bytes(records(1))])
    assert offsets((await rig.fetch((0, 0)))[0]) == [0, 1]
    assert rig.store.reads == []


def test_batches_that_are_near_share_a_range() -> None:
    def at(position: int, size: int = 100, number: int = 1) -> StoredBatch:
        return StoredBatch(0, number, position, size)

    found = ranges([at(200), at(0), at(100_000), at(100), at(500), at(0, number=2), at(500_000, 90_000), at(600_000)])
    assert [(one.object, one.start, one.end) for one in found] == [
        (1, 0, 600),
        (1, 100_000, 100_100),
        (1, 500_000, 600_100),
        (2, 0, 100),
    ]


async def test_nothing_is_read_before_the_quorum_knows_the_store(rig: FetchRig) -> None:
    await rig.append(records(0))
    rig.session.store_told = False
    (one,) = await rig.fetch((0, 0), wait_ms=5000)
    assert (one.error_code, [*one.records]) == (6, [])
    assert not rig.store.reads
