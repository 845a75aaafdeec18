"""The sections of a run: each measures, checks that no ID came twice, and gives rows of the report.

Where there is a floor, its repetitions and the cluster's alternate, so that a machine that slows down slows both.
"""

from __future__ import annotations

import asyncio
import json
import random
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from bench.claim_load import ClaimResult, ClaimSpec
from bench.closed_loop import LoadResult
from bench.cluster import LOAD_BROKER_ID, Cluster, fdatasyncs, host_port, raised_cluster, register
from bench.crowd_section import LIMITS, CrowdBench, CrowdPlan
from bench.disk import measure_fdatasync
from bench.failover import FailoverBench
from bench.figures import repeats
from bench.floor import ALLOCATE_PATH, HOST, Floor, tls_claims
from bench.http_load import LoadSpec
from bench.kafka_load import KafkaLoadSpec
from bench.load_process import run_load
from bench.process_tree import cpu_seconds
from bench.report import Row, at_least, at_least_half, at_most, at_most_twice, median
from bench.slow_disk import SlowDiskCluster
from pidkeeper.cli.controllers import dev_files
from pidkeeper.cli.local_cluster import LocalCluster
from pidkeeper.service.tls_files import TlsFiles

CALLERS: Final = (1, 8, 64)
CLAIM_CONNECTIONS: Final = 64
CLAIMS_IN_FLIGHT: Final = (1, 16)
MAX_FSYNCS_PER_ALLOCATION: Final = 0.15
FAILOVERS: Final = (
    ("kill -9 of the leader", signal.SIGKILL, 300.0),
    ("SIGSTOP of the leader", signal.SIGSTOP, 900.0),
    ("SIGTERM of the leader", signal.SIGTERM, 100.0),
    ("hanging disk of the leader", None, 1000.0),
)
"""Name, signal (None: its fdatasync does not return), and the bar for the median in milliseconds."""

