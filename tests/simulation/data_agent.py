"""The data plane of one simulated agent: its room as it ships, asked past the wire of Kafka."""

from __future__ import annotations

import asyncio
import contextlib
import random
import uuid
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Final

from pidkeeper.broker_agent.agent import Agent as ShippedAgent
from pidkeeper.broker_agent.coordinator.caller import ANYBODY
from pidkeeper.broker_agent.data import collecting, gathering, rolling, writing
from pidkeeper.broker_agent.data.room import DataRoom
from pidkeeper.broker_agent.data.settings import DataSettings
from pidkeeper.broker_agent.kafka.wire.data.delete_records import DeleteRecordsRequest, PartitionEnd, TopicEnds
from pidkeeper.broker_agent.kafka.wire.data.fetch import FetchedTopic, FetchRequest
from pidkeeper.broker_agent.kafka.wire.data.isolation import IsolationLevel
from pidkeeper.broker_agent.kafka.wire.data.list_offsets import (
    VERSIONS,
    ListOffsetsRequest,
    PartitionTimestamp,
    TopicTimestamps,
)
from pidkeeper.broker_agent.kafka.wire.data.produce import PartitionRecords, ProduceRequest, TopicRecords
from pidkeeper.protocol.errors import RequestError
from pidkeeper.protocol.log_messages import CreateTopicRequest
from pidkeeper.protocol.logs import UNLIMITED
from tests.simulation.loop import SimLoop
from tests.simulation.object_store import SimStore, StorePort
from tests.simulation.world import Violation

if TYPE_CHECKING:
    from tests.simulation.sent_batches import Sent

STORE_ID: Final = uuid.UUID(int=0x5E11)
LARGEST: Final = 4096
"""Bytes of a batch. Those of the simulation have some hundred."""

SWEEP_SECONDS: Final = 10.0
"""Before the first sweep."""
SWEEP_INTERVAL_MS: Final = 3_600_000
"""Between two: few seeds last as long."""

Produced = Callable[[int, int], None]
"""Kafka's code, and the base offset beside 0."""
Fetched = Callable[[int, Sequence[FetchedTopic]], None]
Listed = Callable[[int, int, int], None]
"""Kafka's code, the offset, and the time there."""
Deleted = Callable[[int, int], None]
"""Kafka's code, and the first offset that there is now."""


class Complaints:
    """In the place of the log of those who carry objects: where they complain, the product is at odds with itself."""

    def debug(self, text: str, *args: object) -> None:
        """Of what may happen."""

    def error(self, text: str, *args: object) -> None:
        """Of what may not."""
        raise Violation("agent-complains", text % args)

    exception = error


class Surprises(Complaints):
    """Of those who clean up: they may complain of what they find, and go on after what nobody foresaw."""

    def error(self, text: str, *args: object) -> None:
        """Of a log with damage, for one."""

    def log(self, level: int, text: str, *args: object) -> None:
        """Of a store that is away, for one."""


COMPLAINTS: Final = (
    (gathering, Complaints()),
    (writing, Complaints()),
    (rolling, Surprises()),
    (collecting, Surprises()),
)
"""What takes the place of whose log."""


class AgentData:
    """What clients of the data plane ask of one process. What it is asked ends with it, without an answer."""

    def __init__(self, store: SimStore, loop: SimLoop, agent: ShippedAgent, rng: random.Random) -> None:
        self._loop = loop
        self._agent = agent
        settings = DataSettings(
            store="simulated",
            linger_ms=rng.choice((0, 5, 50)),
            max_object_bytes=rng.choice((LARGEST, 1 << 20)),
            max_message_bytes=LARGEST,
            recent_bytes=rng.choice((0, 2_000, 1 << 20)),
            sweep_interval_ms=SWEEP_INTERVAL_MS,
        )
        port = self.port = StorePort(store, loop)
        self.room = DataRoom(settings, port, agent.client, agent.session, agent.directory, rng)

    def begin(self) -> None:
        """Roll logs while the process lives, and clean up the store."""
        collector = self.room.collector
        self._run(self.room.roller._roll_forever())
        self._run(collector._forever(collector._collect_pause, collecting.COLLECT_SECONDS))
        self._run(collector._forever(collector._sweep_pause, SWEEP_SECONDS))

    def produce(
        self,
        sent: Sent,
        data: bytes,
        transactional_id: str | None,
        timeout_ms: int,
        done: Produced,
        *,
        joining: bool = False,
    ) -> None:
        """Append one batch. Those that are asked for one after another are on one connection, in that order.

        `joining`: the partition joins the transaction with it.
        """
        topic = TopicRecords(sent.topic, [PartitionRecords(sent.partition, memoryview(data))])
        request = ProduceRequest(transactional_id, -1, timeout_ms, [topic], joining)

        async def ask() -> None:
            answer = await self.room.producer.produce(request, ANYBODY)
            (one,) = answer[0].partitions
            done(one.error_code, one.base_offset)

        self._run(ask())

    def fetch(self, request: FetchRequest, done: Fetched) -> None:
        """Read."""

        def encode(code: int, topics: Sequence[FetchedTopic]) -> bytes:
            done(code, topics)
            return b""

        async def ask() -> None:
            await self.room.fetcher.fetch(request, ANYBODY, encode)

        self._run(ask())

    def list_offsets(self, topic: str, partition: int, timestamp: int, isolation: IsolationLevel, done: Listed) -> None:
        """Ask for an offset by time, or by what a negative one stands for."""
        request = ListOffsetsRequest(
            -1, isolation, [TopicTimestamps(topic, [PartitionTimestamp(partition, timestamp)])]
        )

        async def ask() -> None:
            (answer,) = await self.room.lister.list_offsets(request, VERSIONS.highest)
            (one,) = answer.partitions
            done(one.error_code, one.offset, one.timestamp)

        self._run(ask())

    def delete_records(self, topic: str, partition: int, offset: int, done: Deleted) -> None:
        """Have a partition lose what lies below an offset."""
        request = DeleteRecordsRequest([TopicEnds(topic, [PartitionEnd(partition, offset)])], 10_000)

        async def ask() -> None:
            (answer,) = await self.room.deleter.delete_records(request)
            (one,) = answer.partitions
            done(one.error_code, one.low_watermark)

        self._run(ask())

    def delete_topic(self, name: str, topic_id: uuid.UUID | None) -> None:
        """Have a topic deleted. No answer is waited for."""

        async def ask() -> None:
            with contextlib.suppress(RequestError):
                await self.room.topics.delete(name, topic_id)

        self._run(ask())

    def create_topic(
        self, topic_id: uuid.UUID, name: str, partitions: int, retention_ms: int = UNLIMITED, size: int = UNLIMITED
    ) -> None:
        """Have a topic created, unless it is there. No answer is waited for: whoever asks looks at the log.

        `retention_ms`, `size`: for how long and how many bytes of a partition are kept.
        """
        session = self._agent.session
        broker = session.broker_id, session.broker_epoch
        request = CreateTopicRequest(topic_id, name, partitions, retention_ms, size, *broker)

        async def ask() -> None:
            with contextlib.suppress(RequestError):
                await self._agent.client.create_topic(request)

        self._run(ask())

    def _run(self, asking: Coroutine[Any, Any, None]) -> None:
        if self._loop.is_closed():
            asking.close()
            return
        self._loop.create_task(asking).add_done_callback(_check)


def _check(task: asyncio.Task[None]) -> None:
    """A failure of the product is one of the loop: whoever asked would wait for ever."""
    if not task.cancelled() and (error := task.exception()) is not None:
        raise error
