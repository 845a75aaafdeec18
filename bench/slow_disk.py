"""`python -m bench.slow_disk FILE ARGUMENTS`: the `pidkeeper` command, whose fdatasyncs take as long as FILE says.

FILE holds seconds, `inf` for a disk that hangs; it is read again while one waits. Without it the disk is as it is.
"""

from __future__ import annotations

import os
import runpy
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from pidkeeper.cli.local_cluster import LocalCluster, Member, member_name

POLL_SECONDS: Final = 0.002


class SlowDiskCluster(LocalCluster):
    """A local cluster whose members' disks can be slowed down while they run."""

    def program(self, member: Member) -> list[str]:
        """The command on a disk of its own."""
        return [sys.executable, "-m", "bench.slow_disk", str(self._file(member))]

    def slow_down(self, seconds: float, *members: Member) -> None:
        """From now on, and for what is under way, a sync of each of `members` takes this long at least."""
        for member in members:
            written = self._file(member).with_suffix(".new")
            written.write_text(str(seconds))
            written.replace(self._file(member))

    def speed_up(self, *members: Member) -> None:
        """The disks are as they are."""
        for member in members:
            self._file(member).unlink(missing_ok=True)

    def _file(self, member: Member) -> Path:
        return self.directory / f"{member_name(member)}.disk"


def slowed(fdatasync: Callable[[int], None], file: Path) -> Callable[[int], None]:
    """`fdatasync` as slow as `file` says."""

    def wait_and_sync(handle: int) -> None:
        begun = time.monotonic()
        while time.monotonic() - begun < _seconds(file):
            time.sleep(POLL_SECONDS)
        fdatasync(handle)

    return wait_and_sync


def _seconds(file: Path) -> float:
    try:
        return float(file.read_text())
    except FileNotFoundError:
        return 0.0


if __name__ == "__main__":
    os.fdatasync = slowed(os.fdatasync, Path(sys.argv.pop(1)))  # type: ignore[assignment]
    runpy.run_module("pidkeeper.cli", run_name="__main__")
