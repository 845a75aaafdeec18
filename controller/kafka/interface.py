"""The interface of a controller in Kafka's protocol: its listener, what answers there, and what it counts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from pidkeeper.controller.api.operations import Operations
from pidkeeper.controller.kafka.application import ControllerApplication
from pidkeeper.controller.kafka.forwarding import Dispatch, Forwarding
from pidkeeper.controller.kafka.tokens import TokenMechanism
from pidkeeper.service.access import ANONYMOUS, Access
from pidkeeper.service.authentication import BEARER, Authenticator
from pidkeeper.service.kafka.listener import KafkaListener
from pidkeeper.service.kafka.listener_metrics import listener_families
from pidkeeper.service.protection import Protection

PREFIX: Final = "pidkeeper_kafka_"


class KafkaInterface(Collector):
    """Callers are let in as over HTTP, by a certificate or by a token, and must be brokers.

    `addresses`: where members speak Kafka's protocol, by their id, as far as it is known.
    """

    def __init__(
        self,
        authenticator: Authenticator,
        protection: Protection,
        addresses: Mapping[int, str],
        *,
        max_connections: int,
    ) -> None:
        named = authenticator.anybody is None and BEARER in authenticator.ways
        self.listener: Final = KafkaListener(
            Access.BROKER,
            max_connections=max_connections,
            protection=protection,
            sasl=TokenMechanism(authenticator) if named else None,
            anybody=authenticator.anybody or ANONYMOUS,
        )
        self._addresses = addresses
        self._application: ControllerApplication | None = None

    async def serve(
        self, operations: Operations, dispatch: Dispatch, leader: Callable[[], tuple[int, str] | None]
    ) -> None:
        """Answer callers from now on. `dispatch` answers calls of HTTP; `leader()`: who leads, and its base URL."""

        def leader_address() -> str | None:
            led = leader()
            return None if led is None else self._addresses.get(led[0])

        forwarding = Forwarding(dispatch, leader_address)
        self._application = ControllerApplication(operations, forwarding, leader_address)
        await self.listener.serve(self._application)

    def collect(self) -> Iterator[Metric]:
        """Every family, freshly made."""
        yield from listener_families(PREFIX, self.listener)
        requests = CounterMetricFamily(
            PREFIX + "requests",
            "Requests in Kafka's protocol, by the name of their API and the outcome.",
            labels=["api", "outcome"],
        )
        for api_and_outcome, count in ({} if self._application is None else self._application.outcomes).items():
            requests.add_metric(api_and_outcome, count)
        yield requests