LOAD_START_SECONDS: Final = 30.0
"""What a load process may take on top of its run: starting, draining, and checking a few million ids."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """How long to measure: `repetitions` of `seconds` after `warmup`, `failover_rounds` for each signal, a crowd."""

    seconds: float
    warmup: float
    repetitions: int
    failover_rounds: int
    crowd: CrowdPlan


FULL: Final = Plan(seconds=3.0, warmup=0.5, repetitions=3, failover_rounds=20, crowd=CrowdPlan(rounds=3, seconds=15.0))
QUICK: Final = Plan(
    seconds=1.0,
    warmup=0.3,
    repetitions=1,
    failover_rounds=3,
    crowd=CrowdPlan(rounds=1, seconds=2.0, idle=500, slow=100),
)


class TlsLoad(NamedTuple):
    """IDs a second, IDs for each second of CPU of the server, and seconds of those who work for it beside each.

    Where cores are few, these leave the server less of the machine: that slows the first figure, and not the second.
    """

    rate: float
    per_cpu_second: float
    others: float


class Sections:
    """Runs sections in `directory`. `violations` and `notes` gather what the rows cannot say."""

    def __init__(self, directory: Path, plan: Plan) -> None:
        self._directory = directory
        self._plan = plan
        self._load_seconds = plan.warmup + plan.seconds + LOAD_START_SECONDS
        self.violations: list[str] = []
        self.notes: list[str] = []

    def disk(self) -> list[Row]:
        """The latency of the fdatasync that every durable write rests on."""
        rows = []
        for name, preallocated in (("growing file", False), ("preallocated file", True)):
            results = [
                measure_fdatasync(
                    self._directory / "fdatasync", preallocated=preallocated, seconds=self._plan.seconds / 2
                )
                for _ in range(self._plan.repetitions)
            ]
            p99 = max(result.p99_ms for result in results)
            samples = [result.p50_ms for result in results]
            row = at_most("disk", f"fdatasync of 64 bytes, {name}", "ms, p50", samples, 0.0, f"p99 {p99:.2f} ms")
            rows.append(msgspec.structs.replace(row, bar=None, met=None))
        return rows

    def allocate(self) -> list[Row]:
        """Latency and rate of allocations, and syncs an allocation, against the bare three-member floor."""
        rows: list[Row] = []
        starts: list[int] = []
        with Floor(self._directory / "floor") as floor, self._cluster("allocate", LocalCluster) as cluster:
            for callers in CALLERS:
                floors, results, syncs = self._allocate_with(callers, floor, cluster)
                for result in results:
                    starts += result.starts
                rows += _allocation_rows(callers, floors, results)
            rows.append(
                at_most(
                    "allocate",
                    f"fdatasyncs an allocation on the leader, {CALLERS[-1]} callers",
                    "syncs",
                    syncs,
                    MAX_FSYNCS_PER_ALLOCATION,
                )
            )
        self._check_distinct("block starts of the allocation section", starts)
        return rows

    def kafka(self) -> list[Row]:
        """The same in Kafka's protocol, against a bare parser in front of the same commit, and against our HTTP."""
        rows: list[Row] = []
        starts: list[int] = []
        with Floor(self._directory / "floor") as floor, self._cluster("kafka", LocalCluster) as cluster:
            for callers in (1, CALLERS[-1]):
                floors, results, by_http = [], [], []
                for _ in range(self._plan.repetitions):
                    floors.append(
                        self._kafka_load(f"bare floor, {callers} callers", HOST, floor.kafka_port, 1, callers)
                    )
                    leader = cluster.leader()
                    assert leader.kafka is not None, "controllers of a new directory speak it"
                    body = register(leader)
                    epoch, (host, port) = json.loads(body)["broker_epoch"], leader.kafka.split(":")
                    results.append(self._kafka_load(f"kafka, {callers} callers", host, int(port), epoch, callers))
                    name = f"http beside kafka, {callers} callers"
                    by_http.append(self._http_load(name, *host_port(leader.http), body, callers))
                for result in (*results, *by_http):
                    starts += result.starts
                rows += _kafka_rows(callers, floors, results, by_http)
        self._check_distinct("block starts of the kafka section", starts)
        return rows

    def _allocate_with(
        self, callers: int, floor: Floor, cluster: LocalCluster
    ) -> tuple[list[LoadResult], list[LoadResult], list[float]]:
        floors, results, syncs = [], [], []
        for _ in range(self._plan.repetitions):
            body = '{"broker_id": 1001, "broker_epoch": 1}'
            floors.append(self._http_load(f"floor, {callers} callers", HOST, floor.http_port, body, callers))
            leader = cluster.leader()
            body = register(leader)
            before = fdatasyncs(cluster, leader)
            result = self._http_load(f"allocate, {callers} callers", *host_port(leader.http), body, callers)
            syncs.append((fdatasyncs(cluster, leader) - before) / len(result.starts))
            results.append(result)
        return floors, results, syncs

    def claims(self) -> list[Row]:
        """IDs a second of one agent over the Kafka wire, against a server that only counts."""
        rows = []
        last = -1
        with Floor(self._directory / "floor") as floor, self._cluster("claims", LocalCluster, agents=1) as cluster:
            agent = cluster.layout.agents[0]
            for in_flight in CLAIMS_IN_FLIGHT:
                floors, results = [], []
                for _ in range(self._plan.repetitions):
                    floors.append(self._claim_load("floor", f"{HOST}:{floor.claims_port}", in_flight))
                    result = self._claim_load("agent", agent.kafka, in_flight)
                    if result.first <= last:
                        self.violations.append(f"id {result.first} was claimed after id {last}")
                    last = result.last
                    results.append(result)
                rows.append(
                    at_least_half(
                        "claims",
                        f"claims of one agent, {CLAIM_CONNECTIONS} connections, {in_flight} in flight on each",
                        "ids/s",
                        [result.rate for result in results],
                        [result.rate for result in floors],
                        f"longest gap {max(result.longest_gap_ms for result in results):.0f} ms, "
                        f"{sum(sum(result.errors.values()) for result in results)} errors",
                    )
                )
        return rows

    def tls(self) -> list[Row]:
        """The same over TLS, against a server that only counts over the same TLS, and against an agent without."""
        rows = []
        with (
            self._cluster("plain", LocalCluster, agents=1) as plain,
            self._cluster("secure", LocalCluster, agents=1, secure=True) as secure,
        ):
            client, server = dev_files(secure.directory, "producer"), dev_files(secure.directory, "agent-1")
            assert client is not None and server is not None, "a secure cluster has them"
            agent = secure.layout.agents[0]
            controllers = [member.pid for member in secure.layout.controllers]
            with tls_claims(server) as (port, pid):
                for in_flight in CLAIMS_IN_FLIGHT:
                    floors, results, plainly = [], [], []
                    for _ in range(self._plan.repetitions):
                        floors.append(self._tls_load("floor with TLS", f"{HOST}:{port}", in_flight, client, [pid]))
                        pids = [agent.pid, *controllers]
                        results.append(self._tls_load("agent with TLS", agent.kafka, in_flight, client, pids))
                        plainly.append(self._claim_load("agent", plain.layout.agents[0].kafka, in_flight).rate)
                    rows += _tls_rows(in_flight, floors, results, plainly)
        return rows

    def failover(self) -> list[Row]:
        """Time until allocation works again after the leader was signalled, or its disk began to hang."""
        rows = []
        with self._cluster("failover", SlowDiskCluster) as cluster:
            bench = FailoverBench(cluster, random.Random())
            for name, number, bar in FAILOVERS:
                result = asyncio.run(bench.measure(number, self._plan.failover_rounds))
                remark = f"max {result.max_ms:.0f} ms of {result.rounds} rounds"
                rows.append(at_most("failover", f"{name}: next block", "ms, median", result.times_ms, bar, remark))
        self._check_distinct("block starts of the failover section", bench.starts)
        return rows

    def crowd(self) -> list[Row]:
        """What a good client's p99 becomes while every listener has a crowd."""
        rows = []
        for number, (name, files) in enumerate(LIMITS.items()):
            bench = CrowdBench(self._directory / f"crowd-{number}", self._plan.crowd)
            rows += bench.measure(name, files)
            self.violations += bench.violations
            self.notes += bench.notes
        return rows

    @contextmanager
    def _cluster(self, name: str, kind: type[Cluster], *, agents: int = 0, secure: bool = False) -> Iterator[Cluster]:
        cluster = raised_cluster(kind, self._directory / name, agents=agents, secure=secure)
        try:
            cluster.start()
            cluster.wait_ready()
            yield cluster
        finally:
            unclean = {member: code for member, code in cluster.stop().items() if code != 0}
            if unclean:
                self.notes.append(f"{name}: did not stop cleanly: {unclean}")

    def _http_load(self, name: str, host: str, port: int, body: str, callers: int) -> LoadResult:
        plan = self._plan
        spec = LoadSpec(host, port, ALLOCATE_PATH, body, callers, plan.seconds, plan.warmup)
        return self._checked(name, run_load("bench.http_load", spec, LoadResult, self._load_seconds))

    def _checked(self, name: str, result: LoadResult) -> LoadResult:
        """The result, once it is noted what was refused and that no block came twice."""
        refused = {status: count for status, count in result.statuses.items() if status != "200"}
        if refused or result.failures:
            self.notes.append(f"{name}: refused {refused}, failures {result.failures[:3]}")
        self._check_distinct(f"block starts of {name}", result.starts)
        return result

    def _kafka_load(self, name: str, host: str, port: int, epoch: int, callers: int) -> LoadResult:
        plan = self._plan
        spec = KafkaLoadSpec(host, port, LOAD_BROKER_ID, epoch, callers, plan.seconds, plan.warmup)
        return self._checked(name, run_load("bench.kafka_load", spec, LoadResult, self._load_seconds))

    def _claim_load(self, name: str, address: str, in_flight: int, tls: TlsFiles | None = None) -> ClaimResult:
        plan = self._plan
        spec = ClaimSpec(address, CLAIM_CONNECTIONS, in_flight, plan.seconds, plan.warmup, tls)
        result = run_load("bench.claim_load", spec, ClaimResult, self._load_seconds)
        if result.errors or result.failures:
            self.notes.append(f"claims from {name}: errors by code {result.errors}, failures {result.failures[:3]}")
        if result.repeated:
            self.violations.append(f"claims from {name}: {result.repeated} of {result.claims} ids came twice")
        return result

    def _tls_load(self, name: str, address: str, in_flight: int, tls: TlsFiles, pids: list[int]) -> TlsLoad:
        """Claims of the server that is the first of `pids`; the others work for it."""
        before = [cpu_seconds(pid) for pid in pids]
        result = self._claim_load(name, address, in_flight, tls)
        server, *others = (cpu_seconds(pid) - used for pid, used in zip(pids, before, strict=True))
        return TlsLoad(result.rate, result.claims / server, sum(others) / server)

    def _check_distinct(self, what: str, ids: list[int]) -> None:
        if repeated := repeats(ids):
            self.violations.append(f"{what}: {repeated} of {len(ids)} came twice")


