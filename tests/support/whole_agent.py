"""A broker agent with all of its parts in this process, against any controllers."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
import uuid
from collections.abc import AsyncIterator, Callable
from typing import Any

from pidkeeper.broker_agent.agent import Agent
from pidkeeper.broker_agent.controllers.aiohttp_transport import AiohttpTransport
from pidkeeper.broker_agent.controllers.client import ControllerClient, InitOutcome
from pidkeeper.broker_agent.coordinator.caller import ANYBODY, Caller
from pidkeeper.broker_agent.ids.prefetch import PrefetchSettings
from pidkeeper.broker_agent.kafka.application import AgentApplication
from pidkeeper.broker_agent.kafka.dispatch import TransactionalCall
from pidkeeper.broker_agent.kafka.responder import KafkaResponder
from pidkeeper.broker_agent.kafka.transaction_responder import TransactionResponder
from pidkeeper.protocol.addresses import HostPort
from pidkeeper.protocol.errors import RequestError
from pidkeeper.protocol.ids import ProducerIdBlock
from pidkeeper.protocol.messages import InitProducerIdResponse, TransactionalInitRequest, TransactionResponse
from pidkeeper.service.access import Access
from pidkeeper.service.kafka.listener import KafkaListener
from pidkeeper.service.refreshing import Refreshed
from tests.support.stub_controller import StubQuorum
from tests.support.waiting import PATIENCE_SECONDS, until

KAFKA = HostPort("agent-7", 9092)
SETTINGS = PrefetchSettings(min_reserve_ids=4000, reserve_seconds=0.0)


class WholeAgent:
    """An agent, what serves its transactions, and its Kafka listener."""

    def __init__(self, agent: Agent, listener: KafkaListener) -> None:
        self.agent = agent
        self.transactions = agent.transactions
        self.responder = KafkaResponder(agent.reserve, agent.directory, lambda: agent.session.cluster_id)
        self.waiting_responder = TransactionResponder(self.transactions)
        self.listener = listener

    async def answer(self, frame: bytes, caller: Caller = ANYBODY) -> bytes:
        """The answer to one frame, both with their length fields."""
        answer, used = self.responder.respond(frame, caller)
        assert used == len(frame)
        if isinstance(answer, TransactionalCall):
            return await self.waiting_responder.answer(answer)
        assert isinstance(answer, bytes), "no records are kept here"
        return answer


def make_agent(
    client: Any,
    broker_id: int = 7,
    settings: PrefetchSettings = SETTINGS,
    *,
    kafka: HostPort = KAFKA,
    heartbeat_seconds: float = 1.0,
    boot_clock: Callable[[], float] = time.monotonic,
    store_id: uuid.UUID | None = None,
) -> Agent:
    """An agent that calls the controllers by `client`."""
    agent = Agent(
        broker_id,
        client,
        settings,
        incarnation_id=str(uuid.uuid4()),
        rng=random.Random(),
        kafka=kafka,
        heartbeat_seconds=heartbeat_seconds,
        boot_clock=boot_clock,
    )
    if store_id is not None:
        agent.found_store(store_id)
    return agent


@contextlib.asynccontextmanager
async def controller_client(
    urls: tuple[str, ...], *, token: Refreshed[str] | None = None, **options: Any
) -> AsyncIterator[ControllerClient]:
    """A client of the controllers over HTTP."""
    async with AiohttpTransport(token=token) as transport:
        yield ControllerClient(urls, transport, random.Random(1), **options)


@contextlib.asynccontextmanager
async def whole_agent(
    quorum: StubQuorum,
    broker_id: int = 7,
    *,
    heartbeat_seconds: float = 0.02,
    call_seconds: float = PATIENCE_SECONDS,
    boot_clock: Callable[[], float] = time.monotonic,
    **client_options: Any,
) -> AsyncIterator[WholeAgent]:
    """An agent that has registered and filled its reserve. It gives up on a call when a test would."""
    async with controller_client(quorum.urls, call_seconds=call_seconds, **client_options) as client:
        listener = KafkaListener(Access.PRODUCER)
        kafka = HostPort("127.0.0.1", await listener.bind("127.0.0.1", 0))
        agent = make_agent(client, broker_id, kafka=kafka, heartbeat_seconds=heartbeat_seconds, boot_clock=boot_clock)
        whole = WholeAgent(agent, listener)
        await whole.listener.serve(AgentApplication(whole.responder, whole.waiting_responder.answer))
        task = asyncio.create_task(agent.run())
        try:
            await until(lambda: agent.reserve.remaining >= 4000, task)
            yield whole
        finally:
            await whole.listener.stop()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


class DirectClient:
    """The calls of a ControllerClient at a stub in memory, without HTTP: every answer is certain."""

    leader = "http://stub"

    def __init__(self, quorum: StubQuorum) -> None:
        self.quorum = quorum

    async def init_producer_id(self, attempt: Callable[[], TransactionalInitRequest]) -> InitOutcome:
        try:
            answer = self.quorum.ask("/v1/transactions/init-producer-id", attempt())
        except RequestError as error:
            return InitOutcome(error, certain=True)
        assert isinstance(answer, InitProducerIdResponse)
        return InitOutcome(answer, certain=True)

    async def add_partitions_to_txn(self, attempt: Callable[[], Any]) -> TransactionResponse:
        return self.quorum.ask("/v1/transactions/add-partitions", attempt())  # type: ignore[return-value]

    async def end_txn(self, attempt: Callable[[], Any]) -> TransactionResponse:
        return self.quorum.ask("/v1/transactions/end", attempt())  # type: ignore[return-value]


def direct_agent(quorum: StubQuorum, ids: int = 1000, boot_clock: Callable[[], float] = time.monotonic) -> WholeAgent:
    """An agent that does not run: registered at `quorum` and with `ids` at hand. It is there for single calls."""
    agent = make_agent(DirectClient(quorum), settings=PrefetchSettings(min_blocks=1), boot_clock=boot_clock)
    quorum.epochs[7] = agent.session.broker_epoch = 5
    if ids:
        agent.reserve.offer(ProducerIdBlock(quorum.next_producer_id, ids))
        quorum.next_producer_id += ids
    return WholeAgent(agent, KafkaListener(Access.PRODUCER))
