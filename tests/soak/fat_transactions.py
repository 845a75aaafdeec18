"""Fat transactions for a long time: does a member keep within what it may take of memory and disk?

`python -m tests.soak.fat_transactions --minutes 15` runs three controllers, and callers whose transactions have 9,000
partitions each. It prints a line every ten seconds, writes build/soak.json, and then kills all members and times their
restart, some times. The exit code is 1 if a bound is passed.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from pidkeeper.cli.local_cluster import LocalCluster
from pidkeeper.controller.node.settings import DEFAULT_SNAPSHOT_BYTES
from pidkeeper.controller.storage.segment import DEFAULT_SEGMENT_BYTES
from tests.soak.members import MIB, beyond, conclude, log_bytes, resident_bytes, restart
from tests.support.cluster import metrics, running_cluster
from tests.support.transactional_client import TransactionalClient

REPORT: Final = Path("build/soak.json")
CALLERS: Final = 5
PARTITIONS: Final = 9_000
STEP: Final = 100
"""Partitions that join with one call: a transaction of 9,000 takes 90 calls."""

MAX_MEMORY_BYTES: Final = 128 * MIB
"""Resident, of one member; the state of five transactions is far below a MiB."""

MAX_RESTART_SECONDS: Final = 2.0
"""From the start of three members that were killed until all are ready, with nothing beside them."""

RESTARTS: Final = 3
"""The fastest counts: whatever else goes on can only make it longer."""

SAMPLE_SECONDS: Final = 1.0
PATIENCE: Final = 4
"""Times as long a soak may last where the machine is too slow for a first snapshot in time."""

SHOWN_EVERY: Final = 10
"""Samples between two lines of the table."""


class Report(msgspec.Struct):
    """What was seen at most, of any member; bytes and seconds.

    `may_log_bytes`: what a log may take; `may_restart_seconds`: until all members are ready, once they were killed.
    `logged_bytes`: written to the log of the leader in all.
    """

    minutes: float
    may_log_bytes: int
    may_restart_seconds: float
    transactions: int = 0
    calls: int = 0
    memory_bytes: int = 0
    log_bytes: int = 0
    logged_bytes: int = 0
    snapshots: int = 0
    restart_seconds: float = 0.0

    def broken(self) -> list[str]:
        """The bounds that were passed."""
        found = beyond("memory of a member", self.memory_bytes, MAX_MEMORY_BYTES)
        found += beyond("log of a member", self.log_bytes, self.may_log_bytes)
        if self.restart_seconds > self.may_restart_seconds:
            found.append(f"a restart took {self.restart_seconds:.1f} s, {self.may_restart_seconds:.1f} may be")
        if not self.snapshots:
            found.append("no snapshot was taken, so no bound was put to the test")
        return found


class Callers:
    """Threads that carry out one fat transaction after another until `stop`; the first error ends them all."""

    def __init__(self, client: TransactionalClient) -> None:
        self._client = client
        self._ended = threading.Event()
        self._count = threading.Lock()
        self._threads = [threading.Thread(target=self._run, args=(f"fat-{n}",), daemon=True) for n in range(CALLERS)]
        self.calls = 0
        self.transactions = 0
        self.error: BaseException | None = None

    def start(self) -> None:
        """Start them all."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End them after the call that is under way. Raises what one of them met."""
        self._ended.set()
        for thread in self._threads:
            thread.join()
        if self.error is not None:
            raise self.error

    @property
    def running(self) -> bool:
        """Whether they go on."""
        return not self._ended.is_set()

    def _run(self, name: str) -> None:
        try:
            while self.running:
                self._transaction(name)
        except BaseException as error:  # noqa: BLE001 - raised by `stop`
            self.error = self.error or error
            self._ended.set()

    def _transaction(self, name: str) -> None:
        client = self._client
        pair = client.pair(name)
        for first in range(0, PARTITIONS, STEP):
            answer = client.add(name, pair, *range(first, first + STEP))
            assert answer.status == 200, answer
            with self._count:
                self.calls += 1
            if not self.running:
                return
        assert client.end(name, pair).status == 200
        with self._count:
            self.transactions += 1


def soak(
    directory: Path,
    seconds: float,
    show: Callable[[str], None],
    *,
    snapshot_bytes: int = DEFAULT_SNAPSHOT_BYTES,
    segment_bytes: int = DEFAULT_SEGMENT_BYTES,
    may_restart_seconds: float = MAX_RESTART_SECONDS,
) -> Report:
    """Run it in `directory`. Raises AssertionError if a member ends or a call is refused."""
    report = Report(seconds / 60, 2 * snapshot_bytes + 4 * segment_bytes, may_restart_seconds)
    options = {"snapshot_bytes": snapshot_bytes, "segment_bytes": segment_bytes}
    with running_cluster(directory, controller_options=options) as cluster:
        callers = Callers(TransactionalClient(cluster))
        callers.start()
        try:
            _watch(cluster, callers, report, seconds, show)
        finally:
            callers.stop()
        report.calls, report.transactions = callers.calls, callers.transactions
        report.restart_seconds = min(restart(cluster) for _ in range(RESTARTS))
    return report


def _watch(
    cluster: LocalCluster, callers: Callers, report: Report, seconds: float, show: Callable[[str], None]
) -> None:
    show("    s  transactions   calls  logged MiB  snapshots  log MiB  memory MiB, by member")
    begun = time.monotonic()
    sample, end, latest = 0, begun + seconds, begun + PATIENCE * seconds
    while callers.running and ((now := time.monotonic()) < end or (not report.snapshots and now < latest)):
        members = cluster.layout.controllers
        memory = [resident_bytes(member) for member in members]
        logs = [log_bytes(member) for member in members]
        report.memory_bytes = max(report.memory_bytes, *memory)
        report.log_bytes = max(report.log_bytes, *logs)
        if sample % SHOWN_EVERY == 0:
            figures = metrics(cluster.leader())
            report.logged_bytes = int(figures["pidkeeper_raft_log_written_bytes_total"])
            report.snapshots = max(report.snapshots, int(figures["pidkeeper_raft_snapshots_taken_total"]))
            show(
                f"{now - begun:5.0f}  {callers.transactions:12}  {callers.calls:6}  "
                f"{report.logged_bytes / MIB:10.1f}  {report.snapshots:9}  {max(logs) / MIB:7.1f}  "
                + "  ".join(f"{one / MIB:.1f}" for one in memory)
            )
        sample += 1
        time.sleep(SAMPLE_SECONDS)


def main(arguments: list[str]) -> int:
    """Run from the command line; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=15.0)
    minutes: float = parser.parse_args(arguments).minutes
    with tempfile.TemporaryDirectory(prefix="pidkeeper-soak-") as directory:
        report = soak(Path(directory), 60 * minutes, lambda line: print(line, flush=True))
    return conclude(report, REPORT)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