def _tls_rows(in_flight: int, floors: list[TlsLoad], results: list[TlsLoad], plainly: list[float]) -> list[Row]:
    what = f"{CLAIM_CONNECTIONS} connections, {in_flight} in flight on each"
    floor = "floor: asyncio.Protocol with the same TLS"
    rates, efforts = [one.rate for one in results], [one.per_cpu_second for one in results]
    floor_rates, floor_efforts = [one.rate for one in floors], [one.per_cpu_second for one in floors]
    on_top = f"controllers: {median([one.others for one in results]):.0%} on top"
    return [
        at_least(0.9, "tls", f"claims over TLS, {what}; {floor}", "ids/s", rates, floor_rates, ""),
        at_least(0.0, "tls", f"the same by the server's CPU; {floor}", "ids/CPU s", efforts, floor_efforts, on_top),
        at_least(0.0, "tls", f"claims over TLS, {what}; floor: without TLS", "ids/s", rates, plainly, ""),
    ]


def _kafka_rows(
    callers: int, floors: list[LoadResult], results: list[LoadResult], by_http: list[LoadResult]
) -> list[Row]:
    name = f"{callers} caller{'s' if callers > 1 else ''}"
    bare = "floor: a bare parser in front of the same commit"
    if callers == 1:
        latencies = [[one.p50_ms for one in group] for group in (results, floors)]
        return [at_most_twice("kafka", f"AllocateProducerIds, {name}; {bare}", "ms, p50", *latencies)]
    rates, floor_rates, http_rates = ([one.rate for one in group] for group in (results, floors, by_http))
    p99 = f"p99 {max(one.p99_ms for one in results):.1f} ms, floor's {max(one.p99_ms for one in floors):.1f} ms"
    client = f"client {max(one.client_cpu for one in results):.0%} of a core"
    return [
        at_least(0.7, "kafka", f"AllocateProducerIds, {name}; {bare}", "blocks/s", rates, floor_rates, p99),
        at_least(2.0, "kafka", f"AllocateProducerIds, {name}; floor: our HTTP", "blocks/s", rates, http_rates, client),
    ]


def _allocation_rows(callers: int, floors: list[LoadResult], results: list[LoadResult]) -> list[Row]:
    name = f"{callers} caller{'s' if callers > 1 else ''}"
    latencies = at_most_twice(
        "allocate",
        f"latency, {name}",
        "ms, p50",
        [result.p50_ms for result in results],
        [result.p50_ms for result in floors],
    )
    client = max(result.client_cpu for result in results)
    rates = at_least_half(
        "allocate",
        f"allocations, {name}",
        "blocks/s",
        [result.rate for result in results],
        [result.rate for result in floors],
        f"p99 {max(result.p99_ms for result in results):.1f} ms, client {client:.0%} of a core",
    )
    return [latencies] if callers == 1 else [rates]
