"""The allocation history over archive and memory: owners, pages, and from which ID on it is whole."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import PurePath

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pidkeeper.controller.node.ledger import Ledger
from pidkeeper.controller.storage.archive import AllocationArchive
from pidkeeper.controller.storage.owner_archive import OwnerArchive
from pidkeeper.protocol.messages import AllocatedBlock
from pidkeeper.protocol.records import AllocateProducerIdsRecord
from pidkeeper.protocol.transactions import TransactionalBlockRecord
from pidkeeper.snapshots.owner_format import Owner
from tests.support.memory_files import MemoryFiles

PATH = PurePath("/archive")
PER_PAGE = 3


def disk() -> MemoryFiles:
    files = MemoryFiles()
    files.make_directory(PATH)
    return files


@asynccontextmanager
async def opened(files: MemoryFiles, next_offset: int = 0, next_producer_id: int = 0) -> AsyncIterator[Ledger]:
    ledger = Ledger(AllocationArchive(files, PATH, "c"), OwnerArchive(files, PATH, "c"), next_offset, next_producer_id)
    try:
        yield ledger
    finally:
        ledger.close()


def allocation(number: int) -> tuple[int, AllocateProducerIdsRecord]:
    """Block `number` of ten IDs, at offset 2 x number: a record of another kind lies before each."""
    return 2 * number, AllocateProducerIdsRecord(number % 4, 1, 10 * number + 9, 10 * number, 10, 1000 + number)


def block(number: int) -> AllocatedBlock:
    return AllocatedBlock(10 * number, 10 * number + 9, number % 4, 1, 2 * number, 1000 + number)


async def all_pages(ledger: Ledger, limit: int = PER_PAGE) -> list[AllocatedBlock]:
    found: list[AllocatedBlock] = []
    after: int | None = -1
    for _ in range(100):
        if after is None:
            return found
        page = await ledger.page(after, limit)
        found += page.blocks
        after = page.next_after
    raise AssertionError(f"the pages do not end: {after}")


async def test_owners_from_memory_alone() -> None:
    async with opened(disk()) as ledger:
        ledger.record([allocation(0), allocation(2)])
        assert await ledger.owner(0) == await ledger.owner(9) == block(0)
        assert await ledger.owner(20) == await ledger.owner(29) == block(2)
        assert await ledger.owner(10) is None
        assert await ledger.owner(30) is None
        assert len(ledger) == 2


async def test_the_quorums_own_blocks_have_no_broker_in_memory_and_in_the_archive() -> None:
    files = disk()
    own = AllocatedBlock(10, 19, -1, -1, 2, 1001)
    async with opened(files) as ledger:
        ledger.record([allocation(0), (2, TransactionalBlockRecord(10, 19, 1001)), allocation(2)])
        for _ in range(2):
            assert await ledger.owner(10) == await ledger.owner(19) == own
            assert await all_pages(ledger) == [block(0), own, block(2)]
            await ledger.archive(5)
            ledger.forget(5)
    async with opened(files, 5, 30) as ledger:
        assert await all_pages(ledger) == [block(0), own, block(2)]


async def test_transactional_owners_in_memory_and_in_the_archive_and_across_an_installed_snapshot() -> None:
    files = disk()
    owners = [Owner(10 + number, 3 * number, 1000, f"tx-{number}") for number in range(4)]

    async def known(ledger: Ledger) -> list[Owner]:
        answers = [await ledger.transactional_owner(producer_id) for producer_id in range(30)]
        return [owner for owner in answers if owner is not None]

    async with opened(files) as ledger:
        ledger.record([], owners[:2])
        ledger.record([], owners[2:])
        assert await known(ledger) == owners
        await ledger.archive(4)
        assert await known(ledger) == owners, "in both"
        ledger.forget(4)
        assert await known(ledger) == owners
        ledger.restart(20, 30)
        assert await known(ledger) == owners[:2], "what lies between is not known here"
    async with opened(files, 20, 30) as ledger:
        assert await known(ledger) == owners[:2]


async def test_an_empty_history() -> None:
    async with opened(disk()) as ledger:
        page = await ledger.page(-1, 5)
        assert (page.blocks, page.next_after, page.complete_from) == ([], None, 0)
        assert await ledger.owner(0) is None


@settings(max_examples=30, deadline=None)
@given(
    total=st.integers(0, 12),
    archived=st.integers(0, 12),
    forgotten=st.booleans(),
    limit=st.integers(1, 6),
)
async def test_archive_and_memory_read_as_one(total: int, archived: int, forgotten: bool, limit: int) -> None:
    archived = min(archived, total)
    async with opened(disk()) as ledger:
        ledger.record([allocation(number) for number in range(total)])
        await ledger.archive(2 * archived)
        if forgotten:
            ledger.forget(2 * archived)
            assert len(ledger) == total - archived
        assert await all_pages(ledger, limit) == [block(number) for number in range(total)]
        for number in range(total):
            assert await ledger.owner(10 * number + 5) == block(number)
        assert await ledger.owner(10 * total) is None
        assert ledger.complete_from() == 0


async def test_the_end_of_the_archive_is_known_without_a_look_at_it() -> None:
    files = disk()
    async with opened(files) as ledger:
        assert ledger.archive_end == 0
        ledger.record([allocation(number) for number in range(6)])
        await ledger.archive(2 * 4)
        assert ledger.archive_end == 40
        ledger.forget(2 * 4)
        await ledger.archive(2 * 4 + 1)
        assert ledger.archive_end == 50
    async with opened(files, 2 * 4 + 1, 50) as ledger:
        assert ledger.archive_end == 50
        ledger.restart(1000, 900)
        assert ledger.archive_end == 50


async def test_a_restart_replays_what_the_archive_has_already() -> None:
    files = disk()
    async with opened(files) as ledger:
        ledger.record([allocation(number) for number in range(6)])
        await ledger.archive(6)
        await ledger.archive(6)
    # The crash came before the snapshot: the log still starts at 0.
    async with opened(files) as ledger:
        ledger.record([allocation(number) for number in range(7)])
        assert await all_pages(ledger) == [block(number) for number in range(7)]
        await ledger.archive(14)
        ledger.forget(14)
        assert await all_pages(ledger) == [block(number) for number in range(7)]
        assert ledger.complete_from() == 0


async def test_a_snapshot_from_the_leader_leaves_a_hole_that_is_told() -> None:
    files = disk()
    async with opened(files) as ledger:
        ledger.record([allocation(0), allocation(1)])
        await ledger.archive(4)
        ledger.forget(4)
        ledger.restart(next_offset=10, next_producer_id=50)
        ledger.record([allocation(5)])
        page = await ledger.page(-1, 10)
        assert page.blocks == [block(0), block(1), block(5)]
        assert page.complete_from == 50
        assert await ledger.owner(35) is None
        await ledger.archive(12)
        ledger.forget(12)
    async with opened(files, next_offset=12, next_producer_id=60) as ledger:
        assert ledger.complete_from() == 50


@pytest.mark.parametrize("archived_before", [False, True])
async def test_a_restart_after_an_installed_snapshot_still_tells_the_hole(archived_before: bool) -> None:
    files = disk()
    if archived_before:
        async with opened(files) as ledger:
            ledger.record([allocation(0)])
            await ledger.archive(2)
    async with opened(files, next_offset=10, next_producer_id=50) as ledger:
        assert ledger.complete_from() == 50
        ledger.record([allocation(5)])
        assert (await ledger.page(-1, 10)).complete_from == 50


async def test_a_hole_before_a_stretch_without_allocations_is_told() -> None:
    files = disk()
    async with opened(files) as ledger:
        ledger.restart(next_offset=10, next_producer_id=50)
        await ledger.archive(14)  # registrations only
    async with opened(files, next_offset=14, next_producer_id=50) as ledger:
        assert ledger.complete_from() == 50


async def test_a_history_that_begins_with_a_floor_has_no_hole() -> None:
    async with opened(disk()) as ledger:
        ledger.record([allocation(7)])
        assert (await ledger.page(-1, 10)).complete_from == 0


async def test_a_snapshot_that_is_overtaken_does_not_paper_over_the_hole() -> None:
    """The leader's snapshot arrives between archiving and forgetting for a snapshot of our own."""
    files = disk()
    async with opened(files) as ledger:
        ledger.record([allocation(0), allocation(1)])
        await ledger.archive(4)
        ledger.restart(next_offset=10, next_producer_id=50)
        ledger.forget(4)
        ledger.record([allocation(5)])
        await ledger.archive(12)
        ledger.forget(12)
        assert await all_pages(ledger) == [block(0), block(1), block(5)]
    async with opened(files, next_offset=12, next_producer_id=60) as ledger:
        assert ledger.complete_from() == 50
