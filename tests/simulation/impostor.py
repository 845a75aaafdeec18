"""A faulty or foreign agent that acts under the id of another broker: with its registration, with a guess at it, or
with a registration of its own in its place.

Nobody is kept from that who may act as a broker at all. It may cost an agent its registration, and IDs, but what the
quorum gives is given once, and a registration that is not in force gives nothing.
"""

from __future__ import annotations

import random
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from pidkeeper.controller.state import requests
from pidkeeper.protocol.errors import RequestError
from tests.simulation.agent import Agent
from tests.simulation.client import Endpoint
from tests.simulation.world import MILLISECOND, SECOND, Violation

if TYPE_CHECKING:
    from tests.simulation.cluster import Cluster

SHARE: Final = 0.25
"""Of the seeds."""

BEYOND: Final = 2**62
"""No epoch is ever as high."""


class Impostor:
    """One foreign agent, in some of the seeds."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._world = cluster.world
        self._rng: random.Random = cluster.world.stream("impostor")
        self._acts = self._rng.random() < SHARE
        self._endpoint = Endpoint(cluster, self._rng)
        self._incarnations = 0

    def start(self) -> None:
        """Begin."""
        if self._acts:
            self._world.at(self._rng.randrange(8 * SECOND), self._act)

    def _act(self) -> None:
        if self._cluster.healed:
            return
        self._world.at(self._rng.randrange(500 * MILLISECOND, 5 * SECOND), self._act)
        victim = self._rng.choice(self._cluster.agents)
        if victim.broker_epoch is not None and self._cluster.may_allocate():
            self._rng.choice((self._copy, self._copy, self._guess, self._guess, self._take_the_place))(victim)

    def _copy(self, victim: Agent) -> None:
        """Ask for a block with the registration of `victim`."""
        assert victim.broker_epoch is not None, f"{victim.claims.name} is not registered"
        self._world.fault("registration_copied")
        self._endpoint.call(requests.AllocateProducerIds(victim.broker_id, victim.broker_epoch), _whatever)

    def _guess(self, victim: Agent) -> None:
        """Ask, or give a sign of life, with an epoch that is nobody's."""
        self._world.fault("epoch_guessed")
        kind = self._rng.choice((requests.AllocateProducerIds, requests.BrokerHeartbeat))
        request = kind(victim.broker_id, BEYOND + self._rng.randrange(99))
        self._endpoint.call(request, partial(_must_be_refused, request))

    def _take_the_place(self, victim: Agent) -> None:
        """Register as another process of the same broker: `victim` is refused from then on, and ends."""
        self._world.fault("broker_id_claimed")
        self._incarnations += 1
        request = requests.RegisterBroker(victim.broker_id, f"impostor-{self._incarnations}")
        self._endpoint.call(request, _whatever)


def _must_be_refused(request: requests.Request, _: Any, error: RequestError | None) -> None:
    if error is None:
        raise Violation("guess-granted", f"{request}")


def _whatever(answer: Any, error: RequestError | None) -> None:
    """It has no use for what it is told."""
