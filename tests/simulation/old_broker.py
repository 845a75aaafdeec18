"""Brokers of Kafka before 3.0: each takes its blocks from ZooKeeper itself, by KIP-730's loop ("Motivation").

A broker is registered in ZooKeeper while its session lasts. That of one that was killed outlasts it, and one that goes
on can lose its session.
"""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any, Final

from pidkeeper.controller.migration.zookeeper import Cause, Failure, Znode
from pidkeeper.protocol.ids import DEFAULT_BLOCK_SIZE, MAX_PRODUCER_ID
from pidkeeper.protocol.migration import MigrationPhase
from tests.simulation.world import MILLISECOND, SECOND, Violation
from tests.simulation.zookeeper import Session, Write, ZooKeeper

if TYPE_CHECKING:
    from tests.simulation.cluster import Cluster

_PAUSE: Final = 50 * MILLISECOND
"""After a call that failed."""
_CALM: Final = 500 * MILLISECOND
"""Between two blocks, at the end: brokers that write more often than the quorum commits keep every step from ending."""
_SESSION: Final = 4 * SECOND
"""How long a session outlasts its process, at most."""
_SESSION_LOSS: Final = 20 * SECOND
"""Until a broker that runs loses its session, on the average."""


class OldBroker:
    """One process after another. It stops when nothing is left, which is what a seal tells it.

    `copies`: it writes back the keys that it read and does not know.
    """

    def __init__(self, cluster: Cluster, zookeeper: ZooKeeper, broker_id: int, *, copies: bool) -> None:
        self.cluster = cluster
        self.world = cluster.world
        self.zookeeper = zookeeper
        self.broker_id = broker_id
        self.copies = copies
        self.stopped = True
        self._starts = 0
        self._rng: random.Random = cluster.world.stream(f"old-broker-{broker_id}")
        self._session: Session
        self._asked = 0

    def start(self) -> None:
        """Begin to allocate, as a new process."""
        self.stopped = False
        self._starts += 1
        life = self._starts
        self.zookeeper.create()

        def later(delay: int, call: Any, *args: Any) -> None:
            self.world.at(delay, self._call, life, call, *args)

        name = f"old-broker-{self.broker_id}-{life}"
        self._session = Session(self.zookeeper, None, name, later, lambda: self._runs(life))
        later(self._rng.randrange(self.zookeeper.settings.think), self._register, True)

    def stop(self, *, killed: bool) -> None:
        """End the process. Whoever is killed does not end its session."""
        self.stopped = True
        self.world.at(
            self._rng.randrange(_SESSION) if killed else 0, self.zookeeper.expire, self.broker_id, self._starts
        )

    def _register(self, first: bool) -> None:
        """With a new session. The ID manager is made after that (`KafkaServer.startup`)."""
        if not self.zookeeper.reaches(None):
            self.world.at(_PAUSE, self._call, self._starts, self._register, first)
            return
        self.zookeeper.register(self.broker_id, self._starts)
        lasts = int(_SESSION_LOSS * self._rng.expovariate(1.0))
        self.world.at(lasts, self._call, self._starts, self._lose_session)
        if first:
            self._allocate()

    def _lose_session(self) -> None:
        self.world.fault("old_broker_session_lost")
        self.zookeeper.expire(self.broker_id, self._starts)
        self.world.at(self._rng.randrange(SECOND), self._call, self._starts, self._register, False)

    def _runs(self, life: int) -> bool:
        return not self.stopped and self._starts == life and self.cluster.loaded

    def _call(self, life: int, call: Any, *args: Any) -> None:
        if self._runs(life):
            call(*args)

    def _wait(self, delay: int) -> None:
        self.world.at(delay, self._call, self._starts, self._allocate)

    def _allocate(self) -> None:
        self._asked = self.world.now
        self._session.read(self._read, _unseen)

    def _read(self, outcome: Znode | Failure) -> None:
        if isinstance(outcome, Failure):
            self._wait(_PAUSE)
            return
        fields: dict[str, Any] = {} if outcome.data is None else json.loads(outcome.data)
        first = int(fields.get("block_end", "-1")) + 1
        size = first - int(fields.get("block_start", "0"))
        if size > 2**31 - 1:
            raise Violation("unreadable", f"an old broker cannot read a block of {size} IDs: {outcome}")
        if first - 1 > MAX_PRODUCER_ID - DEFAULT_BLOCK_SIZE:
            assert outcome.data is not None, "a znode without data leaves every ID"
            self.cluster.migration.exhausted(outcome.data)
            self.world.note(f"old broker {self.broker_id} finds no ID left, and stops")
            self.stop(killed=False)
            return
        last = first + DEFAULT_BLOCK_SIZE - 1
        block = {"version": 1, "broker": self.broker_id, "block_start": str(first), "block_end": str(last)}
        data = json.dumps({**fields, **block} if self.copies else block).encode()
        wanted = Write("broker", None, self.broker_id, MigrationPhase.NONE, data, outcome.version)
        self._session.write(wanted, lambda answer: self._written(first, last, answer), _unseen)

    def _written(self, first: int, last: int, outcome: Znode | Failure) -> None:
        if isinstance(outcome, Znode):
            self.cluster.migration.given(self.broker_id, first, last, self._asked)
            think = max(self.zookeeper.settings.think, _CALM if self.cluster.healed else 0)
            self._wait(int(think * (0.2 + 1.6 * self._rng.random())))
        elif outcome.cause is Cause.CONFLICT:
            self._wait(0)
        else:
            self._wait(_PAUSE)


def _unseen(_: str) -> None:
    """Nobody asks how far an old broker has come."""
