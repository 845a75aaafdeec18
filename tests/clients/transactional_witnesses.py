"""Transactional producers of four client libraries, each as far as its API goes where no topic exists.

No library sends a record here, for no topic has a leader. This does reach the coordinator of the transaction:
`send_offsets_to_transaction` adds the group's offsets to the transaction before it looks for the coordinator of the
group, which is refused at once; and three libraries add a partition that is named to their transaction managers.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
import time
import warnings
from collections.abc import Callable
from typing import Any, ClassVar, Final, NamedTuple, Protocol, TypeVar

import aiokafka
import confluent_kafka
from aiokafka import AIOKafkaProducer
from aiokafka.errors import GroupAuthorizationFailedError, ProducerFenced
from confluent_kafka import KafkaError, KafkaException

from tests.clients.java_witness import JavaError, JavaProcess
from tests.clients.security import Security

with warnings.catch_warnings():
    # kafka-python reads its bundled schemas in a way that Python 3.11 deprecates.
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka
    import kafka.errors

CLIENT_SECONDS: Final = 30.0
"""How long a step may take: a client that lost its coordinator waits for the session of the dead agent to end."""

CLOSE_SECONDS: Final = 5.0
REQUEST_TIMEOUT_MS: Final = 5_000
TOPIC: Final = "produced"
CONSUMED: Final = "consumed"

_Found = TypeVar("_Found")


class Pair(NamedTuple):
    """What InitProducerId gives."""

    producer_id: int
    epoch: int


class FencedError(Exception):
    """The library says that a newer instance has the transactional id. Its own exception is the cause."""


class GroupRefusedError(Exception):
    """The library says that there is no coordinator of the consumer group."""


class Witness(Protocol):
    """One producer. Steps raise FencedError, GroupRefusedError, or what the library raised, and TimeoutError."""

    library: ClassVar[str]
    adds_partitions: ClassVar[bool]
    """Whether the library can be made to add a partition without metadata of its topic."""
    remembers_offsets: ClassVar[bool]
    """Whether it still knows after GroupRefusedError that there is a transaction to be aborted at the coordinator."""

    survives_dead_coordinator: ClassVar[bool]
    """Whether it looks for another coordinator when nobody listens any more where it knows one."""

    async def init(self) -> Pair:
        """init_transactions, and the pair that the library then has; without a transactional id, its first pair."""

    async def begin(self) -> None: ...

    async def add_offsets(self, group: str) -> None:
        """send_offsets_to_transaction. GroupRefusedError: the coordinator of the transaction has added them."""

    async def add_partition(self) -> None:
        """Partition 0 of TOPIC. It is sent by now or with `end`, at the library's choice."""

    async def end(self, *, committed: bool) -> None: ...

    async def close(self) -> None: ...


Opener = Callable[[str, str | None], Witness]
"""Bootstrap addresses with commas between, and a transactional id or None for an idempotent producer."""


class AiokafkaWitness:
    """After a refused group it forgets that it has begun a transaction, and would end it nowhere but in its memory."""

    library: ClassVar[str] = "aiokafka"
    adds_partitions: ClassVar[bool] = True
    remembers_offsets: ClassVar[bool] = False
    survives_dead_coordinator: ClassVar[bool] = True

    def __init__(self, bootstrap: str, transactional_id: str | None, security: Security | None = None) -> None:
        self._producer = AIOKafkaProducer(
            bootstrap_servers=bootstrap,
            transactional_id=transactional_id,
            enable_idempotence=True,
            request_timeout_ms=REQUEST_TIMEOUT_MS,
            **({} if security is None else security.python()),
        )

    async def init(self) -> Pair:
        await _bounded(self._producer.start())
        manager = self._producer._txn_manager
        await _bounded(manager.wait_for_pid())
        return Pair(manager.producer_id, manager.producer_epoch)

    async def begin(self) -> None:
        await self._producer.begin_transaction()

    async def add_offsets(self, group: str) -> None:
        offsets = {aiokafka.TopicPartition(CONSUMED, 0): 1}
        await self._step(self._producer.send_offsets_to_transaction(offsets, group))

    async def add_partition(self) -> None:
        self._producer._txn_manager.maybe_add_partition_to_txn(aiokafka.TopicPartition(TOPIC, 0))

    async def end(self, *, committed: bool) -> None:
        await self._step(self._producer.commit_transaction() if committed else self._producer.abort_transaction())

    async def _step(self, call: Any) -> None:
        try:
            await _bounded(call)
        except ProducerFenced as error:
            raise FencedError from error
        except GroupAuthorizationFailedError as error:
            raise GroupRefusedError from error

    async def close(self) -> None:
        # It waits for a transaction that never ended, or raises what fenced the producer.
        with contextlib.suppress(aiokafka.errors.KafkaError, TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS):
                await self._producer.stop()


