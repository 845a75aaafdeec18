"""The ports of a member that is a process of its own: sockets, threads, and the clock and chance of the machine."""

from __future__ import annotations

import asyncio
import random
import time
import uuid
from functools import partial

from pidkeeper.controller.migration.zookeeper import BlockZnode, NoZookeeper
from pidkeeper.controller.node.assembly import ClusterMember
from pidkeeper.controller.node.chunk_reader import ChunkReader
from pidkeeper.controller.node.markers import RecordedMarkers
from pidkeeper.controller.node.opening import open_storage
from pidkeeper.controller.node.ports import Ports
from pidkeeper.controller.node.settings import MemberSettings, ZooKeeperSettings
from pidkeeper.controller.node.storage_worker import StorageWorker
from pidkeeper.controller.transport.links import PeerLinks
from pidkeeper.disk.files import OsFiles
from pidkeeper.service.protection import UNPROTECTED, Protection


async def open_member(settings: MemberSettings, protection: Protection = UNPROTECTED) -> ClusterMember:
    """Open the data directory, and put the member together. Raises what `open_storage` raises."""
    storage = await asyncio.to_thread(open_storage, OsFiles(), settings)
    return ClusterMember(settings, storage, process_ports(settings, protection))


def process_ports(settings: MemberSettings, protection: Protection = UNPROTECTED) -> Ports:
    """The ports of this process; needs a running event loop."""
    return Ports(
        loop=asyncio.get_running_loop(),
        rng=random.SystemRandom(),
        wall_clock=time.time,
        links=partial(PeerLinks, protection=protection),
        writer=StorageWorker,
        chunk_reader=ChunkReader,
        znode=NoZookeeper() if settings.zookeeper is None else _znode(settings.zookeeper),
        markers=RecordedMarkers(),
        new_name=lambda: random_name(settings.cluster_id),
    )


def random_name(cluster_id: str) -> str:
    """A name for a quorum's claims that nobody ever had: a quorum that was made anew must not take over old claims."""
    return f"pidkeeper/{cluster_id}/{uuid.uuid4().hex}"


def _znode(settings: ZooKeeperSettings) -> BlockZnode:
    """The real one; imported here because most members need none of it."""
    from pidkeeper.controller.migration.kazoo_znode import KazooZnode

    return KazooZnode(
        settings.connect,
        session_timeout_ms=settings.session_timeout_ms,
        request_timeout_ms=settings.request_timeout_ms,
        digest=settings.digest,
    )
