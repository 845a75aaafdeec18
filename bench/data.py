"""`python -m bench.data`: what the data plane does, beside a put and a commit alone, and beside a real Kafka broker.

All is on one machine: three controllers, one agent with a store in a directory, the load, and a Kafka that is idle
while ours is loaded. The rows that have no bar only inform. docs/performance.md has the figures.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import msgspec

from bench import log_decisions, snapshot_hold
from bench.closed_loop import LoadResult
from bench.cluster import host_port, raised_cluster, register
from bench.data_floor import DataFloorResult, DataFloorSpec
from bench.data_systems import Load, Produced, System, kafka, ours, who_was_busy
from bench.floor import ALLOCATE_PATH
from bench.grown_directory import wait_newest_version
from bench.http_load import LoadSpec
from bench.load_process import LOAD_START_SECONDS, run_load
from bench.peers.single_kafka import SingleKafka
from bench.report import Row, at_least, at_most, at_most_times, informing, median
from bench.section_command import run_section
from bench.slow_store import STORE_SECONDS, SlowStoreCluster
from bench.snapshot_hold import LogRowsHoldBench
from pidkeeper.cli.local_cluster import LocalCluster
from pidkeeper.controller.state.logs.limits import MAX_ROWS

SECTION: Final = "data"
BATCH_BYTES: Final = 16 << 10
"""Kafka's default of `batch.size`."""

ONE: Final = Load(producers=1, window=1, batch_bytes=BATCH_BYTES)
IN_FLIGHT: Final = 5
"""Of one connection, the most of an idempotent producer. With more in its queue librdkafka takes a core to wait."""

LARGE: Final = tuple(Load(producers, IN_FLIGHT, BATCH_BYTES) for producers in (16, 32))
"""An agent takes more from 32 producers; Kafka takes most from 16 in some runs, and from 32 in others."""

SMALL: Final = Load(producers=32, window=IN_FLIGHT, batch_bytes=100)
RECORD_BYTES: Final = 100
MAX_FLOORS: Final = 3.0
"""Times a put and a commit that an acknowledgement may take."""

LARGE_SHARE: Final = 0.5
"""Of what a single Kafka broker takes, which syncs nothing: each from as many producers as it takes most from."""

MAX_STORM: Final = 2.0
"""Times what an allocation takes without producers that it may take beside them."""

MAX_BATCH_US: Final = 26.0
"""Of the leader's processor: half of what checking and appending one took in a module without a quorum."""

STORM_SHARE: Final = 3
"""The storm lasts that many times as long as the allocations that are measured within it."""


class DataPlan(msgspec.Struct, frozen=True, kw_only=True):
    """`repetitions` of `seconds` after `warmup`, each system in turn.

    Kafka's code is compiled in `settle` seconds of load before.

    The floor has `objects`, the way to a consumer `round_trips`, the decisions `decisions` objects; snapshots are of
    `rows`, or not measured with 0.
    """

    seconds: float
    warmup: float
    repetitions: int
    settle: float
    objects: int
    round_trips: int
    decisions: int
    rows: int


FULL: Final = DataPlan(
    seconds=5.0, warmup=1.0, repetitions=5, settle=10.0, objects=500, round_trips=300, decisions=4000, rows=MAX_ROWS
)
QUICK: Final = DataPlan(
    seconds=2.0, warmup=0.5, repetitions=1, settle=2.0, objects=200, round_trips=100, decisions=1000, rows=0
)


