"""Everybody who asks the cluster during a run, each through links of its own."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol

from pidkeeper.cli.controllers import CERTIFICATES
from pidkeeper.cli.failures import CommandError
from pidkeeper.controller.api.limits import ApiLimits
from pidkeeper.service.throttle import Rate
from tests.chaos.load.actor import Actor
from tests.chaos.load.allocators import Allocator, StaleAllocator
from tests.chaos.load.claimers import HttpClaimer, WireClaimer
from tests.chaos.load.credentials import (
    OPERATOR,
    PRODUCER,
    broker_tls,
    client_security,
    files_of,
    takes_tls_alone,
    tls_of,
    why_no_login,
)
from tests.chaos.load.groups_process import LEFT_SECONDS
from tests.chaos.load.kafka_clients import KafkaClients
from tests.chaos.load.kafka_process import LIBRARIES
from tests.chaos.load.malice import MaliciousBroker
from tests.chaos.load.quorum_operator import QuorumOperator
from tests.chaos.load.records_process import FINAL_SECONDS, FLUSH_SECONDS, TRANSACTION_TIMEOUT_SECONDS
from tests.chaos.stage import Stage
from tests.clients.java_witness import why_no_java
from tests.support.cluster import UNLIMITED

JAVA: Final = "Java"
WIRE: Final = "wire"
HTTP: Final = "http"
ALLOCATOR: Final = "allocator"
STALE: Final = "stale"
MALICIOUS: Final = "malicious"
RECORDS: Final = "records"
RECORDS_MODULE: Final = "tests.chaos.load.records_process"
RECORDS_LIBRARY: Final = "confluent-kafka"
GROUPS: Final = ("groups-0", "groups-1")
"""Processes with a member of each group. The first is the last to end, and has all partitions then."""
GROUPS_MODULE: Final = "tests.chaos.load.groups_process"
GROUPS_END_SECONDS: Final = LEFT_SECONDS + TRANSACTION_TIMEOUT_SECONDS + FINAL_SECONDS
RECORDS_END_SECONDS: Final = 2 * TRANSACTION_TIMEOUT_SECONDS + FLUSH_SECONDS + FINAL_SECONDS
"""For what is under way to be settled, and for all of it to be read."""

ALLOCATORS: Final = (ALLOCATOR, STALE, MALICIOUS)
"""Those who ask controllers."""

CLIENTS: Final = (WIRE, HTTP, *LIBRARIES, *GROUPS, RECORDS)
"""Those who ask agents."""

BROKERS: Final = {ALLOCATOR: 1001, STALE: 1002, MALICIOUS: 1003}
QUOTA: Final = Rate(200.0, 200)
"""Blocks for one broker: more than an honest one of a run asks for."""

DEFAULT_QUOTA: Final = ApiLimits().broker_allocations
"""In a cluster that is not set up for a run."""

QUOTAS: Final[dict[str, Any]] = {
    "broker_allocations": {"per_second": QUOTA.per_second, "burst": QUOTA.burst},
    "cluster_allocations": UNLIMITED,
    "broker_sessions": UNLIMITED,
    "cluster_sessions": UNLIMITED,
}

IDS_PER_SECOND: Final = 500.0
"""Of one agent over Kafka's protocol."""


class Runs(Protocol):
    """Anybody of the crew."""

    name: str

    def running(self) -> contextlib.AbstractAsyncContextManager[None]:
        """Ask while the block runs."""


def crew(stage: Stage, directory: Path, seed: int, quota: Rate) -> tuple[list[Runs], dict[str, str]]:
    """Everybody, not at work yet, and who cannot be had here and why. What they are told goes to `directory`.

    `quota`: that of the cluster for the blocks of one broker.
    """
    reasons = {f"{JAVA} client": why_no_java(), "logins of Kafka clients": why_no_login(stage.cluster)}
    missing = {who: reason for who, reason in reasons.items() if reason is not None}
    operator, *clients = crew_of_records(stage, directory, seed)
    everybody: list[Runs] = [operator, *_allocators(stage, directory), *_claimers(stage, directory)]
    try:
        everybody.append(_malicious(stage, directory, quota))
    except CommandError as error:
        missing["malicious broker"] = str(error)
    libraries = [library for library in LIBRARIES if library != JAVA or why_no_java() is None]
    transactional = [_clients(stage, directory, library) for library in libraries]
    return [*everybody, *transactional, *clients], missing


