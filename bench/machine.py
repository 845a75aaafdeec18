"""What the figures were measured on: absolute values hold for one machine only."""

from __future__ import annotations

import os
import platform
import resource
import time
from importlib.metadata import version
from pathlib import Path


def machine_facts(directory: Path) -> dict[str, str]:
    """Cores, processor, memory, kernel, interpreter, and the file system under `directory`."""
    return {
        "cores": str(len(os.sched_getaffinity(0))),
        "processor": _field(Path("/proc/cpuinfo"), "model name"),
        "memory": _field(Path("/proc/meminfo"), "MemTotal"),
        "kernel": f"{platform.system()} {platform.release()}",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "libraries": ", ".join(f"{name} {version(name)}" for name in ("aiohttp", "uvloop", "msgspec")),
        "file system": _file_system(directory.resolve()),
    }


class Bystanders:
    """Measures how much processor time others took meanwhile: with much of it, the figures say little."""

    def __init__(self) -> None:
        self._started = time.monotonic()
        self._others = _machine_seconds() - _own_seconds()

    def cores(self) -> float:
        """Cores that other processes kept busy on average since the start. All children must have been waited for."""
        elapsed = time.monotonic() - self._started
        return max(0.0, _machine_seconds() - _own_seconds() - self._others) / elapsed


def _machine_seconds() -> float:
    """Busy time of all cores since boot: all but idle, iowait, and guest time, which user time includes."""
    fields = [int(field) for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]]
    user, nice, system, _idle, _iowait, irq, softirq, steal = fields[:8]
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def _own_seconds() -> float:
    """Time of this process and of its children that have ended and been waited for."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def _field(path: Path, name: str) -> str:
    for line in path.read_text().splitlines():
        key, _, value = line.partition(":")
        if key.strip() == name:
            return value.strip()
    return "unknown"


def _file_system(directory: Path) -> str:
    """Type and device of the mount that holds the directory: the one with the longest matching path."""
    best = ("", "unknown", "")
    for line in Path("/proc/mounts").read_text().splitlines():
        device, mount, kind = line.split()[:3]
        if directory.is_relative_to(mount) and len(mount) > len(best[0]):
            best = (mount, kind, device)
    return f"{best[1]} on {best[2]}".rstrip()
