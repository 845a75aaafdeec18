"""The storage thread: order, coalescing into one fdatasync, and nothing acknowledged after a failure."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import Callable
from pathlib import PurePath

import pytest

from pidkeeper.controller.node import storage_worker
from pidkeeper.controller.node.storage_worker import StorageWorker
from pidkeeper.controller.raft.messages import Entry, HardState
from pidkeeper.controller.storage.errors import LogFailed
from pidkeeper.controller.storage.wal import WriteAheadLog
from tests.support.log_builder import entries, new_disk, open_log
from tests.support.memory_files import MemoryFiles, fail_on

STATE = HardState(term=1, vote=1)


class Bench:
    """A worker over a real log in memory, whose first sync can be held up."""

    def __init__(self) -> None:
        self.files: MemoryFiles = new_disk()
        self.wal: WriteAheadLog = open_log(self.files, 1 << 20)[0]
        self.synced: list[list[int]] = []
        self.failures: list[BaseException] = []
        self.changed = asyncio.Event()
        self.worker = StorageWorker(self.wal)
        self.started = threading.Event()
        self.go_on = threading.Event()

    def durable(self, tokens: list[int]) -> None:
        self.synced.append(tokens)
        self.changed.set()

    def fault(self, error: BaseException) -> None:
        self.failures.append(error)
        self.changed.set()

    def hold(self) -> None:
        """Queue a job that waits for `go_on`: what comes after it piles up."""

        def wait() -> None:
            self.started.set()
            assert self.go_on.wait(10)

        self.worker.run(wait)

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(10):
            while not condition():
                self.changed.clear()
                await self.changed.wait()

    async def append(self, index: int, *, size: int) -> None:
        """Append one entry, and wait until it is durable: what piles up would be one write."""
        self.worker.append(index, entries(index, index, size=size), None)
        await self.until(lambda: index in self.tokens())

    def tokens(self) -> list[int]:
        return [token for tokens in self.synced for token in tokens]

    async def stop(self) -> None:
        try:
            async with asyncio.timeout(10):
                await self.worker.stop()
        except TimeoutError:
            self.worker._jobs.put(None)  # let the thread go, or the event loop would wait for it for ever
            raise
        await asyncio.sleep(0)


def recovered(files: MemoryFiles) -> tuple[list[Entry], HardState]:
    _, log = open_log(files.cut_power(), 1 << 20)
    return log.entries, log.hard_state


async def test_appends_that_pile_up_become_one_sync() -> None:
    bench = Bench()
    bench.hold()
    for token, entry in enumerate(entries(1, 20), 1):
        bench.worker.append(token, [entry], STATE if token == 1 else None)
    bench.worker.append(21, [], HardState(term=1, vote=1, commit=20))
    syncs = bench.wal.fdatasyncs
    bench.worker.start(bench)
    bench.go_on.set()
    await bench.until(lambda: len(bench.tokens()) == 21)
    assert bench.synced == [list(range(1, 22))]
    assert bench.wal.fdatasyncs == syncs + 1
    assert recovered(bench.files) == (entries(1, 20), HardState(term=1, vote=1, commit=20))
    assert bench.worker.write_duration.count == 1
    await bench.stop()


async def test_a_replaced_suffix_is_a_write_of_its_own() -> None:
    bench = Bench()
    bench.hold()
    bench.worker.append(1, entries(1, 5), STATE)
    bench.worker.append(2, entries(4, 4, term=2), HardState(term=2))
    bench.worker.append(3, entries(5, 6, term=2), None)
    bench.worker.start(bench)
    bench.go_on.set()
    await bench.until(lambda: len(bench.tokens()) == 3)
    assert bench.synced == [[1], [2, 3]]
    assert recovered(bench.files)[0] == [*entries(1, 3), *entries(4, 6, term=2)]
    await bench.stop()


async def test_jobs_keep_their_order() -> None:
    bench = Bench()
    seen: list[tuple[str, int]] = []
    bench.hold()
    bench.worker.append(1, entries(1, 1), STATE)
    bench.worker.run(lambda: seen.append(("first", bench.wal.next_index)))
    bench.worker.append(2, entries(2, 2), None)
    bench.worker.append(3, entries(3, 3), None)
    bench.worker.run(lambda: seen.append(("second", bench.wal.next_index)))
    bench.worker.append(4, entries(4, 4), None)
    assert bench.worker.waiting() == 7
    bench.worker.start(bench)
    bench.go_on.set()
    await bench.until(lambda: len(bench.tokens()) == 4)
    assert bench.synced == [[1], [2, 3], [4]]
    assert seen == [("first", 2), ("second", 4)]
    await bench.stop()


async def test_nothing_is_acknowledged_before_its_sync() -> None:
    bench = Bench()
    syncing, go_on = threading.Event(), threading.Event()

    def before(kind: str, path: PurePath) -> None:
        if kind == "fdatasync":
            syncing.set()
            assert go_on.wait(10)

    bench.files.before = before
    bench.worker.start(bench)
    bench.worker.append(1, entries(1, 1), STATE)
    assert await asyncio.to_thread(syncing.wait, 10)
    await asyncio.sleep(0)
    assert bench.synced == []
    go_on.set()
    await bench.until(lambda: bench.synced == [[1]])
    await bench.stop()


async def test_a_failed_sync_is_reported_once_and_ends_it() -> None:
    bench = Bench()
    failed = False

    def before(kind: str, path: PurePath) -> None:
        nonlocal failed
        if kind == "fdatasync" and bench.wal.next_index == 3 and not failed:
            failed = True
            raise OSError(errno.EIO, "Input/output error")

    bench.files.before = before
    bench.worker.start(bench)
    bench.worker.append(1, entries(1, 2), STATE)
    await bench.until(lambda: bench.synced == [[1]])
    ran: list[int] = []
    bench.worker.append(2, entries(3, 3), None)
    bench.worker.run(lambda: ran.append(1))
    bench.worker.append(3, entries(4, 4), None)
    await bench.until(lambda: bool(bench.failures))
    await bench.stop()
    assert failed
    assert bench.worker.failed
    assert bench.synced == [[1]]
    assert ran == []
    assert len(bench.failures) == 1
    assert isinstance(bench.failures[0], LogFailed)
    assert "Input/output error" in str(bench.failures[0])
    assert recovered(bench.files)[0] == entries(1, 2)


async def test_a_job_that_raises_ends_it_too() -> None:
    bench = Bench()
    bench.worker.start(bench)
    bench.worker.run(lambda: (_ for _ in ()).throw(ZeroDivisionError("broken")))
    bench.worker.append(1, entries(1, 1), STATE)
    await bench.until(lambda: bool(bench.failures))
    await bench.stop()
    assert [type(error) for error in bench.failures] == [ZeroDivisionError]
    assert bench.synced == []


async def test_a_violated_invariant_of_the_log_ends_it_too() -> None:
    bench = Bench()
    bench.worker.start(bench)
    bench.worker.append(1, entries(5, 5), STATE)
    await bench.until(lambda: bool(bench.failures))
    assert "would leave a gap" in str(bench.failures[0])
    await bench.stop()


async def test_stop_finishes_what_is_queued_even_behind_a_pile_of_appends() -> None:
    bench = Bench()
    bench.hold()
    for token, entry in enumerate(entries(1, 5), 1):
        bench.worker.append(token, [entry], STATE if token == 1 else None)
    bench.worker.start(bench)
    stopping = asyncio.get_running_loop().create_task(bench.stop())
    async with asyncio.timeout(10):
        while bench.worker.waiting() < 6:  # noqa: ASYNC110 - five appends and the mark of the end
            await asyncio.sleep(0)
    bench.go_on.set()
    await stopping
    assert bench.synced == [[1, 2, 3, 4, 5]]
    with pytest.raises(LogFailed, match="it is closed"):
        bench.wal.append(entries(6, 6), None)
    assert recovered(bench.files)[0] == entries(1, 5)


async def test_the_queue_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage_worker, "MAX_QUEUED_JOBS", 2)
    bench = Bench()
    bench.worker.append(1, entries(1, 1), STATE)
    bench.worker.append(2, entries(2, 2), None)
    with pytest.raises(AssertionError, match="the disk is 2 writes behind"):
        bench.worker.append(3, entries(3, 3), None)
    bench.worker.start(bench)
    await bench.until(lambda: len(bench.tokens()) == 2)
    await bench.stop()


async def test_one_merged_write_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage_worker, "MAX_MERGED_BYTES", 100)
    bench = Bench()
    bench.hold()
    for token, entry in enumerate(entries(1, 12, size=40), 1):
        bench.worker.append(token, [entry], STATE if token == 1 else None)
    bench.worker.start(bench)
    bench.go_on.set()
    await bench.until(lambda: len(bench.tokens()) == 12)
    assert bench.synced == [[1, 2, 3], [4, 5, 6], [7, 8, 9], [10, 11, 12]]
    await bench.stop()


def almost_full(bench: Bench) -> None:
    """Fill the newest segment until the next one is wanted."""
    index = 1
    while not bench.wal.wants_next_segment:
        bench.wal.append(entries(index, index, size=10_000), STATE)
        index += 1
    assert index > 2


async def test_the_next_segment_is_prepared_once_and_beside_the_appends() -> None:
    bench = Bench()
    bench.worker.prepare_segment()
    assert bench.worker._preparing is None
    almost_full(bench)
    bench.worker.start(bench)
    for _ in range(3):
        bench.worker.prepare_segment()
    await bench.stop()
    assert [kind for kind, path in bench.files.calls if kind == "preallocate" and "next" in path.name] == [
        "preallocate"
    ] * 2  # the first segment of the log, and the next one
    assert bench.failures == []


async def test_no_room_for_the_next_segment_is_told_and_not_yet_fatal(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    almost_full(bench)
    bench.files.before = fail_on("preallocate", OSError(errno.ENOSPC, "No space left on device"))
    bench.worker.start(bench)
    bench.worker.prepare_segment()
    bench.worker.append(1, entries(bench.wal.next_index, bench.wal.next_index), None)
    await bench.until(lambda: bench.synced == [[1]])
    await bench.stop()
    assert bench.worker.no_room is not None
    assert bench.worker.no_room in caplog.text
    assert "this member stops when its segment is full" in bench.worker.no_room
    assert bench.failures == []


async def test_a_full_disk_is_told_once_and_asked_now_and_then_until_there_is_room(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench()
    almost_full(bench)
    attempts = 0

    def before(kind: str, _: PurePath) -> None:
        nonlocal attempts
        if kind == "preallocate":
            attempts += 1
            if attempts <= 3:
                raise OSError(errno.ENOSPC, "No space left on device")

    bench.files.before = before
    bench.worker.start(bench)

    async def prepared() -> None:
        bench.worker.prepare_segment()
        if bench.worker._preparing is not None:
            await bench.worker._preparing

    for _ in range(5):
        await prepared()
    assert attempts == 1, "it was tried again at once"
    monkeypatch.setattr(storage_worker, "ROOM_CHECK_SECONDS", 0.0)
    bench.worker._prepare_at = 0.0
    for _ in range(2):
        await prepared()
        assert bench.worker.no_room is not None
    assert attempts == 3
    assert caplog.text.count("this member stops when its segment is full") == 1
    await prepared()
    assert bench.worker.no_room is None
    assert not bench.wal.wants_next_segment
    await bench.stop()


async def test_a_segment_that_an_append_made_shows_that_there_is_room_again() -> None:
    bench = Bench()
    almost_full(bench)
    bench.files.before = fail_on("preallocate", OSError(errno.ENOSPC, "No space left on device"))
    bench.worker.start(bench)
    bench.worker.prepare_segment()
    assert bench.worker._preparing is not None
    await bench.worker._preparing
    told = bench.worker.no_room
    assert told is not None
    bench.files.before = lambda kind, path: None
    segments, index = bench.wal.segment_count, bench.wal.next_index
    while bench.wal.segment_count == segments:
        await bench.append(index, size=100_000)
        index += 1
    assert not bench.wal.wants_next_segment, "the new segment is half full already"
    bench.worker.prepare_segment()
    assert bench.worker.no_room is None
    await bench.stop()


async def test_an_attempt_that_an_append_has_overtaken_is_not_made(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    almost_full(bench)
    bench.worker.prepare_segment()
    assert bench.worker._preparing is not None
    segments = bench.wal.segment_count
    while bench.wal.segment_count == segments:
        bench.wal.append([Entry(1, bench.wal.next_index, bytes(100_000))], None)
    bench.files.before = fail_on("preallocate", OSError(errno.ENOSPC, "No space left on device"))
    await bench.worker._preparing
    assert bench.worker.no_room is None
    assert caplog.text == ""
