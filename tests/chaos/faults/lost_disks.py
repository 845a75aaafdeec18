"""Disks that are lost, and disks of an earlier day: a member comes back on nothing, or on what it once had.

An old disk has forgotten what its member acknowledged and for whom it voted, so no operator may put one in the place of
a member that runs (docs/operations.md, Back up). It does no harm in one case alone, for which `OldDisk` waits with the
member killed: one of the others leads, all others follow it in its term, and hold its whole log. Then nobody can ask
for a vote again that was given, and nothing rests on an acknowledgement that is forgotten. Whatever comes later, the
member is one that lags.
"""

from __future__ import annotations

import asyncio
import contextlib
import filecmp
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from pidkeeper.cli.local_cluster import READY_SECONDS, Controller, member_name
from tests.chaos.fault import Fault, FaultKind
from tests.chaos.looking import LogSince, described, until
from tests.chaos.plan import Planned, Target
from tests.chaos.stage import ChaosCluster, Stage

Told = Mapping[int, dict[str, Any]]

JOINED: Final = "joining founding"
"""What a member on a blank disk logs when the others have told it which quorum it belongs to."""


LACKS: Final = "is committed, but the log ends at"
"""What a member logs that is told of more than it has, and stops."""


class LostDisk(Fault):
    """Killed, its data removed; at the end its directory is formatted and it is started, as an operator does."""

    def __init__(self, stage: Stage, planned: Planned) -> None:
        super().__init__(stage, planned)
        self._member = _controller(stage, planned)
        self.victims = (member_name(self._member),)
        self._log = LogSince(stage.cluster, self._member)

    async def begin(self) -> None:
        """Lose it."""
        await self.stage.kill(self._member)
        await asyncio.to_thread(wipe, Path(self._member.data_dir))

    async def end(self) -> None:
        """Start it on a blank disk."""
        await self.stage.start(self._member)

    async def bites(self) -> int:
        """Whether it began blank and joined the others. Waits for that."""
        return int(await until(lambda: bool(self._log.lines(JOINED)), READY_SECONDS))


class OldDisk(Fault):
    """Killed, its data copied, started; and once all others can do without it, killed and put back on the copy.

    It catches up; or it stops by itself, when a leader that remembers what it acknowledged tells it that more is
    committed than it has (invariant R4). Unless it was seen to catch up, it is started on a blank disk at the end.
    """

    def __init__(self, stage: Stage, planned: Planned) -> None:
        super().__init__(stage, planned)
        self._member = _controller(stage, planned)
        self.victims = (member_name(self._member),)
        self.data = Path(self._member.data_dir)
        self.copy = stage.cluster.directory / "old-disks" / self.victims[0]
        self._log = LogSince(stage.cluster, self._member)
        self._course: asyncio.Task[None] | None = None
        self.put_back = False
        self.caught_up = False

    async def begin(self) -> None:
        """Take the copy; the rest goes on by itself."""
        await self.stage.kill(self._member)
        await asyncio.to_thread(shutil.copytree, self.data, self.copy)
        await self.stage.start(self._member)
        self._course = asyncio.create_task(self._put(), name="put an old disk back")

    async def end(self) -> None:
        """See that the member runs on a disk that lacks nothing, or on a blank one."""
        assert self._course is not None, "it was begun"
        self._course.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._course
        if self.put_back and not self.caught_up:
            await self.stage.kill(self._member)
            await asyncio.to_thread(wipe, self.data)
        await self.stage.start(self._member)
        await asyncio.to_thread(shutil.rmtree, self.copy)

    async def bites(self) -> int:
        """Whether the member began on a disk that lacked something, and caught up or stopped by itself."""
        return int(self.put_back and (self.caught_up or self.stopped()))

    def stopped(self) -> bool:
        """Whether it has stopped by itself."""
        return bool(self._log.lines(LACKS))

    async def _put(self) -> None:
        cluster, quarter = self.stage.cluster, self.planned.seconds / 4
        await until(lambda: cluster.ready(self._member), quarter)
        await self.stage.kill(self._member)
        try:
            if await self._can_be_done_without(2 * quarter):
                await self.stage.in_turn(self.restore)
        finally:
            await self.stage.start(self._member)
        self.caught_up = await until(self._lacks_nothing, self.planned.seconds)

    async def _can_be_done_without(self, seconds: float) -> bool:
        """Whether nothing rests any more, within the time, on what the killed member has acknowledged and voted."""
        cluster, member = self.stage.cluster, self._member
        # Whatever it acknowledged, a leader had before.
        await until(lambda: end_of_log(told_by_others(cluster, member)) is not None, seconds)
        least = end_of_log(await asyncio.to_thread(told_by_others, cluster, member))
        return least is not None and await until(
            lambda: all_follow(told_by_others(cluster, member), least, without=member.id), seconds
        )

    def restore(self) -> bool:
        """Put the copy in the place of what there is, which nobody uses. Returns whether it lacks something."""
        self.put_back = _log_differs(self.data, self.copy)
        wipe(self.data)
        shutil.copytree(self.copy, self.data, dirs_exist_ok=True)
        return self.put_back

    def _lacks_nothing(self) -> bool:
        told = [described(self.stage.cluster, one) for one in self.stage.cluster.layout.controllers]
        leader = next((one for one in told if one.get("role") == "leader"), None)
        own = described(self.stage.cluster, self._member)
        return leader is not None and own.get("applied_index", 0) >= leader["commit_index"]


def told_by_others(cluster: ChaosCluster, member: Controller) -> Told:
    """What each of the other controllers tells of the quorum (`GET /v1/quorum`), by its id."""
    asked = [one for one in cluster.layout.controllers if one is not member and cluster.running(one)]
    return {one.id: described(cluster, one) for one in asked}


def end_of_log(told: Told) -> int | None:
    """Where the leader's log ends; None if nobody leads."""
    return next((one["log_end_index"] for one in told.values() if one.get("role") == "leader"), None)


def all_follow(told: Told, least: int, *, without: int) -> bool:
    """Whether all voters but one are in one term, one of them leads it, and all have the log up to index `least`."""
    leader = next((one for one in told.values() if one.get("role") == "leader"), None)
    if leader is None:
        return False
    others = {one["id"]: one["match_index"] for one in leader["voters"] if one["id"] != without}
    return all(
        told.get(voter, {}).get("term") == leader["term"] and index is not None and index >= least
        for voter, index in others.items()
    )


def wipe(directory: Path) -> None:
    """Remove all that is in it; itself it may be a disk."""
    for path in directory.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


def _log_differs(one: Path, other: Path) -> bool:
    names = sorted(path.name for path in (one / "wal").iterdir())
    _, differ, missing = filecmp.cmpfiles(one / "wal", other / "wal", names, shallow=False)
    return bool(differ or missing)


def _controller(stage: Stage, planned: Planned) -> Controller:
    member = stage.chosen(planned)
    assert isinstance(member, Controller), "agents keep nothing on disk"
    return member


CONTROLLERS: Final = (Target.LEADER, Target.FOLLOWER)

KINDS: Final = (
    FaultKind("lost_disk", LostDisk, CONTROLLERS, (1.0, 15.0), takes_down=True, loses=True),
    FaultKind("old_disk", OldDisk, CONTROLLERS, (12.0, 40.0), takes_down=True, loses=True),
)
