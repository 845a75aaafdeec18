"""Producers that write until they are stopped, one idempotent and one transactional, and what must be read back."""

from __future__ import annotations

import itertools
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Final

import confluent_kafka
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.clients.record_witnesses import PARTITIONS, SECONDS, Confluent, Found

TOPIC: Final = "t"
REQUEST_TIMEOUT_MS: Final = 1000
LIMIT_SECONDS: Final = 60.0
"""How long a producer tries; longer than any fault lasts."""

MOST_UNHEARD: Final = 100
"""One of so many acknowledgements may be without an offset: with five batches under way a fault leaves a few."""

PACE_SECONDS: Final = 0.002
IN_TRANSACTION: Final = 4 * PARTITIONS
LEAST: Final = 3
"""Transactions of either outcome that must have been for the test to say something, on a slow machine too."""


class Load:
    """`acknowledged`: value -> partition and offset. `ended`: transaction -> whether it was committed.

    An offset is None where librdkafka heard of a batch by the one behind it: that was taken, so it was too, though no
    answer of its own said so (`rd_kafka_dr_implicit_ack`).
    """

    def __init__(self, bootstrap: str) -> None:
        self._settings = {
            "bootstrap.servers": bootstrap,
            "log_level": 0,
            "linger.ms": 1,
            # It gives up on what a stopped agent has in its socket, which the agent commits once it goes on.
            "socket.timeout.ms": REQUEST_TIMEOUT_MS,
            "request.timeout.ms": REQUEST_TIMEOUT_MS,
            "message.timeout.ms": int(LIMIT_SECONDS * 1000),
            "transaction.timeout.ms": int(LIMIT_SECONDS * 1000),
        }
        self.stop = threading.Event()
        self.acknowledged: dict[str, tuple[int, int | None]] = {}
        self.failed: list[str] = []
        self.ended: dict[int, bool] = {}

    def idempotent(self) -> None:
        """Until `stop`, one record after the other to alternating partitions; then until all are acknowledged."""
        producer = confluent_kafka.Producer(self._settings | {"enable.idempotence": True})
        for number in itertools.count():
            if self.stop.is_set():
                break
            self._produce(producer, f"plain-{number}", number % PARTITIONS)
            producer.poll(PACE_SECONDS)
        assert producer.flush(LIMIT_SECONDS) == 0

    def transactional(self) -> None:
        """Until `stop`, transactions with records in each partition, of which every other one is aborted."""
        settings = {name: value for name, value in self._settings.items() if name != "message.timeout.ms"}
        producer = confluent_kafka.Producer(settings | {"transactional.id": "x"})
        _again(lambda: producer.init_transactions(SECONDS))
        for transaction in itertools.count():
            if self.stop.is_set():
                return
            producer.begin_transaction()
            for number in range(IN_TRANSACTION):
                self._produce(producer, f"tx-{transaction}-{number}", number % PARTITIONS)
            self.ended[transaction] = self._end(producer, committed=transaction % 2 == 0)

    def _end(self, producer: confluent_kafka.Producer, *, committed: bool) -> bool:
        assert producer.flush(LIMIT_SECONDS) == 0
        try:
            _again(lambda: (producer.commit_transaction if committed else producer.abort_transaction)(SECONDS))
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            _again(lambda: producer.abort_transaction(SECONDS))
            return False
        return committed

    def _produce(self, producer: confluent_kafka.Producer, value: str, partition: int) -> None:
        def keep(error: Any, message: Any) -> None:
            if error is not None:
                self.failed.append(f"{value}: {error}")
            else:
                self.acknowledged[value] = (partition, message.offset())

        producer.produce(TOPIC, partition=partition, value=value, key="k", headers=[("h", b"x")], on_delivery=keep)


def _again(step: Callable[[], None]) -> None:
    """Repeat what the library calls retriable. Raises KafkaException for all else, and when it takes too long."""
    deadline = time.monotonic() + LIMIT_SECONDS
    while True:
        try:
            return step()
        except KafkaException as error:
            if not error.args[0].retriable() or time.monotonic() > deadline:
                raise


@contextmanager
def loaded(bootstrap: str) -> Iterator[Load]:
    """Both producers write to a new topic meanwhile. At the end all that they were told is read back and compared."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(SECONDS)
    load = Load(bootstrap)
    with ThreadPoolExecutor() as threads:
        running = [threads.submit(load.idempotent), threads.submit(load.transactional)]
        try:
            yield load
        finally:
            load.stop.set()
        for one in running:
            one.result(2 * LIMIT_SECONDS)
    _check(load, bootstrap)


def _check(load: Load, bootstrap: str) -> None:
    assert not load.failed
    plain = {value for value in load.acknowledged if value.startswith("plain")}
    assert len(plain) >= LEAST * IN_TRANSACTION
    assert min(Counter(load.ended.values())[committed] for committed in (True, False)) >= LEAST
    everything = Confluent().read(bootstrap, TOPIC, "read_uncommitted")
    _check_all(load, everything)
    committed = Confluent().read(bootstrap, TOPIC, "read_committed")
    kept = {number for number, ended in load.ended.items() if ended}
    whole = {f"tx-{transaction}-{number}" for transaction in kept for number in range(IN_TRANSACTION)}
    assert _values(committed) == plain | whole
    assert len(committed) == len(plain | whole), "a record is there twice"


def _check_all(load: Load, everything: list[Found]) -> None:
    places = {one.record.value: (one.record.partition, one.offset) for one in everything}
    assert len(places) == len(everything), "a record is there twice"
    told = load.acknowledged
    wrong = {value: (told.get(value), places.get(value)) for value in places.keys() ^ told.keys()}
    for value in places.keys() & told.keys():
        (partition, offset), there = told[value], places[value]
        if there != (partition, there[1] if offset is None else offset):
            wrong[value] = told[value], there
    assert not wrong, f"{len(wrong)} records are not where their producer was told: {sorted(wrong.items())[:20]}"
    unheard = sum(offset is None for _, offset in told.values())
    assert unheard <= len(told) // MOST_UNHEARD, f"{unheard} of {len(told)} records were acknowledged without an offset"
    for partition, producer in itertools.product(range(PARTITIONS), ("plain", "tx")):
        order = [
            tuple(map(int, one.record.value.split("-")[1:]))
            for one in everything
            if one.record.partition == partition and one.record.value.startswith(producer)
        ]
        assert order == sorted(order), f"{producer} in partition {partition} is out of order"


def _values(found: list[Found]) -> set[str]:
    return {one.record.value for one in found}
