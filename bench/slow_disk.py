"""`python -m bench.slow_disk FILE ARGUMENTS`: the `pidkeeper` command, whose fdatasyncs take as long as FILE says, and
whose reads (pread) as long as the file says that is called the same but for the suffix `.reads`.

Each holds seconds, `inf` for a disk that hangs; it is read again while one waits. Without it the disk is as it is.
"""

from __future__ import annotations

import os
import runpy
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, ParamSpec, TypeVar

from pidkeeper.cli.local_cluster import LocalCluster, Member, member_name

POLL_SECONDS: Final = 0.002
READS: Final = ".reads"

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


class SlowDiskCluster(LocalCluster):
    """A local cluster whose members' disks can be slowed down while they run."""

    def program(self, member: Member) -> list[str]:
        """The command on a disk of its own."""
        return [sys.executable, "-m", "bench.slow_disk", str(self._file(member))]

    def slow_down(self, seconds: float, *members: Member) -> None:
        """From now on, and for what is under way, a sync of each of `members` takes this long at least."""
        for member in members:
            _say(self._file(member), seconds)

    def slow_reads_down(self, seconds: float, *members: Member) -> None:
        """Likewise for what is read of parts of files: of snapshots that are sent, and of the archive."""
        for member in members:
            _say(self._file(member).with_suffix(READS), seconds)

    def speed_up(self, *members: Member) -> None:
        """The disks are as they are."""
        for member in members:
            self._file(member).unlink(missing_ok=True)
            self._file(member).with_suffix(READS).unlink(missing_ok=True)

    def _file(self, member: Member) -> Path:
        return self.directory / f"{member_name(member)}.disk"


def slowed(call: Callable[Arguments, Result], file: Path) -> Callable[Arguments, Result]:
    """`call` as slow as `file` says."""

    def wait_and_call(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        begun = time.monotonic()
        while time.monotonic() - begun < _seconds(file):
            time.sleep(POLL_SECONDS)
        return call(*args, **kwargs)

    return wait_and_call


def _say(file: Path, seconds: float) -> None:
    written = file.with_suffix(".new")
    written.write_text(str(seconds))
    written.replace(file)


def _seconds(file: Path) -> float:
    try:
        return float(file.read_text())
    except FileNotFoundError:
        return 0.0


if __name__ == "__main__":
    told = Path(sys.argv.pop(1))
    os.fdatasync = slowed(os.fdatasync, told)
    os.pread = slowed(os.pread, told.with_suffix(READS))
    runpy.run_module("pidkeeper.cli", run_name="__main__")
