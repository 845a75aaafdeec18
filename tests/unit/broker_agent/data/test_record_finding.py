"""ListOffsets tells the very record, in tails and in segments, in batches of every compression."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator

import pytest

from pidkeeper.broker_agent.data import record_finding
from pidkeeper.broker_agent.data.listing import OffsetLister
from pidkeeper.broker_agent.data.record_finding import RecordFinder
from pidkeeper.broker_agent.kafka.wire.data.isolation import IsolationLevel
from pidkeeper.broker_agent.kafka.wire.data.list_offsets import ListOffsetsRequest, PartitionTimestamp, TopicTimestamps
from pidkeeper.broker_agent.kafka.wire.data.record_batch import Compression
from pidkeeper.protocol.log_messages import MAX_TIMESTAMP
from pidkeeper.protocol.segment_messages import DeleteRecordsRequest
from tests.support import log_leader
from tests.support.built_batches import TIME_MS, built
from tests.support.data_parts import records
from tests.support.roll_rig import RollRig
from tests.support.segment_builder import START_MS, batch, record


@pytest.fixture
async def rig() -> AsyncIterator[RollRig]:
    made = RollRig()
    yield made
    await made.stop()


async def listed(rig: RollRig, *times: int) -> list[tuple[int, int]]:
    """Offset and timestamp for each time."""
    lister = OffsetLister(rig.leader, rig.topics, RecordFinder(rig.reader, rig.segments))
    asked = [TopicTimestamps("t", [PartitionTimestamp(0, time) for time in times])]
    request = ListOffsetsRequest(-1, IsolationLevel.READ_UNCOMMITTED, asked)
    (topic,) = await lister.list_offsets(request, 7)
    assert all(one.error_code == 0 for one in topic.partitions)
    return [(one.offset, one.timestamp) for one in topic.partitions]


def timed(*times: int) -> memoryview:
    """A batch of records with these times from START_MS on."""
    content = b"".join(record(delta, b"v", None, time - times[0]) for delta, time in enumerate(times))
    return memoryview(
        batch(
            0,
            base_timestamp=START_MS + times[0],
            max_timestamp=START_MS + max(times),
            payload=content,
            record_count=len(times),
        )
    )


@pytest.mark.parametrize("rolled", [False, True])
async def test_the_record_itself_is_found(rig: RollRig, rolled: bool) -> None:
    await rig.append(timed(10, 30, 20), timed(5, 40, 35, 50), timed(50, 45))
    if rolled:
        await rig.roller.roll_due()
    times = [START_MS + time for time in (0, 11, 20, 30, 31, 41, 50)]
    offsets = [(0, 10), (1, 30), (1, 30), (1, 30), (4, 40), (6, 50), (6, 50)]
    assert await listed(rig, *times) == [(offset, START_MS + time) for offset, time in offsets]
    assert await listed(rig, MAX_TIMESTAMP, START_MS + 51) == [(6, START_MS + 50), (-1, -1)]
    assert bool(rig.kept_segments()) is rolled


async def test_one_of_many_in_a_segment(rig: RollRig) -> None:
    for time in range(0, 400, 4):
        await rig.append(timed(time, time + 2, *range(time, time + 60, 60)), memoryview(batch(0, (b"x" * 700,))))
    await rig.roller.roll_due()
    assert len(rig.kept_segments()) == 1
    reads = len(rig.store.reads)
    found = await listed(rig, *(START_MS + time for time in (1, 200, 398)))
    assert found == [(1, START_MS + 2), (200, START_MS + 200), (398 - 398 % 4 + 1, START_MS + 398)]
    assert sum(size for _, _, size in rig.store.reads[reads:]) < 3 * 5000 + 5000, "the index leads there"


@pytest.mark.parametrize("rolled", [False, True])
@pytest.mark.parametrize("compression", list(Compression), ids=lambda one: one.name)
async def test_compressed_records(rig: RollRig, compression: Compression, rolled: bool) -> None:
    rows = [(b"k", b"v" * 100)] * 20
    await rig.append(memoryview(built(0, *rows, compression=compression)))
    if rolled:
        await rig.roller.roll_due()
    assert await listed(rig, TIME_MS + 7, MAX_TIMESTAMP) == [(7, TIME_MS + 7), (19, TIME_MS + 19)]


@pytest.mark.parametrize("rolled", [False, True])
async def test_without_the_codec_it_is_the_batch(rig: RollRig, rolled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    await rig.append(records(-1, (b"a", b"b")))
    await rig.append(memoryview(built(0, *[(b"k", b"v" * 100)] * 20, compression=Compression.ZSTD)))
    if rolled:
        await rig.roller.roll_due()
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "cramjam", None)
        assert await listed(rig, TIME_MS + 7) == [(2, TIME_MS + 19)]
    monkeypatch.setattr(record_finding, "MAX_RECORDS_BYTES", 100)
    assert await listed(rig, TIME_MS + 7) == [(2, TIME_MS + 19)]


@pytest.mark.parametrize("rolled", [False, True])
async def test_what_was_deleted_is_not_found(rig: RollRig, rolled: bool) -> None:
    await rig.append(timed(10, 30, 20, 30), timed(40))
    if rolled:
        await rig.roller.roll_due()
    await rig.leader.delete_records(DeleteRecordsRequest(7, rig.session.broker_epoch or 0, ((0, 2),)))
    assert await listed(rig, START_MS + 25, START_MS + 31) == [(3, START_MS + 30), (4, START_MS + 40)]


async def test_markers_have_no_time(rig: RollRig) -> None:
    """As before they were rolled: the leader's clock is far ahead of the records'."""
    await rig.append(timed(10))
    await rig.write(name="x")
    rig.end("x", committed=True)
    before = await listed(rig, START_MS + 11, MAX_TIMESTAMP)
    await rig.roller.roll_due()
    assert await listed(rig, START_MS + 11, MAX_TIMESTAMP) == before == [(-1, -1), (0, START_MS + 10)]


async def test_a_marker_before_it_is_passed_over(rig: RollRig, monkeypatch: pytest.MonkeyPatch) -> None:
    await rig.write(name="x")
    monkeypatch.setattr(log_leader, "NOW", START_MS + 1000)
    rig.end("x", committed=True)
    await rig.append(timed(500))
    await rig.roller.roll_due()
    assert await listed(rig, START_MS + 400) == [(2, START_MS + 500)]


@pytest.mark.parametrize("rolled", [False, True])
async def test_bytes_that_are_not_to_be_had(rig: RollRig, rolled: bool) -> None:
    """The place that the quorum knows is told, as it is without the bytes."""
    await rig.append(timed(10, 30), timed(40, 50))
    if rolled:
        await rig.roller.roll_due()
        await rig.store.delete(rig.names())
    else:
        await rig.store.delete([rig.leader.places(0)[0][1]])
    assert await listed(rig, START_MS + 20) == [(0, START_MS + (50 if rolled else 30))]


async def test_what_was_rolled_meanwhile_is_asked_for_again(rig: RollRig) -> None:
    await rig.append(timed(10, 30), timed(40, 50))
    name = rig.leader.places(0)[0][1]

    async def roll() -> None:
        await rig.roller.roll_due()
        await rig.store.delete([name])

    rig.store.read_faults.append(lambda _: roll())
    assert await listed(rig, START_MS + 45) == [(3, START_MS + 50)]
    assert len(rig.leader.asked("find_offsets")) == 2
