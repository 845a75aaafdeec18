"""The sections of a run: each measures, checks that no ID came twice, and gives rows of the report.

Where there is a floor, its repetitions and the cluster's alternate, so that a machine that slows down slows both.
"""

from __future__ import annotations

import asyncio
import random
import signal
from pathlib import Path
from typing import Final, NamedTuple

from bench.closed_loop import LoadResult
from bench.cluster import fdatasyncs
from bench.crowd_section import LIMITS, CrowdBench
from bench.disk import measure_fdatasync
from bench.failover import FailoverBench
from bench.floor import HOST, Floor, tls_claims
from bench.loads import CLAIM_CONNECTIONS, Loads, Span
from bench.plan import Plan
from bench.process_tree import cpu_seconds
from bench.report import Outage, Row, at_least, at_most, at_most_times, informing, median
from bench.slow_disk import SlowDiskCluster
from pidkeeper.cli.controllers import dev_files
from pidkeeper.cli.local_cluster import LocalCluster
from pidkeeper.service.tls_files import TlsFiles

CALLERS: Final = (1, 8, 64, 256)
MANY: Final = 64
CLAIMS_IN_FLIGHT: Final = {1: 0.95, 16: 0.85}
"""Requests in flight on each connection, and the share of the floor that is aimed at."""

MAX_FSYNCS_PER_ALLOCATION: Final = 0.15
FAILOVERS: Final = (
    ("kill -9 of the leader", signal.SIGKILL, 50.0),
    ("SIGSTOP of the leader", signal.SIGSTOP, 450.0),
    ("SIGTERM of the leader", signal.SIGTERM, 30.0),
    ("hanging disk of the leader", None, 1000.0),
)
"""Name, signal (None: its fdatasync does not return), and the bar for the median in milliseconds."""


class TlsLoad(NamedTuple):
    """IDs a second, IDs for each second of CPU of the server, and seconds of those who work for it beside each.

    Where cores are few, these leave the server less of the machine: that slows the first figure, and not the second.
    """

    rate: float
    per_cpu_second: float
    others: float


