"""Disks that are full: each controller has a small one of its own, and a file takes all that is left of it.

With the settings of an ordinary cluster a small disk has room for one segment of 16 MiB: SMALL_LOG makes segments and
snapshots come often enough that a minute without room is noticed under load.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from pidkeeper.cli.local_cluster import Controller, member_name
from tests.chaos.fault import Fault, FaultKind
from tests.chaos.looking import LogSince, until
from tests.chaos.plan import Planned, Target
from tests.chaos.stage import Stage

MIB: Final = 1024 * 1024
DISK_BYTES: Final = 64 * MIB
"""Eight times what a log of small segments takes, 2 x snapshot_bytes + 4 x segment_bytes (docs/operations.md), and room
for the archive of hours."""

SMALL_LOG: Final[dict[str, Any]] = {"segment_bytes": MIB, "snapshot_bytes": 2 * MIB, "snapshot_entries": 500}

NO_ROOM: Final = ("no room for a log segment", "cannot take a snapshot", "No space left on device")
"""What a member says in its log for want of room."""

COMMAND_SECONDS: Final = 30.0


@contextlib.contextmanager
def small_disks(directory: Path, controllers: Iterable[int]) -> Iterator[str | None]:
    """A small file system for the data of each of these controllers of a cluster that is to be in `directory`.

    A file with ext4 in it where loop devices can be had, so that a sync is one; else a tmpfs. Yields why there are
    none, and nothing is mounted then. Mounts go at the end, whoever still holds a file there.
    """
    mounted: list[Path] = []
    try:
        yield _mount_all(directory, controllers, mounted)
    finally:
        for path in mounted:
            _run("umount", "--lazy", str(path))


FELT_SECONDS: Final = 3.0
LOOK_SECONDS: Final = 0.5


class FullDisk(Fault):
    """No byte is left on the disk of one controller until it has noticed, and FELT_SECONDS longer."""

    def __init__(self, stage: Stage, planned: Planned) -> None:
        super().__init__(stage, planned)
        member = stage.chosen(planned)
        assert isinstance(member, Controller), "agents keep nothing on disk"
        self._member = member
        self._filler = Path(member.data_dir) / "filler"
        self.victims = (member_name(member),)
        self._log = LogSince(stage.cluster, member)

    async def begin(self) -> None:
        """Fill it."""
        await asyncio.to_thread(_fill, self._filler)

    async def hold(self) -> None:
        """As long as is planned at most."""
        begun = asyncio.get_running_loop().time()
        await until(self._is_felt, self.planned.seconds, every=LOOK_SECONDS)
        passed = asyncio.get_running_loop().time() - begun
        await asyncio.sleep(min(FELT_SECONDS, max(0.0, self.planned.seconds - passed)))

    async def end(self) -> None:
        """Make room again, and start the member if it ended, as it does when its newest segment is full."""
        await asyncio.to_thread(self._filler.unlink, missing_ok=True)
        await self.stage.start(self._member)

    async def bites(self) -> int:
        """How often the member has logged that it lacks room."""
        return len(self._log.lines(*NO_ROOM))

    def _is_felt(self) -> bool:
        return bool(self._log.lines(*NO_ROOM))


def why_no_small_disks(stage: Stage) -> str | None:
    """All controllers must have a disk of their own."""
    voters = [one for one in stage.cluster.layout.controllers if not one.learner]
    if all(os.path.ismount(one.data_dir) for one in voters):
        return None
    return "the controllers have no small disks of their own, which take root, mount, and ext4 on loop devices or tmpfs"


def _mount_all(directory: Path, controllers: Iterable[int], mounted: list[Path]) -> str | None:
    if os.geteuid() != 0:
        return "mounting small disks takes root"
    images = directory / "disks"
    images.mkdir(parents=True, exist_ok=True)
    for node_id in controllers:
        path = directory / "data" / f"controller-{node_id}"
        path.mkdir(parents=True, exist_ok=True)
        refused = _mount_image(images / f"controller-{node_id}.ext4", path) and _mount_memory(path)
        if refused:
            return f"no small disk can be mounted: {refused}"
        mounted.append(path)
    return None


def _mount_image(image: Path, path: Path) -> str:
    """Why it is not mounted; nothing if it is."""
    if shutil.which("mkfs.ext4") is None:
        return "mkfs.ext4 is not on PATH"
    with image.open("wb") as file:
        file.truncate(DISK_BYTES)
    # Small blocks, a small journal, and no reserve for root, who would write on when the disk is full.
    made = _run("mkfs.ext4", "-q", "-F", "-m", "0", "-b", "1024", "-J", "size=1", str(image))
    refused = made or _run("mount", "-o", "loop", str(image), str(path))
    if not refused:
        (path / "lost+found").rmdir()
    return refused


def _mount_memory(path: Path) -> str:
    return _run("mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "pidkeeper-chaos", str(path))


def _run(*command: str) -> str:
    """What a command that failed has said."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return "" if done.returncode == 0 else done.stderr.strip() or f"{command[0]} ended with {done.returncode}"


def _fill(filler: Path) -> None:
    """Take all room, whatever is freed meanwhile."""
    with filler.open("xb", buffering=0) as file:
        for size in (MIB, 1024):
            with contextlib.suppress(OSError):
                while True:
                    os.posix_fallocate(file.fileno(), file.seek(0, os.SEEK_END), size)
        with contextlib.suppress(OSError):
            os.fsync(file.fileno())


KINDS: Final = (
    FaultKind(
        "full_disk",
        FullDisk,
        (Target.LEADER, Target.FOLLOWER),
        (15.0, 45.0),
        takes_down=True,
        why_not=why_no_small_disks,
    ),
)
