"""`python -m bench.snapshot_hold`: for how long a snapshot of many transactional ids holds the event loop.

A probe asks the leader for what needs neither disk nor peers, again and again: the longest answer is as long as the
loop was held. The leader is the only voter, for on few cores the snapshots of others would be measured along. It takes
one snapshot after another.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import msgspec

from bench.cluster import RAISED_OPTIONS, host_port, register
from bench.figures import repeats
from bench.good_clients import Ask, GoodResult, GoodSpec, Served
from bench.grown_directory import GrownDirectory, founded
from bench.load_process import run_load
from bench.report import Row, at_most, informing
from bench.section_command import run_section
from bench.start_up import resident_mib
from pidkeeper.cli.local_cluster import Controller, LocalCluster

MAX_HOLD_MS: Final = 10.0
PAUSE_SECONDS: Final = 0.001
SNAPSHOTS: Final = "pidkeeper_raft_snapshots_taken_total "
CLIENT_START_SECONDS: Final = 30.0
OFTEN: Final[dict[str, Any]] = RAISED_OPTIONS | {"snapshot_allocations": 100}
"""A snapshot of 200,000 ids takes longer than 100 allocations of one caller."""


ROWS_A_PRODUCER: Final = 2
"""A row for each batch."""


class HoldPlan(msgspec.Struct, frozen=True, kw_only=True):
    """`repetitions` of `seconds` with so many `transactional_ids`, or of what else there is many, and with none."""

    transactional_ids: int
    seconds: float
    repetitions: int


FULL: Final = HoldPlan(transactional_ids=200_000, seconds=10.0, repetitions=3)
QUICK: Final = HoldPlan(transactional_ids=200_000, seconds=4.0, repetitions=1)


class SnapshotHoldBench:
    """Measures in `directory`. `violations` and `notes` gather what the rows cannot say."""

    WHAT = "transactional ids"
    """Of which the snapshots are full."""

    def __init__(self, directory: Path, plan: HoldPlan) -> None:
        self._directory = directory
        self._plan = plan
        self.violations: list[str] = []
        self.notes: list[str] = []

    def measure(self) -> list[Row]:
        """Rows of the section. Raises RuntimeError if the member ends."""
        count = self._plan.transactional_ids
        few, many = self._measure_with(0), self._measure_with(count)
        with_many, with_none = f"snapshots of {count:,} {self.WHAT}", "of none"
        return [
            at_most(
                "snapshot",
                f"{with_many}: the event loop is held for",
                "ms, longest",
                [probe.max_ms for probe, _ in many],
                MAX_HOLD_MS,
                f"{with_none} {max(probe.max_ms for probe, _ in few):.1f} ms",
            ),
            informing(
                "snapshot",
                f"{with_many}: allocate meanwhile",
                "ms, p99",
                [allocate.p99_ms for _, allocate in many],
                f"{with_none} {max(allocate.p99_ms for _, allocate in few):.1f} ms; "
                f"longest {max(allocate.max_ms for _, allocate in many):.1f} ms",
            ),
        ]

    def grow(self, grown: GrownDirectory, count: int) -> None:
        """Put so many of them into what the member starts with."""
        grown.add_transactional_ids(count)

    def _measure_with(self, count: int) -> list[tuple[Served, Served]]:
        """What the probe and the allocations saw, in each repetition."""
        directory = self._directory / f"snapshot-{count}"
        cluster = LocalCluster(directory, controllers=1, agents=0, controller_options=OFTEN)
        (member,) = cluster.layout.controllers
        try:
            with GrownDirectory(founded(cluster)) as grown:
                self.grow(grown, count)
            cluster.start()
            cluster.wait_ready()
            results = [self._ask(member) for _ in range(self._plan.repetitions)]
            self._note(cluster, member, count)
        finally:
            cluster.stop()
        starts = [start for result in results for start in result.starts]
        if repeated := repeats(starts):
            self.violations.append(f"{repeated} of {len(starts)} block starts came twice")
        return [(result.served[0], result.served[1]) for result in results]

    def _ask(self, member: Controller) -> GoodResult:
        body, at = register(member), host_port(member.http)
        asks = [Ask("probe", *at, "GET", "/livez"), Ask("allocate", *at, "POST", "/v1/producer-ids/allocate", body)]
        seconds = self._plan.seconds
        result = run_load(
            "bench.good_clients", GoodSpec(asks, seconds, PAUSE_SECONDS), GoodResult, seconds + CLIENT_START_SECONDS
        )
        for one in result.served:
            if one.failures:
                self.notes.append(f"{one.name}: {one.answers} answers, {one.failures}")
        return result

    def _note(self, cluster: LocalCluster, member: Controller, count: int) -> None:
        taken = cluster.get(member, "/metrics", timeout=10.0)[1].decode()
        snapshots = next(line.split()[1] for line in taken.splitlines() if line.startswith(SNAPSHOTS))
        self.notes.append(
            f"{float(snapshots):.0f} snapshots of {count:,} {self.WHAT}; {resident_mib(member.pid):.0f} MiB resident"
        )


class LogRowsHoldBench(SnapshotHoldBench):
    """The same with rows of partition logs, and half as many producers: both as many as there may be."""

    WHAT = "rows of partition logs"

    def grow(self, grown: GrownDirectory, count: int) -> None:
        """Each producer has two rows."""
        grown.add_partition_logs(count // ROWS_A_PRODUCER, ROWS_A_PRODUCER)


if __name__ == "__main__":
    run_section(lambda directory, quick: SnapshotHoldBench(directory, QUICK if quick else FULL))
