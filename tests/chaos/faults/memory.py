"""Memory that runs short: each process is in a control group of its own, whose limit comes down on what it uses.

Beside the process a hog in the same group reads a file that has no end of pages, so that the group is at its limit all
the while: whatever the process asks for has to be reclaimed first, its own pages of files among it. Under version 1 of
control groups a process that grows beyond the limit is ended by the kernel, the hog before it; under version 2 both are
slowed down.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from pidkeeper.cli.local_cluster import Member, member_name
from tests.chaos.fault import Fault, FaultKind
from tests.chaos.plan import Planned, Target
from tests.chaos.stage import Stage

MIB: Final = 1024 * 1024
MOST_ROOM: Final = 32 * MIB
LEAST_ROOM: Final = 8 * MIB
"""Beside what the process holds: room for what the kernel needs to make room."""

UNREAD_BYTES: Final = 1024 * MIB
"""Of the file that the hog reads; it is all hole, so no disk is busy with it."""

GROUP_PREFIX: Final = "pidkeeper-chaos"

HOG: Final = """
import sys, time
procs, path = sys.argv[1:]
with open(procs, "w") as file:
    file.write("0")
with open("/proc/self/oom_score_adj", "w") as file:
    file.write("1000")
while True:
    with open(path, "rb", buffering=0) as file:
        while file.read(1 << 20):
            time.sleep(0.005)
