"""What the figures were measured on: absolute values hold for one machine only."""

from __future__ import annotations

import os
import platform
from importlib.metadata import version
from pathlib import Path


def machine_facts(directory: Path) -> dict[str, str]:
    """Cores, processor, memory, kernel, interpreter, the file system under `directory`, and the load at the start."""
    return {
        "cores": str(len(os.sched_getaffinity(0))),
        "processor": _field(Path("/proc/cpuinfo"), "model name"),
        "memory": _field(Path("/proc/meminfo"), "MemTotal"),
        "kernel": f"{platform.system()} {platform.release()}",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "libraries": ", ".join(f"{name} {version(name)}" for name in ("aiohttp", "uvloop", "msgspec")),
        "file system": _file_system(directory.resolve()),
        "load average at start": " ".join(f"{load:.2f}" for load in os.getloadavg()),
    }


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
