"""The object store that all agents of a seed share: the product's store in memory, reached over a way that fails.

A call takes effect once or never, and what its caller hears does not tell which: the answer of one that did may be
lost, and one that was given up on may take effect seconds later. So does a put of an agent that died meanwhile.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from pidkeeper.broker_agent.data.store.memory import MemoryStore
from pidkeeper.broker_agent.data.store.port import StoredObject, StoreError, StoreUnavailableError
from tests.simulation.world import MILLISECOND, SECOND, Violation, World

if TYPE_CHECKING:
    import asyncio
    import random

    from tests.simulation.loop import SimLoop

_T = TypeVar("_T")

LATE: Final = (1.5, 4.0)
"""A slow call: 10 to the power of this, in milliseconds; up to ten seconds, which is longer than a Produce waits."""

PAUSE: Final = (1, 8)
"""Seconds for which a store that stands still does so, for everybody."""

_GONE: Final = "no answer came"


class StoreFaults(msgspec.Struct, frozen=True):
    """Of one seed. `delay`: of a call in microseconds; the others are shares of all calls. `pauses`: how often the
    store stands still, on the average, in microseconds; 0 for never."""

    delay: int
    slow: float
    failing: float
    lost: float
    late: float
    pauses: int


def draw_faults(rng: random.Random) -> StoreFaults:
    """Faults for one seed; most of them are absent."""
    return StoreFaults(
        delay=rng.choice((1, 5, 20, 80)) * MILLISECOND,
        slow=rng.choice((0.0, 0.02, 0.1)),
        failing=rng.choice((0.0, 0.02, 0.2)),
        lost=rng.choice((0.0, 0.02, 0.1)),
        late=rng.choice((0.0, 0.02, 0.1)),
        pauses=rng.choice((0, 0, 10, 20)) * SECOND,
    )


class SimStore:
    """What the agents' stores have in common. `refused` names what was wrong with a deletion, if anything.

    `discarded`: every name that an agent asked to delete, from when it asked. `on_delete(name)` is called then.
    `ever`: all that was put, as the store's own backup has it. `deleted`: how many objects were there and went.
    """

    def __init__(self, world: World, faults: StoreFaults) -> None:
        self.world = world
        self.faults = faults
        self.healed = False
        self.rng = world.stream("store")
        self.discarded: set[str] = set()
        self.ever: dict[str, bytes] = {}
        self.deleted = 0
        self.on_delete: Callable[[str], None] = lambda name: None
        self._memory = MemoryStore()
        self._paused_until = 0

    def start(self) -> None:
        """Stand still now and then."""
        if self.faults.pauses:
            self.world.at(self.rng.randrange(2 * self.faults.pauses), self._pause)

    def content(self, name: str) -> bytes | None:
        """What is under a name."""
        return self._memory._objects.get(name)

    def names(self) -> set[str]:
        """All that is there."""
        return set(self._memory._objects)

    def bring_back(self, names: Iterable[str]) -> None:
        """Put deleted objects back under their names, from the store's own backup."""
        for name in names:
            self.discarded.discard(name)
            _done(self._memory.put(name, [self.ever[name]]))

    def _pause(self) -> None:
        if self.healed:
            return
        self.world.fault("store_pause")
        self._paused_until = self.world.now + self.rng.randrange(*(int(limit * SECOND) for limit in PAUSE))
        self.world.at(self.rng.randrange(2 * self.faults.pauses), self._pause)

    def wait(self) -> int:
        """Until the store has done a call that is made now, if it is an ordinary one, in microseconds."""
        wait = int(self.faults.delay * (0.5 + self.rng.random()))
        if self.healed:
            return wait
        if self.rng.random() < self.faults.slow:
            self.world.fault("store_slow")
            wait += int(MILLISECOND * 10 ** self.rng.uniform(*LATE))
        return wait + max(0, self._paused_until - self.world.now)

    def befalls(self) -> str:
        """What befalls the next call: the kind of a fault, or nothing."""
        if self.healed:
            return ""
        chance, faults = self.rng.random(), self.faults
        for kind, share in (("store_failed", faults.failing), ("store_answer_lost", faults.lost)):
            if chance < share:
                return kind
            chance -= share
        return "store_late" if chance < faults.late else ""

    def put(self, name: str, pieces: Sequence[bytes]) -> None:
        """As `ObjectStore`, and so are the others; at once. Raises Violation if the name was one of other bytes."""
        data = b"".join(pieces)
        if self.ever.setdefault(name, data) != data:
            raise Violation("name-twice", f"{name} is put with other bytes than before")
        _done(self._memory.put(name, pieces))

    def read(self, name: str, start: int, length: int) -> bytes:
        return _done(self._memory.read(name, start, length))

    def list(self, prefix: str, after: str, limit: int) -> list[StoredObject]:
        return _done(self._memory.list(prefix, after, limit))

    def delete(self, names: Sequence[str]) -> None:
        self.deleted += sum(self.content(name) is not None for name in names)
        _done(self._memory.delete(names))


