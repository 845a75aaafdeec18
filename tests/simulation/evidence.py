"""Brokers that say they hold IDs which the quorum never gave them, and the operator who judges what they say.

Whatever an authenticated broker says within the bound stops the quorum; so it is not beyond what a faulty one may do,
but it must cost nothing but time, and what lies beyond the bound must not even cost that.
"""

from __future__ import annotations

import random
import uuid
from typing import TYPE_CHECKING, Any, Final

from pidkeeper.controller.state import requests
from pidkeeper.controller.state.machine import StateMachine
from pidkeeper.protocol.errors import ErrorCode, RequestError
from pidkeeper.protocol.ids import MAX_FLOOR_JUMP, MAX_PRODUCER_ID
from pidkeeper.protocol.messages import HeldIds
from pidkeeper.protocol.metadata_version import FOUNDING
from tests.simulation.client import Endpoint
from tests.simulation.history import FIRST_WITNESS
from tests.simulation.world import MILLISECOND, SECOND, Violation

if TYPE_CHECKING:
    from tests.simulation.cluster import Cluster

WITNESSES: Final = 2
SHARE: Final = 0.33
"""Of the seeds."""

LOOK: Final = 200 * MILLISECOND
FAR: Final = (2 * MAX_FLOOR_JUMP, MAX_PRODUCER_ID - 1)


class Witnesses:
    """The false witnesses, and their judge, as long as he `judges`."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._world = cluster.world
        self._rng: random.Random = cluster.world.stream("witnesses")
        self._moments: random.Random = cluster.world.stream("witnesses-of-rollbacks")
        self._lies = self._rng.random() < SHARE
        self._endpoint = Endpoint(cluster, self._rng)
        self._patience = 0
        self._asked = False
        self._names: dict[int, str] = {}
        self.judges = True

    def start(self) -> None:
        """Begin to lie, in some of the seeds, and to judge."""
        if self._lies:
            self._world.at(self._rng.randrange(10 * SECOND), self._lie)
        self._world.at(LOOK, self._look)

    def ordered(self, *, rollback: bool) -> None:
        """Speak up while allocation is handed back to ZooKeeper, in some of the seeds with lies."""
        if rollback and self._lies and self._moments.random() < 0.5:
            self._world.at(self._moments.randrange(30 * MILLISECOND), self._speak)

    def _lie(self) -> None:
        if self._cluster.healed:
            return
        self._world.at(self._rng.randrange(2 * SECOND, 15 * SECOND), self._lie)
        self._speak()

    def _speak(self) -> None:
        if self._cluster.healed:
            return
        far = self._rng.random() < 0.3
        above = self._rng.choice((0, 1, 5_000, 1_000_000))
        highest = self._rng.choice(FAR) if far else min(self._cluster.next_id_seen() + above, MAX_PRODUCER_ID - 1)
        broker_id = FIRST_WITNESS + self._rng.randrange(WITNESSES)
        held = HeldIds(uuid.UUID(int=self._rng.getrandbits(128)), highest)
        believes = self._cluster.metadata_version() >= FOUNDING
        self._world.fault("evidence_forged")

        def told(answer: Any, error: RequestError | None) -> None:
            beyond = highest - self._cluster.next_id_seen() > MAX_FLOOR_JUMP
            if far and beyond and believes and error is None:
                raise Violation("believed-too-much", f"{held} of broker {broker_id} was answered with {answer}")

        name = self._names[broker_id] = f"witness-{self._rng.getrandbits(32)}"
        self._endpoint.call(requests.RegisterBroker(broker_id, name, None, held), told)

    def _look(self) -> None:
        """What `pidkeeper health` shows. Another leader may know more, or nothing yet."""
        self._world.at(LOOK, self._look)
        leader = self._cluster.leader()
        if leader is None or self._asked or not self.judges:
            return
        machine = leader.machine
        found = machine.foundings.open(machine.producer_ids.next_producer_id)
        if not found:
            self._patience = self._world.now + self._rng.randrange(2 * SECOND)
        elif self._world.now >= self._patience:
            self._asked = True
            self._endpoint.call(self._judgement(found[0].broker_id, found[0].highest_producer_id), self._judged)
        for broker_id in list(self._names):
            self._insist(broker_id, machine)

    def _insist(self, broker_id: int, machine: StateMachine) -> None:
        """A process whose word was dismissed says more than it did: that stops nobody again."""
        evidence, registration = machine.foundings.of(broker_id), machine.brokers.get(broker_id)
        if evidence is None or not evidence.dismissed or registration is None:
            return
        name = self._names.pop(broker_id)
        if registration.incarnation_id != name or evidence.offset <= registration.broker_epoch:
            return
        highest = min(max(evidence.highest_producer_id, self._cluster.next_id_seen()) + 1_000, MAX_PRODUCER_ID - 1)
        self._world.fault("evidence_insisted_on")

        def told(answer: Any, error: RequestError | None) -> None:
            if error is None and highest >= self._cluster.next_id_seen():
                raise Violation("believed-again", f"broker {broker_id}, dismissed, was answered with {answer}")

        held = HeldIds(evidence.founding_id, highest)
        self._endpoint.call(requests.RegisterBroker(broker_id, name, None, held), told)

    def _judgement(self, broker_id: int, highest: int) -> requests.Request:
        if self._rng.random() < 0.3 and highest < MAX_PRODUCER_ID - self._cluster.swarm.block_size:
            return requests.RaiseFloor(highest + 1)
        return requests.DismissEvidence(broker_id, highest)

    def _judged(self, _: Any, error: RequestError | None) -> None:
        self._asked = False
        if error is not None and error.code is ErrorCode.INVALID_REQUEST:
            raise Violation("judgement-refused", f"{error}")
