"""`python -m bench.history`: what a long history costs a controller: its start, its memory, its disk, and look-ups."""

from __future__ import annotations

import http.client
import os
import random
import time
from pathlib import Path
from typing import Final

import msgspec

from bench.cluster import host_port
from bench.figures import quantile_ms
from bench.generate import BLOCK_IDS, BROKERS, CLUSTER_ID
from bench.grown_directory import GrownDirectory, founded
from bench.report import Row, at_most, informing, median
from bench.section_command import run_section
from bench.start_up import resident_mib, seconds_until_ready
from pidkeeper.cli.local_cluster import Controller, LocalCluster
from pidkeeper.protocol.messages import ProducerIdOwner

MAX_EXTRA_SECONDS: Final = 1.0
MAX_RESIDENT_MIB: Final = 80.0
MAX_BYTES_A_BLOCK: Final = 64.0
MAX_LOOKUP_MS: Final = 5.0
NO_SNAPSHOTS: Final = {"snapshot_entries": 1_000_000, "snapshot_allocations": 1_000_000}
"""So that the second start finds the log as the first one did."""


class HistoryPlan(msgspec.Struct, frozen=True, kw_only=True):
    """`blocks` behind a snapshot, `lookups` of random IDs, entries of `logs` without a snapshot; `repetitions` of each
    start."""

    blocks: int
    lookups: int
    logs: tuple[int, ...]
    repetitions: int


FULL: Final = HistoryPlan(blocks=10_000_000, lookups=5000, logs=(0, 10_000, 100_000), repetitions=5)
QUICK: Final = HistoryPlan(blocks=1_000_000, lookups=500, logs=(0, 10_000), repetitions=1)


class HistoryBench:
    """Measures one member, the only voter, in `directory`. `violations` and `notes`: what the rows cannot say."""

    def __init__(self, directory: Path, plan: HistoryPlan) -> None:
        self._directory = directory
        self._plan = plan
        self.violations: list[str] = []
        self.notes: list[str] = []

    def measure(self) -> list[Row]:
        """Rows of the section. Raises RuntimeError, TimeoutError if a member does not start."""
        return [*self._archived(), *self._logged()]

    def _archived(self) -> list[Row]:
        plan, what = self._plan, f"{self._plan.blocks:,} blocks behind a snapshot"
        cluster = _one_controller(self._directory / "archived")
        (member,) = cluster.layout.controllers
        data = founded(cluster)
        try:
            empty = [_start(cluster, member) for _ in range(plan.repetitions)]
            blank_mib = resident_mib(member.pid)
            cluster.stop()
            with GrownDirectory(data) as grown:
                grown.add_history(plan.blocks)
            files = sorted((data / "archive").iterdir())
            size = sum(path.stat().st_size for path in files)
            cold = _start_cold(cluster, member, files)
            full = [_start(cluster, member) for _ in range(plan.repetitions)]
            resident = resident_mib(member.pid)
            latencies = self._look_up(member)
        finally:
            cluster.stop()
        base = median(empty)
        p50, p99 = quantile_ms(latencies, 0.5), quantile_ms(latencies, 0.99)
        return [
            at_most(
                "history",
                f"start with {what}, beyond one without",
                "s",
                [one - base for one in full],
                MAX_EXTRA_SECONDS,
                f"{base:.2f} s without; {cold - base:.2f} s more where no archive is in the page cache",
            ),
            at_most(
                "history",
                f"resident memory of a member after its start, {what}",
                "MiB",
                [resident],
                MAX_RESIDENT_MIB,
                f"{blank_mib:.0f} MiB without",
            ),
            at_most("history", "archive", "bytes a block", [size / plan.blocks], MAX_BYTES_A_BLOCK),
            at_most("history", f"owner of a random ID, {what}", "ms, p99", [p99], MAX_LOOKUP_MS, f"p50 {p50:.2f} ms"),
        ]

    def _look_up(self, member: Controller) -> list[float]:
        """Latencies of look-ups over one connection."""
        connection = http.client.HTTPConnection(*host_port(member.http), timeout=5.0)
        latencies = []
        try:
            for _ in range(self._plan.lookups):
                wanted = random.randrange(self._plan.blocks * BLOCK_IDS)
                begun = time.perf_counter()
                connection.request("GET", f"/v1/producer-ids/{wanted}/owner")
                answer = connection.getresponse().read()
                latencies.append(time.perf_counter() - begun)
                self._check(wanted, msgspec.json.decode(answer, type=ProducerIdOwner))
        finally:
            connection.close()
        return latencies

    def _check(self, wanted: int, owner: ProducerIdOwner) -> None:
        number = wanted // BLOCK_IDS
        if (owner.first, owner.broker_id) != (number * BLOCK_IDS, number % BROKERS):
            self.violations.append(f"id {wanted} is of broker {number % BROKERS}, the member says {owner}")

    def _logged(self) -> list[Row]:
        rows = []
        for entries in self._plan.logs:
            cluster = _one_controller(self._directory / f"log-{entries}", **NO_SNAPSHOTS)
            (member,) = cluster.layout.controllers
            with GrownDirectory(founded(cluster)) as grown:
                grown.add_log(entries)
            try:
                starts = [_start(cluster, member) for _ in range(self._plan.repetitions)]
                remark = f"{resident_mib(member.pid):.0f} MiB resident"
            finally:
                cluster.stop()
            rows.append(informing("history", f"start with {entries:,} entries in the log alone", "s", starts, remark))
        return rows


def _one_controller(directory: Path, **options: int) -> LocalCluster:
    """Of the cluster that generated archives name."""
    cluster = LocalCluster(directory, controllers=1, agents=0, controller_options=options)
    cluster.layout.cluster_id = CLUSTER_ID
    return cluster


def _start(cluster: LocalCluster, member: Controller) -> float:
    """Seconds of one more start."""
    if cluster.running(member):
        cluster.kill(member)
    return seconds_until_ready(cluster, member)


def _start_cold(cluster: LocalCluster, member: Controller, files: list[Path]) -> float:
    """Likewise, after the page cache was told to let go of `files`."""
    for path in files:
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
            os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(handle)
    return _start(cluster, member)


if __name__ == "__main__":
    run_section(lambda directory, quick: HistoryBench(directory, QUICK if quick else FULL))
