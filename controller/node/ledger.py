"""Who was given which block, and which transactional id which ID of the quorum's own: the archives on disk for the
past, memory for what the log still holds."""

from __future__ import annotations

import asyncio
import bisect
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from pidkeeper.controller.state.machine import Allocation, Jump, reached
from pidkeeper.controller.storage.archive import AllocationArchive
from pidkeeper.controller.storage.owner_archive import OwnerArchive
from pidkeeper.protocol.messages import AllocatedBlock, AllocatedBlocksPage
from pidkeeper.snapshots.owner_format import Owner

MAX_JUMPS: Final = 1024
"""Jumps kept, of some 100 bytes. One is by an operator, or by a block of a broker that claims in ZooKeeper itself."""


class Ledger:
    """The allocation history as far as this member has it, in order of ID and of offset (they rise together).

    `archive_end`: the ID after the last block that is archived.

    The archive belongs to one thread of its own, whose answers reach the event loop in order: so a query that read the
    archive is always completed from a memory that still holds the rest.
    """

    def __init__(
        self, archive: AllocationArchive, owners: OwnerArchive, next_offset: int, next_producer_id: int
    ) -> None:
        self._archive = archive
        self._owners = owners
        self._recent_owners: list[Owner] = []
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="archive")
        self._recent: list[AllocatedBlock] = []
        self._jumps: deque[tuple[int, Jump]] = deque()
        self._jumps_from = next_producer_id
        self._from_offset = next_offset
        self._complete_from = _complete_from(archive, next_offset, next_producer_id)
        self.archive_end = archive.end_id

    def __len__(self) -> int:
        return len(self._recent)

    def close(self) -> None:
        """End the archive's thread."""
        self._thread.shutdown(wait=True)

    def record(
        self,
        allocations: Iterable[tuple[int, Allocation]],
        owners: Iterable[Owner] = (),
        jumps: Iterable[tuple[int, Jump]] = (),
    ) -> None:
        """Add applied allocations, each with its offset, the IDs that transactional ids were given, and jumps."""
        self._recent_owners.extend(owners)
        for jump in jumps:
            if len(self._jumps) == MAX_JUMPS:
                self._jumps_from = max(self._jumps_from, reached(self._jumps.popleft()[1]))
            self._jumps.append(jump)
        for offset, record in allocations:
            self._recent.append(block_of(offset, record))

    async def archive(self, next_offset: int) -> None:
        """Make everything below `next_offset` durable in the archives. It stays in memory until `forget`."""
        rows, from_offset = self._recent[: self._position(next_offset)], self._from_offset
        owners = self._recent_owners[: self._owner_position(next_offset)]
        await self._on_thread(self._owners.append, owners, from_offset, next_offset)
        await self._on_thread(self._archive.append, rows, from_offset, next_offset)
        if rows:
            self.archive_end = max(self.archive_end, rows[-1].last + 1)

    def forget(self, next_offset: int) -> None:
        """Drop from memory what `archive` has made durable."""
        del self._recent[: self._position(next_offset)]
        del self._recent_owners[: self._owner_position(next_offset)]
        # A snapshot from the leader may have restarted the history above, while the archive was written.
        self._from_offset = max(self._from_offset, next_offset)

    def restart(self, next_offset: int, next_producer_id: int) -> None:
        """A snapshot from the leader replaced the log: what lies between the archive and it is not known here."""
        self._recent.clear()
        self._recent_owners.clear()
        self._jumps.clear()
        self._jumps_from = next_producer_id
        self._from_offset = next_offset
        self._complete_from = next_producer_id

    async def owner(self, producer_id: int) -> AllocatedBlock | None:
        """The block that holds `producer_id`.

        None if it was never allocated, or not to this member's knowledge (see `complete_from`).
        """
        row: AllocatedBlock | None = await self._on_thread(self._archive.find, producer_id)
        if row is None:
            position = bisect.bisect_right(self._recent, producer_id, key=_first) - 1
            if position < 0 or self._recent[position].last < producer_id:
                return None
            row = self._recent[position]
        return row

    async def transactional_owner(self, producer_id: int) -> Owner | None:
        """Who was given `producer_id` from the quorum's own blocks; None if nobody was, to this member's knowledge."""
        owner: Owner | None = await self._on_thread(self._owners.find, producer_id)
        if owner is None:
            position = bisect.bisect_left(self._recent_owners, producer_id, key=_producer_id)
            if position < len(self._recent_owners) and self._recent_owners[position].producer_id == producer_id:
                owner = self._recent_owners[position]
        return owner

    async def page(self, after: int, limit: int) -> AllocatedBlocksPage:
        """Up to `limit` blocks whose first ID is above `after`."""
        rows: list[AllocatedBlock] = await self._on_thread(self._archive.blocks, after, limit)
        if len(rows) < limit:
            seen = rows[-1].first if rows else after
            start = bisect.bisect_right(self._recent, seen, key=_first)
            rows = rows + self._recent[start : start + limit - len(rows)]
        return AllocatedBlocksPage(
            blocks=rows,
            next_after=rows[-1].first if len(rows) == limit else None,
            complete_from=self._complete_from,
        )

    def jumps(self) -> tuple[list[tuple[int, Jump]], int]:
        """The jumps since this member started, each with its offset, and the ID from which on these are all."""
        return list(self._jumps), self._jumps_from

    def complete_from(self) -> int:
        """The lowest ID from which this history has no hole."""
        return self._complete_from

    def _position(self, next_offset: int) -> int:
        return bisect.bisect_left(self._recent, next_offset, key=_offset)

    def _owner_position(self, next_offset: int) -> int:
        return bisect.bisect_left(self._recent_owners, next_offset, key=_given_at)

    async def _on_thread(self, function: Callable[..., Any], *args: object) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._thread, function, *args)


def block_of(offset: int, record: Allocation) -> AllocatedBlock:
    """The block that a record at `offset` gives away, as the history has it."""
    return AllocatedBlock(
        first=record.producer_id_start,
        last=record.producer_id_end,
        offset=offset,
        broker_epoch=record.broker_epoch,
        timestamp_ms=record.timestamp_ms,
        broker_id=record.broker_id,
    )


def _complete_from(archive: AllocationArchive, next_offset: int, next_producer_id: int) -> int:
    """From which ID on the archive, and the log from `next_offset` on, leave nothing out."""
    if archive.covered_to < next_offset:
        return next_producer_id
    if archive.covered_to == 0:
        return 0
    return next_producer_id if archive.complete_from is None else archive.complete_from


def _first(row: AllocatedBlock) -> int:
    return row.first


def _offset(row: AllocatedBlock) -> int:
    return row.offset


def _producer_id(owner: Owner) -> int:
    return owner.producer_id


def _given_at(owner: Owner) -> int:
    return owner.offset
