"""What the agent knows of topics: asked of the controllers, kept for some seconds, and asked once for all who wait."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Iterable
from typing import Final, TypeVar

from pidkeeper.broker_agent.data.calls import LogCalls, Registration
from pidkeeper.broker_agent.data.settings import DataSettings
from pidkeeper.broker_agent.session.refusals import STALE
from pidkeeper.protocol.errors import ErrorCode, RequestError
from pidkeeper.protocol.log_messages import (
    MAX_NAMED_TOPICS,
    CreateTopicRequest,
    DeleteTopicRequest,
    FindTopicsRequest,
    TopicDescription,
)
from pidkeeper.protocol.logs import MAX_PARTITIONS, UNLIMITED
from pidkeeper.protocol.topic_names import RULE, is_topic_name

KEPT_SECONDS: Final = 5.0
"""How long a topic is believed to be as it was. One that was deleted is found out by the quorum's refusals too."""

REFRESH_SECONDS: Final = 2.5
"""The age at which a topic in use is asked for again while it is still believed, so that no request waits for it."""

MAX_KNOWN: Final = MAX_PARTITIONS
"""Topics kept: no more exist. Half a kibibyte each."""

MAX_ASKED: Final = 200
"""Names in one call: of 252 bytes each they make less than the 64 KiB that members read."""

MAX_WANTED: Final = MAX_PARTITIONS
"""Names that wait for a call."""

MAX_PAGES: Final = MAX_PARTITIONS // MAX_NAMED_TOPICS + 1

MAX_CREATED: Final = 16
"""Topics that one Metadata request has created; for the others clients come again."""

_log = logging.getLogger(__name__)
_Answer = TypeVar("_Answer")


