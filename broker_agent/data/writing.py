"""One object's way: it is put into the store, and then the quorum is asked to have its batches join their logs.

Names and numbers: an object is named by the broker epoch under which it is put, and by a number that rises. What was
not offered to the quorum yet may still get another name; what was offered keeps it, for an offer whose answer was lost
may have been taken.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from typing import Final

from pidkeeper.broker_agent.backoff import Random, backoff_seconds
from pidkeeper.broker_agent.data.calls import LogCalls, Registration
from pidkeeper.broker_agent.data.codes import KAFKA_STORAGE_ERROR, REQUEST_TIMED_OUT
from pidkeeper.broker_agent.data.counters import Counters
from pidkeeper.broker_agent.data.discarding import Discarder
from pidkeeper.broker_agent.data.gathered import GatheredObject
from pidkeeper.broker_agent.data.store.port import ObjectStore, StoreError, StoreUnavailableError
from pidkeeper.broker_agent.session.refusals import STALE
from pidkeeper.protocol.errors import ErrorCode, RequestError
from pidkeeper.protocol.log_messages import CommitObjectResponse
from pidkeeper.protocol.logs import ObjectId

RETRY_BASE_SECONDS: Final = 0.02
RETRY_MAX_SECONDS: Final = 1.0
"""Back-off while store or quorum do not answer: a blip costs little, and an outage one call a second."""

ASK_AGAIN: Final = frozenset(
    {
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        ErrorCode.FOUNDING_UNDER_WAY,
    }
)
"""Answers to a commit that leave its fate open, or settle nothing yet: the same one is sent again."""

_log = logging.getLogger(__name__)


class GivenUpError(Exception):
    """An object does not get into the logs, as far as is known here. `code`: what its clients are told."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code


class ObjectWriter:
    """Puts objects and has them committed. It never gives up by itself on what may come right: the caller cancels."""

    def __init__(
        self,
        store: ObjectStore,
        calls: LogCalls,
        session: Registration,
        discarder: Discarder,
        rng: Random,
        counters: Counters,
        retry_seconds: float = RETRY_BASE_SECONDS,
    ) -> None:
        self._store = store
        self._calls = calls
        self._session = session
        self._discarder = discarder
        self._rng = rng
        self._counters = counters
        self._retry_seconds = retry_seconds
        self._epoch = -1
        self._next_number = 0
        self._last_offered = -1
        self._stale: tuple[int, uuid.UUID] | None = None
        self._refused = ""

    async def put(self, item: GatheredObject) -> None:
        """Store it, under a name of the registration in force. Raises GivenUpError if the store refuses."""
        began, attempt = _now(), 0
        while True:
            if self._name(item):
                try:
                    await self._store.put(item.path, item.pieces)
                except StoreUnavailableError as error:
                    _log.debug("%s is not stored yet: %s", item.path, error)
                except StoreError as error:
                    raise self._refusal(error) from error
                else:
                    self._refused = ""
                    self._counters.objects_put += 1
                    self._counters.put_durations.observe(int((_now() - began) * 1e9))
                    return
            attempt += 1
            await self._rest(attempt)

    async def commit(self, item: GatheredObject) -> CommitObjectResponse:
        """Have its batches join their logs; one object at a time, in the order in which they shall join.

        Raises GivenUpError. What was put under a name that cannot be committed any more is put once more.
        """
        assert not item.offered, f"{item.path} is offered once"
        while not self._is_current(item):
            await self.put(item)
        assert item.id is not None, "what is stored has a name"
        item.offered, self._last_offered = True, item.id.number
        request = item.commit_request()
        began, attempt = _now(), 0
        while True:
            try:
                answer = await self._calls.commit_object(request)
            except RequestError as error:
                if error.code not in ASK_AGAIN:
                    raise self._uncommitted(item.id, request.founding_id, error) from error
                _log.debug("%s is not committed yet: %s", item.path, error)
                attempt += 1
                await self._rest(attempt, error.throttle_time_ms / 1000)
                continue
            self._counters.commit_durations.observe(int((_now() - began) * 1e9))
            if len(answer.outcomes) != len(item):
                _log.error("%d outcomes for the %d batches of %s", len(answer.outcomes), len(item), item.path)
                raise GivenUpError(REQUEST_TIMED_OUT, "the quorum's answer makes no sense")
            if not answer.referenced:
                self._discarder.discard(item.path)
            return answer

    def discard(self, item: GatheredObject) -> None:
        """Delete what was put, or may have been, if no log can refer to it: it was never offered."""
        if item.id is not None and not item.offered:
            self._discarder.discard(item.path)

    def _name(self, item: GatheredObject) -> bool:
        """Give it the next name of the registration in force, unless it has one of that; whether it has a name now."""
        session = self._session
        epoch, founding_id = session.broker_epoch, session.founding_id
        if epoch is None or founding_id is None or epoch != session.store_epoch:
            return False
        if (epoch, founding_id) == self._stale:
            return False
        if epoch != self._epoch:
            self._epoch, self._next_number, self._last_offered = epoch, 0, -1
        if self._is_current(item):
            # Tried before: the same bytes may be put again.
            return True
        self.discard(item)
        item.id, item.founding_id = ObjectId(session.broker_id, epoch, self._next_number), founding_id
        self._next_number += 1
        return True

    def _is_current(self, item: GatheredObject) -> bool:
        """Whether its name is one of the registration in force, above all that were offered."""
        session = self._session
        return (
            item.id is not None
            and (item.id.broker_epoch, item.founding_id) == (session.broker_epoch, session.founding_id)
            and (item.id.broker_epoch, item.founding_id) != self._stale
            and item.id.number > self._last_offered
        )

    def _refusal(self, error: StoreError) -> GivenUpError:
        if str(error) != self._refused:
            # Each object would say it again.
            self._refused = str(error)
            _log.error("the store takes no objects: %s", error)
        return GivenUpError(KAFKA_STORAGE_ERROR, str(error))

    def _uncommitted(self, object_id: ObjectId, founding_id: uuid.UUID, error: RequestError) -> GivenUpError:
        if error.code in STALE:
            # A quorum that took the place of another may know the epoch: then it is the founding that is stale.
            self._stale = object_id.broker_epoch, founding_id
            self._session.doubt_epoch(object_id.broker_epoch)
            return GivenUpError(REQUEST_TIMED_OUT, str(error))
        _log.error("the quorum refuses object %d of epoch %d: %s", object_id.number, object_id.broker_epoch, error)
        told = error.code.kafka_code if error.code is ErrorCode.NOT_ENOUGH_REPLICAS else KAFKA_STORAGE_ERROR
        return GivenUpError(told, str(error))

    async def _rest(self, attempt: int, at_least: float = 0.0) -> None:
        pause = backoff_seconds(attempt, self._rng, base=self._retry_seconds, maximum=RETRY_MAX_SECONDS)
        await asyncio.sleep(max(pause, at_least))


def _now() -> float:
    return asyncio.get_running_loop().time()