class ConfluentWitness:
    library: ClassVar[str] = "confluent-kafka"
    adds_partitions: ClassVar[bool] = False
    remembers_offsets: ClassVar[bool] = True
    survives_dead_coordinator: ClassVar[bool] = True

    def __init__(self, bootstrap: str, transactional_id: str | None, security: Security | None = None) -> None:
        secured = {} if security is None else security.librdkafka()
        self._settings = {"bootstrap.servers": bootstrap, "log_level": 0, **secured}
        self._transactional = transactional_id is not None
        self._pair = Pair(-1, -1)
        settings = {"transactional.id": transactional_id} if transactional_id else {"enable.idempotence": True}
        self._producer = confluent_kafka.Producer(
            self._settings | settings | {"statistics.interval.ms": 50, "stats_cb": self._on_statistics}
        )

    def _on_statistics(self, statistics: str) -> None:
        told = json.loads(statistics).get("eos", {})
        self._pair = Pair(told.get("producer_id", -1), told.get("producer_epoch", -1))

    async def init(self) -> Pair:
        if self._transactional:
            await self._step(self._producer.init_transactions, CLIENT_SECONDS)

        def read_back() -> Pair | None:
            self._producer.poll(0.02)
            return self._pair if self._pair.producer_id >= 0 else None

        return await asyncio.to_thread(_until, read_back, "statistics with a producer id")

    async def begin(self) -> None:
        await self._step(self._producer.begin_transaction)

    async def add_offsets(self, group: str) -> None:
        await asyncio.to_thread(self._add_offsets, group)

    def _add_offsets(self, group: str) -> None:
        consumer = confluent_kafka.Consumer(self._settings | {"group.id": group})
        try:
            metadata = consumer.consumer_group_metadata()
        finally:
            consumer.close()
        offsets = [confluent_kafka.TopicPartition(CONSUMED, 0, 1)]
        _confluent_step(self._producer.send_offsets_to_transaction, offsets, metadata, CLIENT_SECONDS)

    async def add_partition(self) -> None:
        raise AssertionError("librdkafka adds a partition with its first record alone")

    async def end(self, *, committed: bool) -> None:
        end = self._producer.commit_transaction if committed else self._producer.abort_transaction
        await self._step(end, CLIENT_SECONDS)

    async def _step(self, call: Callable[..., Any], *arguments: Any) -> None:
        await asyncio.to_thread(_confluent_step, call, *arguments)

    async def close(self) -> None:
        # It aborts a transaction under way first, and raises again what was fatal.
        with contextlib.suppress(KafkaException, TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS):
                await _in_daemon_thread(self._producer.close)


def _confluent_step(call: Callable[..., Any], *arguments: Any) -> None:
    try:
        call(*arguments)
    except KafkaException as error:
        told = error.args[0]
        if told.code() == KafkaError._FENCED:
            assert told.fatal(), told
            raise FencedError from error
        if told.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
            assert told.txn_requires_abort(), told
            raise GroupRefusedError from error
        raise