class DataBench:
    """Measures in `directory`. `violations` and `notes` gather what the rows cannot say."""

    def __init__(self, directory: Path, plan: DataPlan) -> None:
        self._directory = directory
        self._plan = plan
        self.violations: list[str] = []
        self.notes: list[str] = []

    def measure(self) -> list[Row]:
        """Rows of the section. Raises CommandError, RuntimeError if members, peers or loads end."""
        cluster = self._cluster(LocalCluster, "data")
        with ExitStack() as stack:
            stack.callback(cluster.stop)
            _start(cluster)
            peers = self._peers(stack)
            system = ours(cluster)
            rows = self._acknowledged(cluster, system, peers)
            rows += self._streams(system, peers)
            rows += self._storm(cluster, system)
            rows += self._round_trips(system, peers)
        return [*rows, *self._slow_round_trips(), *self._decisions(), *self._snapshots()]

    def _cluster(self, kind: type[LocalCluster], name: str) -> LocalCluster:
        return raised_cluster(kind, self._directory / name, agents=1, data=True)

    def _peers(self, stack: ExitStack) -> list[System]:
        if missing := SingleKafka.why_unavailable():
            self.notes.append(missing)
            return []
        broker = stack.enter_context(SingleKafka(self._directory))
        peers = [kafka(broker, synced=False), kafka(broker, synced=True)]
        for load in (ONE, *LARGE, SMALL):
            self._produce(peers[0], load, self._plan.settle)
        return peers

    def _acknowledged(self, cluster: LocalCluster, system: System, peers: list[System]) -> list[Row]:
        floor = self._floor(cluster)
        runs = self._in_turn([system, *peers], ONE)
        rows = [
            informing(SECTION, "floor: put on the local store, p50", "ms", [floor.put_p50_ms], _tail(floor.put_p99_ms)),
            informing(
                SECTION, "floor: commit by the leader, p50", "ms", [floor.commit_p50_ms], _tail(floor.commit_p99_ms)
            ),
        ]
        mine, least = runs[system.name], floor.put_p50_ms + floor.commit_p50_ms
        p50s, p99s = _p50s(mine), _p99s(mine)
        name = "acknowledgement of 16 KiB, one producer"
        rows.append(_times(f"{name}, p50", p50s, [least], "put and commit", _tail(median(p99s)), MAX_FLOORS))
        for peer in peers:
            theirs = runs[peer.name]
            rows.append(_times(f"{name}, p50", p50s, _p50s(theirs), peer.name))
            rows.append(_times(f"{name}, p99", p99s, _p99s(theirs), peer.name))
        return rows

    def _streams(self, system: System, peers: list[System]) -> list[Row]:
        """Rates of large and of small batches."""
        rows, best = self._stream(system, peers, LARGE[0], "batches of 16 KiB", "MiB/s")
        for load in LARGE[1:]:
            more, rates = self._stream(system, peers, load, "batches of 16 KiB", "MiB/s")
            rows += more
            best = {name: max(best[name], rates[name], key=median) for name in best}
        for peer in peers[:1]:
            what = f"batches of 16 KiB, the most of each, beside {peer.name}"
            rows.append(at_least(LARGE_SHARE, SECTION, what, "MiB/s", best[system.name], best[peer.name]))
        return [*rows, *self._stream(system, peers, SMALL, "batches of 100 B", "batches/s")[0]]

    def _stream(
        self, system: System, peers: list[System], load: Load, name: str, unit: str
    ) -> tuple[list[Row], dict[str, list[float]]]:
        """One load: its rows, and the rates of each system."""
        runs = self._in_turn([system, *peers], load)
        rates = {one: [_rate(each, load, unit) for each in its] for one, its in runs.items()}
        what, mine = f"{name}, {load.producers} producers", runs[system.name]
        remark = f"p99 {median(_p99s(mine)):.1f} ms; {who_was_busy(mine[-1].busy)}"
        if not peers:
            return [informing(SECTION, what, unit, rates[system.name], remark)], rates
        rows = []
        for peer in peers:
            remarks = f"{remark}; there {who_was_busy(runs[peer.name][-1].busy)}"
            beside = f"{what}, beside {peer.name}"
            rows.append(at_least(0, SECTION, beside, unit, rates[system.name], rates[peer.name], remarks))
        return rows, rates

    def _storm(self, cluster: LocalCluster, system: System) -> list[Row]:
        """Allocations of one caller, without and with the small batches of all producers."""
        idle, stormy = [], []
        for _ in range(self._plan.repetitions):
            idle.append(self._allocate(cluster))
            with ThreadPoolExecutor(1) as pool:
                storm = pool.submit(system.produce, SMALL, STORM_SHARE * self._plan.seconds, self._plan.warmup)
                stormy.append(self._allocate(cluster))
                self._check(system, SMALL, storm.result())
        pairs = [(one.p50_ms, one.p99_ms) for one in stormy]
        without = [(one.p50_ms, one.p99_ms) for one in idle]
        name = "allocate over HTTP, 1 caller, while producers storm"
        return [
            _times(f"{name}, {tail}", [one[at] for one in pairs], [one[at] for one in without], "idle", bar=bar)
            for at, (tail, bar) in enumerate((("p50", MAX_STORM), ("p99", 0)))
        ]

    def _allocate(self, cluster: LocalCluster) -> LoadResult:
        leader, plan = cluster.leader(), self._plan
        # The storm's process takes a while to start, and has its warm-up then.
        warmup = plan.seconds / 2 + plan.warmup
        spec = LoadSpec(*host_port(leader.http), ALLOCATE_PATH, register(leader), 1, plan.seconds, warmup)
        return run_load("bench.http_load", spec, LoadResult, warmup + plan.seconds + LOAD_START_SECONDS)

    def _round_trips(self, system: System, peers: list[System]) -> list[Row]:
        plan = self._plan
        took = {
            one.name: one.round_trips(plan.round_trips, plan.round_trips // 10, RECORD_BYTES)
            for one in (system, *peers[:1])
        }
        mine, name = took[system.name], "produce until a read_committed consumer has it, local store, p50"
        if not peers:
            return [informing(SECTION, name, "ms", [mine.p50_ms], _tail(mine.p99_ms))]
        theirs = took[peers[0].name]
        remark = f"{_tail(mine.p99_ms)}; there {theirs.p99_ms:.1f} ms"
        return [_times(name, [mine.p50_ms], [theirs.p50_ms], peers[0].name, remark)]

    def _slow_round_trips(self) -> list[Row]:
        cluster = self._cluster(SlowStoreCluster, "slow-store")
        try:
            _start(cluster)
            took = ours(cluster).round_trips(self._plan.round_trips, self._plan.round_trips // 10, RECORD_BYTES)
        finally:
            cluster.stop()
        name = f"produce until a read_committed consumer has it, store of {STORE_SECONDS * 1000:g} ms, p50"
        return [informing(SECTION, name, "ms", [took.p50_ms], _tail(took.p99_ms))]

    def _decisions(self) -> list[Row]:
        rows = []
        for batches, producers in ((1, 8), (64, 512)):
            costs = [
                log_decisions.measure(self._plan.decisions // batches, batches, producers)
                for _ in range(self._plan.repetitions)
            ]
            rows.append(
                at_most(
                    SECTION,
                    f"decide, encode, decode and replay a batch, {batches} in an object",
                    "us",
                    [cost.decide_us + cost.codec_us + cost.replay_us for cost in costs],
                    MAX_BATCH_US,
                    f"decide {costs[-1].decide_us:.1f}, entry {costs[-1].codec_us:.1f}, "
                    f"replay {costs[-1].replay_us:.1f} us",
                )
            )
        return rows

    def _snapshots(self) -> list[Row]:
        if not self._plan.rows:
            return []
        plan = msgspec.structs.replace(snapshot_hold.FULL, transactional_ids=self._plan.rows)
        bench = LogRowsHoldBench(self._directory, plan)
        rows = bench.measure()
        self.violations += bench.violations
        self.notes += bench.notes
        return rows

    def _floor(self, cluster: LocalCluster) -> DataFloorResult:
        """Of one agent's objects; the agent itself has nothing to do meanwhile."""
        store, at = cluster.directory / "store", host_port(cluster.leader().http)
        spec = DataFloorSpec(*at, str(store), self._plan.objects, BATCH_BYTES)
        return run_load("bench.data_floor", spec, DataFloorResult, LOAD_START_SECONDS + self._plan.objects)

    def _in_turn(self, systems: list[System], load: Load) -> dict[str, list[Produced]]:
        """By the system's name. What the machine is like from minute to minute is the same for all of them."""
        runs: dict[str, list[Produced]] = {one.name: [] for one in systems}
        for _ in range(self._plan.repetitions):
            for one in systems:
                runs[one.name].append(self._produce(one, load, self._plan.seconds))
        return runs

    def _produce(self, system: System, load: Load, seconds: float) -> Produced:
        # What the one before has left in the page cache would be written meanwhile, as if it were this one's.
        os.sync()
        return self._check(system, load, system.produce(load, seconds, self._plan.warmup))

    def _check(self, system: System, load: Load, produced: Produced) -> Produced:
        result = produced.result
        if result.repeated:
            self.violations.append(f"{system.name}, {load}: {result.repeated} offsets were given twice")
        if result.failures:
            self.notes.append(f"{system.name}, {load}: {result.failures}")
        return produced


def _start(cluster: LocalCluster) -> None:
    """Start all, and wait until topics can be made."""
    cluster.start()
    cluster.wait_ready()
    wait_newest_version(cluster, cluster.leader())


def _rate(produced: Produced, load: Load, unit: str) -> float:
    rate = produced.result.rate
    return rate * load.batch_bytes / (1 << 20) if unit == "MiB/s" else rate


def _p50s(runs: list[Produced]) -> list[float]:
    return [one.result.p50_ms for one in runs]


def _p99s(runs: list[Produced]) -> list[float]:
    return [one.result.p99_ms for one in runs]


def _tail(p99_ms: float) -> str:
    return f"p99 {p99_ms:.1f} ms"


def _times(name: str, samples: list[float], floors: list[float], than: str, remark: str = "", bar: float = 0) -> Row:
    """A latency beside another one, with no bar unless one is given."""
    return at_most_times(bar, SECTION, f"{name}, beside {than}", "ms", samples, floors, remark)


if __name__ == "__main__":
    run_section(lambda directory, quick: DataBench(directory, QUICK if quick else FULL))
