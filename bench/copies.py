"""`python -m bench.copies`: what KIP-447 saves. Processes of one group copy a topic exactly once, with a producer for
each process, and with one for each partition; at agents, and at a single Kafka broker in the same run.
"""

from __future__ import annotations

import time
import uuid
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import msgspec

from bench.cluster import raised_cluster
from bench.copy_load import CALL_SECONDS, LEAVE_SECONDS, CopyResult, CopySpec
from bench.data_systems import System, kafka, ours
from bench.grown_directory import wait_newest_version
from bench.load_process import LOAD_START_SECONDS, run_load
from bench.peers.single_kafka import SingleKafka
from bench.report import Row, informing, median
from bench.section_command import run_section
from pidkeeper.cli.local_cluster import LocalCluster

SECTION: Final = "copies"
RECORD_BYTES: Final = 100
BATCH_RECORDS: Final = 50
"""Of the source: a batch is read whole, whatever its reader's bounds are."""

AT_ONCE: Final = 1000
"""Records of each partition of the source that its producer has in its queue."""

START_SECONDS: Final = 20.0
"""For the processes to start, and to have their share and their producers."""

WAYS: Final = {"a process": False, "a partition": True}
"""What there is a producer for."""

WRITING: Final = ("Produce", "AddPartitionsToTxn", "AddOffsetsToTxn", "TxnOffsetCommit", "EndTxn")
"""Requests that come with what is copied; others come with time, and when a client starts."""


class CopyPlan(msgspec.Struct, frozen=True, kw_only=True):
    """`processes` share `partitions` of so many `records` each, and copy for `seconds`."""

    processes: int
    partitions: int
    records: int
    seconds: float
    repetitions: int


FULL: Final = CopyPlan(processes=4, partitions=64, records=10_000, seconds=10.0, repetitions=3)
QUICK: Final = CopyPlan(processes=2, partitions=8, records=10_000, seconds=2.0, repetitions=1)


class Copies(msgspec.Struct, frozen=True):
    """What the processes did together. `requests`: for a thousand records."""

    producers: int
    rate: float
    transactions: float
    requests: float
    by_name: dict[str, float]


class CopiesBench:
    """Measures in `directory`. `violations` and `notes` gather what the rows cannot say."""

    def __init__(self, directory: Path, plan: CopyPlan) -> None:
        self._directory = directory
        self._plan = plan
        self.violations: list[str] = []
        self.notes: list[str] = []

    def measure(self) -> list[Row]:
        """Rows of the section. Raises CommandError, RuntimeError if members, peers or loads end."""
        with ExitStack() as stack:
            cluster = raised_cluster(LocalCluster, self._directory / "copies", agents=1, data=True)
            stack.callback(cluster.stop)
            cluster.start()
            cluster.wait_ready()
            wait_newest_version(cluster, cluster.leader())
            systems = [ours(cluster)]
            if missing := SingleKafka.why_unavailable():
                self.notes.append(missing)
            else:
                systems.append(kafka(stack.enter_context(SingleKafka(self._directory)), synced=False))
            return [row for system in systems for row in self._rows(system)]

    def _rows(self, system: System) -> list[Row]:
        rows: list[Row] = []
        with system.topic(self._plan.partitions) as source:
            self._fill(system, source)
            runs = {
                way: [self._copy(system, source, each) for _ in range(self._plan.repetitions)]
                for way, each in WAYS.items()
            }
        for way, copies in runs.items():
            last = copies[-1]
            what = f"{system.name}, {self._plan.processes} processes, a producer for {way}"
            sent = ", ".join(f"{name} {share:.1f}" for name, share in last.by_name.items())
            rows.append(
                informing(
                    SECTION,
                    f"{what}: copied",
                    "records/s",
                    [one.rate for one in copies],
                    f"{last.producers} producers, {median([one.transactions for one in copies]):.0f} transactions/s",
                )
            )
            requests = [one.requests for one in copies]
            rows.append(informing(SECTION, f"{what}: requests that write", "for 1,000 records", requests, sent))
        return rows

    def _fill(self, system: System, source: str) -> None:
        from confluent_kafka import Producer

        producer: Any = Producer(
            {
                "bootstrap.servers": system.bootstrap,
                "enable.idempotence": True,
                "batch.num.messages": BATCH_RECORDS,
                "log_level": 2,
            }
        )
        for _ in range(self._plan.records // AT_ONCE):
            for number in range(self._plan.partitions * AT_ONCE):
                producer.produce(source, bytes(RECORD_BYTES), partition=number // AT_ONCE)
            if left := producer.flush(CALL_SECONDS):
                raise RuntimeError(f"{system.name}: {left} records of the source were not acknowledged")

    def _copy(self, system: System, source: str, producer_each: bool) -> Copies:
        plan, group = self._plan, f"bench-{uuid.uuid4().hex[:12]}"
        with system.topic(plan.partitions) as target, ThreadPoolExecutor(plan.processes) as pool:
            share, at = plan.partitions // plan.processes, time.time() + START_SECONDS
            what = system.bootstrap, source, target, group
            specs = [
                CopySpec(*what, f"{group}-{number}", share, producer_each, at, plan.seconds)
                for number in range(plan.processes)
            ]
            results = list(pool.map(_run, specs))
            copied = sum(one.records for one in results)
            self._check(system, source, group, copied)
            if copied == plan.partitions * plan.records:
                self.notes.append(f"{system.name}: the source was at its end before the time was")
        return together(results)

    def _check(self, system: System, source: str, group: str, copied: int) -> None:
        """The group has committed what was copied."""
        from confluent_kafka import Consumer, TopicPartition

        consumer: Any = Consumer({"bootstrap.servers": system.bootstrap, "group.id": group, "log_level": 2})
        try:
            places = [TopicPartition(source, number) for number in range(self._plan.partitions)]
            committed = sum(max(one.offset, 0) for one in consumer.committed(places, CALL_SECONDS))
        finally:
            consumer.close()
        if committed != copied:
            self.violations.append(f"{system.name}: {copied} records were copied, and {committed} are committed")


def _run(spec: CopySpec) -> CopyResult:
    limit = START_SECONDS + spec.seconds + LEAVE_SECONDS + CALL_SECONDS + LOAD_START_SECONDS
    return run_load("bench.copy_load", spec, CopyResult, limit)


def together(results: list[CopyResult]) -> Copies:
    """Of all processes. Raises RuntimeError if they copied nothing."""
    records = sum(one.records for one in results)
    if not records:
        raise RuntimeError("nothing was copied")
    sent: Counter[str] = sum((Counter(one.requests) for one in results), Counter())
    by_name = {name: 1000 * sent[name] / records for name in WRITING}
    return Copies(
        sum(one.producers for one in results),
        sum(one.records / one.seconds for one in results),
        sum(one.transactions / one.seconds for one in results),
        sum(by_name.values()),
        by_name,
    )


if __name__ == "__main__":
    run_section(lambda directory, quick: CopiesBench(directory, QUICK if quick else FULL))