class Topics:
    """Topics by name, asked of the controllers by `calls`, one call at a time."""

    def __init__(self, settings: DataSettings, calls: LogCalls, session: Registration) -> None:
        self.default_partitions = settings.default_partitions
        self._auto_create = settings.auto_create_topics
        self._calls = calls
        self._session = session
        self._known: dict[str, tuple[TopicDescription, float]] = {}
        self._wanted: dict[str, asyncio.Future[TopicDescription | None]] = {}
        self._asking: asyncio.Task[None] | None = None
        self._listing: asyncio.Task[list[TopicDescription]] | None = None
        self._last: list[TopicDescription] = []

    def known(self, name: str, now: float | None = None) -> TopicDescription | None:
        """What is believed of a topic right now, without asking. `now`: by the loop's clock, for whoever has looked."""
        topic, since = self._known.get(name, (None, 0.0))
        if topic is None:
            return None
        age = (_now() if now is None else now) - since
        if age > KEPT_SECONDS:
            del self._known[name]
            return None
        if age > REFRESH_SECONDS and name not in self._wanted and len(self._wanted) < MAX_WANTED:
            self._want(name)
        return topic

    async def find(self, names: Iterable[str]) -> dict[str, TopicDescription]:
        """Those of `names` that exist. Raises RequestError if the controllers do not answer."""
        found: dict[str, TopicDescription] = {}
        asked: dict[str, asyncio.Future[TopicDescription | None]] = {}
        for name in dict.fromkeys(names):
            if (topic := self.known(name)) is not None:
                found[name] = topic
            elif is_topic_name(name):
                if name not in self._wanted and len(self._wanted) >= MAX_WANTED:
                    raise RequestError(ErrorCode.REQUEST_TIMED_OUT, f"{MAX_WANTED} topics are asked for already")
                asked[name] = self._want(name)
        # Shielded: others may wait for the same.
        answers = await asyncio.gather(*map(asyncio.shield, asked.values()))
        return found | {name: topic for name, topic in zip(asked, answers, strict=True) if topic is not None}

    async def all(self) -> list[TopicDescription]:
        """Every topic there is, by name. Raises RequestError."""
        topics: list[TopicDescription] = []
        after = ""
        for _ in range(MAX_PAGES):
            page = await self._calls.topics(after, MAX_NAMED_TOPICS)
            topics += page.topics
            if page.next_after is None:
                break
            after = page.next_after
        for topic in topics:
            self._learn(topic)
        return topics

    async def all_or_last(self) -> list[TopicDescription]:
        """As `all`; while the controllers do not answer, as it was when they last did: an empty list would make
        consumers believe that all topics are gone. Who asks meanwhile is answered together."""
        if self._listing is None or self._listing.done():
            self._listing = asyncio.get_running_loop().create_task(self.all())
        try:
            self._last = await asyncio.shield(self._listing)
        except RequestError as error:
            _log.debug("the list of topics is not known: %s", error)
        return self._last

    async def find_ids(self, ids: Iterable[uuid.UUID]) -> dict[uuid.UUID, TopicDescription]:
        """Those of `ids` that exist. Raises RequestError."""
        wanted = set(ids)
        if not wanted:
            return {}
        found = {topic.topic_id: topic for name in (*self._known,) if (topic := self.known(name)) is not None}
        if not wanted <= found.keys():
            found = {topic.topic_id: topic for topic in await self.all()}
        return {topic_id: topic for topic_id, topic in found.items() if topic_id in wanted}

    async def find_or_create(self, names: Iterable[str]) -> dict[str, TopicDescription | RequestError]:
        """As `find`, but topics that do not exist are created, if the settings say so; or what hinders that."""
        wanted = [*dict.fromkeys(names)]
        found: dict[str, TopicDescription | RequestError] = {**await self.find(wanted)}
        created = 0
        for name in wanted if self._auto_create else ():
            if name in found or not is_topic_name(name):
                continue
            created += 1
            if created > MAX_CREATED:
                found[name] = RequestError(ErrorCode.REQUEST_TIMED_OUT, "so many topics are created one after another")
                continue
            try:
                found[name] = await self._create_or_find(name)
            except RequestError as error:
                found[name] = error
        return found

    async def create(
        self,
        name: str,
        partitions: int,
        retention_ms: int = UNLIMITED,
        retention_bytes: int = UNLIMITED,
        *,
        validate_only: bool = False,
    ) -> TopicDescription:
        """Create a topic. Raises RequestError."""
        if not is_topic_name(name):
            raise RequestError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"a topic's name is {RULE}")
        request = CreateTopicRequest(
            uuid.uuid4(),
            name,
            partitions,
            retention_ms,
            retention_bytes,
            *self.asker(),
            validate_only,
        )
        topic = await self.told(self._calls.create_topic(request), request.broker_epoch)
        if not validate_only:
            self._learn(topic)
        return topic

    async def delete(self, name: str, topic_id: uuid.UUID | None = None) -> uuid.UUID:
        """Delete a topic, and return its id. Raises RequestError."""
        if not is_topic_name(name):
            raise RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        request = DeleteTopicRequest(name, topic_id, *self.asker())
        try:
            return (await self.told(self._calls.delete_topic(request), request.broker_epoch)).topic_id
        finally:
            self.forget(name)

    def forget(self, name: str) -> None:
        """The quorum does not know it, or not so: ask again."""
        self._known.pop(name, None)

    async def stop(self) -> None:
        """Ask no more."""
        tasks = [task for task in (self._asking, self._listing) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _create_or_find(self, name: str) -> TopicDescription:
        try:
            return await self.create(name, self.default_partitions)
        except RequestError as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
            found = await self.find([name])
            if name not in found:
                raise
            return found[name]

    def asker(self) -> tuple[int, int]:
        """The broker and the epoch that a call shows. Raises RequestError before the first registration."""
        epoch = self._session.broker_epoch
        if epoch is None:
            raise RequestError(ErrorCode.REQUEST_TIMED_OUT, "this agent is not registered with the controllers yet")
        return self._session.broker_id, epoch

    async def told(self, call: Awaitable[_Answer], epoch: int | None) -> _Answer:
        """The answer to a call that shows the registration. A stale one is looked into, and clients come again."""
        try:
            return await call
        except RequestError as error:
            if error.code not in STALE:
                raise
            assert epoch is not None, "shown by every agent"
            self._session.doubt_epoch(epoch)
            raise RequestError(ErrorCode.REQUEST_TIMED_OUT, "this agent registers anew") from error

    def _want(self, name: str) -> asyncio.Future[TopicDescription | None]:
        """The answer of the call that asks for `name` next."""
        loop = asyncio.get_running_loop()
        if (waiting := self._wanted.get(name)) is not None:
            return waiting
        waiting = self._wanted[name] = loop.create_future()
        # Nobody may wait for it: what it failed with is no secret then, but no news either.
        waiting.add_done_callback(lambda done: done.cancelled() or done.exception())
        if self._asking is None or self._asking.done():
            self._asking = loop.create_task(self._ask())
        return waiting

    async def _ask(self) -> None:
        """Ask for all that is wanted, a call after another."""
        while self._wanted:
            names = [name for name, _ in zip(self._wanted, range(MAX_ASKED), strict=False)]
            try:
                page = await self._calls.find_topics(FindTopicsRequest(names))
            except RequestError as error:
                _log.debug("topics are not known: %s", error)
                for name in names:
                    _fail(self._wanted.pop(name), error)
                continue
            except BaseException:
                for waiting in self._wanted.values():
                    waiting.cancel()
                self._wanted.clear()
                raise
            found = {topic.name: topic for topic in page.topics}
            for name in names:
                waiting = self._wanted.pop(name)
                topic = found.get(name)
                if topic is None:
                    self.forget(name)
                else:
                    self._learn(topic)
                if not waiting.done():
                    waiting.set_result(topic)

    def _learn(self, topic: TopicDescription) -> None:
        self._known.pop(topic.name, None)
        if len(self._known) >= MAX_KNOWN:
            del self._known[next(iter(self._known))]
        self._known[topic.name] = topic, _now()


def log_of(topic: TopicDescription | None, partition: int) -> int | None:
    """The log of a partition; None if there is no such topic or partition."""
    if topic is None or not 0 <= partition < topic.partitions:
        return None
    return topic.first_log + partition


def _fail(waiting: asyncio.Future[TopicDescription | None], error: RequestError) -> None:
    if not waiting.done():
        waiting.set_exception(RequestError(error.code, error.detail))


def _now() -> float:
    return asyncio.get_running_loop().time()
