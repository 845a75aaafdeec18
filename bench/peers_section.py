"""What pidkeeper reaches beside other systems that do the same job, on the same machine and in the same run.

One peer at a time runs beside our three controllers and an agent. Its repetitions and ours alternate, driven by the
same loader, and so do the failovers. A peer that cannot run here is named in the notes.
"""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack
from statistics import median as middle
from typing import Final, NamedTuple

from bench.claim_load import ClaimResult
from bench.closed_loop import LoadResult
from bench.failover import FailoverBench
from bench.figures import repeats
from bench.loads import CLAIM_CONNECTIONS, Loads, Span
from bench.peers.failover import PeerFailover
from bench.peers.interface import Peer, PeerGaveOutError, Scheme, blamed
from bench.peers.kafka import Kafka
from bench.peers.registry import PEERS
from bench.plan import Plan
from bench.report import Curve, Outage, Row, at_least, at_most_times
from pidkeeper.cli.local_cluster import LocalCluster

OURS: Final = ("pidkeeper, HTTP", "pidkeeper, Kafka's protocol")
MANY: Final = 64
SIGNALS: Final = {
    "kill -9 of the leader": signal.SIGKILL,
    "SIGSTOP of the leader": signal.SIGSTOP,
    "SIGTERM of the leader": signal.SIGTERM,
}
CLAIMS_IN_FLIGHT: Final = (1, 16)


class Bars(NamedTuple):
    """How much better than a scheme: the share of its latency with one caller, and its rate with MANY; 0 for none."""

    latency: float = 0.0
    rate: float = 0.0


BARS: Final[Mapping[str, Bars]] = {
    "read and conditional setData": Bars(0.75, 100.0),
    "plain setData": Bars(0.0, 1.5),
    "read and put on condition": Bars(0.75, 1.0),
    "plain put": Bars(0.0, 1.0),
    "AllocateProducerIds": Bars(0.75, 1.0),
}
"""By what comes behind the name of the peer in that of a scheme."""

MEASURED_APART: Final = "transactions"
"""A scheme that is no allocation of a block."""

MOST_CALLERS: Final[Mapping[str, int]] = {"raftos": 8, "by kazoo": MANY}
"""Beyond that nobody is served: of raftos' requests too few, and a thread for each of kazoo's is the load itself."""


