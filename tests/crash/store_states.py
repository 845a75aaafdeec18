"""The life of an object store in a directory, and what is in it after every power cut at a write boundary.

What was acknowledged is there with all its bytes, or stays away if it was deleted; whatever is there is whole; the
store opens, keeps nothing temporary, and goes on.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Coroutine
from pathlib import PurePath
from typing import Any, Final

from pidkeeper.broker_agent.data.store.local import LocalStore
from pidkeeper.broker_agent.data.store.port import MAX_LISTED
from pidkeeper.disk.files import TEMPORARY_SUFFIX
from tests.crash.disk import CrashDisk, Image, key
from tests.crash.enumerate_states import MAX_REMEMBERED, MAX_VIOLATIONS, Result
from tests.crash.facts import Broken
from tests.support.memory_files import PowerCut

KIND: Final = "store"
ROOT: Final = PurePath("/data/store")
NAMES: Final = tuple(f"{broker}/{epoch}/{number}" for broker in "12" for epoch in "78" for number in "012")
MAX_PIECES: Final = 3
MAX_PIECE_BYTES: Final = 700
"""More than a sector."""
MAX_KILL_CALLS: Final = 9
_WEIGHTS: Final = {"put": 50, "again": 10, "create": 10, "delete": 20, "close": 4, "cut": 6, "kill": 20}
_AFTER: Final = "after/the/crash"


class StoreHistory:
    """Seeded operations on one store. `sure`: what must be there; `gone`: what must not; `written`: what may be."""

    def __init__(self, result: Result, disk: CrashDisk, deadline: float | None) -> None:
        self.result = result
        self.sure: dict[str, bytes] = {}
        self.gone: set[str] = set(NAMES)
        self.written: dict[str, set[bytes]] = {name: set() for name in NAMES}
        self._rng = random.Random(result.seed)
        self._deadline = deadline
        self._known: dict[int, dict[str, bytes] | Broken] = {}
        self._calls_left: int | None = None
        self._use(disk)

    async def run(self, operations: int) -> None:
        """Do so many operations, unless it is found broken before."""
        store = await self._open()
        for self.result.operations in range(1, operations + 1):
            if len(self.result.violations) >= MAX_VIOLATIONS or self.result.unfinished:
                break
            kind = self._rng.choices(list(_WEIGHTS), list(_WEIGHTS.values()))[0]
            store = await self._operate(kind, store)
        await store.close()

    async def _operate(self, kind: str, store: LocalStore) -> LocalStore:
        if kind == "close":
            await store.close()
        elif kind == "cut":
            await self._stop(store)
            self._use(self.disk.cut(self._rng))
        elif kind == "kill":
            await self._kill(store)
        else:
            await self._choose(kind)(store)
            return store
        return await self._open()

    async def _kill(self, store: LocalStore) -> None:
        """Kill the process in the midst of an operation, which the next one does again."""
        operation = self._choose(self._rng.choice(("put", "create", "delete")))
        self._calls_left = self._rng.randrange(MAX_KILL_CALLS)
        try:
            await operation(store)
        except PowerCut:
            pass
        finally:
            self._calls_left = None
        await self._stop(store)
        self.disk.forget_processes()
        again = await self._open()
        await operation(again)
        await again.close()

    async def _open(self) -> LocalStore:
        # On a thread, as all that changes the disk: there is no event loop where its states are looked at.
        return await asyncio.to_thread(LocalStore, ROOT, self.disk)

    async def _stop(self, store: LocalStore) -> None:
        """Without a call to the disk: the process is no more."""
        await asyncio.to_thread(store._threads.shutdown)

    def _choose(self, kind: str) -> Callable[[LocalStore], Coroutine[Any, Any, None]]:
        if kind == "again" and self.sure:
            name = self._rng.choice(sorted(self.sure))
            return lambda store: self._put(store, name, [self.sure[name]])
        if kind == "delete" or not self.gone:
            names = self._rng.sample(NAMES, self._rng.randint(1, 4))
            return lambda store: self._delete(store, names)
        name = self._rng.choice(sorted(self.gone))
        sizes = [self._rng.randint(1, MAX_PIECE_BYTES) for _ in range(self._rng.randint(1, MAX_PIECES))]
        pieces = [self._rng.randbytes(size) for size in sizes]
        if kind == "create":
            return lambda store: self._create(store, name, pieces[0])
        return lambda store: self._put(store, name, pieces)

    async def _put(self, store: LocalStore, name: str, pieces: list[bytes]) -> None:
        self._begin(name, b"".join(pieces))
        await store.put(name, pieces)
        self.sure[name] = b"".join(pieces)

    async def _create(self, store: LocalStore, name: str, data: bytes) -> None:
        self._begin(name, data)
        stored = await store.create(name, data)
        assert stored == data, f"{name} holds {stored!r}, though it was gone"
        self.sure[name] = data

    def _begin(self, name: str, data: bytes) -> None:
        self.written[name].add(data)
        self.gone.discard(name)

    async def _delete(self, store: LocalStore, names: list[str]) -> None:
        for name in names:
            self.sure.pop(name, None)
        await store.delete(names)
        self.gone.update(names)

    def _use(self, disk: CrashDisk) -> None:
        self.disk = disk
        disk.boundary = self._boundary

    def _boundary(self, kind: str, path: PurePath) -> None:
        self._visit()
        if self._calls_left is not None:
            if self._calls_left == 0:
                raise PowerCut
            self._calls_left -= 1

    def _visit(self) -> None:
        """Look at every state that a power cut may leave now."""
        result = self.result
        if self._deadline is not None and time.monotonic() > self._deadline:
            result.unfinished = True
        if result.unfinished or len(result.violations) >= MAX_VIOLATIONS:
            return
        result.boundaries += 1
        for description, image in self.disk.images():
            result.states += 1
            try:
                self._check(self._found(image))
            except Broken as broken:
                place = f"operation {result.operations}, {description}"
                result.violations.append(f"{KIND}:{result.seed}, {place}: {broken}")
                return

    def _found(self, image: Image) -> dict[str, bytes]:
        number = key(image)
        if number not in self._known:
            if len(self._known) >= MAX_REMEMBERED:
                self._known.clear()
            self.result.recoveries += 1
            try:
                self._known[number] = asyncio.run(_recover(image, self.disk.directories))
            except Broken as broken:
                self._known[number] = broken
        found = self._known[number]
        if isinstance(found, Broken):
            raise found
        return found

    def _check(self, found: dict[str, bytes]) -> None:
        for name, data in found.items():
            if data not in self.written[name]:
                raise Broken(f"{name} has {len(data)} bytes that were never put")
        for name, data in self.sure.items():
            if found.get(name) != data:
                raise Broken(f"{name} was acknowledged, and is not there")
        if back := self.gone & found.keys():
            raise Broken(f"{sorted(back)} were deleted, and are there")


async def _recover(image: Image, directories: set[PurePath]) -> dict[str, bytes]:
    """What an agent finds on this disk. Raises Broken if it cannot go on from there."""
    disk = CrashDisk.of(image, directories)
    found = await _open_and_read(disk)
    store = LocalStore(ROOT, disk)
    await store.put(_AFTER, [b"more"])
    await store.close()
    if await _open_and_read(CrashDisk.of(disk.lost(), disk.directories)) != found | {_AFTER: b"more"}:
        raise Broken("after one more object and another power cut something else was found")
    return found


async def _open_and_read(disk: CrashDisk) -> dict[str, bytes]:
    store = LocalStore(ROOT, disk)
    listed = await store.list("", "", MAX_LISTED)
    found = {name: await store.read(name, 0, size) if size else b"" for name, size in listed}
    await store.close()
    if left := [path for path in disk.lost() if path.suffix == TEMPORARY_SUFFIX and disk.exists(path)]:
        raise Broken(f"{left} were not removed")
    return found


def run_store(seed: int, operations: int, *, deadline: float | None = None, disk: CrashDisk | None = None) -> Result:
    """Enumerate one history. After `deadline` (monotonic seconds) it stops."""
    result = Result(KIND, seed)
    try:
        asyncio.run(StoreHistory(result, disk or CrashDisk(), deadline).run(operations))
    except Exception as error:  # noqa: BLE001 - whatever stops the store is a finding
        result.violations.append(f"{KIND}:{seed}, operation {result.operations}: {type(error).__name__}: {error}")
    return result
