"""A segment's way: it is put into the store with its index, and then the quorum is asked to have a log read from it."""

from __future__ import annotations

import asyncio
import logging
import uuid
from typing import Final, NamedTuple

from pidkeeper.broker_agent.backoff import Random, backoff_seconds
from pidkeeper.broker_agent.data.calls import LogCalls, Registration
from pidkeeper.broker_agent.data.discarding import Discarder
from pidkeeper.broker_agent.data.segment_building import BuiltSegment
from pidkeeper.broker_agent.data.store.port import ObjectStore, StoreError, StoreUnavailableError
from pidkeeper.broker_agent.data.writing import ASK_AGAIN
from pidkeeper.broker_agent.session.refusals import STALE
from pidkeeper.protocol.errors import ErrorCode, RequestError
from pidkeeper.protocol.logs import ObjectId
from pidkeeper.protocol.segment_messages import CommitSegmentRequest, DueLog
from pidkeeper.protocol.segments import SegmentName, index_path

ATTEMPTS: Final = 30
"""Of a put, and of a commit: with the pauses half a minute, after which the log is looked at anew."""

RETRY_BASE_SECONDS: Final = 0.05
RETRY_MAX_SECONDS: Final = 1.0

_log = logging.getLogger(__name__)


class NotRolledError(Exception):
    """A segment does not get into its log, as far as is known here; the log is as it was, or reads from it."""


class RollRefusedError(NotRolledError):
    """Store or quorum refuse it, and would again."""


class _Name(NamedTuple):
    """Of a segment: the registration under which it is put, and the names of the two objects."""

    id: ObjectId
    founding_id: uuid.UUID
    path: str

    @property
    def paths(self) -> tuple[str, str]:
        """Of the segment and of its index."""
        return self.path, index_path(self.path)


class SegmentWriter:
    """Puts segments, and has them committed, one at a time."""

    def __init__(
        self,
        store: ObjectStore,
        calls: LogCalls,
        session: Registration,
        discarder: Discarder,
        rng: Random,
        retry_seconds: float = RETRY_BASE_SECONDS,
    ) -> None:
        self._store = store
        self._calls = calls
        self._session = session
        self._discarder = discarder
        self._rng = rng
        self._retry_seconds = retry_seconds
        self._epoch = -1
        self._next_number = 0
        self._stale: tuple[int, uuid.UUID] | None = None

    @property
    def may_write(self) -> bool:
        """Whether there is a registration that segments can be committed under."""
        session = self._session
        epoch = session.broker_epoch
        return (
            epoch is not None
            and session.founding_id is not None
            and epoch == session.store_epoch
            and (epoch, session.founding_id) != self._stale
        )

    async def write(self, due: DueLog, built: BuiltSegment, replaces: int) -> bool:
        """Whether the log reads from the segment now; if not, the quorum knows it as garbage.

        Raises NotRolledError. What was put and never offered to the quorum is deleted; what was offered is left: it may
        have been taken.
        """
        segment = SegmentName(due.topic, due.partition, built.base_offset)
        name = self._name(segment)
        try:
            await self._put(name.path, built.pieces)
            await self._put(index_path(name.path), [built.sparse])
            if not self._is_current(name):
                raise NotRolledError("the registration has changed meanwhile")
        except (Exception, asyncio.CancelledError):
            for path in name.paths:
                self._discarder.discard(path)
            raise
        request = CommitSegmentRequest(
            name.id.broker_id,
            name.id.broker_epoch,
            name.founding_id,
            name.id.number,
            due.log,
            segment,
            built.end_offset,
            built.size,
            len(built.sparse),
            built.max_timestamp,
            replaces,
        )
        return await self._commit(name, request)

    def _name(self, segment: SegmentName) -> _Name:
        session = self._session
        epoch, founding_id = session.broker_epoch, session.founding_id
        if not self.may_write or epoch is None or founding_id is None:
            raise NotRolledError("there is no registration in force")
        if epoch != self._epoch:
            self._epoch, self._next_number = epoch, 0
        object_id = ObjectId(session.broker_id, epoch, self._next_number)
        self._next_number += 1
        return _Name(object_id, founding_id, segment.path(object_id, founding_id))

    def _is_current(self, name: _Name) -> bool:
        return self.may_write and (name.id.broker_epoch, name.founding_id) == (
            self._session.broker_epoch,
            self._session.founding_id,
        )

    async def _put(self, path: str, pieces: list[bytes]) -> None:
        for attempt in range(1, ATTEMPTS + 1):
            try:
                await self._store.put(path, pieces)
            except StoreUnavailableError as error:
                _log.debug("%s is not stored yet: %s", path, error)
                why: StoreError = error
            except StoreError as error:
                raise RollRefusedError(f"the store takes no segments: {error}") from error
            else:
                return
            await self._rest(attempt)
        raise NotRolledError(f"the store does not answer: {why}") from why

    async def _commit(self, name: _Name, request: CommitSegmentRequest) -> bool:
        for attempt in range(1, ATTEMPTS + 1):
            try:
                return (await self._calls.commit_segment(request)).joined
            except RequestError as error:
                if error.code in STALE:
                    self._stale = name.id.broker_epoch, name.founding_id
                    self._session.doubt_epoch(name.id.broker_epoch)
                    raise NotRolledError(str(error)) from error
                if error.code not in ASK_AGAIN and error.code is not ErrorCode.NOT_ENOUGH_REPLICAS:
                    raise RollRefusedError(f"the quorum refuses {name.path}: {error}") from error
                _log.debug("%s is not committed yet: %s", name.path, error)
                why = error
            await self._rest(attempt, why.throttle_time_ms / 1000)
        if why.code is ErrorCode.NOT_ENOUGH_REPLICAS:
            raise RollRefusedError(f"the quorum takes no segment of log {request.log}: {why}") from why
        raise NotRolledError(f"the quorum does not answer: {why}") from why

    async def _rest(self, attempt: int, at_least: float = 0.0) -> None:
        pause = backoff_seconds(attempt, self._rng, base=self._retry_seconds, maximum=RETRY_MAX_SECONDS)
        await asyncio.sleep(max(pause, at_least))
