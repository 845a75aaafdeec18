"""What a soak looks at: the memory and the log of a member, its way back after a kill, and the bounds of them."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path
from typing import Final, Protocol

import msgspec

from pidkeeper.cli.local_cluster import Controller, LocalCluster

MIB: Final = 1024 * 1024


class Report(Protocol):
    """What a soak saw."""

    def broken(self) -> list[str]:
        """The bounds that were passed."""
        ...


def conclude(report: Report, path: Path) -> int:
    """Write `report` to `path`, print it and the bounds that were passed; the exit code."""
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=2))
    broken = report.broken()
    print(f"\n{report}\n" + ("\n".join(broken) or "all bounds were kept"))
    return 1 if broken else 0


def beyond(what: str, took: int, most: int) -> list[str]:
    """That `what` took more bytes than it may, or nothing."""
    return [f"{what} took {took / MIB:.0f} MiB, {most / MIB:.0f} may be"] if took > most else []


def restart(cluster: LocalCluster) -> float:
    """Kill all members and start them again; seconds until all are ready."""
    cluster.kill(*cluster.layout.controllers)
    begun = time.monotonic()
    cluster.start()
    cluster.wait_ready()
    return time.monotonic() - begun


def resident_bytes(member: Controller) -> int:
    """The resident memory of a member's process, as the kernel counts it."""
    return _memory(member.pid, "VmRSS:")


def peak_bytes(member: Controller) -> int:
    """The most that it ever was since the process began."""
    return _memory(member.pid, "VmHWM:")


def _memory(pid: int, field: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) * 1024
    raise AssertionError(f"process {pid} has no memory")


def log_bytes(member: Controller) -> int:
    """What the write-ahead log of a member takes on disk."""
    total = 0
    with os.scandir(Path(member.data_dir) / "wal") as entries:
        for entry in entries:
            with contextlib.suppress(FileNotFoundError):  # removed since it was listed
                total += entry.stat().st_blocks * 512
    return total