class Sections:
    """Runs sections by `loads`. `outages`: of our leader, by what happened to it."""

    def __init__(self, loads: Loads, plan: Plan) -> None:
        self._loads = loads
        self._directory: Path = loads.directory
        self._plan = plan
        self._span = Span(plan.seconds, plan.warmup)
        self.outages: list[Outage] = []

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
            rows.append(informing("disk", f"fdatasync of 64 bytes, {name}", "ms, p50", samples, f"p99 {p99:.2f} ms"))
        return rows

    def allocate(self) -> list[Row]:
        """Latency and rate of allocations, and syncs an allocation, against the bare three-member floor."""
        rows: list[Row] = []
        starts: list[int] = []
        rates: dict[int, list[float]] = {}
        with Floor(self._directory / "floor") as floor, self._loads.cluster("allocate", LocalCluster) as cluster:
            for callers in CALLERS:
                floors, results, syncs = self._allocate_with(callers, floor, cluster)
                starts += [start for result in results for start in result.starts]
                rates[callers] = [result.rate for result in results]
                rows += _allocation_rows(callers, floors, results)
                if callers == MANY:
                    name = f"fdatasyncs an allocation on the leader, {callers} callers"
                    rows.append(at_most("allocate", name, "syncs", syncs, MAX_FSYNCS_PER_ALLOCATION))
        name = f"allocations, {CALLERS[-1]} callers; beside {MANY}"
        rows.append(at_least(1.0, "allocate", name, "blocks/s", rates[CALLERS[-1]], rates[MANY], than="64 callers"))
        self._loads.check_distinct("block starts of the allocation section", starts)
        return rows

    def kafka(self) -> list[Row]:
        """The same in Kafka's protocol, against a bare parser in front of the same commit, and against our HTTP."""
        rows: list[Row] = []
        starts: list[int] = []
        loads, span = self._loads, self._span
        with Floor(self._directory / "floor") as floor, loads.cluster("kafka", LocalCluster) as cluster:
            for callers in (1, MANY):
                floors, results, by_http = [], [], []
                for _ in range(self._plan.repetitions):
                    name = f"bare floor, {callers} callers"
                    floors.append(loads.kafka(name, HOST, floor.kafka_port, 1, callers, span))
                    leader = cluster.leader()
                    results.append(loads.our_kafka(leader, callers, span))
                    by_http.append(loads.our_http(leader, callers, span))
                starts += [start for result in (*results, *by_http) for start in result.starts]
                rows += _kafka_rows(callers, floors, results, by_http)
        loads.check_distinct("block starts of the kafka section", starts)
        return rows

    def _allocate_with(
        self, callers: int, floor: Floor, cluster: LocalCluster
    ) -> tuple[list[LoadResult], list[LoadResult], list[float]]:
        floors, results, syncs = [], [], []
        for _ in range(self._plan.repetitions):
            body = '{"broker_id": 1001, "broker_epoch": 1}'
            name = f"floor, {callers} callers"
            floors.append(self._loads.http(name, HOST, floor.http_port, body, callers, self._span))
            leader = cluster.leader()
            before = fdatasyncs(cluster, leader)
            result = self._loads.our_http(leader, callers, self._span)
            syncs.append((fdatasyncs(cluster, leader) - before) / len(result.starts))
            results.append(result)
        return floors, results, syncs

    def claims(self) -> list[Row]:
        """IDs a second of one agent over the Kafka wire, against a server that only counts."""
        rows = []
        last = -1
        loads = self._loads
        with Floor(self._directory / "floor") as floor, loads.cluster("claims", LocalCluster, agents=1) as cluster:
            agent = cluster.layout.agents[0]
            for in_flight, share in CLAIMS_IN_FLIGHT.items():
                floors, results = [], []
                for _ in range(self._plan.repetitions):
                    floors.append(loads.claims("floor", f"{HOST}:{floor.claims_port}", in_flight, self._span))
                    result = loads.claims("agent", agent.kafka, in_flight, self._span)
                    if result.first <= last:
                        loads.violations.append(f"id {result.first} was claimed after id {last}")
                    last = result.last
                    results.append(result)
                rows.append(
                    at_least(
                        share,
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
            self._loads.cluster("plain", LocalCluster, agents=1) as plain,
            self._loads.cluster("secure", LocalCluster, agents=1, secure=True) as secure,
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
                        without = plain.layout.agents[0].kafka
                        plainly.append(self._loads.claims("agent", without, in_flight, self._span).rate)
                    rows += _tls_rows(in_flight, floors, results, plainly)
        return rows

    def failover(self) -> list[Row]:
        """Time until allocation works again after the leader was signalled, or its disk began to hang."""
        rows = []
        with self._loads.cluster("failover", SlowDiskCluster) as cluster:
            bench = FailoverBench(cluster, random.Random())
            for name, number, bar in FAILOVERS:
                result = asyncio.run(bench.measure(number, self._plan.failover_rounds))
                remark = f"max {result.max_ms:.0f} ms of {result.rounds} rounds"
                rows.append(at_most("failover", f"{name}: next block", "ms, median", result.times_ms, bar, remark))
                self.outages.append(Outage(system="pidkeeper", signal=name, times_ms=result.times_ms))
        self._loads.check_distinct("block starts of the failover section", bench.starts)
        return rows

    def crowd(self) -> list[Row]:
        """What a good client's p99 becomes while every listener has a crowd."""
        rows = []
        for number, (name, files) in enumerate(LIMITS.items()):
            bench = CrowdBench(self._directory / f"crowd-{number}", self._plan.crowd)
            rows += bench.measure(name, files)
            self._loads.violations += bench.violations
            self._loads.notes += bench.notes
        return rows

    def _tls_load(self, name: str, address: str, in_flight: int, tls: TlsFiles, pids: list[int]) -> TlsLoad:
        """Claims of the server that is the first of `pids`; the others work for it."""
        before = [cpu_seconds(pid) for pid in pids]
        result = self._loads.claims(name, address, in_flight, self._span, tls=tls)
        server, *others = (cpu_seconds(pid) - used for pid, used in zip(pids, before, strict=True))
        return TlsLoad(result.rate, result.claims / server, sum(others) / server)


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
        ours, least = ([one.p50_ms for one in group] for group in (results, floors))
        return [at_most_times(2.0, "kafka", f"AllocateProducerIds, {name}; {bare}", "ms, p50", ours, least)]
    rates, floor_rates, http_rates = ([one.rate for one in group] for group in (results, floors, by_http))
    p99 = f"p99 {max(one.p99_ms for one in results):.1f} ms, floor's {max(one.p99_ms for one in floors):.1f} ms"
    client = f"client {max(one.client_cpu for one in results):.0%} of a core"
    return [
        at_least(0.7, "kafka", f"AllocateProducerIds, {name}; {bare}", "blocks/s", rates, floor_rates, p99),
        at_least(2.0, "kafka", f"AllocateProducerIds, {name}; floor: our HTTP", "blocks/s", rates, http_rates, client),
    ]


def _allocation_rows(callers: int, floors: list[LoadResult], results: list[LoadResult]) -> list[Row]:
    if callers == 1:
        ours, least = ([one.p50_ms for one in group] for group in (results, floors))
        return [at_most_times(1.4, "allocate", "latency, 1 caller", "ms, p50", ours, least)]
    name, wanted = f"{callers} callers", callers == MANY
    rates, most = ([one.rate for one in group] for group in (results, floors))
    p99s, least = ([one.p99_ms for one in group] for group in (results, floors))
    client = max(result.client_cpu for result in results)
    remark = f"p99 {median(p99s):.1f} ms, client {client:.0%} of a core"
    return [
        at_least(0.85 if wanted else 0.0, "allocate", f"allocations, {name}", "blocks/s", rates, most, remark),
        at_most_times(1.5 if wanted else 0.0, "allocate", f"latency, {name}", "ms, p99", p99s, least),
    ]
