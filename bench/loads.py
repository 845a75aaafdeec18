"""The loads of a run: each in a process of its own, and looked at for what was refused and what came twice."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from bench.claim_load import ClaimResult, ClaimSpec
from bench.closed_loop import SUCCESS, LoadResult
from bench.cluster import LOAD_BROKER_ID, Cluster, host_port, raised_cluster, register
from bench.figures import repeats
from bench.floor import ALLOCATE_PATH
from bench.http_load import LoadSpec
from bench.kafka_load import KafkaLoadSpec
from bench.load_process import LOAD_START_SECONDS, run_load
from bench.report import Row
from bench.section_command import Section
from bench.txn_load import TxnLoadSpec
from pidkeeper.cli.local_cluster import Controller
from pidkeeper.service.tls_files import TlsFiles

CLAIM_CONNECTIONS: Final = 64
TOPIC: Final = "bench"


class Span(NamedTuple):
    """How long one load measures, in seconds, and runs before."""

    seconds: float
    warmup: float

    @property
    def limit(self) -> float:
        """When to give up on its process."""
        return self.seconds + self.warmup + LOAD_START_SECONDS


class Loads:
    """`violations` and `notes` gather what no row can say."""

    def __init__(self, directory: Path) -> None:
        self.directory: Final = directory
        self.violations: list[str] = []
        self.notes: list[str] = []

    def gathered(self, section: Section) -> list[Row]:
        """The rows of a section of its own; what they cannot say is told with the rest."""
        rows = section.measure()
        self.violations += section.violations
        self.notes += section.notes
        return rows

    @contextmanager
    def cluster(
        self, name: str, kind: type[Cluster], *, agents: int = 0, secure: bool = False, transport: str = "http"
    ) -> Iterator[Cluster]:
        """Three controllers whose limits are raised, started, and told of if they do not stop cleanly."""
        cluster = raised_cluster(kind, self.directory / name, agents=agents, secure=secure, transport=transport)
        try:
            cluster.start()
            cluster.wait_ready()
            yield cluster
        finally:
            unclean = {member: code for member, code in cluster.stop().items() if code != 0}
            if unclean:
                self.notes.append(f"{name}: did not stop cleanly: {unclean}")

    def http(self, name: str, host: str, port: int, body: str, callers: int, span: Span) -> LoadResult:
        """Callers of an allocation over HTTP."""
        spec = LoadSpec(host, port, ALLOCATE_PATH, body, callers, span.seconds, span.warmup)
        return self.checked(name, run_load("bench.http_load", spec, LoadResult, span.limit))

    def kafka(self, name: str, host: str, port: int, epoch: int, callers: int, span: Span) -> LoadResult:
        """Callers of AllocateProducerIds."""
        spec = KafkaLoadSpec(host, port, LOAD_BROKER_ID, epoch, callers, span.seconds, span.warmup)
        return self.checked(name, run_load("bench.kafka_load", spec, LoadResult, span.limit))

    def our_http(self, leader: Controller, callers: int, span: Span) -> LoadResult:
        """The same at a leader of ours."""
        return self.http(f"allocate, {callers} callers", *host_port(leader.http), register(leader), callers, span)

    def our_kafka(self, leader: Controller, callers: int, span: Span) -> LoadResult:
        """The same in Kafka's protocol."""
        assert leader.kafka is not None, "controllers of a new directory speak it"
        host, port = leader.kafka.split(":")
        epoch = json.loads(register(leader))["broker_epoch"]
        return self.kafka(f"kafka, {callers} callers", host, int(port), epoch, callers, span)

    def transactions(self, name: str, address: str, callers: int, span: Span) -> LoadResult:
        """Callers of whole transactions at host:port. What had to be asked again is no refusal."""
        host, port = address.split(":")
        spec = TxnLoadSpec(host, int(port), TOPIC, name.split(maxsplit=1)[0], callers, span.seconds, span.warmup)
        return self.checked(name, run_load("bench.txn_load", spec, LoadResult, span.limit), repeated={"14", "51"})

    def claims(
        self, name: str, address: str, in_flight: int, span: Span, *, tls: TlsFiles | None = None, coarse: bool = False
    ) -> ClaimResult:
        """Connections that claim IDs at host:port. `coarse`: a peer, whose errors are told as a number alone."""
        spec = ClaimSpec(address, CLAIM_CONNECTIONS, in_flight, span.seconds, span.warmup, tls)
        result = run_load("bench.claim_load", spec, ClaimResult, span.limit)
        if result.failures or (result.errors and not coarse):
            self.notes.append(f"claims from {name}: errors by code {result.errors}, failures {result.failures[:3]}")
        if result.repeated:
            self.violations.append(f"claims from {name}: {result.repeated} of {result.claims} ids came twice")
        return result

    def checked(self, name: str, result: LoadResult, repeated: frozenset[str] | set[str] = frozenset()) -> LoadResult:
        """The result, once it is noted what was refused and that no block came twice."""
        refused = {status: count for status, count in result.statuses.items() if status not in {SUCCESS, *repeated}}
        if refused or result.failures:
            self.notes.append(f"{name}: refused {refused}, failures {result.failures[:3]}")
        self.check_distinct(f"block starts of {name}", result.starts)
        return result

    def check_distinct(self, what: str, ids: list[int]) -> None:
        """A broken promise if any came twice."""
        if count := repeats(ids):
            self.violations.append(f"{what}: {count} of {len(ids)} came twice")
