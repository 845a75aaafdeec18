"""Everybody who asks the cluster during a run, each through links of its own."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol

from pidkeeper.cli.controllers import CERTIFICATES, dev_files
from pidkeeper.cli.dev_certificates import DevAuthority
from pidkeeper.controller.api.limits import ApiLimits
from pidkeeper.service.certified import CertifiedName
from pidkeeper.service.throttle import Rate
from pidkeeper.service.tls import Tls
from tests.chaos.load.actor import Actor
from tests.chaos.load.allocators import Allocator, StaleAllocator
from tests.chaos.load.claimers import HttpClaimer, WireClaimer
from tests.chaos.load.kafka_clients import KafkaClients
from tests.chaos.load.kafka_process import LIBRARIES
from tests.chaos.load.malice import MaliciousBroker
from tests.chaos.load.quorum_operator import QuorumOperator
from tests.chaos.stage import Stage
from tests.clients.java_witness import why_no_java
from tests.support.cluster import UNLIMITED

JAVA: Final = "Java"
WIRE: Final = "wire"
HTTP: Final = "http"
ALLOCATOR: Final = "allocator"
STALE: Final = "stale"
MALICIOUS: Final = "malicious"

ALLOCATORS: Final = (ALLOCATOR, STALE, MALICIOUS)
"""Those who ask controllers."""

CLIENTS: Final = (WIRE, HTTP, *LIBRARIES)
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

IDS_PER_LIBRARY: Final = 1
"""Transactional ids at once: a client library takes more of two cores than all the rest."""


class Runs(Protocol):
    """Anybody of the crew."""

    name: str

    def running(self) -> contextlib.AbstractAsyncContextManager[None]:
        """Ask while the block runs."""


def crew(stage: Stage, directory: Path, seed: int, quota: Rate) -> tuple[list[Runs], dict[str, str]]:
    """Everybody, not at work yet, and who cannot be had here and why. What they are told goes to `directory`.

    `quota`: that of the cluster for the blocks of one broker.
    """
    missing = {} if (reason := why_no_java()) is None else {f"{JAVA} client": reason}
    stage.operator = _operator(stage, directory, seed)
    libraries = [library for library in LIBRARIES if library != JAVA or not missing]
    return [
        stage.operator,
        *_askers_of_controllers(stage, directory, quota),
        *_claimers(stage, directory),
        *(_clients(stage, directory, library) for library in libraries),
    ], missing


@contextlib.asynccontextmanager
async def at_work(everybody: Sequence[Runs]) -> AsyncIterator[None]:
    """All of them ask while the block runs. Raises what ended one of them, which no fault of a cluster may."""
    async with contextlib.AsyncExitStack() as stack:
        for one in everybody:
            await stack.enter_async_context(one.running())
        yield


def _askers_of_controllers(stage: Stage, directory: Path, quota: Rate) -> Iterator[Actor]:
    def controllers() -> tuple[str, ...]:
        return tuple(one.http for one in stage.cluster.layout.controllers)

    operator = _files(stage, "operator")
    malicious = _malicious_files(stage)
    route = {name: partial(_routed, stage, name) for name in ALLOCATORS}
    yield Allocator(ALLOCATOR, directory, controllers, BROKERS[ALLOCATOR], route=route[ALLOCATOR], tls=operator)
    yield StaleAllocator(STALE, directory, controllers, BROKERS[STALE], route=route[STALE], tls=operator, pace=0.05)
    yield MaliciousBroker(
        MALICIOUS, directory, controllers, BROKERS[MALICIOUS], quota, route=route[MALICIOUS], tls=malicious
    )


def _operator(stage: Stage, directory: Path, seed: int) -> QuorumOperator:
    """Acts when it is told to. Its links are no part of the run: whoever gives orders has to reach the quorum."""
    spare = next((one for one in stage.cluster.layout.controllers if one.learner), None)
    files = dev_files(stage.cluster.directory, "operator") if stage.cluster.layout.secure else None
    return QuorumOperator(directory, lambda: stage.cluster.layout.controllers, seed=seed, spare=spare, tls=files)


def _claimers(stage: Stage, directory: Path) -> Iterator[Actor]:
    for agent in stage.cluster.layout.agents:

        def kafka(address: str = agent.kafka) -> tuple[str, ...]:
            return (_way(stage, WIRE, address),)

        def http(address: str = agent.http) -> tuple[str, ...]:
            return (address,)

        route = partial(_routed, stage, HTTP)
        yield WireClaimer(f"{WIRE}-{agent.id}", directory, agent.id, kafka, IDS_PER_SECOND)
        yield HttpClaimer(f"{HTTP}-{agent.id}", directory, agent.id, http, route=route, tls=_files(stage, "producer"))


def _clients(stage: Stage, directory: Path, library: str) -> KafkaClients:
    def kafka() -> tuple[str, ...]:
        return tuple(one.kafka for one in stage.cluster.layout.agents)

    return KafkaClients(
        library, directory, library, kafka, program=lambda: [] if stage.links is None else stage.links.program(library)
    )


def _way(stage: Stage, name: str, address: str) -> str:
    """Where somebody of this name connects to instead of `address`."""
    return address if stage.links is None else stage.links.routed(name, address)


def _routed(stage: Stage, name: str, base_url: str) -> str:
    scheme, _, address = base_url.partition("://")
    return f"{scheme}://{_way(stage, name, address)}"


def _files(stage: Stage, name: str) -> Tls | None:
    """What somebody of this name shows; None where nobody has to show anything."""
    if not stage.cluster.layout.secure:
        return None
    files = dev_files(stage.cluster.directory, name)
    assert files is not None, f"a secure cluster is made with the certificate of {name}"
    return Tls(files)


def _malicious_files(stage: Stage) -> Tls | None:
    if not stage.cluster.layout.secure:
        return None
    broker = str(BROKERS[MALICIOUS])
    authority = DevAuthority(stage.cluster.directory / CERTIFICATES)
    authority.issue(MALICIOUS, [CertifiedName(stage.cluster.layout.cluster_id, "broker", broker)], (), 1)
    return _files(stage, MALICIOUS)
