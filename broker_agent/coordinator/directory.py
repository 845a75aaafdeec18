"""Which agents live, and which of them coordinates a transactional id or a consumer group. Pure: no clock, no I/O.

Any agent can serve any transactional id, for the truth is in the quorum; naming one spreads the load. The members of
a group have to come to the same one. Rendezvous hashing (Thaler and Ravishankar 1998) names the agent with the highest
weight for the id, so that an agent that dies moves its own ids and no others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from hashlib import blake2b
from typing import Final

import msgspec

from pidkeeper.protocol.addresses import AddressError, HostPort
from pidkeeper.protocol.messages import BrokerDescription

MAX_NODES: Final = 256
"""Agents known; of more, those with the lowest ids. With the longest addresses (264 bytes) they make a Metadata
response of 73 KiB."""


class Node(msgspec.Struct, frozen=True):
    """A broker, at the address that clients shall connect to."""

    id: int
    host: str
    port: int


class Directory:
    """The agents that clients are told of. `own` is always one of `nodes`: it has been reached. `keepers`: those that
    have told the quorum of their store.

    `on_lookup()` is called whenever a coordinator is named, for a client may ask because the last one is dead.
    """

    __slots__ = ("_live", "_on_lookup", "keepers", "nodes", "own")

    def __init__(self, own: Node, on_lookup: Callable[[], None] = lambda: None) -> None:
        self.own = own
        self._on_lookup = on_lookup
        self.nodes: tuple[Node, ...] = (own,)
        self.keepers: tuple[Node, ...] = ()
        self._live: tuple[Node, ...] = (own,)

    def update(self, brokers: Iterable[BrokerDescription]) -> None:
        """Take the controllers' list. Fenced brokers, and those without an address, coordinate nothing."""
        live: list[Node] = []
        keepers: list[Node] = []
        for broker in sorted(brokers, key=lambda one: one.broker_id):
            if broker.fenced or broker.kafka is None or len(live) == MAX_NODES:
                continue
            try:
                address = HostPort.parse(broker.kafka, "kafka")
            except AddressError:
                continue
            live.append(Node(broker.broker_id, address.host, address.port))
            if broker.store_id is not None:
                keepers.append(live[-1])
        self._live = tuple(live) or (self.own,)
        self.keepers = tuple(keepers)
        self.nodes = (self.own, *(node for node in live if node.id != self.own.id))

    def coordinator(self, transactional_id: str) -> Node:
        """The agent that coordinates `transactional_id`; all agents with the same list name the same one."""
        return self._drawn(self._live, transactional_id)

    def group_coordinator(self, group_id: str) -> Node:
        """Likewise of a consumer group: one that keeps records, since no other serves groups."""
        return self._drawn(self.keepers or self._live, group_id)

    def _drawn(self, nodes: Iterable[Node], key: str) -> Node:
        self._on_lookup()
        name = key.encode()
        return max(nodes, key=lambda node: weight(node.id, name))


def weight(broker_id: int, transactional_id: bytes) -> bytes:
    """How strongly a broker pulls a transactional id. Agents of different builds have to agree on it: never change it.

    The first eight bytes of BLAKE2b over the id as a big-endian INT32, and the transactional id.
    """
    return blake2b(broker_id.to_bytes(4, "big") + transactional_id, digest_size=8).digest()