class PeersSection:
    """Measures beside the peers of these `names`. `curves` and `outages` are for the plots."""

    def __init__(self, loads: Loads, plan: Plan, names: Collection[str]) -> None:
        self._names = names
        self._loads = loads
        self._plan = plan
        self._span = Span(plan.peer_seconds, plan.warmup)
        self._rng = random.Random()
        self.curves: list[Curve] = []
        self.outages: list[Outage] = []

    def measure(self, tell: Callable[[str], None]) -> list[Row]:
        """All peers that can run here. `tell` is told what is measured."""
        rows: list[Row] = []
        with self._loads.cluster("beside-peers", LocalCluster, agents=1) as cluster:
            for name, kind in ((name, kind) for name, kind in PEERS.items() if name in self._names):
                if (why := kind.why_unavailable()) is not None:
                    self._loads.notes.append(f"not measured: {why}")
                    continue
                tell(f"{name} starts")
                try:
                    with ExitStack() as started:
                        with blamed(name):
                            peer = started.enter_context(kind(self._loads.directory))
                        # Row by row: what was measured before a peer gives out stays.
                        rows.extend(self._beside(peer, name, cluster, tell))
                except PeerGaveOutError as error:
                    self._loads.notes.append(str(error))
        return rows

    def _beside(self, peer: Peer, name: str, cluster: LocalCluster, tell: Callable[[str], None]) -> Iterator[Row]:
        for scheme in peer.schemes:
            if MEASURED_APART in scheme.name:
                continue
            tell(f"{scheme.name}: the load before")
            self._settle(peer, scheme)
            for callers in self._plan.peer_callers:
                if callers <= _most_callers(scheme.name):
                    tell(f"{scheme.name}: {callers} callers")
                    yield from self._allocations(scheme, callers, cluster)
        if isinstance(peer, Kafka):
            yield from self._claims(peer, cluster, tell)
            yield from self._transactions(peer, cluster, tell)
        yield from self._failovers(peer, name, cluster, tell)

    def _settle(self, peer: Peer, scheme: Scheme) -> None:
        """Let the peer become as fast as it gets."""
        if peer.settle_seconds:
            with blamed(scheme.name):
                scheme.load(MANY, peer.settle_seconds * self._plan.settle_share, 0.0)

    def _allocations(self, scheme: Scheme, callers: int, cluster: LocalCluster) -> Iterator[Row]:
        theirs, by_http, by_kafka = [], [], []
        bars = next((bars for ending, bars in BARS.items() if scheme.name.endswith(f", {ending}")), Bars())
        # Where nothing is aimed at, one repetition draws the curve.
        for _ in range(self._plan.repetitions if any(bars) and callers in {1, MANY} else 1):
            by_http.append(self._loads.our_http(cluster.leader(), callers, self._span))
            theirs.append(self._of_peer(scheme, callers))
            by_kafka.append(self._loads.our_kafka(cluster.leader(), callers, self._span))
        for system, results in zip((scheme.name, *OURS), (theirs, by_http, by_kafka), strict=True):
            self._draw(system, callers, results)
        ours = by_kafka if scheme.name.endswith("AllocateProducerIds") else by_http
        way = "AllocateProducerIds" if ours is by_kafka else "HTTP"
        what = f"{way}, {callers} caller{'s' if callers > 1 else ''}; beside {scheme.name}"
        lost = sum(one.statuses.get(status, 0) for one in theirs for status in one.statuses if status != "200")
        again = f"{lost / sum(len(one.starts) for one in theirs):.1f} attempts in vain for each" if lost else ""
        if callers == 1:
            p50s, p50s_of_peer = ([one.p50_ms for one in group] for group in (ours, theirs))
            yield at_most_times(bars.latency, "peers", what, "ms, p50", p50s, p50s_of_peer, again, than="peer")
        else:
            rates, rates_of_peer = ([one.rate for one in group] for group in (ours, theirs))
            wanted = bars.rate if callers == MANY else 0.0
            p99 = (
                f"p99 {middle(one.p99_ms for one in ours):.1f} ms, peer's {middle(one.p99_ms for one in theirs):.1f} ms"
            )
            remark = f"{p99}, {again}" if again else p99
            yield at_least(wanted, "peers", what, "blocks/s", rates, rates_of_peer, remark, than="peer")

    def _of_peer(self, scheme: Scheme, callers: int) -> LoadResult:
        with blamed(scheme.name):
            result = scheme.load(callers, self._span.seconds, self._span.warmup)
        if result.failures:
            self._loads.notes.append(f"{scheme.name}, {callers} callers: failures {result.failures[:3]}")
        if again := repeats(result.starts):
            self._loads.notes.append(f"{scheme.name}, {callers} callers: {again} numbers of {len(result.starts)} twice")
        return result

    def _draw(self, system: str, callers: int, results: list[LoadResult]) -> None:
        rate = middle(one.rate for one in results)
        spread = [middle(values) for values in zip(*(one.spread_ms for one in results), strict=True)]
        self.curves.append(Curve(system=system, callers=callers, rate=rate, spread_ms=spread))

    def _claims(self, peer: Kafka, cluster: LocalCluster, tell: Callable[[str], None]) -> Iterator[Row]:
        agent = cluster.layout.agents[0].kafka
        for in_flight in CLAIMS_IN_FLIGHT:
            tell(f"{peer.name}: claims, {in_flight} in flight")
            ours: list[ClaimResult] = []
            theirs: list[ClaimResult] = []
            for _ in range(self._plan.repetitions):
                ours.append(self._loads.claims("agent", agent, in_flight, self._span))
                with blamed(peer.name):
                    theirs.append(
                        self._loads.claims(peer.name, peer.claims_address, in_flight, self._span, coarse=True)
                    )
            errors = [sum(sum(one.errors.values()) for one in group) for group in (ours, theirs)]
            what = f"claims, {CLAIM_CONNECTIONS} connections, {in_flight} in flight on each; beside {peer.name}"
            rates, rates_of_peer = ([one.rate for one in group] for group in (ours, theirs))
            remark = f"{errors[0]} errors, peer's {errors[1]:,}"
            yield at_least(3.0, "peers", what, "ids/s", rates, rates_of_peer, remark, than="peer")

    def _transactions(self, peer: Kafka, cluster: LocalCluster, tell: Callable[[str], None]) -> Iterator[Row]:
        scheme = next(one for one in peer.schemes if MEASURED_APART in one.name)
        tell(f"{scheme.name}: the load before")
        self._settle(peer, scheme)
        with self._loads.cluster("by-kafka", LocalCluster, agents=1, transport="kafka") as by_kafka:
            agents = [one.layout.agents[0].kafka for one in (cluster, by_kafka)]
            for callers in (1, MANY):
                tell(f"{scheme.name}: {callers} callers")
                ours: list[list[LoadResult]] = [[] for _ in agents]
                theirs = []
                for _ in range(self._plan.repetitions):
                    for results, agent in zip(ours, agents, strict=True):
                        results.append(self._loads.transactions("agent", agent, callers, self._span))
                    theirs.append(self._of_peer(scheme, callers))
                for results, transport in zip(ours, ("http", "kafka"), strict=True):
                    yield _transaction_row(callers, transport, results, theirs, scheme.name)

    def _failovers(self, peer: Peer, name: str, cluster: LocalCluster, tell: Callable[[str], None]) -> Iterator[Row]:
        bench, of_peer = FailoverBench(cluster, self._rng), PeerFailover(peer, self._rng)
        for what, number in SIGNALS.items():
            tell(f"{peer.name}: {what}")
            ours: list[float] = []
            theirs: list[float] = []
            try:
                for _ in range(self._plan.peer_failover_rounds):
                    ours += asyncio.run(bench.measure(number, 1)).times_ms
                    with blamed(f"{peer.name}, {what}, after {len(theirs)} rounds,"):
                        theirs += of_peer.measure(number, 1).times_ms
            finally:
                self._loads.check_distinct(f"block starts of failovers beside {name}", bench.starts)
                for system, times in (("pidkeeper", ours), (peer.name, theirs)):
                    self.outages.append(Outage(system=system, signal=what, times_ms=times))
            row = f"{what}: next block; beside {peer.name}"
            yield at_most_times(1.0, "peers", row, "ms", ours, theirs, f"{len(ours)} rounds", than="peer")


def _most_callers(scheme: str) -> int:
    return next((most for part, most in MOST_CALLERS.items() if part in scheme), 1 << 16)


def _transaction_row(
    callers: int, transport: str, ours: list[LoadResult], theirs: list[LoadResult], scheme: str
) -> Row:
    who = f"{callers} caller{'s' if callers > 1 else ''}, transport {transport}"
    rates, rates_of_peer = ([one.rate for one in group] for group in (ours, theirs))
    p50s = [middle(one.p50_ms for one in group) for group in (ours, theirs)]
    remark = f"p50 {p50s[0]:.1f} ms, peer's {p50s[1]:.1f} ms"
    what = f"init, add, end, {who}; beside {scheme}"
    return at_least(2.0, "peers", what, "transactions/s", rates, rates_of_peer, remark, than="peer")
