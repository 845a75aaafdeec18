"""A report on the store: what is there that no log names, and what logs name that is not there. Nothing is deleted."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Sequence
from hashlib import blake2b
from typing import Final

import msgspec

from pidkeeper.broker_agent.data.calls import LogCalls, Registration
from pidkeeper.broker_agent.data.examining import Group, examine, listed
from pidkeeper.broker_agent.data.object_names import PREFIXES
from pidkeeper.broker_agent.data.store.port import ObjectMissingError, ObjectStore, StoredObject, StoreError
from pidkeeper.protocol.errors import ErrorCode, RequestError
from pidkeeper.protocol.segment_messages import KeptObject, KeptObjectsPage
from pidkeeper.protocol.segments import MAX_FOUNDINGS

REPORT_SECONDS: Final = 120.0
"""For a report. A thousand objects take a listing and a question to the quorum: half a million fit at 0.2 s each."""

FIRST_NAMES: Final = 10
"""Names that are told of each kind."""

PAGE: Final = 500
"""Kept objects at a time: two names of 380 bytes each make less than the 512 KiB that an agent takes."""

MAX_KEPT_PAGES: Final = 2000
"""A million objects, more than twice what a quorum keeps. A name of each, or two, takes some 80 bytes meanwhile."""

MAX_PROBED: Final = 1000
"""Names that the list lacks and that are looked for once more, each by itself."""


class Tally(msgspec.Struct):
    """Objects of the store, by each name: a segment and its index are two. `names`: the first FIRST_NAMES."""

    objects: int = 0
    bytes: int = 0
    names: list[str] = []

    def add(self, rows: Sequence[StoredObject]) -> None:
        """Count these."""
        self.objects += len(rows)
        self.bytes += sum(row.size for row in rows)
        self.names += [row.name for row in rows[: max(0, FIRST_NAMES - len(self.names))]]


class UnnamedObjects(msgspec.Struct):
    """What no log names of a founding's objects. `founding_id`: null for all foundings beyond the first MAX_FOUNDINGS.

    `held`: nothing of it is deleted for now. `dead`: what nobody will ever commit. `living`: what an agent may commit
    yet, or deletes itself.
    """

    founding_id: uuid.UUID | None
    held: bool
    dead: Tally
    living: Tally


class StoreReport(msgspec.Struct):
    """Answer of /v1/store/report. `founding_id`: of the quorum; `foundings`: those whose unneeded objects are deleted.

    `held`: none are. `complete`: false if there was no time to look at everything. `listed`: all that was looked at.
    `unnamed`: by founding. `unknown`: names that agents do not give. `missing`: objects that logs name and the store
    lacks, with the first of their names; null if that was not found out.
    """

    founding_id: uuid.UUID | None
    foundings: list[uuid.UUID]
    held: bool
    complete: bool
    listed: Tally
    unnamed: list[UnnamedObjects]
    unknown: Tally
    missing: Tally | None


class Reporter:
    """Makes reports on `store`, one at a time: who asks meanwhile gets the one under way."""

    def __init__(
        self, store: ObjectStore, calls: LogCalls, session: Registration, seconds: float = REPORT_SECONDS
    ) -> None:
        self._store = store
        self._calls = calls
        self._session = session
        self._seconds = seconds
        self._task: asyncio.Task[StoreReport] | None = None

    async def report(self) -> StoreReport:
        """The report. Raises RequestError if the quorum does not answer, or the store fails."""
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._made())
        # Shielded: others may wait for the same.
        return await asyncio.shield(self._task)

    async def stop(self) -> None:
        """End what is under way."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _made(self) -> StoreReport:
        if self._session.store_epoch is None:
            # It may be another store than the cluster's.
            detail = "the quorum was not told of this agent's store yet: see /readyz/store, and ask again"
            raise RequestError(ErrorCode.KAFKA_STORAGE_ERROR, detail)
        first = await self._calls.kept_objects(-1, 1)
        report = StoreReport(first.founding_id, first.foundings, first.held, False, Tally(), [], Tally(), None)
        try:
            async with asyncio.timeout(self._seconds):
                await self._look(report)
        except TimeoutError:
            return report
        except StoreError as error:
            raise RequestError(ErrorCode.KAFKA_STORAGE_ERROR, f"the store cannot be looked at: {error}") from error
        report.complete = True
        return report

    async def _look(self, report: StoreReport) -> None:
        # Before the list: what is committed meanwhile may not be on it.
        wanted = {_digest(name) async for one in self._kept(report) for name in one.names}
        for prefix in PREFIXES:
            async for page in listed(self._store, prefix):
                wanted.difference_update(_digest(row.name) for row in page)
                examined = await examine(self._calls, page)
                report.listed.add(page)
                report.unknown.add(examined.unknown)
                for group in examined.groups:
                    _count(report, group)
        report.missing = await self._missing(report, wanted)

    async def _missing(self, report: StoreReport, wanted: set[int]) -> Tally:
        """Of the names that the list lacks, those that logs still need and the store does not have."""
        missing, probes = Tally(), 0
        if not wanted:
            return missing
        async for one in self._kept(report):
            for name in one.names:
                if _digest(name) in wanted:
                    probes += 1
                    if probes > MAX_PROBED or not await self._is_there(name):
                        # The quorum knows the size of the first name alone.
                        missing.add([StoredObject(name, one.size if name == one.names[0] else 0)])
        return missing

    async def _is_there(self, name: str) -> bool:
        try:
            await self._store.read(name, 0, 1)
        except ObjectMissingError:
            return False
        return True

    async def _kept(self, report: StoreReport) -> AsyncIterator[KeptObject]:
        """All objects that logs have batches in."""
        after = -1
        for _ in range(MAX_KEPT_PAGES):
            page = await self._calls.kept_objects(after, PAGE)
            _check(report, page, after)
            for one in page.objects:
                if one.batches:
                    yield one
            if page.next_after is None:
                return
            after = page.next_after
        raise RequestError(ErrorCode.UNKNOWN_SERVER_ERROR, "the quorum's list of objects has no end")


def _check(report: StoreReport, page: KeptObjectsPage, after: int) -> None:
    if page.founding_id != report.founding_id:
        raise RequestError(ErrorCode.REQUEST_TIMED_OUT, "another quorum took the place of the first: ask again")
    if page.next_after is not None and page.next_after <= after:
        raise RequestError(ErrorCode.UNKNOWN_SERVER_ERROR, "the quorum's list of objects goes back")


def _count(report: StoreReport, group: Group) -> None:
    if not group.dead and not group.living:
        return
    known = {one.founding_id: one for one in report.unnamed}
    founding_id = group.founding_id if group.founding_id in known or len(known) < MAX_FOUNDINGS else None
    if founding_id not in known:
        known[founding_id] = UnnamedObjects(founding_id, group.held, Tally(), Tally())
        report.unnamed.append(known[founding_id])
    known[founding_id].held = group.held
    known[founding_id].dead.add(group.dead)
    known[founding_id].living.add(group.living)


def _digest(name: str) -> int:
    """Of a name, in less room: two of a million are the same in one store of 37 million."""
    return int.from_bytes(blake2b(name.encode(), digest_size=8).digest())
