"""`python -m bench.limited_files SOFT HARD ARGUMENTS`: the `pidkeeper` command under limits of open files."""

from __future__ import annotations

import resource
import runpy
import sys
from pathlib import Path
from typing import Any

from pidkeeper.cli.local_cluster import HOST, LocalCluster, Member, free_ports, member_name


class LimitedFilesCluster(LocalCluster):
    """A local cluster whose members start with `files`, a soft and a hard limit, and have a listener for probes."""

    def __init__(self, directory: Path, *, files: tuple[int, int], **options: Any) -> None:
        super().__init__(directory, **options)
        self._files = files
        ports = free_ports(len(self.members()))
        self.probes = {
            member_name(member): f"{HOST}:{port}" for member, port in zip(self.members(), ports, strict=True)
        }

    def program(self, _: Member) -> list[str]:
        """The command under the limits."""
        return [sys.executable, "-m", "bench.limited_files", *map(str, self._files)]

    def _config(self, member: Member) -> dict[str, Any]:
        return super()._config(member) | {"probe_listen": self.probes[member_name(member)]}


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv.pop(1)), int(sys.argv.pop(1))))
    runpy.run_module("pidkeeper.cli", run_name="__main__")