def crew_of_records(stage: Stage, directory: Path, seed: int) -> list[Runs]:
    """The operator, who makes the topics, and behind it those who write records, read them and share them in groups."""
    stage.operator = _operator(stage, directory, seed)
    stage.group_members = [_group_members(stage, directory, name) for name in GROUPS]
    return [stage.operator, *stage.group_members, _records(stage, directory)]


@contextlib.asynccontextmanager
async def at_work(everybody: Sequence[Runs]) -> AsyncIterator[None]:
    """All of them ask while the block runs. Raises what ended one of them, which no fault of a cluster may."""
    async with contextlib.AsyncExitStack() as stack:
        for one in everybody:
            await stack.enter_async_context(one.running())
        yield


def _allocators(stage: Stage, directory: Path) -> Iterator[Actor]:
    controllers, operator = partial(_controllers, stage), tls_of(stage.cluster, OPERATOR)
    route = {name: partial(_routed, stage, name) for name in ALLOCATORS}
    yield Allocator(ALLOCATOR, directory, controllers, BROKERS[ALLOCATOR], route=route[ALLOCATOR], tls=operator)
    yield StaleAllocator(STALE, directory, controllers, BROKERS[STALE], route=route[STALE], tls=operator, pace=0.05)


def _malicious(stage: Stage, directory: Path, quota: Rate) -> MaliciousBroker:
    """Raises CommandError if it can have no certificate, but needs one."""
    broker_id, route = BROKERS[MALICIOUS], partial(_routed, stage, MALICIOUS)
    tls = broker_tls(stage.cluster, broker_id, directory / CERTIFICATES)
    return MaliciousBroker(MALICIOUS, directory, partial(_controllers, stage), broker_id, quota, route=route, tls=tls)


def _controllers(stage: Stage) -> tuple[str, ...]:
    return tuple(one.http for one in stage.cluster.layout.controllers)


def _operator(stage: Stage, directory: Path, seed: int) -> QuorumOperator:
    """Acts when it is told to. Its links are no part of the run: whoever gives orders has to reach the quorum."""
    spare = next((one for one in stage.cluster.layout.controllers if one.learner), None)
    files = files_of(stage.cluster, OPERATOR)
    return QuorumOperator(directory, lambda: stage.cluster.layout.controllers, seed=seed, spare=spare, tls=files)


def _claimers(stage: Stage, directory: Path) -> Iterator[Actor]:
    tls = tls_of(stage.cluster, PRODUCER)
    wire_tls = tls if takes_tls_alone(stage.cluster) else None
    for agent in stage.cluster.layout.agents:

        def kafka(address: str = agent.kafka) -> tuple[str, ...]:
            return (_way(stage, WIRE, address),)

        def http(address: str = agent.http) -> tuple[str, ...]:
            return (address,)

        route = partial(_routed, stage, HTTP)
        yield WireClaimer(f"{WIRE}-{agent.id}", directory, agent.id, kafka, IDS_PER_SECOND, tls=wire_tls)
        yield HttpClaimer(f"{HTTP}-{agent.id}", directory, agent.id, http, route=route, tls=tls)


def _clients(stage: Stage, directory: Path, name: str, library: str | None = None, **options: Any) -> KafkaClients:
    """`library`: its name, unless the process has another."""

    def kafka() -> tuple[str, ...]:
        return tuple(one.kafka for one in stage.cluster.layout.agents)

    return KafkaClients(
        name,
        directory,
        library or name,
        kafka,
        program=lambda: [] if stage.links is None else stage.links.program(name),
        security=client_security(stage.cluster),
        **options,
    )


def _group_members(stage: Stage, directory: Path, name: str) -> KafkaClients:
    """They end behind those who write records, so that they can copy all of them."""
    return _clients(
        stage,
        directory,
        name,
        RECORDS_LIBRARY,
        module=GROUPS_MODULE,
        end_seconds=GROUPS_END_SECONDS,
        last=name == GROUPS[0],
    )


def _records(stage: Stage, directory: Path) -> KafkaClients:
    """Last of all, so that it is the first to end: it reads all records while the others still ask."""
    return _clients(stage, directory, RECORDS, RECORDS_LIBRARY, module=RECORDS_MODULE, end_seconds=RECORDS_END_SECONDS)


def _way(stage: Stage, name: str, address: str) -> str:
    """Where somebody of this name connects to instead of `address`."""
    return address if stage.links is None else stage.links.routed(name, address)


def _routed(stage: Stage, name: str, base_url: str) -> str:
    scheme, _, address = base_url.partition("://")
    return f"{scheme}://{_way(stage, name, address)}"