class KafkaPythonWitness:
    """Version 3.0.12 drops a request whose connection to the coordinator is refused: the step then takes for ever."""

    library: ClassVar[str] = "kafka-python"
    adds_partitions: ClassVar[bool] = True
    remembers_offsets: ClassVar[bool] = True
    survives_dead_coordinator: ClassVar[bool] = False

    def __init__(self, bootstrap: str, transactional_id: str | None, security: Security | None = None) -> None:
        self._transactional = transactional_id is not None
        secured = {} if security is None else security.python()
        self._open = lambda: kafka.KafkaProducer(
            bootstrap_servers=bootstrap.split(","),
            transactional_id=transactional_id,
            request_timeout_ms=REQUEST_TIMEOUT_MS,
            max_block_ms=CLIENT_SECONDS * 1000,
            **secured,
        )
        self._producer: Any = None

    @property
    def _manager(self) -> Any:
        return self._producer._transaction_manager

    async def init(self) -> Pair:
        self._producer = await asyncio.to_thread(self._open)
        if self._transactional:
            await self._step(self._producer.init_transactions)

        def read_back() -> Pair | None:
            pair = self._manager.producer_id_and_epoch
            return Pair(pair.producer_id, pair.epoch) if pair.is_valid else None

        return await asyncio.to_thread(_until, read_back, "a producer id of kafka-python")

    async def begin(self) -> None:
        self._producer.begin_transaction()

    async def add_offsets(self, group: str) -> None:
        offsets = {kafka.TopicPartition(CONSUMED, 0): kafka.OffsetAndMetadata(1, "", -1)}
        await self._step(self._producer.send_offsets_to_transaction, offsets, group)

    async def add_partition(self) -> None:
        self._manager.maybe_add_partition_to_transaction(kafka.TopicPartition(TOPIC, 0))

    async def end(self, *, committed: bool) -> None:
        await self._step(self._producer.commit_transaction if committed else self._producer.abort_transaction)

    async def _step(self, call: Callable[..., Any], *arguments: Any) -> None:
        try:
            await _bounded(_in_daemon_thread(call, *arguments))
        except kafka.errors.ProducerFencedError as error:
            raise FencedError from error
        except kafka.errors.GroupAuthorizationFailedError as error:
            raise GroupRefusedError from error

    async def close(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            await asyncio.to_thread(producer.close, CLOSE_SECONDS)


class JavaWitness:
    """`process` may serve many producers, one command at a time, all with the settings that it was given before."""

    library: ClassVar[str] = "Java"
    adds_partitions: ClassVar[bool] = True
    remembers_offsets: ClassVar[bool] = True
    survives_dead_coordinator: ClassVar[bool] = True

    def __init__(self, process: JavaProcess, bootstrap: str, transactional_id: str | None) -> None:
        self._process = process
        self._name = process.new_name()
        self._transactional = transactional_id is not None
        self._opening = ["open", self._name, bootstrap, *([transactional_id] if transactional_id else [])]

    async def init(self) -> Pair:
        await self._step(*self._opening)
        if self._transactional:
            await self._step("init", self._name)
        return await asyncio.to_thread(_until, self._read_back, "a producer id of the Java client")

    def _read_back(self) -> Pair | None:
        producer_id, epoch = self._process.ask("pair", self._name).split()
        return Pair(int(producer_id), int(epoch)) if int(producer_id) >= 0 else None

    async def begin(self) -> None:
        await self._step("begin", self._name)

    async def add_offsets(self, group: str) -> None:
        await self._step("offsets", self._name, group)

    async def add_partition(self) -> None:
        await self._step("partition", self._name, TOPIC)

    async def end(self, *, committed: bool) -> None:
        await self._step("commit" if committed else "abort", self._name)

    async def _step(self, *command: str) -> None:
        try:
            await asyncio.to_thread(self._process.ask, *command)
        except JavaError as error:
            if "ProducerFencedException" in str(error):
                raise FencedError from error
            if "GroupAuthorizationException" in str(error):
                raise GroupRefusedError from error
            raise

    async def close(self) -> None:
        await self._step("close", self._name)


async def _bounded(call: Any) -> None:
    async with asyncio.timeout(CLIENT_SECONDS):
        await call


async def _in_daemon_thread(call: Callable[..., Any], *arguments: Any) -> None:
    """A call that may never return: nobody waits for its thread at the end."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()

    def settle(error: Exception | None) -> None:
        if done.done():
            return
        if error is None:
            done.set_result(None)
        else:
            done.set_exception(error)

    def run() -> None:
        error: Exception | None = None
        try:
            call(*arguments)
        except Exception as raised:  # noqa: BLE001 - it is raised again where the call is awaited
            error = raised
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(settle, error)

    threading.Thread(target=run, daemon=True).start()
    await done


def _until(look: Callable[[], _Found | None], what: str) -> _Found:
    deadline = time.monotonic() + CLIENT_SECONDS
    while time.monotonic() < deadline:
        if (found := look()) is not None:
            return found
        time.sleep(0.002)
    raise TimeoutError(f"not within {CLIENT_SECONDS:g} s: {what}")
