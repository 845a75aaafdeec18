"""A broker's agent that names producer IDs which are not its own as candidates, by mistake or on purpose.

Only once the quorum takes these IDs itself: before, every ID is the agents' word, and a lie breaks the promise.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec.structs import replace

from pidkeeper.protocol.ids import MAX_PRODUCER_ID
from pidkeeper.protocol.messages import TransactionalInitRequest
from tests.simulation.own_blocks import SINCE

if TYPE_CHECKING:
    from tests.simulation.cluster import Cluster

PATH: Final = "/v1/transactions/init-producer-id"


class Liar:
    """The tongue of one agent. Most never lie, in most of the seeds."""

    def __init__(self, cluster: Cluster, rng: random.Random) -> None:
        self._cluster = cluster
        self._rng = rng
        settings = cluster.transactional
        self._lies = rng.random() < settings.liars if settings.ids else False

    def told(self, path: str, body: bytes | None) -> tuple[bytes | None, bool]:
        """What goes to the quorum instead of `body`, and whether that is a lie."""
        if body is None or path != PATH or not self._lies or self._cluster.metadata_version() < SINCE:
            return body, False
        self._cluster.world.fault("candidate_lied")
        request = msgspec.json.decode(body, type=TransactionalInitRequest)
        return msgspec.json.encode(replace(request, candidate=self._candidate())), True

    def _candidate(self) -> int:
        """An ID that a producer without a transactional id has, one that no block holds, or the quorum's own next."""
        cluster, rng = self._cluster, self._rng
        claims = [agent.claims for agent in (*cluster.agents, *cluster.gone) if agent.claims.runs]
        leader = cluster.leader()
        own = None if leader is None else leader.machine.own_ids.next_id
        beyond = min(cluster.next_id_seen() + rng.choice((0, 1, 5_000)), MAX_PRODUCER_ID)
        choices = [0, beyond, MAX_PRODUCER_ID, *([] if own is None else [own, own + 1])]
        if claims and rng.random() < 0.6:
            return int(rng.choice(rng.choice(rng.choice(claims).runs)))
        return int(rng.choice(choices))
