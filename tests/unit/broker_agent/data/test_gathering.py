"""Batches become objects, and the objects are committed in order, whatever fails on the way."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pidkeeper.broker_agent.data.batches import checked_batch
from pidkeeper.broker_agent.data.gathering import MAX_GATHERED_BATCHES, MAX_UNDER_WAY
from pidkeeper.broker_agent.data.store.port import StoreRefusedError, StoreUnavailableError
from pidkeeper.protocol.errors import ErrorCode, RequestError
from pidkeeper.protocol.founding import SuccessionRecord
from pidkeeper.protocol.log_messages import CommitObjectRequest, JoiningBatch, OfferedBatch
from pidkeeper.protocol.logs import MAX_JOINING, MAX_JOINING_BYTES
from pidkeeper.service.content import MAX_BODY_BYTES
from tests.support.data_parts import raising, records, stored_headers, until_stored
from tests.support.gatherer_rig import Rig
from tests.support.log_leader import FOUNDING, GIVEN
from tests.support.waiting import until

UNAVAILABLE = StoreUnavailableError("away")
TIMED_OUT = RequestError(ErrorCode.REQUEST_TIMED_OUT)


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    made = Rig()
    yield made
    await made.stop()


async def test_a_batch_is_stored_before_it_is_committed(rig: Rig) -> None:
    stored: list[list[str]] = []

    async def look(_: Any) -> None:
        stored.append(await rig.store.names())

    rig.leader.fault("commit_object", look)
    assert await rig.append(records(0)) == [0]
    name = f"wal/{FOUNDING}/7/5/{0:020}"
    assert stored == [[name]]
    assert await rig.store.read(name, 0, len(records(0))) == bytes(records(0))
    assert rig.gatherer.room.held == 0


async def test_requests_of_one_turn_share_an_object_and_nobody_lingers() -> None:
    rig = Rig(linger_ms=10_000)
    for puts in (1, 2):
        outcomes = await asyncio.gather(*(rig.append(records(-1), log=one % 3) for one in range(30)))
        assert sorted(outcomes) == sorted([[offset] for offset in range(10 * puts - 10, 10 * puts) for _ in range(3)])
        assert len(rig.store.puts) == puts
    await rig.stop()


async def test_batches_of_a_log_lie_together_in_the_order_in_which_they_came(rig: Rig) -> None:
    values = [[bytes([one])] for one in range(12)]
    outcomes = await asyncio.gather(*(rig.append(records(values=value), log=at % 3) for at, value in enumerate(values)))
    assert outcomes == [[at // 3] for at in range(12)]
    (commit,) = rig.leader.asked("commit_object")
    assert [batch.log for batch in commit.batches] == [0] * 4 + [1] * 4 + [2] * 4
    for log in range(3):
        places = rig.leader.places(log)
        found = [await rig.store.read(name, position, size) for _, name, position, size in places]
        assert found == [bytes(records(values=value)) for value in values[log::3]]


async def test_nearly_all_of_those_that_came_together_are_waited_for() -> None:
    rig = Rig(linger_ms=10_000)
    await asyncio.gather(*(rig.append(records(sequence)) for sequence in range(10)))
    some = [asyncio.create_task(rig.append(records(sequence))) for sequence in range(10, 18)]
    await asyncio.sleep(0.02)
    assert len(rig.store.puts) == 1
    assert list(await asyncio.gather(*some, rig.append(records(18)))) == [[offset] for offset in range(10, 19)]
    assert len(rig.store.puts) == 2
    await rig.stop()


async def test_who_comes_alone_waits_no_longer_than_the_linger() -> None:
    rig = Rig(linger_ms=100)
    await asyncio.gather(*(rig.append(records(sequence)) for sequence in range(40)))
    assert await rig.append(records(40)) == [40]
    # From then on nobody else is expected, though so many were there lately.
    begun = asyncio.get_running_loop().time()
    for sequence in range(41, 91):
        assert await rig.append(records(sequence)) == [sequence]
    assert asyncio.get_running_loop().time() - begun < 10 * 0.1
    await rig.stop()


async def test_behind_others_nearly_all_that_were_there_are_waited_for() -> None:
    rig = Rig(linger_ms=10_000)
    go = asyncio.Event()
    rig.store.put_faults.append(lambda _: go.wait())
    sent: list[asyncio.Task[list[int]]] = []

    async def send(count: int, puts: int) -> None:
        sent.extend([asyncio.create_task(rig.append(records(len(sent) + one))) for one in range(count)])
        await until(lambda: len(rig.store.puts) >= puts)
        # None too many, given time.
        await asyncio.sleep(0.02)
        assert len(rig.store.puts) == puts

    await send(10, 1)
    await send(8, 1)
    await send(1, 2)
    assert rig.numbers() == []
    # There are nineteen now.
    await send(17, 2)
    await send(1, 3)
    go.set()
    assert await asyncio.gather(*sent) == [[offset] for offset in range(37)]
    assert [len(one.batches) for one in rig.leader.asked("commit_object")] == [10, 9, 18]
    await rig.stop()


async def test_behind_others_those_count_that_were_there_lately() -> None:
    large = records(40, values=[bytes(5000)])
    rig = Rig(linger_ms=10_000, max_object_bytes=len(large), max_message_bytes=len(large))
    await asyncio.gather(*(rig.append(records(sequence)) for sequence in range(40)))
    go = asyncio.Event()
    rig.store.put_faults.append(lambda _: go.wait())
    sent = [asyncio.create_task(rig.append(large))]
    await until(lambda: len(rig.store.puts) == 2)
    # A tenth of the forty is forgotten.
    sent += [asyncio.create_task(rig.append(records(sequence))) for sequence in range(41, 73)]
    await asyncio.sleep(0.02)
    assert len(rig.store.puts) == 2
    sent.append(asyncio.create_task(rig.append(records(73))))
    await until(lambda: len(rig.store.puts) == 3)
    go.set()
    assert await asyncio.gather(*sent) == [[offset] for offset in range(40, 74)]
    await rig.stop()


async def test_a_full_object_does_not_wait_for_the_linger() -> None:
    data = records(values=[bytes(900)])
    rig = Rig(linger_ms=10_000, max_object_bytes=3 * len(data), max_message_bytes=2000)
    assert await rig.append(data, data, data) == [0, 1, 2]
    assert [one.size for one in rig.leader.commits] == [3 * len(data)]
    await rig.stop()


async def test_an_object_has_no_more_batches_that_join_a_transaction_than_an_entry_takes(rig: Rig) -> None:
    one = checked_batch(records(0, transactional=True), 0, max_bytes=1 << 20, transactional=True, joining_id="x")
    told: asyncio.Future[list[int]] = asyncio.get_running_loop().create_future()
    now = asyncio.get_running_loop().time()
    most = min(MAX_JOINING, MAX_JOINING_BYTES // JoiningBatch(0, "x").encoded_bytes)
    assert rig.gatherer.room.take_now((most + 2) * len(one.data))
    rig.gatherer.append([one] * (most + 2), now, now + 5, told.set_result)
    assert len(await told) == most + 2
    assert [len(each.joining) for each in rig.leader.asked("commit_object")] == [most, 2]


async def test_while_some_are_under_way_the_rest_gathers(rig: Rig) -> None:
    go = asyncio.Event()
    rig.store.put_faults.append(lambda _: go.wait())
    ahead = []
    for sequence in range(MAX_UNDER_WAY):
        ahead.append(asyncio.create_task(rig.append(records(sequence))))
        await until(lambda: len(rig.store.puts) == len(ahead))
    others = [asyncio.create_task(rig.append(records(sequence))) for sequence in range(MAX_UNDER_WAY, 20)]
    await asyncio.sleep(0.02)
    assert len(rig.store.puts) == MAX_UNDER_WAY
    assert rig.numbers() == []
    go.set()
    assert await asyncio.gather(*ahead, *others) == [[offset] for offset in range(20)]
    assert rig.numbers() == [(5, number) for number in range(MAX_UNDER_WAY + 1)]


async def test_one_that_is_given_up_lets_nobody_past_those_ahead_of_it(rig: Rig) -> None:
    go = asyncio.Event()

    async def held(_: Any) -> None:
        await go.wait()

    rig.leader.fault("commit_object", held)
    first = asyncio.create_task(rig.append(records(0)))
    await until(lambda: rig.numbers() == [(5, 0)])
    second = asyncio.create_task(rig.append(records(0, producer_id=2), seconds=0.1))
    await until(lambda: len(rig.store.puts) == 2)
    third = asyncio.create_task(rig.append(records(1)))
    await until(lambda: len(rig.store.puts) == 3)
    assert await second == [-7]
    await asyncio.sleep(0.02)
    assert rig.numbers() == [(5, 0)]
    go.set()
    assert list(await asyncio.gather(first, third)) == [[0], [1]]


async def test_a_lost_answer_is_asked_for_again_under_the_same_number(rig: Rig) -> None:
    rig.leader.fault("commit_object", lambda _: True, raising(TIMED_OUT))
    assert await rig.append(records(0)) == [0]
    assert rig.numbers() == [(5, 0)] * 3
    assert len(rig.leader.commits) == 1


async def test_outcomes_are_those_of_each_batch(rig: Rig) -> None:
    assert await rig.append(records(0), records(5), records(1), records(0)) == [0, -45, 1, 0]


async def test_an_object_that_no_log_refers_to_is_deleted(rig: Rig) -> None:
    assert await rig.append(records(0)) == [0]
    assert await rig.append(records(3)) == [-45]
    names = [f"wal/{FOUNDING}/7/5/{0:020}"]
    await until_stored(rig.store, lambda stored: stored == names)


async def test_a_store_that_is_away_is_waited_for(rig: Rig) -> None:
    rig.store.put_faults.extend([raising(UNAVAILABLE)] * 3)
    assert await rig.append(records(0)) == [0]
    assert len(set(rig.store.puts)) == 1


async def test_time_is_up_while_the_store_is_away(rig: Rig) -> None:
    rig.store.put_faults.extend([raising(UNAVAILABLE)] * 100)
    assert await rig.append(records(0), seconds=0.1) == [-7]
    rig.store.put_faults.clear()
    assert await rig.append(records(0)) == [0]
    await until(lambda: rig.gatherer.room.held == 0)
    assert rig.counters.objects_given_up == 1


async def test_a_store_that_refuses(rig: Rig) -> None:
    rig.store.put_faults.append(raising(StoreRefusedError("read-only")))
    assert await rig.append(records(0)) == [-56]
    assert await rig.append(records(0)) == [0]


@pytest.mark.parametrize(
    ("code", "told"), [(ErrorCode.NOT_ENOUGH_REPLICAS, -19), (ErrorCode.INVALID_REQUEST, -56)], ids=str
)
async def test_what_the_quorum_refuses(rig: Rig, code: ErrorCode, told: int) -> None:
    rig.leader.fault("commit_object", raising(RequestError(code)))
    assert await rig.append(records(0)) == [told]
    assert await rig.append(records(0)) == [0]


async def test_a_commit_given_up_on_leaves_its_number_behind(rig: Rig) -> None:
    rig.leader.fault("commit_object", *[raising(TIMED_OUT)] * 1000)
    assert await rig.append(records(0), seconds=0.1) == [-7]
    rig.leader.faults.clear()
    assert await rig.append(records(0)) == [0]
    assert rig.numbers()[-1] == (5, 1)
    # It may have been taken: nobody deletes it.
    assert len(await rig.store.names()) == 2


async def test_a_new_epoch_gives_new_names_to_what_was_not_offered(rig: Rig) -> None:
    go = asyncio.Event()

    async def refused(_: Any) -> None:
        await go.wait()
        raise RequestError(ErrorCode.STALE_BROKER_EPOCH)

    rig.leader.fault("commit_object", refused)
    first = asyncio.create_task(rig.append(records(0, producer_id=1)))
    await until(lambda: rig.numbers() == [(5, 0)])
    second = asyncio.create_task(rig.append(records(0, producer_id=2)))
    await until(lambda: len(rig.store.puts) == 2)
    go.set()
    assert await first == [-7]
    assert rig.session.doubted == [5]
    third = asyncio.create_task(rig.append(records(0, producer_id=3)))
    await asyncio.sleep(0.02)
    assert rig.numbers() == [(5, 0)]
    epoch = rig.session.broker_epoch = rig.leader.register()
    assert sorted([await second, await third]) == [[0], [1]]
    numbers = [number for one, number in rig.numbers() if one == epoch]
    assert numbers == sorted(set(numbers))
    await until_stored(rig.store, lambda stored: [name for name in stored if "/5/" in name] == [rig.store.puts[0]])


async def test_a_new_founding_gives_new_names_under_an_epoch_that_is_in_force(rig: Rig) -> None:
    """The quorum was restored from a copy that has the registration."""
    following = uuid.UUID(int=44)
    assert await rig.append(records(0)) == [0]
    rig.leader._replay([SuccessionRecord(following, FOUNDING, GIVEN, 0)])
    assert await rig.append(records(1)) == [-7]
    assert rig.session.doubted == [5]
    assert await rig.append(records(1), seconds=0.1) == [-7], "it is not asked for again under that founding"
    assert rig.numbers() == [(5, 0), (5, 1)]
    rig.session.founding_id = following
    assert await rig.append(records(1)) == [1]
    assert rig.store.puts[-1].startswith(f"wal/{following}/7/5/")


async def test_numbers_rise_even_if_an_object_is_named_anew_behind_another(rig: Rig) -> None:
    go = asyncio.Event()
    rig.store.put_faults.append(lambda _: go.wait())
    first = asyncio.create_task(rig.append(records(0)))
    await until(lambda: len(rig.store.puts) == 1)
    epoch = rig.session.broker_epoch = rig.leader.register()
    second = asyncio.create_task(rig.append(records(1)))
    await until(lambda: len(rig.store.puts) == 2)
    go.set()
    assert [await first, await second] == [[0], [1]]
    assert rig.numbers() == [(epoch, 1), (epoch, 2)]
    names = [f"wal/{FOUNDING}/7/{epoch}/{number:020}" for number in (1, 2)]
    await until_stored(rig.store, lambda stored: stored == names)


async def test_before_the_registration_nothing_is_put(rig: Rig) -> None:
    rig.session.broker_epoch = None
    assert await rig.append(records(0), seconds=0.05) == [-7]
    assert rig.store.puts == []


async def test_what_nobody_waits_for_any_more_is_not_put(rig: Rig) -> None:
    go = asyncio.Event()
    rig.store.put_faults.extend([lambda _: go.wait()] * MAX_UNDER_WAY)
    under_way = []
    for one in range(MAX_UNDER_WAY):
        under_way.append(asyncio.create_task(rig.append(records(one))))
        await until(lambda: len(rig.store.puts) == len(under_way))
    assert await rig.append(records(0, producer_id=9), seconds=0.02) == [-7]
    go.set()
    assert await asyncio.gather(*under_way) == [[one] for one in range(MAX_UNDER_WAY)]
    assert len(rig.store.puts) == MAX_UNDER_WAY
    assert rig.gatherer.room.held == 0


def test_the_largest_commit_is_read_by_members() -> None:
    worst = OfferedBatch(2**31, 2**31 - 1, 1 << 24, 1 << 24, 2**63 - 1, 2**15 - 1, 2**31 - 1, -(2**63), False)
    request = CommitObjectRequest(2**31 - 1, 2**63 - 1, FOUNDING, 2**63 - 1, 1 << 24, (worst,) * MAX_GATHERED_BATCHES)
    assert len(msgspec.json.encode(request)) < MAX_BODY_BYTES


@settings(max_examples=25, deadline=None)
@given(
    puts=st.lists(st.booleans(), max_size=20),
    commits=st.lists(st.sampled_from(["fine", "lost", "never"]), max_size=20),
    lingers=st.integers(0, 2),
)
def test_producers_stay_in_order_under_faults(puts: list[bool], commits: list[str], lingers: int) -> None:
    """Every sequence of every producer joins once, in order, and is told the offset at which it is."""

    async def run() -> None:
        rig = Rig(0.0001, linger_ms=lingers, max_object_bytes=500, max_message_bytes=400)
        rig.store.put_faults.extend([raising(UNAVAILABLE) if fails else (lambda _: None) for fails in puts])
        faults: dict[str, Any] = {"fine": lambda _: False, "lost": lambda _: True, "never": raising(TIMED_OUT)}
        rig.leader.fault("commit_object", *(faults[kind] for kind in commits))
        sent = [(one, sequence) for sequence in range(8) for one in range(3)]
        pending = [await rig.queue(records(sequence, producer_id=one), log=one % 2) for one, sequence in sent]
        told = [await one for one in pending]
        logs = [await stored_headers(rig.store, rig.leader, log) for log in range(3)]
        for (one, sequence), outcome in zip(sent, told, strict=True):
            header = logs[one % 2][outcome[0]]
            assert (header.producer_id, header.base_sequence) == (one, sequence)
        assert sum(len(log) for log in logs) == len(sent)
        numbers = rig.numbers()
        assert numbers == sorted(numbers)
        await rig.stop()

    asyncio.run(run())
