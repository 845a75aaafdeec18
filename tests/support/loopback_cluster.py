"""Members of a quorum inside one process: real cores, logs, snapshots and links over the loopback."""

from __future__ import annotations

import asyncio
import shutil
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from pidkeeper.cli.local_cluster import HOST
from pidkeeper.controller.node.assembly import ClusterMember
from pidkeeper.controller.node.durable_voters import founding_by
from pidkeeper.controller.node.interface import MemberInterface
from pidkeeper.controller.node.opening import open_storage
from pidkeeper.controller.node.process_ports import process_ports
from pidkeeper.controller.node.settings import PROFILES, MemberSettings, Voter
from pidkeeper.controller.state import requests
from pidkeeper.controller.storage.directory import format_directory
from pidkeeper.controller.storage.founding import read_founding, write_founding
from pidkeeper.disk.files import Files, OsFiles
from pidkeeper.protocol.addresses import HostPort
from pidkeeper.protocol.errors import ErrorCode, RequestError
from pidkeeper.protocol.messages import AllocatedBlock
from pidkeeper.protocol.metadata_version import LATEST
from tests.support.held_ports import hold_ports

CLUSTER_ID: Final = "loopback"
SECONDS: Final = 20.0


async def eventually(condition: Callable[[], bool], seconds: float = SECONDS) -> None:
    """Wait until `condition` holds. Raises TimeoutError."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - the state of real members has no event to wait for
            await asyncio.sleep(0.005)


class LoopbackCluster:
    """Members 1 to `voters`, each in a directory of its own below `directory`, and `learners` more that may join.

    `blank`: nobody has founded it yet; else the voters are founded with their first start. `options` override
    MemberSettings.
    """

    def __init__(
        self, directory: Path, *, voters: int = 3, learners: int = 0, blank: bool = False, **options: Any
    ) -> None:
        self.members: dict[int, ClusterMember] = {}
        self._directory = directory
        self._options = options
        self._held = hold_ports(voters + learners)
        everyone = tuple(
            Voter(node_id, HostPort(HOST, one.getsockname()[1]), f"http://{HOST}:{node_id}")
            for node_id, one in enumerate(self._held, 1)
        )
        self.voters = everyone[:voters]
        self.founding_id = uuid.uuid4()
        self._to_found = set() if blank else {voter.id for voter in self.voters}
        self.learners = {voter.id: voter for voter in everyone[voters:]}

    def settings(self, node_id: int) -> MemberSettings:
        """What member `node_id` is told."""
        values: dict[str, Any] = {
            "node_id": node_id,
            "cluster_id": CLUSTER_ID,
            "data_dir": str(self._directory / f"member-{node_id}"),
            "voters": self.voters,
            "learner": self.learners.get(node_id),
            "peer_listen": {voter.id: voter for voter in [*self.voters, *self.learners.values()]}[node_id].peer,
            "timing": PROFILES["lan"],
            "block_size": 10,
            "broker_session_timeout_ms": 60_000,
            "founding_hearing_ms": 0,
            "snapshot_entries": 10_000,
            "snapshot_allocations": 20_000,
            "segment_bytes": 1 << 20,
            "peer_keys": (b"a key that is shared by this cluster",),
        }
        return MemberSettings(**{**values, **self._options})

    async def start(self, *node_ids: int, files: Files | None = None, supported: int = LATEST) -> None:
        """Format where that is due, open and start these members, or all. `supported`: what their build reads."""
        for node_id in node_ids or [voter.id for voter in self.voters]:
            settings, disk = self.settings(node_id), files or OsFiles()
            format_directory(disk, Path(settings.data_dir), CLUSTER_ID, node_id, ignore_formatted=True)
            self._found(node_id, disk)
            member = ClusterMember(settings, open_storage(disk, settings, supported), process_ports(settings))
            self.members[node_id] = member
            await member.start()

    def _found(self, node_id: int, disk: Files) -> None:
        """As the command has found it, with the first start; a disk that comes from another life has its founding."""
        settings = self.settings(node_id)
        path = Path(settings.data_dir)
        if node_id in self._to_found and read_founding(disk, path) is None:
            write_founding(disk, path, founding_by(settings, self.founding_id))
        self._to_found.discard(node_id)

    def move(self) -> None:
        """Have all voters live at other addresses with their next start."""
        self._held += (held := hold_ports(len(self.voters)))
        self.voters = tuple(
            Voter(voter.id, HostPort(HOST, one.getsockname()[1]), f"http://{HOST}:1{voter.id}")
            for voter, one in zip(self.voters, held, strict=True)
        )

    async def stop(self, *node_ids: int, hand_over: bool = True) -> None:
        """Stop these members, or all; without `hand_over` the others find out by themselves."""
        for node_id in node_ids or list(self.members):
            member = self.members.pop(node_id)
            if not hand_over:
                member.hand_over = _no_hand_over  # type: ignore[method-assign]
            async with asyncio.timeout(SECONDS):
                await member.stop()

    async def close(self) -> None:
        """Stop whatever runs."""
        await self.stop(hand_over=False)
        for one in self._held:
            one.close()
        for _ in range(5):  # aborted connections are closed in the next turns of the event loop
            await asyncio.sleep(0)

    def wipe(self, node_id: int) -> None:
        """Replace the disk of a stopped member by an empty one."""
        shutil.rmtree(self.settings(node_id).data_dir)

    async def settled(self) -> None:
        """Wait until the leader has nothing of its own left to decide: the metadata version is the newest one."""
        await eventually(lambda: all(member.machine.metadata_version == LATEST for member in self.members.values()))

    async def leader(self) -> ClusterMember:
        """The member that serves; waits for one."""
        await eventually(lambda: any(member.leadership.serving() for member in self.members.values()))
        serving = [member for member in self.members.values() if member.leadership.serving()]
        return max(serving, key=lambda member: member.core.term)

    async def followers(self) -> list[ClusterMember]:
        """All but the leader."""
        leader = await self.leader()
        return [member for member in self.members.values() if member is not leader]

    async def call(self, request: requests.Request) -> Any:
        """Ask the leader, and its successor when it does not lead any more. Raises other RequestErrors."""
        async with asyncio.timeout(SECONDS):
            while True:
                try:
                    return await (await self.leader()).submit(request)
                except RequestError as refusal:
                    if refusal.code not in {ErrorCode.NOT_CONTROLLER, ErrorCode.KAFKA_STORAGE_ERROR}:
                        raise
                    await asyncio.sleep(0.01)

    async def register(self, broker_id: int = 1, incarnation: str = "one") -> int:
        """The epoch of the registration."""
        return int((await self.call(requests.RegisterBroker(broker_id, incarnation))).broker_epoch)

    async def allocate(self, epoch: int, count: int = 1, broker_id: int = 1) -> list[int]:
        """The first IDs of `count` blocks, asked for one after the other, so that each is an entry of its own."""
        return [
            (await self.call(requests.AllocateProducerIds(broker_id, epoch))).producer_id_start for _ in range(count)
        ]

    async def settle(self) -> None:
        """Wait until every running member has applied what the leader has committed."""
        leader = await self.leader()
        index = leader.core.commit
        await eventually(lambda: all(member.core.applied >= index for member in self.members.values()))


async def history(member: ClusterMember, limit: int = 7) -> list[AllocatedBlock]:
    """All pages of a member's history."""
    found: list[AllocatedBlock] = []
    after: int | None = -1
    while after is not None:
        page = await MemberInterface(member).blocks(after, limit)
        found += page.blocks
        after = page.next_after
    return found


async def _no_hand_over() -> None:
    """What a member does that is not stopped but dies."""