"""

JOIN: Final = 'echo $$ > "$0" && exec "$@"'
"""What a shell does before it becomes the process: it joins the group."""


class Version(msgspec.Struct, frozen=True):
    """The files of a group: its limit, what it uses, and in `events` the counters of its meeting the limit.

    `cache`: what memory.stat calls the pages of files. An empty `counters` says that `events` is one number.
    """

    limit: str
    unlimited: str
    usage: str
    cache: str
    events: str
    counters: tuple[str, ...]


V1: Final = Version("memory.limit_in_bytes", "-1", "memory.usage_in_bytes", "cache", "memory.failcnt", ())
V2: Final = Version("memory.high", "max", "memory.current", "file", "memory.events", ("high", "max"))


class Groups:
    """One control group for each process, in `directory`."""

    def __init__(self, directory: Path, version: Version) -> None:
        self._directory = directory
        self._version = version

    def launch(self, process: str) -> list[str]:
        """The words before its command that start it in its group."""
        return ["sh", "-c", JOIN, str(self.procs(process))]

    def procs(self, process: str) -> Path:
        """The file that whoever joins the group writes to. The group is there from then on."""
        group = self._directory / process
        group.mkdir(exist_ok=True)
        return group / "cgroup.procs"

    def squeeze(self, process: str, room: int) -> None:
        """Limit the group to what its processes hold for themselves, and `room` bytes."""
        group, version = self._directory / process, self._version
        usage = int((group / version.usage).read_text())
        cached = _counters(group / "memory.stat").get(version.cache, 0)
        # The kernel refuses a limit that it cannot reach at once.
        for attempt in range(1, 5):
            with contextlib.suppress(OSError):
                (group / version.limit).write_text(str(usage - cached + attempt * room))
                return

    def release(self, process: str) -> None:
        """Take the limit away."""
        (self._directory / process / self._version.limit).write_text(self._version.unlimited)

    def remove(self) -> None:
        """Remove those that are empty."""
        for path in (*filter(Path.is_dir, self._directory.iterdir()), self._directory):
            with contextlib.suppress(OSError):
                path.rmdir()

    def shortages(self, process: str) -> int:
        """How often the group has met its limit."""
        path = self._directory / process / self._version.events
        if not self._version.counters:
            return int(path.read_text())
        found = _counters(path)
        return sum(found.get(name, 0) for name in self._version.counters)


@contextlib.contextmanager
def memory_groups() -> Iterator[Groups | None]:
    """What starts each process in a group of its own; None where there can be none.

    The groups go at the end, by when all that was started in them has ended.
    """
    groups = next(filter(None, (_groups_below(*place) for place in _places())), None)
    try:
        yield groups
    finally:
        if groups is not None:
            groups.remove()


class MemoryPressure(Fault):
    """The group of one process is at its limit from begin to end; by `strength` closer to what the process holds."""

    def __init__(self, stage: Stage, planned: Planned) -> None:
        super().__init__(stage, planned)
        member = stage.chosen(planned)
        assert member is not None, "memory is of one process"
        groups = stage.cluster.launcher
        assert isinstance(groups, Groups), "why_not was asked"
        self._groups = groups
        self._member: Member = member
        self.victims = (member_name(member),)
        self._before = 0
        self._hog: subprocess.Popen[bytes] | None = None
        self._unread = stage.cluster.directory / "unread"

    async def begin(self) -> None:
        """Lower the limit, and let the hog in."""
        self._hog = await asyncio.to_thread(self._squeeze)

    async def end(self) -> None:
        """Take the limit away, and start the process if the kernel ended it."""
        await asyncio.to_thread(self._release)
        await self.stage.start(self._member)

    async def bites(self) -> int:
        """How often somebody in the group had to wait for memory."""
        return self.shortages()

    def shortages(self) -> int:
        """How often it was so since the begin."""
        return self._groups.shortages(self.victims[0]) - self._before

    def _squeeze(self) -> subprocess.Popen[bytes]:
        (name,) = self.victims
        with self._unread.open("ab") as file:
            file.truncate(UNREAD_BYTES)
        self._before = self._groups.shortages(name)
        self._groups.squeeze(name, round(MOST_ROOM + (LEAST_ROOM - MOST_ROOM) * self.planned.strength))
        return subprocess.Popen(
            [sys.executable, "-c", HOG, str(self._groups.procs(name)), str(self._unread)], stdin=subprocess.DEVNULL
        )

    def _release(self) -> None:
        assert self._hog is not None, "it was begun"
        self._groups.release(self.victims[0])
        self._hog.kill()
        self._hog.wait()


def why_no_groups(stage: Stage) -> str | None:
    """The processes must have been started in groups."""
    if isinstance(stage.cluster.launcher, Groups):
        return None
    return "the processes are in no control groups, which take a hierarchy with the memory controller that we may write"


def _places() -> Iterator[tuple[Path, Version]]:
    """Where groups may be made: below our own, or at the top."""
    own = dict(_own_groups())
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, mounted, kind, options, *_ = line.split()
        if kind == "cgroup" and "memory" in options.split(","):
            yield from ((Path(mounted) / below, V1) for below in (own.get("memory", ""), ""))
        elif kind == "cgroup2":
            # A group with processes of its own hands no controller on.
            yield from ((Path(mounted) / below, V2) for below in (str(Path(own.get("", "")).parent), ""))


def _own_groups() -> Iterator[tuple[str, str]]:
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        yield from ((controller, path.lstrip("/")) for controller in controllers.split(","))


def _groups_below(place: Path, version: Version) -> Groups | None:
    directory = place / f"{GROUP_PREFIX}-{os.getpid()}-{secrets.token_hex(4)}"
    try:
        directory.mkdir()
    except OSError:
        return None
    groups = Groups(directory, version)
    with contextlib.suppress(OSError):
        if version is V2:
            (directory / "cgroup.subtree_control").write_text("+memory")
        groups.procs("trial")
        groups.release("trial")
        return groups
    groups.remove()
    return None


def _counters(path: Path) -> dict[str, int]:
    return {name: int(value) for name, value in map(str.split, path.read_text().splitlines())}


KINDS: Final = (
    FaultKind(
        "memory_pressure",
        MemoryPressure,
        (Target.LEADER, Target.FOLLOWER, Target.AGENT),
        (5.0, 20.0),
        takes_down=True,
        why_not=why_no_groups,
    ),
)
