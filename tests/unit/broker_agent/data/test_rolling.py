"""Tails become segments: what is read stays the same, whatever fails, and whoever rolls at the same time."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import AsyncIterator, Callable
from itertools import pairwise
from typing import Any

import pytest

from pidkeeper.broker_agent.data import rolling
from pidkeeper.broker_agent.data.counters import Counters
from pidkeeper.broker_agent.data.rolling import BUSY_SECONDS, IDLE_SECONDS, REST_SECONDS, ROLL_SECONDS, Roller
from pidkeeper.broker_agent.data.store.port import ObjectMissingError, StoreRefusedError, StoreUnavailableError
from pidkeeper.protocol.errors import ErrorCode, RequestError
from pidkeeper.protocol.founding import SuccessionRecord
from pidkeeper.protocol.log_messages import LogBatches, ReadLogsRequest, ReadLogsResponse
from pidkeeper.protocol.messages import BrokerDescription
from pidkeeper.protocol.segment_messages import CommitSegmentRequest, DeleteRecordsRequest
from pidkeeper.protocol.segments import index_path
from tests.support.data_parts import StubRegistration, raising, records, until_stored
from tests.support.log_leader import FOUNDING, GIVEN
from tests.support.roll_rig import BOTH_LEVELS, RollRig
from tests.support.split_batches import split_batches
from tests.support.waiting import until

SIZE = len(records(0))
UNCOMMITTED, COMMITTED = BOTH_LEVELS
TIMED_OUT = RequestError(ErrorCode.REQUEST_TIMED_OUT)


@pytest.fixture
async def rig(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[RollRig]:
    monkeypatch.setattr(rolling, "REFUSED_SECONDS", 0.0)
    monkeypatch.setattr(rolling, "OVERTAKEN_SECONDS", 0.0)
    made = RollRig()
    yield made
    await made.stop()


async def mixed(rig: RollRig) -> None:
    """Transactions that end and do not end, and what is in none."""
    await rig.write((b"a", b"b"))
    await rig.write(name="x")
    await rig.write(name="y")
    await rig.write()
    rig.end("y", committed=False)
    await rig.write(name="x")
    rig.end("x", committed=True)
    await rig.write()


async def test_a_tail_becomes_a_segment(rig: RollRig) -> None:
    await mixed(rig)
    await rig.write(name="open")
    before = {level: await rig.everything(level, 1000) for level in BOTH_LEVELS}
    assert await rig.roller.roll_due() == ROLL_SECONDS
    (segment,) = rig.kept_segments()
    assert (segment.base_offset, segment.end_offset) == (0, 9), "up to the last stable offset"
    data = await rig.store.read(rig.names()[0], 0, segment.size)
    # The tail's bytes as Fetch gave them, one behind another.
    assert data + before[UNCOMMITTED][-1] == b"".join(before[UNCOMMITTED])
    assert len(split_batches(data)) == 8
    assert {level: await rig.everything(level, 1000) for level in BOTH_LEVELS} == before
    assert (rig.counters.rolls, rig.counters.rolled_bytes) == (1, segment.size)
    await rig.roller.roll_due()
    assert len(rig.kept_segments()) == 1, "the rest is not decided"


async def test_limits_and_what_is_left(rig: RollRig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.leader.segment_bytes = 3 * SIZE
    for _ in range(7):
        await rig.write()
    assert await rig.roller.roll_due() == BUSY_SECONDS
    assert [one.end_offset for one in rig.kept_segments()] == [3]
    assert await rig.roller.roll_due() == BUSY_SECONDS
    assert await rig.roller.roll_due() == ROLL_SECONDS
    assert await rig.roller.roll_due() == IDLE_SECONDS
    assert [(one.base_offset, one.end_offset) for one in rig.kept_segments()] == [(0, 3), (3, 6), (6, 7)]
    # A batch that is larger than a segment shall be is one.
    await rig.write((b"x" * 1000,))
    await rig.roller.roll_due()
    assert [one.end_offset for one in rig.kept_segments()] == [3, 6, 7, 8]
    assert len(await rig.everything(UNCOMMITTED, 1)) == 8


@pytest.mark.parametrize(("rows", "asked", "hurried"), [(4, 4, False), (3, 4, True), (4, 3, True)])
async def test_rolls_rest_until_many_rows_or_logs_wait(
    rig: RollRig, monkeypatch: pytest.MonkeyPatch, rows: int, asked: int, hurried: bool
) -> None:
    monkeypatch.setattr(rolling, "HURRIED_ROWS", rows)
    monkeypatch.setattr(rolling, "MAX_ASKED", asked)
    for log in range(3):
        await rig.write(log=log)
    clock = asyncio.get_running_loop().time
    committed: list[float] = []

    async def slow(_: Any) -> None:
        await asyncio.sleep(0.02)
        committed.append(clock())

    rig.leader.fault("commit_segment", slow, slow, slow)
    monkeypatch.setattr(rolling, "RESTS", 10)
    await rig.roller.roll_due()
    rests = [later - earlier for earlier, later in pairwise([*committed, clock() + 0.02])]
    assert hurried or all(rest >= 0.02 * (1 + 10) for rest in rests)
    assert not hurried or min(rests) < 0.02 * (1 + 10)


async def test_rows_are_bounded(rig: RollRig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pidkeeper.broker_agent.data.roll_gathering.MAX_SEGMENT_ROWS", 5)
    monkeypatch.setattr("pidkeeper.broker_agent.data.roll_making.MAX_SEGMENT_ROWS", 5)
    for _ in range(8):
        await rig.write()
    await rig.roller.roll_due()
    await rig.roller.roll_due()
    assert [one.end_offset for one in rig.kept_segments()] == [8]
    assert [one.replaces for one in rig.leader.asked("commit_segment")] == [5, 4]


async def test_small_segments_become_larger_ones(rig: RollRig) -> None:
    for _ in range(40):
        await rig.write()
        await rig.roller.roll_due()
    assert 1 < len(rig.kept_segments()) <= 5
    assert len(await rig.everything(UNCOMMITTED, 10 * SIZE)) == 40
    assert rig.counters.rolled_bytes < 40 * SIZE * 6
    assert len(await rig.everything(COMMITTED, 1)) == 40


async def test_aborted_transactions_come_with_segments_taken_in(rig: RollRig) -> None:
    """One that spans both, one in the older segment alone, one in the tail alone."""
    for name in ("across", "older"):
        await rig.write(name=name)
    rig.end("older", committed=False)
    rig.end("across", committed=False)
    await rig.write()
    rig.leader.segment_bytes = 2 * SIZE
    await rig.roller.roll_due()
    assert [one.end_offset for one in rig.kept_segments()] == [2], "their markers lie behind it"
    await rig.write(name="newer")
    rig.end("newer", committed=False)
    before = {level: await rig.everything(level, 1) for level in BOTH_LEVELS}
    rig.leader.segment_bytes = 8 << 20
    await rig.roller.roll_due()
    assert [(one.base_offset, one.end_offset) for one in rig.kept_segments()] == [(0, 7)]
    for level in BOTH_LEVELS:
        assert await rig.everything(level, 1) == await rig.everything(level, 1 << 20) == before[level]


async def test_two_rollers_race(rig: RollRig) -> None:
    await mixed(rig)
    counters = Counters()
    session = StubRegistration(rig.leader.register(8))
    session.broker_id = 8
    other = rig.new_roller(session, counters)
    rig.directory.update([BrokerDescription(8, 1, False, "agent-8:9092")])

    await rig.topics.find(["t"])
    before = await rig.everything(UNCOMMITTED, 1)
    for first, second in ((rig.roller, other), (other, rig.roller)):
        # Of one batch both would make the same segment, and either may have it.
        await rig.write()
        await rig.write()
        before += (await rig.everything(UNCOMMITTED, 1))[len(before) :]
        for one in (rig.roller, other):
            one._due_since = {0: (tail_start(rig), -1000.0)}
        rig.leader.fault("commit_segment", _rolling(second))
        await first.roll_due()
    assert rig.counters.rolls_refused == counters.rolls_refused == 1
    assert rig.counters.rolls == counters.rolls == 1
    assert await rig.everything(UNCOMMITTED, 1) == before


def _rolling(roller: Roller) -> Callable[[Any], Any]:
    """A fault that lets another roller do it all first."""
    return lambda _: roller.roll_due()


def tail_start(rig: RollRig, log: int = 0) -> int:
    found = rig.leader.machine.logs.log(log)
    assert found is not None
    return found.tail_start


@pytest.mark.parametrize("where", ["log", "sparse", "commit"])
async def test_a_stop_at_any_point_loses_nothing(rig: RollRig, where: str) -> None:
    await mixed(rig)
    before = await rig.everything(COMMITTED, 1)
    reached = asyncio.Event()

    async def never() -> None:
        reached.set()
        await asyncio.Event().wait()

    if where == "commit":
        rig.leader.fault("commit_segment", lambda _: never())
    else:
        rig.store.put_faults.extend([lambda _: None] * (where == "sparse") + [lambda _: never()])
    epoch = rig.session.broker_epoch
    rig.roller.start()
    async with asyncio.timeout(5):
        await reached.wait()
    await rig.roller.stop()
    assert rig.kept_segments() == []
    assert await rig.everything(COMMITTED, 1) == before
    # The next process of this agent, or another one.
    rig.session.broker_epoch = rig.leader.register(7)
    await rig.new_roller(rig.session).roll_due()
    assert len(rig.kept_segments()) == 1
    assert await rig.everything(COMMITTED, 1) == before
    if where != "commit":
        # What was put and not offered is deleted.
        await until_stored(rig.store, lambda names: not any(f"/7/{epoch}/" in one for one in names if "/t-0/" in one))


async def test_the_answer_to_a_commit_is_lost(rig: RollRig) -> None:
    await mixed(rig)
    rig.leader.fault("commit_segment", lambda _: True, raising(TIMED_OUT))
    await rig.roller.roll_due()
    assert [one.number for one in rig.leader.asked("commit_segment")] == [0, 0, 0]
    assert rig.counters.rolls == len(rig.kept_segments()) == 1


async def test_a_registration_that_changes_meanwhile(rig: RollRig) -> None:
    await mixed(rig)
    epoch = rig.leader.register(7)

    def register(_: str) -> None:
        rig.session.broker_epoch = epoch

    rig.store.put_faults.append(register)
    await rig.roller.roll_due()
    assert rig.leader.asked("commit_segment") == [], "the name is of an epoch that is gone"
    await rig.roller.roll_due()
    assert [(one.broker_epoch, one.number) for one in rig.leader.asked("commit_segment")] == [(epoch, 0)]
    assert rig.counters.rolls == 1


async def test_numbers_rise_and_a_stale_epoch_ends(rig: RollRig) -> None:
    for _ in range(3):
        await rig.write()
        await rig.roller.roll_due()
    assert [one.number for one in rig.leader.asked("commit_segment")] == [0, 1, 2]
    await rig.write()
    epoch = rig.leader.register(7)
    assert await rig.roller.roll_due() <= ROLL_SECONDS
    assert rig.session.doubted == [rig.session.broker_epoch]
    assert await rig.roller.roll_due() == ROLL_SECONDS
    assert len(rig.leader.asked("commit_segment")) == 4, "it is not asked for again under that epoch"
    rig.session.broker_epoch = epoch
    await rig.roller.roll_due()
    last: CommitSegmentRequest = rig.leader.asked("commit_segment")[-1]
    assert (last.broker_epoch, last.number) == (epoch, 0)
    assert rig.kept_segments()[-1].end_offset == 4


async def test_a_new_founding_rolls_under_an_epoch_that_is_in_force(rig: RollRig) -> None:
    following = uuid.UUID(int=44)
    await rig.write()
    rig.leader._replay([SuccessionRecord(following, FOUNDING, GIVEN, 0)])
    await rig.roller.roll_due()
    assert await rig.roller.roll_due() == ROLL_SECONDS
    assert len(rig.leader.asked("commit_segment")) == 1, "it is not asked for again under that founding"
    rig.session.founding_id = following
    await rig.roller.roll_due()
    assert [one.founding_id for one in rig.leader.asked("commit_segment")] == [FOUNDING, following]
    assert len(rig.kept_segments()) == 1


@pytest.mark.parametrize("damage", ["missing", "flipped", "cut"])
async def test_a_damaged_batch_is_never_rolled(
    rig: RollRig, damage: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(3):
        await rig.write()
    await rig.write(log=1)
    name = rig.leader.places(0)[1][1]
    data = rig.store._objects[name]
    if damage == "missing":
        await rig.store.delete([name])
    else:
        rig.store._objects[name] = data[:-1] + (b"" if damage == "cut" else bytes([data[-1] ^ 1]))
    with caplog.at_level(logging.ERROR):
        for _ in range(3):
            await rig.roller.roll_due()
    assert rig.kept_segments(0) == [] and len(rig.kept_segments(1)) == 1, "the other log is as good as ever"
    assert rig.counters.rolls_damaged == 1
    told = [one.getMessage() for one in caplog.records if "is not rolled" in one.getMessage()]
    assert len(told) == 1 and name in told[0] and "log 0 at offset 1" in told[0]
    # Once somebody has mended it, and after a long rest.
    rig.store._objects[name] = data
    await rig.roller.roll_due()
    assert rig.kept_segments(0) == []
    loop = asyncio.get_running_loop()
    later = loop.time() + REST_SECONDS + 1
    monkeypatch.setattr(loop, "time", lambda: later)
    await rig.roller.roll_due()
    monkeypatch.undo()
    assert len(rig.kept_segments(0)) == 1


async def test_a_segment_that_is_damaged_is_not_taken_in(rig: RollRig) -> None:
    for _ in range(2):
        await rig.write()
        await rig.roller.roll_due()
        await rig.write()
    assert [one.end_offset for one in rig.kept_segments()] == [3]
    (name,) = rig.names()
    data = rig.store._objects[name]
    rig.store._objects[name] = data[:-1] + bytes([data[-1] ^ 1])
    await rig.roller.roll_due()
    assert [one.end_offset for one in rig.kept_segments()] == [3, 4]
    assert rig.counters.rolls_damaged == 0


async def test_what_was_dropped_meanwhile_is_no_damage(rig: RollRig, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(3):
        await rig.write()
    name = rig.leader.places(0)[0][1]

    async def drop(_: Any = None) -> None:
        await rig.store.delete([name])
        rig.leader.drop_topic("t")
        raise ObjectMissingError(name)

    rig.store.read_faults.append(lambda _: drop())
    with caplog.at_level(logging.INFO):
        assert await rig.roller.roll_due() == ROLL_SECONDS
    assert rig.counters.rolls_damaged == 0 and not caplog.records


async def test_the_store_is_away(rig: RollRig, caplog: pytest.LogCaptureFixture) -> None:
    await mixed(rig)
    rig.store.read_faults.append(raising(StoreUnavailableError("away")))
    assert await rig.roller.roll_due() <= ROLL_SECONDS
    assert rig.counters.rolls_damaged == 0
    rig.store.put_faults.extend([raising(StoreUnavailableError("away"))] * 3)
    await rig.roller.roll_due()
    assert rig.counters.rolls == 1, "a blip is waited for"
    await rig.write()
    rig.store.put_faults.extend([raising(StoreRefusedError("no permission"))] * 2)
    with caplog.at_level(logging.ERROR):
        pauses = [await rig.roller.roll_due() for _ in range(2)]
    assert pauses[1] > ROLL_SECONDS / 2 and rig.counters.rolls_refused == 2
    assert [
        one.getMessage() for one in caplog.records if one.name == rolling.__name__ and one.levelname == "ERROR"
    ] == ["a log is not rolled: the store takes no segments: no permission"]
    await rig.roller.roll_due()
    assert rig.counters.rolls == 2


async def test_the_quorum_is_away_or_refuses(rig: RollRig) -> None:
    await mixed(rig)
    rig.leader.fault("find_rolls", raising(TIMED_OUT))
    assert await rig.roller.roll_due() <= ROLL_SECONDS
    rig.leader.fault("read_logs", raising(TIMED_OUT))
    await rig.roller.roll_due()
    rig.leader.fault("commit_segment", raising(RequestError(ErrorCode.UNSUPPORTED_VERSION)))
    await rig.roller.roll_due()
    assert (rig.counters.rolls, rig.counters.rolls_refused) == (0, 1)
    rig.leader.fault("commit_segment", *[raising(RequestError(ErrorCode.NOT_ENOUGH_REPLICAS))] * 3)
    await rig.roller.roll_due()
    assert (rig.counters.rolls, rig.counters.rolls_refused) == (1, 1)
    rig.session.broker_epoch = None
    asked = len(rig.leader.calls)
    assert await rig.roller.roll_due() == ROLL_SECONDS
    assert len(rig.leader.calls) == asked, "without a registration nobody is asked"


@pytest.mark.parametrize("refused", [True, False])
async def test_a_log_that_is_refused_rests(rig: RollRig, refused: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rolling, "REFUSED_SECONDS", 60.0)
    monkeypatch.setattr(rolling, "OVERTAKEN_SECONDS", 60.0)
    for log in (0, 1):
        await rig.write(log=log)

    async def overtake() -> None:
        delete = DeleteRecordsRequest(7, rig.session.broker_epoch or 0, ((0, 1),))
        await rig.leader.delete_records(delete)
        await rig.write()

    invalid = raising(RequestError(ErrorCode.INVALID_REQUEST))
    rig.leader.fault("commit_segment", invalid if refused else lambda _: overtake())
    for _ in range(2):
        await rig.roller.roll_due()
    assert rig.counters.rolls_refused == 1
    assert [len(rig.kept_segments(log)) for log in (0, 1)] == [0, 1], "the other one has its turn"


async def test_a_log_that_fails_as_nobody_foresaw_rests(rig: RollRig, caplog: pytest.LogCaptureFixture) -> None:
    for log in (0, 1):
        await rig.write(log=log)
    rig.leader.fault("commit_segment", raising(ValueError("unforeseen")))
    for _ in range(2):
        await rig.roller.roll_due()
    assert rig.counters.duties_failed == 1
    assert [len(rig.kept_segments(log)) for log in (0, 1)] == [0, 1], "the other one has its turn"
    assert "log 0 is not rolled: this is a bug" in caplog.text


async def test_logs_of_others_are_theirs_for_a_while(rig: RollRig, monkeypatch: pytest.MonkeyPatch) -> None:
    others = [BrokerDescription(one, 1, False, f"agent-{one}:9092") for one in (8, 9)]
    rig.leader.add_topic("many", 30)
    rig.directory.update(others)
    logs = rig.leader.topic("many").first_log + 0
    for log in range(logs, logs + 30):
        await rig.write(log=log)
    await rig.roller.roll_due()
    own = sum(len(rig.kept_segments(log)) for log in range(logs, logs + 30))
    assert 3 < own < 20
    monkeypatch.setattr(rolling, "PATIENCE_SECONDS", -1.0)
    await rig.roller.roll_due()
    assert sum(len(rig.kept_segments(log)) for log in range(logs, logs + 30)) == 30


async def test_a_log_that_lost_its_beginning(rig: RollRig) -> None:
    """The first batch of the tail reaches below it; then the segment does."""
    await rig.write((b"a", b"b", b"c"))
    await rig.write((b"d", b"e"))
    asked = DeleteRecordsRequest(7, rig.leader.machine.brokers.get(7).broker_epoch, ((0, 1),))  # type: ignore[union-attr]
    await rig.leader.delete_records(asked)
    before = await rig.everything(UNCOMMITTED, 1, start=1)
    await rig.roller.roll_due()
    assert [(one.base_offset, one.end_offset) for one in rig.kept_segments()] == [(0, 5)]
    assert await rig.everything(UNCOMMITTED, 1, start=1) == before
    assert (await rig.fetch((0, 0)))[0].error_code == 1


async def test_the_task_goes_on_until_it_is_stopped(rig: RollRig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rolling, "IDLE_SECONDS", 0.001)
    monkeypatch.setattr(rolling, "ROLL_SECONDS", 0.001)
    rig.roller.start()
    rig.roller.start()
    for end in range(1, 4):
        await rig.write()
        await until(lambda end=end: tail_start(rig) == end)  # type: ignore[misc]
    await rig.roller.stop()
    await rig.roller.stop()
    assert rig.counters.rolls == 3


async def test_the_task_outlives_what_nobody_foresaw(rig: RollRig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rolling, "ROLL_SECONDS", 0.001)
    await rig.write()
    rig.leader.fault("find_rolls", raising(ValueError("unforeseen")))
    rig.roller.start()
    await until(lambda: rig.counters.rolls == 1)
    await rig.roller.stop()
    assert rig.counters.duties_failed == 1


async def test_a_fetch_finds_what_was_rolled_under_its_feet(rig: RollRig, caplog: pytest.LogCaptureFixture) -> None:
    """The tail's objects are collected between the quorum's answer and the read; then a segment is."""
    await mixed(rig)
    before = await rig.everything(COMMITTED, 1 << 20)

    async def roll_and_collect() -> None:
        await rig.roller.roll_due()
        kept = {one for name in rig.names() for one in (name, index_path(name))}
        await rig.store.delete([one for one in await rig.store.names() if one not in kept])

    for extra in (0, 1):
        for _ in range(extra):
            await rig.write()
            before += (await rig.everything(COMMITTED, 1 << 20))[len(before) :]
        rig.indices._kept.clear()
        rig.store.read_faults.append(lambda _: roll_and_collect())
        with caplog.at_level(logging.ERROR):
            assert await rig.everything(COMMITTED, 1 << 20) == before
    assert not caplog.records
    assert rig.counters.rolls == 2


@pytest.mark.parametrize("which", ["log", "sparse"])
async def test_a_segment_that_is_lost_is_told(rig: RollRig, which: str, caplog: pytest.LogCaptureFixture) -> None:
    await mixed(rig)
    await rig.roller.roll_due()
    (name,) = rig.names()
    lost = name if which == "log" else index_path(name)
    data = rig.store._objects[lost]
    rig.indices._kept.clear()
    await rig.store.delete([lost])
    with caplog.at_level(logging.ERROR):
        for _ in range(2):
            (one,) = await rig.fetch((0, 2), wait_ms=10_000)
            assert (one.error_code, one.records) == (56, [])
    assert len(caplog.records) == 1 and name in caplog.text
    assert rig.counters.damaged_reads == 2
    assert [one.confirmed for one in rig.leader.asked("read_logs")[-2:]] == [False, True]
    rig.store._objects[lost] = data[:-1] + bytes([data[-1] ^ 1]) if which == "sparse" else data[:-1]
    assert (await rig.fetch((0, 8)))[0].error_code == 56
    assert rig.counters.damaged_reads == 3
    rig.store._objects[lost] = data
    rig.store.read_faults.append(raising(StoreUnavailableError("away")))
    assert (await rig.fetch((0, 2)))[0].error_code == 56
    assert rig.counters.damaged_reads == 3, "that is no damage"
    assert len((await rig.fetch((0, 2)))[0].records) == 1


async def test_an_index_of_another_segment_is_none(rig: RollRig, caplog: pytest.LogCaptureFixture) -> None:
    for log in (0, 1):
        for _ in range(3 - log):
            await rig.write(log=log)
    await rig.roller.roll_due()
    (name,), (other,) = rig.names(0), rig.names(1)
    sizes = [rig.kept_segments(log)[0].index_size for log in (0, 1)]
    assert sizes[0] == sizes[1]
    rig.store._objects[index_path(name)] = rig.store._objects[index_path(other)]
    with caplog.at_level(logging.ERROR):
        codes = [each.error_code for each in await rig.fetch((0, 0), (1, 0))]
    assert codes == [56, 0]
    assert name in caplog.text and other not in caplog.text


async def test_segments_of_two_answers(rig: RollRig) -> None:
    """A leader that was deposed has less of one of the logs."""
    for log in (0, 1):
        await rig.write((b"log-%d" % log,), log=log)
    await rig.roller.roll_due()

    def behind(request: ReadLogsRequest, answer: ReadLogsResponse) -> None:
        if not request.confirmed:
            answer.logs[1] = LogBatches(1, 1, 0, 0, 0)

    rig.leader.edits["read_logs"] = behind
    answers = await rig.fetch((0, 0), (1, 0))
    assert [b"log-%d" % log in bytes(one.records[0]) for log, one in enumerate(answers)] == [True, True]


async def test_answers_of_segments_are_bounded(rig: RollRig) -> None:
    big = (b"x" * 5000,)
    for log in (0, 1):
        for _ in range(6):
            await rig.write(big, log=log)
    await rig.roller.roll_due()
    size = len(records(0, big))

    async def given(*wanted: tuple[int, int], **limits: Any) -> list[int]:
        return [len(b"".join(one.records)) // size for one in await rig.fetch(*wanted, **limits)]

    assert await given((0, 0), (1, 0)) == [6, 6]
    assert await given((0, 1), (1, 0), part_bytes=2 * size) == [2, 2]
    assert await given((0, 0), (1, 0), max_bytes=3 * size) == [3, 0]
    assert await given((0, 5), (1, 0), max_bytes=3 * size) == [1, 2]
    assert await given((0, 3), (1, 0), part_bytes=1) == [1, 0]
    assert await given((0, 6), (1, 0), max_bytes=0, min_bytes=10**6, wait_ms=10_000) == [0, 1], "nothing is waited for"


async def test_an_index_is_loaded_once_for_all(rig: RollRig) -> None:
    await mixed(rig)
    await rig.roller.roll_due()
    rig.indices._kept.clear()
    segment = rig.kept_segments()[0]
    found = await asyncio.gather(*(rig.indices.index(rig.names()[0], segment) for _ in range(5)))
    assert len(set(map(id, found))) == 1
    assert rig.counters.index_loads == 1
    await rig.fetch((0, 1))
    assert rig.counters.index_hits > 0
    assert rig.indices.bytes > 0


async def test_the_cache_of_indices_is_bounded() -> None:
    rig = RollRig(index_bytes=3000)
    for log in range(3):
        await rig.write(log=log)
    await rig.roller.roll_due()
    for _ in range(2):
        for log in range(3):
            assert len((await rig.fetch((log, 0)))[0].records) == 1
            assert rig.indices.bytes <= 3000
    assert len(rig.indices._kept) == 2
    none = RollRig(index_bytes=0)
    await none.write()
    await none.roller.roll_due()
    assert len((await none.fetch((0, 0)))[0].records) == 1
    assert none.indices.bytes == 0
    await rig.stop()
    await none.stop()
