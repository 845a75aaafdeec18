"""Plain clients, which ask for whatever may be asked for about IDs, one attempt at a time.

An attempt whose answer does not come is an operation of unknown outcome; its retry is another operation.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from pidkeeper.controller.state import requests
from pidkeeper.protocol.errors import ErrorCode, RequestError
from tests.simulation.client_link import ELSEWHERE, ClientLink
from tests.simulation.history import NOBODY
from tests.simulation.world import MILLISECOND

if TYPE_CHECKING:
    from tests.simulation.cluster import Cluster

ATTEMPT: Final = 300 * MILLISECOND
"""How long a caller waits for an answer, unless `Cluster.attempt` says otherwise."""

UNREGISTERED: Final = 0.03
"""Share of a client's requests that end the registration of an agent, as an operator may who mistakes it for dead."""

_REGISTER_ANEW: Final = frozenset({ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED})
Done = Callable[[Any, RequestError | None], None]


class Endpoint:
    """A client's connection to the quorum, with its guess at the leader."""

    def __init__(self, cluster: Cluster, rng: random.Random) -> None:
        self._cluster = cluster
        self._link = ClientLink(cluster, rng)
        self._leader = rng.choice(cluster.voters)

    def call(self, request: requests.Request, done: Done, producer: int = NOBODY) -> None:
        """Ask one member, once; `done(answer, error)` is called once. `producer`: of whom it is a request, if any."""
        operation = self._cluster.history.invoke(request, producer)
        target = self._leader
        waiting = True

        def answered(leader: int | None, result: Any, error: RequestError | None) -> None:
            nonlocal waiting
            if not waiting:
                return
            waiting = False
            if result is not None:
                self._cluster.history.acknowledge(operation, result)
            elif error is None or error.code in ELSEWHERE:
                self._move_on(target, leader)
                error = RequestError(ErrorCode.REQUEST_TIMED_OUT)
            else:
                self._cluster.history.refuse(operation, error)
            done(result, error)

        self._link.ask(target, operation, answered)
        self._cluster.world.at(self._cluster.attempt, answered, None, None, None)

    def _move_on(self, failed: int, named: int | None) -> None:
        """Choose the member to ask after `failed` did not serve."""
        if self._leader == failed:
            voters = self._cluster.voters
            following = min((voter for voter in voters if voter > failed), default=voters[0])
            self._leader = following if named is None or named == failed else named


class Client:
    """Registers a broker id and allocates blocks, some at once; sometimes raises the floor, leaves, or ends another."""

    def __init__(self, cluster: Cluster, broker_id: int) -> None:
        self.cluster = cluster
        self.world = cluster.world
        self.broker_id = broker_id
        self.rng = cluster.world.stream(f"client-{broker_id}")
        self.endpoint = Endpoint(cluster, self.rng)
        self.epoch: int | None = None
        self.incarnation = 0
        self._outstanding = 0

    def start(self) -> None:
        """Begin to ask."""
        self.world.at(self.rng.randrange(self.cluster.swarm.think_time), self._act)

    def _act(self) -> None:
        if not self.cluster.loaded:
            return
        request = self._request()
        count = 1
        if isinstance(request, requests.AllocateProducerIds):
            count = self.rng.randint(1, self.cluster.swarm.burst)
        self._outstanding = count
        for _ in range(count):
            self.endpoint.call(request, self._done)

    def _request(self) -> requests.Request:
        if self.rng.random() < UNREGISTERED and not self.cluster.healed:
            agent = self.rng.choice(self.cluster.agents)
            if agent.broker_epoch is not None:
                self.world.fault("agent_unregistered")
                return requests.UnregisterBroker(agent.broker_id, agent.broker_epoch)
        if self.epoch is None:
            return requests.RegisterBroker(self.broker_id, f"client-{self.broker_id}-{self.incarnation}")
        chance = self.rng.random()
        if chance < self.cluster.swarm.floor_rate:
            committed = self.cluster.next_id_seen()
            return requests.RaiseFloor(max(0, committed + self.rng.randrange(-100, 1_000)))
        if chance > 0.96:
            self.incarnation += 1
            return requests.UnregisterBroker(self.broker_id, self.epoch)
        if chance > 0.92 or not self.cluster.may_allocate():
            return requests.BrokerHeartbeat(self.broker_id, self.epoch)
        return requests.AllocateProducerIds(self.broker_id, self.epoch)

    def _done(self, answer: Any, error: RequestError | None) -> None:
        if error is None:
            epoch = getattr(answer, "broker_epoch", None)
            self.epoch = epoch if epoch is not None else self.epoch
        elif error.code in _REGISTER_ANEW:
            self.epoch = None
        elif error.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION:
            self.incarnation += 1
        self._outstanding -= 1
        if not self._outstanding:
            self.world.at(int(self.cluster.swarm.think_time * (0.5 + self.rng.random())), self._act)
