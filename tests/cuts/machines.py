"""The machines of a cluster whose power can be cut: a disk for each controller, and one for the store of all agents."""

from __future__ import annotations

import contextlib
import errno
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.crash.loop_disk import LoopDisk, why_not

STORE: Final = "store"
CONTROLLER_MEGABYTES: Final = 64
STORE_MEGABYTES: Final = 256
"""A run writes some KiB a second, and what is rolled is written again; 65,000 files fit."""
UNMOUNT_SECONDS: Final = 10.0
"""For the kernel to let go of the files of processes that are dead."""


class Machines:
    """Disks by the name of the member whose data they hold, and that of the store; none where no power can be cut."""

    def __init__(self, disks: dict[str, LoopDisk]) -> None:
        self._disks = disks

    def cut(self, *names: str) -> None:
        """The power goes: what was not synced is lost."""
        for name in names:
            self._disks[name].cut()

    def bring_back(self, *names: str) -> None:
        """Mount the disks anew, as a machine that starts does. Whoever had files there must be dead."""
        for name in names:
            _unmount(self._disks[name])
            self._disks[name].mount()


@contextlib.contextmanager
def machines(home: Path, controllers: int) -> Iterator[tuple[Machines, str | None]]:
    """The machines of a cluster that is to be in `home`, and why no power can be cut, if so."""
    with contextlib.ExitStack() as stack:
        home.mkdir(parents=True, exist_ok=True)
        reason = why_not(home)
        disks: dict[str, LoopDisk] = {}
        if reason is None:
            data = home / "data"
            data.mkdir()
            places = {f"controller-{number}": (data, CONTROLLER_MEGABYTES) for number in range(1, controllers + 1)}
            for name, (folder, megabytes) in (places | {STORE: (home, STORE_MEGABYTES)}).items():
                disks[name] = stack.enter_context(LoopDisk(folder, name, megabytes))
                (disks[name].mount_point / "lost+found").rmdir()
        yield Machines(disks), reason


def _unmount(disk: LoopDisk) -> None:
    deadline = time.monotonic() + UNMOUNT_SECONDS
    while True:
        try:
            return disk.unmount()
        except OSError as error:
            if error.errno != errno.EBUSY or time.monotonic() > deadline:
                raise
        time.sleep(0.01)
