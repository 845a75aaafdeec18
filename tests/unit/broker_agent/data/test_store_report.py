"""The report on the store: what is there that no log names, what logs name that is not there, and nothing deleted."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

import msgspec
import pytest

from pidkeeper.broker_agent.data import store_report
from pidkeeper.broker_agent.data.store.memory import MemoryStore
from pidkeeper.broker_agent.data.store.port import StoredObject, StoreUnavailableError
from pidkeeper.broker_agent.data.store_report import FIRST_NAMES, UnnamedObjects
from pidkeeper.protocol.errors import ErrorCode, RequestError
from tests.support.data_parts import raising
from tests.support.log_leader import FOUNDING
from tests.support.store_rig import BATCH, StoreRig

STRANGE = "wal/notes"


@pytest.fixture
def rig() -> StoreRig:
    made = StoreRig()
    made.leader.add_topic("t")
    return made


def log_of(rig: StoreRig) -> int:
    return rig.leader.topic("t").first_log


async def test_it_counts_what_no_log_names_and_deletes_nothing(rig: StoreRig) -> None:
    agent = rig.agent()
    await agent.produce(log_of(rig))
    orphans = [(await agent.put())[1] for _ in range(FIRST_NAMES + 2)]
    agent = rig.agent()
    _, living = await agent.put()
    await rig.store.put(STRANGE, [b"x"])
    before = await rig.names()
    report = await rig.reporter().report()
    assert await rig.names() == before
    assert (report.founding_id, report.foundings, report.held, report.complete) == (FOUNDING, [FOUNDING], False, True)
    assert report.listed.objects == len(before)
    (one,) = report.unnamed
    assert (one.founding_id, one.held) == (FOUNDING, False)
    assert (one.dead.objects, one.dead.bytes, one.dead.names) == (
        len(orphans),
        len(orphans) * len(BATCH),
        orphans[:FIRST_NAMES],
    )
    assert (one.living.objects, one.living.names) == (1, [living])
    assert (report.unknown.objects, report.unknown.names) == (1, [STRANGE])
    assert report.missing is not None and report.missing.objects == 0


async def test_it_tells_foundings_apart_and_what_is_held_of_them(rig: StoreRig) -> None:
    agent = rig.agent()
    await agent.produce(log_of(rig))
    copy = rig.copy()
    lost = await agent.produce(log_of(rig))
    rig.restore(copy)
    _, living = await rig.agent().put()
    report = await rig.reporter().report()
    assert (report.founding_id, report.held, report.foundings) == (rig.founding_id, True, [FOUNDING])
    found = {one.founding_id: one for one in report.unnamed}
    assert found[FOUNDING].held and found[FOUNDING].dead.names == [lost]
    assert found[rig.founding_id].held and found[rig.founding_id].living.names == [living]
    rig.release(rig.founding_id, FOUNDING)
    report = await rig.reporter().report()
    assert not report.held and not any(one.held for one in report.unnamed)


async def test_what_logs_name_and_the_store_lacks_is_told(rig: StoreRig) -> None:
    agent = rig.agent()
    lost, _, gone = [await agent.produce(log_of(rig)) for _ in range(3)]
    request = await agent.put_segment("t", log_of(rig))
    assert request is not None
    await rig.store.delete([lost, gone])
    report = await rig.reporter().report()
    assert report.missing is not None
    assert (report.missing.objects, report.missing.bytes, report.missing.names) == (2, 2 * len(BATCH), [lost, gone])
    assert await agent.commit_segment(request)
    report = await rig.reporter().report()
    # Garbage is not missed.
    assert report.missing is not None and report.missing.objects == 0


async def test_pages_of_the_quorum_are_followed(rig: StoreRig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_report, "PAGE", 2)
    agent = rig.agent()
    names = [await agent.produce(log_of(rig)) for _ in range(5)]
    await rig.store.delete([names[4]])
    report = await rig.reporter().report()
    assert report.missing is not None and report.missing.names == [names[4]]

    def back(_: Any, page: Any) -> None:
        page.objects[:] = page.objects[:1]
        msgspec.structs.force_setattr(page, "next_after", -1)

    rig.leader.edits["kept_objects"] = back
    with pytest.raises(RequestError, match="goes back"):
        await rig.reporter().report()


class LateStore(MemoryStore):
    """Its list lacks the first object."""

    async def list(self, prefix: str, after: str, limit: int) -> list[StoredObject]:
        return (await super().list(prefix, after, limit))[1:]


async def test_a_list_that_is_behind_makes_nothing_missing() -> None:
    rig = StoreRig(LateStore())
    rig.leader.add_topic("t")
    await rig.agent().produce(log_of(rig))
    report = await rig.reporter().report()
    assert report.listed.objects == 0
    assert report.missing is not None and report.missing.objects == 0


async def test_who_asks_meanwhile_gets_the_same_report(rig: StoreRig) -> None:
    reporter = rig.reporter()
    reports = await asyncio.gather(*(reporter.report() for _ in range(5)))
    assert all(one is reports[0] for one in reports)
    assert len(rig.leader.asked("kept_objects")) == 2
    assert await reporter.report() is not reports[0]


async def test_one_that_goes_away_takes_no_report_from_another(rig: StoreRig) -> None:
    reporter = rig.reporter()
    first = asyncio.create_task(reporter.report())
    second = asyncio.create_task(reporter.report())
    await asyncio.sleep(0)
    first.cancel()
    assert (await second).complete
    third = asyncio.create_task(reporter.report())
    await asyncio.sleep(0)
    await reporter.stop()
    with pytest.raises(asyncio.CancelledError):
        await third


async def test_what_it_had_no_time_for_is_not_told(rig: StoreRig) -> None:
    await rig.agent().put()
    rig.leader.fault("check_objects", lambda _: asyncio.sleep(30))
    report = await rig.reporter(0.02).report()
    assert not report.complete
    assert report.missing is None


async def test_errors_are_told(rig: StoreRig, monkeypatch: pytest.MonkeyPatch) -> None:
    await rig.agent().put()
    rig.leader.fault("check_objects", raising(RequestError(ErrorCode.REQUEST_TIMED_OUT)))
    with pytest.raises(RequestError) as raised:
        await rig.reporter().report()
    assert raised.value.code is ErrorCode.REQUEST_TIMED_OUT

    async def away(*_: Any) -> None:
        raise StoreUnavailableError("away")

    monkeypatch.setattr(rig.store, "list", away)
    with pytest.raises(RequestError, match="cannot be looked at: away") as raised:
        await rig.reporter().report()
    assert raised.value.code is ErrorCode.KAFKA_STORAGE_ERROR


async def test_a_store_that_may_be_another_one_is_not_looked_at(rig: StoreRig) -> None:
    rig.session.store_told = False
    with pytest.raises(RequestError, match="was not told of this agent's store"):
        await rig.reporter().report()
    assert rig.leader.calls == []


async def test_another_quorum_in_the_midst_of_it_ends_it(rig: StoreRig) -> None:
    await rig.agent().put()
    copy = rig.copy()
    rig.leader.fault("check_objects", lambda _: rig.restore(copy))
    await rig.store.delete([await rig.agent().produce(log_of(rig))])
    with pytest.raises(RequestError, match="another quorum took the place"):
        await rig.reporter().report()


async def test_of_very_many_foundings_the_last_are_told_together(
    rig: StoreRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_report, "MAX_FOUNDINGS", 2)
    for number in range(5):
        await rig.store.put(f"wal/{uuid.UUID(int=number)}/7/5/{0:020}", [b"x"])
    report = await rig.reporter().report()
    told: list[UnnamedObjects] = report.unnamed
    assert [(one.founding_id, one.dead.objects) for one in told] == [
        (uuid.UUID(int=0), 1),
        (uuid.UUID(int=1), 1),
        (None, 3),
    ]
