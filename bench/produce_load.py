"""A process in which librdkafka produces, batch by batch: `python -m bench.produce_load` with a spec on stdin.

Each producer is idempotent, waits for all replicas, and writes to a partition of its own. A batch has one record, so
that its size is known: a batch of many is as large for whoever keeps it. The time of a batch is from when librdkafka
takes it until its application is told of the acknowledgement.
"""

from __future__ import annotations

import asyncio
import contextlib
import resource
import threading
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from bench.figures import quantile_ms, repeats
from bench.load_process import serve

POLL_SECONDS: Final = 0.05
FLUSH_SECONDS: Final = 20.0
"""What is unanswered this long after the run is reported."""

DELIVERY_MS: Final = 20_000
MAX_REASONS: Final = 5
NO_OFFSET: Final = "acknowledged without an offset"
"""A batch that was sent again, and whose first acknowledgement was lost: there the broker knows it no longer."""


class ProduceSpec(msgspec.Struct, frozen=True):
    """What to do: `producers` at `bootstrap`, each with `window` batches of `batch_bytes` in flight, to `topic`."""

    bootstrap: str
    topic: str
    producers: int
    window: int
    batch_bytes: int
    seconds: float
    warmup: float


class ProduceResult(msgspec.Struct, frozen=True):
    """What was acknowledged after the warm-up.

    `rate`: batches a second. `busy`: cores that this process kept busy. `repeated`: offsets that were given twice.
    """

    batches: int
    rate: float
    p50_ms: float
    p99_ms: float
    busy: float
    repeated: int
    failures: dict[str, int]


class Acknowledged(msgspec.Struct):
    """What one producer was told. `times`: when a batch was taken and when it was acknowledged, in seconds."""

    times: list[tuple[float, float]] = []
    offsets: list[int] = []
    failures: Counter[str] = msgspec.field(default_factory=Counter)
    outstanding: int = 0


class Writer:
    """One producer, which one thread drives."""

    def __init__(self, spec: ProduceSpec, partition: int) -> None:
        from confluent_kafka import Producer

        self._spec = spec
        self._partition = partition
        self._value = bytes(spec.batch_bytes)
        self._producer: Any = Producer(settings(spec))
        self.told = Acknowledged()

    def write_until(self, end: float) -> None:
        """Keep the window full until then, and wait for what is under way."""
        told, window = self.told, self._spec.window
        while time.perf_counter() < end:
            while told.outstanding < window:
                self._write()
            self._producer.poll(POLL_SECONDS)
        left = self._producer.flush(FLUSH_SECONDS)
        if left:
            told.failures["no answer"] += left

    def _write(self) -> None:
        begun, told = time.perf_counter(), self.told

        def answered(error: object, message: Any) -> None:
            told.outstanding -= 1
            if error is not None:
                told.failures[str(error)[:120]] += 1
                return
            told.times.append((begun, time.perf_counter()))
            if (offset := message.offset()) is None:
                told.failures[NO_OFFSET] += 1
            else:
                told.offsets.append(offset)

        told.outstanding += 1
        self._producer.produce(self._spec.topic, self._value, partition=self._partition, on_delivery=answered)


def settings(spec: ProduceSpec) -> dict[str, str | int | float | bool]:
    """Of librdkafka: a batch leaves as soon as it is there, and is tried again until it is too late to count."""
    return {
        "bootstrap.servers": spec.bootstrap,
        "enable.idempotence": True,
        "acks": "all",
        "linger.ms": 0,
        "batch.num.messages": 1,
        "message.max.bytes": max(1_000_000, 2 * spec.batch_bytes),
        "delivery.timeout.ms": DELIVERY_MS,
        "log_level": 2,
    }


def summed(all_told: Sequence[Acknowledged], begin: float, end: float, busy: float) -> ProduceResult:
    """What counts is what was acknowledged from `begin` to `end`. Raises ValueError if that is nothing."""
    failures: Counter[str] = sum((told.failures for told in all_told), Counter())
    took = [done - begun for told in all_told for begun, done in told.times if begin <= done < end]
    if not took:
        raise ValueError(f"nothing was acknowledged: {dict(failures.most_common(MAX_REASONS))}")
    return ProduceResult(
        batches=len(took),
        rate=len(took) / (end - begin),
        p50_ms=quantile_ms(took, 0.5),
        p99_ms=quantile_ms(took, 0.99),
        busy=busy,
        repeated=sum(repeats(told.offsets) for told in all_told),
        failures=dict(failures.most_common(MAX_REASONS)),
    )


async def run(spec: ProduceSpec) -> ProduceResult:
    """Run the load. Raises ValueError if nothing was acknowledged."""
    writers = [Writer(spec, number) for number in range(spec.producers)]
    began, used = time.perf_counter(), _cpu_seconds()
    begin = began + spec.warmup
    end = begin + spec.seconds
    threads = [threading.Thread(target=writer.write_until, args=[end], daemon=True) for writer in writers]
    for thread in threads:
        thread.start()
    await asyncio.to_thread(_join, threads)
    busy = (_cpu_seconds() - used) / (time.perf_counter() - began)
    return summed([writer.told for writer in writers], begin, end, busy)


def _join(threads: Sequence[threading.Thread]) -> None:
    for thread in threads:
        thread.join()


def _cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        serve(ProduceSpec, run)