class StorePort:
    """`ObjectStore` as one agent has it. What it asked for may happen though it is gone."""

    def __init__(self, store: SimStore, loop: SimLoop) -> None:
        self._store = store
        self._loop = loop

    async def put(self, name: str, pieces: Sequence[bytes]) -> None:
        await self._call(functools.partial(self._store.put, name, tuple(pieces)), put=True)

    async def create(self, name: str, data: bytes) -> bytes:
        raise AssertionError("agents are told which store it is")

    async def read(self, name: str, start: int, length: int) -> bytes:
        return await self._call(functools.partial(self._store.read, name, start, length))

    async def list(self, prefix: str, after: str, limit: int) -> list[StoredObject]:
        return await self._call(functools.partial(self._store.list, prefix, after, limit))

    async def delete(self, names: Sequence[str]) -> None:
        for name in names:
            self._store.discarded.add(name)
            self._store.on_delete(name)
        await self._call(functools.partial(self._store.delete, tuple(names)))

    async def close(self) -> None:
        """The store outlives it."""

    async def _call(self, effect: Callable[[], _T], *, put: bool = False) -> _T:
        store, answer = self._store, self._loop.create_future()
        fault, wait = store.befalls(), store.wait()
        if fault:
            store.world.fault(fault)
        if fault == "store_failed":
            store.world.at(wait, self._loop.run_event, _fail, answer, StoreUnavailableError("nothing was done"))
        elif fault == "store_late":
            store.world.at(wait, self._loop.run_event, _fail, answer, StoreUnavailableError(_GONE))
            late = int(MILLISECOND * 10 ** store.rng.uniform(*LATE))
            store.world.at(wait + late, self._take_effect, effect, None, put)
        else:
            store.world.at(wait, self._take_effect, effect, answer, put, fault == "store_answer_lost")
        return await answer  # type: ignore[no-any-return]

    def _take_effect(
        self, effect: Callable[[], Any], answer: asyncio.Future[Any] | None, put: bool, lost: bool = False
    ) -> None:
        if put and self._loop.is_closed():
            self._store.world.fault("put_outlives_its_agent")
        try:
            result = effect()
        except StoreError as error:
            if answer is not None:
                self._loop.run_event(_fail, answer, error)
            return
        if answer is not None and lost:
            self._loop.run_event(_fail, answer, StoreUnavailableError(_GONE))
        elif answer is not None:
            self._loop.run_event(_give, answer, result)


def _give(answer: asyncio.Future[Any], result: object) -> None:
    if not answer.done():
        answer.set_result(result)


def _fail(answer: asyncio.Future[Any], error: StoreError) -> None:
    if not answer.done():
        answer.set_exception(error)


def _done(call: Coroutine[Any, Any, _T]) -> _T:
    """The result of a call that never waits."""
    try:
        call.send(None)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    raise AssertionError("a store in memory waits")
