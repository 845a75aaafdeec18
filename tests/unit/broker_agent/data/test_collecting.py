"""What no log needs is deleted, and nothing else ever is."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest

from pidkeeper.broker_agent.data import collecting
from pidkeeper.broker_agent.data.store.memory import MemoryStore
from pidkeeper.broker_agent.data.store.port import StoredObject, StoreError, StoreUnavailableError
from pidkeeper.protocol.errors import ErrorCode, RequestError
from pidkeeper.protocol.segment_messages import FindGarbageResponse, GarbageObject
from tests.support.data_parts import raising
from tests.support.log_leader import FOUNDING
from tests.support.store_rig import HandAgent, StoreRig, described
from tests.support.waiting import until

STRANGE = (f"wal/{FOUNDING}/7/5/1", "wal/notes", "segments/x/y", "store.json")
SEEDS = 12
ROUNDS = 30


class WatchedStore(MemoryStore):
    """Lets others go on before and after each call. `check` is called with what is about to be deleted."""

    def __init__(self) -> None:
        super().__init__()
        self.check: Callable[[Sequence[str]], None] = lambda _: None
        self.delete_faults: list[Exception] = []
        self.deleted: list[str] = []

    async def put(self, name: str, pieces: Sequence[bytes]) -> None:
        await asyncio.sleep(0)
        await super().put(name, pieces)
        await asyncio.sleep(0)

    async def list(self, prefix: str, after: str, limit: int) -> list[StoredObject]:
        # Small pages, so that much happens between two.
        found = await super().list(prefix, after, limit)
        await asyncio.sleep(0)
        return found

    async def delete(self, names: Sequence[str]) -> None:
        await asyncio.sleep(0)
        if self.delete_faults:
            raise self.delete_faults.pop()
        self.check(names)
        self.deleted += names
        await super().delete(names)
        await asyncio.sleep(0)


@pytest.fixture
def store() -> WatchedStore:
    return WatchedStore()


@pytest.fixture
def rig(store: WatchedStore) -> StoreRig:
    made = StoreRig(store)
    made.leader.add_topic("t")
    made.leader.add_topic("u")
    return made


def log_of(rig: StoreRig, topic: str) -> int:
    return rig.leader.topic(topic).first_log


async def test_what_no_log_needs_is_deleted_and_the_quorum_told(rig: StoreRig) -> None:
    agent = rig.agent()
    kept, gone = await agent.produce(log_of(rig, "t")), await agent.produce(log_of(rig, "u"))
    both = await agent.produce(log_of(rig, "t"), log_of(rig, "u"))
    rig.leader.drop_topic("u")
    assert gone in await rig.names()
    await agent.collect()
    assert await rig.names() == {kept, both}
    assert len(rig.leader.machine.logs.objects) == 2
    assert agent.counters.objects_deleted == 1


async def test_a_rolled_tail_goes_and_a_segment_goes_with_its_index(rig: StoreRig) -> None:
    agent = rig.agent()
    log = log_of(rig, "t")
    await agent.produce(log)
    await agent.produce(log)
    request = await agent.put_segment("t", log)
    assert request is not None and await agent.commit_segment(request)
    await agent.collect()
    assert await rig.names() == rig.needed_now()
    assert len(await rig.names()) == 2
    rig.leader.drop_topic("t")
    await agent.collect()
    assert await rig.names() == set()


async def test_more_garbage_than_one_step_takes_is_collected_step_by_step(
    rig: StoreRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collecting, "MAX_COLLECTED", 2)
    agent = rig.agent()
    for _ in range(5):
        await agent.produce(log_of(rig, "u"))
    rig.leader.drop_topic("u")
    assert await agent.collector.collect()
    assert len(await rig.names()) == 3
    await agent.collect()
    assert await rig.names() == set()


@pytest.mark.parametrize("names", [[name] for name in STRANGE] + [[], ["a"] * 3])
async def test_a_name_that_no_agent_gives_is_never_deleted(rig: StoreRig, names: list[str]) -> None:
    agent = rig.agent()
    for name in STRANGE:
        await rig.store.put(name, [b"precious"])
    good = await agent.produce(log_of(rig, "u"))
    rig.leader.drop_topic("u")

    def edit(_: Any, answer: FindGarbageResponse) -> None:
        answer.objects.append(GarbageObject(99, names))

    rig.leader.edits["find_garbage"] = edit
    await agent.collect()
    assert await rig.names() == set(STRANGE)
    assert agent.counters.garbage_misnamed >= 1
    assert rig.leader.asked("objects_deleted")[0].keys == (0,)
    assert good not in await rig.names()


async def test_nothing_is_deleted_on_the_word_of_a_quorum_that_is_not_in_force(rig: StoreRig) -> None:
    agent = rig.agent()
    await agent.produce(log_of(rig, "u"))
    await rig.agent(8).put()
    rig.leader.drop_topic("u")
    rig.agent(8)
    before = await rig.names()

    def another(_: Any) -> None:
        agent.session.founding_id = None

    rig.leader.fault("find_garbage", another)
    assert not await agent.collector.collect()
    agent.session.founding_id = FOUNDING
    rig.leader.fault("check_objects", another)
    with pytest.raises(RequestError, match="another quorum"):
        await agent.sweeper.sweep()
    assert await rig.names() == before


async def test_what_is_held_is_not_deleted_though_it_is_named(rig: StoreRig) -> None:
    agent = rig.agent()
    await agent.produce(log_of(rig, "u"))
    rig.leader.drop_topic("u")
    rig.leader.edits["find_garbage"] = lambda _, answer: msgspec.structs.force_setattr(answer, "held", True)
    await agent.collect()
    assert len(await rig.names()) == 1
    assert rig.leader.asked("objects_deleted") == []


async def test_an_answer_that_was_lost_is_asked_for_again(rig: StoreRig) -> None:
    agent = rig.agent()
    await agent.produce(log_of(rig, "u"))
    rig.leader.drop_topic("u")
    rig.leader.fault("objects_deleted", raising(RequestError(ErrorCode.REQUEST_TIMED_OUT)))
    with pytest.raises(RequestError):
        await agent.collector.collect()
    assert await rig.names() == set() and len(rig.leader.machine.logs.objects) == 1
    await agent.collect()
    assert len(rig.leader.machine.logs.objects) == 0


async def test_a_zombie_registers_anew(rig: StoreRig) -> None:
    zombie = rig.agent()
    await zombie.produce(log_of(rig, "u"))
    rig.leader.drop_topic("u")
    rig.agent()
    with pytest.raises(RequestError) as raised:
        await zombie.collector.collect()
    assert raised.value.code is ErrorCode.STALE_BROKER_EPOCH
    assert zombie.session.doubted == [zombie.session.broker_epoch]


def test_one_agent_is_chosen_and_none_before_the_quorum_knows_its_store(rig: StoreRig) -> None:
    agents = [rig.agent(broker_id) for broker_id in range(1, 6)]
    for agent in agents:
        agent.directory.update(described(range(1, 6)))
    (chosen,) = [agent for agent in agents if agent.collector.is_chosen()]
    for agent in agents:
        agent.directory.update(described(one for one in range(1, 6) if one != chosen.session.broker_id))
    assert sum(agent.collector.is_chosen() for agent in agents if agent is not chosen) == 1
    chosen.directory.update([])
    assert chosen.collector.is_chosen()
    chosen.session.broker_epoch, epoch = None, chosen.session.broker_epoch
    assert not chosen.collector.is_chosen()
    chosen.session.broker_epoch, chosen.session.store_told = epoch, False
    assert not chosen.collector.is_chosen()


async def test_it_goes_on_by_itself_while_it_is_its_turn(
    rig: StoreRig, store: WatchedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("COLLECT_SECONDS", "BUSY_SECONDS", "RETRY_MAX_SECONDS"):
        monkeypatch.setattr(collecting, name, 0.002)
    agent = rig.agent(sweep_seconds=0.002)
    await rig.agent(8).put()
    rig.agent(8)
    await agent.produce(log_of(rig, "u"))
    rig.leader.drop_topic("u")
    store.delete_faults += [StoreUnavailableError("away"), ValueError("unforeseen"), StoreUnavailableError("away")]
    agent.collector.start()
    await until(lambda: not store._names)
    await agent.collector.stop()
    assert (agent.counters.objects_deleted, agent.counters.orphans_deleted) == (1, 1)
    assert not store.delete_faults
    assert agent.counters.duties_failed == 1
    assert agent.sweeper.age() is not None


async def test_orphans_of_dead_epochs_are_swept_and_no_others(rig: StoreRig) -> None:
    zombie, other = rig.agent(7), rig.agent(8)
    kept = await zombie.produce(log_of(rig, "t"))
    object_id, orphan = await zombie.put()
    (late_id, late), (_, living) = await zombie.put(), await other.put()
    segment = await zombie.put_segment("t", log_of(rig, "t"))
    assert segment is not None
    for name in STRANGE:
        await rig.store.put(name, [b"precious"])
    await other.sweeper.sweep()
    assert len(await rig.names()) == 6 + len(STRANGE)
    rig.agent(7)
    await other.sweeper.sweep()
    assert await rig.names() == {kept, living, *STRANGE}
    assert not await zombie.commit(object_id, log_of(rig, "t"))
    assert not await zombie.commit_segment(segment)
    await rig.store.put(late, [b"late"])
    assert not await zombie.commit(late_id, log_of(rig, "t"))
    await other.sweeper.sweep()
    assert await rig.names() == {kept, living, *STRANGE}
    assert other.counters.orphans_deleted == 5
    # What is not below the prefixes is not looked at.
    assert other.counters.unknown_names == len(STRANGE) - 1
    assert orphan not in await rig.names()


async def test_nothing_is_deleted_after_a_restore_before_an_operator_has_released_it(rig: StoreRig) -> None:
    log = log_of(rig, "t")
    agent = rig.agent()
    old = await agent.produce(log)
    copy = rig.copy()
    request = await agent.put_segment("t", log)
    assert request is not None and await agent.commit_segment(request)
    lost = await agent.produce(log)
    # The old quorum has let go of what the copy still needs, but has not had it deleted.
    rig.restore(copy)
    agent = rig.agent()
    before = await rig.names()
    await agent.collect()
    await agent.sweeper.sweep()
    assert await rig.names() == before
    rig.release(rig.founding_id)
    await agent.collect()
    await agent.sweeper.sweep()
    assert await rig.names() == before, "objects of the founding before were not released"
    rig.release(rig.founding_id, FOUNDING)
    await agent.collect()
    await agent.sweeper.sweep()
    assert await rig.names() == {old} == rig.needed_now()
    assert lost in before


class LyingStore(MemoryStore):
    """Its lists are what `lie` makes of them."""

    lie: Callable[[list[StoredObject]], list[StoredObject]]

    async def list(self, prefix: str, after: str, limit: int) -> list[StoredObject]:
        return self.lie(await super().list(prefix, after, limit))


@pytest.mark.parametrize(
    "lie",
    [
        lambda page: page[::-1],
        lambda page: [*page, *page],
        lambda page: [StoredObject("store.json", 1), *page],
        lambda page: [*page, StoredObject("wal/", 1)] * 1001,
    ],
)
async def test_a_list_that_cannot_be_ends_the_sweep(lie: Any) -> None:
    store = LyingStore()
    rig = StoreRig(store)
    store.lie = lambda page: page
    agent = rig.agent()
    for _ in range(2):
        await agent.put()
    rig.agent()
    before = await rig.names()
    store.lie = lie
    with pytest.raises(StoreError, match="check what speaks for it"):
        await rig.agent(8).sweeper.sweep()
    store.lie = lambda page: page
    assert await rig.names() == before


@pytest.mark.parametrize(("unnamed", "dead"), [([5], [5]), ([], [0]), ([-1], [-1]), ([0, 0], [0])])
async def test_an_answer_that_makes_no_sense_deletes_nothing(
    rig: StoreRig, unnamed: list[int], dead: list[int]
) -> None:
    agent = rig.agent()
    await agent.produce(log_of(rig, "t"))

    def edit(_: Any, answer: Any) -> None:
        answer.unnamed[:], answer.dead[:] = unnamed, dead

    rig.leader.edits["check_objects"] = edit
    with pytest.raises(RequestError, match="makes no sense"):
        await agent.sweeper.sweep()
    assert len(await rig.names()) == 1


class Crowd:
    """Agents that come and go, and do what agents do, all at once. Whatever is deleted must never be needed."""

    def __init__(self, rig: StoreRig, store: WatchedStore, seed: int) -> None:
        self.rig = rig
        self.rng = random.Random(seed)
        self.agents: list[HandAgent] = [rig.agent(broker_id) for broker_id in (7, 8, 9)]
        self.zombies: list[HandAgent] = []
        self.store = store
        store.check = self._check

    def _check(self, names: Sequence[str]) -> None:
        assert not self.rig.needed_now() & set(names)

    async def run(self) -> None:
        """Rounds of some things at once, and then what comes when all is quiet."""
        for _ in range(ROUNDS):
            steps = [self._step() for _ in range(self.rng.randint(1, 6))]
            collectors = self.rng.sample(self.agents + self.zombies, 2)
            await asyncio.gather(*steps, *map(self._clean_up, collectors))
            assert self.rig.needed_now() <= await self.rig.names()
            assert not self.rig.needed_now() & set(self.store.deleted)
        for agent in self.agents:
            self.rig.agent(agent.session.broker_id)
        last = self.rig.agent(10)
        await last.collect()
        await last.sweeper.sweep()
        assert await self.rig.names() == self.rig.needed_now()

    async def _step(self) -> None:
        agent = self.rng.choice(self.agents + self.zombies)
        kind = self.rng.choice(["produce", "produce", "segment", "segment", "topic", "restart", "orphan"])
        topic = self.rng.choice(["t", "u"])
        log = log_of(self.rig, topic)
        if kind == "produce":
            object_id, _ = await agent.put()
            await asyncio.sleep(0)
            await agent.commit(object_id, log)
        elif kind == "segment":
            request = await agent.put_segment(topic, log)
            if request is not None:
                await agent.commit_segment(request)
        elif kind == "topic":
            self.rig.leader.drop_topic(topic)
            self.rig.leader.add_topic(topic)
        elif kind == "restart":
            if agent in self.agents:
                self.agents[self.agents.index(agent)] = self.rig.agent(agent.session.broker_id)
                self.zombies = [*self.zombies, agent][-3:]
        else:
            await agent.put()

    async def _clean_up(self, agent: HandAgent) -> None:
        for work in (agent.collector.collect, agent.sweeper.sweep):
            try:
                await work()
            except RequestError as error:
                # Of a zombie.
                if error.code is not ErrorCode.STALE_BROKER_EPOCH:
                    raise


@pytest.mark.parametrize("seed", range(SEEDS))
async def test_nothing_needed_is_ever_deleted_and_nothing_else_stays(
    rig: StoreRig, store: WatchedStore, seed: int
) -> None:
    await Crowd(rig, store, seed).run()
    assert len(store.deleted) > ROUNDS / 2
