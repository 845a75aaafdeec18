"""What a member needs from outside: the event loop, chance, the clock, links, who writes and reads files, ZooKeeper.

The process gives it sockets, threads and the machine's clock (`process_ports.py`); the simulator gives it virtual ones,
and builds the same member on them.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable, Mapping
from typing import Protocol

import msgspec

from pidkeeper.controller.migration.zookeeper import BlockZnode
from pidkeeper.controller.node.chunk_reader import ChunkReader
from pidkeeper.controller.node.markers import MarkerWriter
from pidkeeper.controller.node.storage_worker import StorageWorker
from pidkeeper.controller.raft.core import Rng
from pidkeeper.controller.raft.messages import Message
from pidkeeper.controller.storage.wal import WriteAheadLog
from pidkeeper.controller.transport.identity import Identity, Peer
from pidkeeper.controller.transport.links import LinkEvents
from pidkeeper.protocol.founding import Succession
from pidkeeper.protocol.records import QuorumMember
from pidkeeper.snapshots.catalog import SnapshotCatalog

Addresses = Mapping[int, tuple[str, int]]
"""The (host, port) of the other members, by id."""


class Links(Protocol):
    """The links to the other members. `PeerLinks` is one."""

    @property
    def identity(self) -> Identity:
        """Who this member is to its peers."""

    @property
    def peers(self) -> Mapping[int, Peer]:
        """What the peers that are connected to us say of themselves."""

    @property
    def failures(self) -> Mapping[tuple[int, str], int]:
        """Failed dials, refusals and drops, by peer and reason."""

    @property
    def handshakes_failed(self) -> Mapping[str, int]:
        """Inbound connections that were refused before they were links, by reason."""

    async def start(self, host: str, port: int, events: LinkEvents) -> int:
        """Listen and dial; returns the port. Raises OSError if the address cannot be bound."""

    async def stop(self) -> None:
        """Close everything."""

    def send(self, messages: list[Message]) -> None:
        """Send each message to its receiver, if it is known. Messages may be dropped."""

    def introduce_as(self, founding_id: uuid.UUID | None, succession: Succession | None) -> None:
        """This member is of founding `founding_id`: say so in every handshake from now on."""

    def tell_voters(self, voters: tuple[QuorumMember, ...]) -> None:
        """These are the voters, as far as that is committed: say so in every handshake from now on."""

    def redial(self) -> None:
        """Break the connections to the other members, and dial anew."""

    def set_members(self, addresses: Addresses) -> None:
        """The other members are these from now on."""


class Ports(msgspec.Struct, frozen=True):
    """All of them.

    `loop`: the running event loop. `rng`: the core's source of chance. `wall_clock()`: seconds since the epoch, never
    looked at where safety depends on it. `links`, `writer` and `chunk_reader` make those of this member, the
    reader for chunks of so many bytes at most. `new_name()`: a name for this quorum's claims in ZooKeeper that nobody
    ever had. `new_founding_id()`: a uuid for a quorum that has none. `clock_ns()`: a monotonic clock, for what is
    measured alone.
    """

    loop: asyncio.AbstractEventLoop
    rng: Rng
    wall_clock: Callable[[], float]
    links: Callable[[Identity, Addresses], Links]
    writer: Callable[[WriteAheadLog], StorageWorker]
    chunk_reader: Callable[[SnapshotCatalog, int], ChunkReader]
    znode: BlockZnode
    markers: MarkerWriter
    new_name: Callable[[], str]
    new_founding_id: Callable[[], uuid.UUID] = uuid.uuid4
    clock_ns: Callable[[], int] = time.monotonic_ns
