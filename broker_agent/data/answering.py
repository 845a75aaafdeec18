"""From a data call of a Kafka client to the frame that answers it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from pidkeeper.broker_agent.coordinator.directory import Directory
from pidkeeper.broker_agent.data.permitting import PermittedRoom
from pidkeeper.broker_agent.data.room import DataRoom
from pidkeeper.broker_agent.kafka.dispatch import WITH_DATA, Ask, DataCall, ProduceCall
from pidkeeper.broker_agent.kafka.wire.data import (
    create_topics,
    delete_records,
    delete_topics,
    describe_configs,
    fetch,
    list_offsets,
)
from pidkeeper.broker_agent.kafka.wire.data.frames import frame_pieces
from pidkeeper.broker_agent.kafka.wire.data.produce import TopicAppend, produce_frame
from pidkeeper.broker_agent.kafka.wire.metadata import topics_response
from pidkeeper.service.kafka.wire.headers import frame_response
from pidkeeper.service.kafka.wire.versions import (
    CREATE_TOPICS,
    DELETE_RECORDS,
    DELETE_TOPICS,
    DESCRIBE_CONFIGS,
    FETCH,
    LIST_OFFSETS,
    METADATA,
)

NO_ANSWER: Final = b""


class DataAnswers:
    """Answers for clients from `room`. `cluster_id()` is None until the first registration."""

    def __init__(self, room: DataRoom, directory: Directory, cluster_id: Callable[[], str | None]) -> None:
        self._room = PermittedRoom(room)
        self._directory = directory
        self._cluster_id = cluster_id
        self._bodies: Final[Mapping[int, Callable[[DataCall], Awaitable[bytes]]]] = {
            METADATA: self._metadata,
            LIST_OFFSETS: self._list_offsets,
            CREATE_TOPICS: self._create_topics,
            DELETE_TOPICS: self._delete_topics,
            DELETE_RECORDS: self._delete_records,
            DESCRIBE_CONFIGS: self._describe_configs,
        }

    async def answer(self, call: DataCall) -> bytes:
        """The whole response frame, length field included."""
        header = call.header
        if header.api_key == FETCH:
            return await self._fetch(call)
        return frame_response(header, WITH_DATA.served[header.api_key], await self._bodies[header.api_key](call))

    def answer_soon(self, call: Any, done: Callable[[bytes | None], None]) -> bool:
        """Answer Produce; whether that is what it is: many are under way, and wait for one thing together. `done` gets
        the response frame, NO_ANSWER to acks 0, or None if something broke."""
        if not isinstance(call, ProduceCall):
            return False
        self._room.produce(call.request, call.caller, partial(_produced, call, done))
        return True

    async def _fetch(self, call: DataCall) -> bytes:
        def encode(code: int, topics: Sequence[fetch.FetchedTopic]) -> bytes:
            body = fetch.fetch_response(call.header.api_version, topics, code)
            return b"".join(frame_pieces(call.header, fetch.VERSIONS, body))

        return await self._room.fetch(call.request, call.caller, encode)

    async def _metadata(self, call: DataCall) -> bytes:
        topics = await self._room.describe(call.request, call.caller)
        return topics_response(call.header.api_version, topics, self._directory.nodes, self._cluster_id())

    async def _list_offsets(self, call: DataCall) -> bytes:
        version = call.header.api_version
        return list_offsets.list_offsets_response(
            version, await self._room.list_offsets(call.request, version, call.caller)
        )

    async def _create_topics(self, call: DataCall) -> bytes:
        outcomes = await self._room.create_topics(call.request, call.caller)
        return create_topics.create_topics_response(call.header.api_version, outcomes)

    async def _delete_topics(self, call: DataCall) -> bytes:
        outcomes = await self._room.delete_topics(call.request, call.caller)
        return delete_topics.delete_topics_response(call.header.api_version, outcomes)

    async def _delete_records(self, call: DataCall) -> bytes:
        outcomes = await self._room.delete_records(call.request, call.caller)
        return delete_records.delete_records_response(call.header.api_version, outcomes)

    async def _describe_configs(self, call: DataCall) -> bytes:
        outcomes = await self._room.describe_configs(call.request, call.caller)
        return describe_configs.describe_configs_response(call.header.api_version, outcomes)


def _produced(call: ProduceCall, done: Callable[[bytes | None], None], outcomes: list[TopicAppend] | None) -> None:
    if outcomes is None:
        done(None)
    elif call.request.acks == 0:
        done(NO_ANSWER)
    else:
        done(produce_frame(call.header, outcomes))


def asking(data: DataAnswers, others: Ask) -> Ask:
    """Data calls are answered by `data`, and all others by `others`."""

    async def ask(call: Any) -> bytes:
        return await (data.answer(call) if isinstance(call, DataCall) else others(call))

    return ask
