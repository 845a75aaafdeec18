"""Memory and processor time of a process and all that it starts, from /proc while they run."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

SAMPLE_SECONDS: Final = 0.2
_TICKS: Final = os.sysconf("SC_CLK_TCK")
_PARENT: Final = 1
_TIMES: Final = (11, 12)
"""Fields of /proc/PID/stat behind the name, from 0: parent; user and system time in ticks."""


class Usage(msgspec.Struct, frozen=True):
    """Peak resident memory in MiB and processor seconds. `java`: the largest JVM. `worker`: the largest Python process
    below a JVM. `own`: the process itself. A process that ended between two samples lacks its last 0.2 s."""

    wall_seconds: float
    cpu_seconds: float
    java_mib: float
    worker_mib: float
    own_mib: float
    output: str = ""


class _Seen(msgspec.Struct):
    kind: str
    cpu_seconds: float = 0.0
    peak_mib: float = 0.0


class TreeSampler:
    """Watches `roots` and their descendants between `start` and `stop`."""

    def __init__(self, roots: Sequence[int]) -> None:
        self._roots = roots
        self._seen: dict[int, _Seen] = {}
        self._before: dict[int, float] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name="tree-sampler")
        self._started = 0.0

    def start(self) -> None:
        """Begin; what the roots used before does not count."""
        self._started = time.monotonic()
        self._before = {pid: cpu for pid, (cpu, _) in descendants(self._roots).items()}
        self._thread.start()

    def stop(self, output: str = "") -> Usage:
        """End, and what was seen."""
        wall = time.monotonic() - self._started
        self._ended.set()
        self._thread.join()
        peaks = {kind: max((one.peak_mib for one in self._seen.values() if one.kind == kind), default=0.0) for kind in
                 ("java", "worker", "own")}  # fmt: skip
        used = sum(one.cpu_seconds - self._before.get(pid, 0.0) for pid, one in self._seen.items())
        return Usage(wall, used, peaks["java"], peaks["worker"], peaks["own"], output)

    def _run(self) -> None:
        while not self._ended.wait(SAMPLE_SECONDS):
            self._sample()

    def _sample(self) -> None:
        for pid, (cpu, below_java) in descendants(self._roots).items():
            try:
                java = (Path(f"/proc/{pid}/comm").read_text().strip()) == "java"
                status = Path(f"/proc/{pid}/status").read_text()
            except OSError:
                continue  # It ended meanwhile.
            kind = "java" if java else "worker" if below_java else "own" if pid in self._roots else "other"
            seen = self._seen.setdefault(pid, _Seen(kind))
            seen.kind = kind  # A fork has its parent's name until it runs its own program.
            seen.cpu_seconds = max(seen.cpu_seconds, cpu)
            seen.peak_mib = max(seen.peak_mib, _peak_mib(status))


def cpu_seconds(pid: int) -> float:
    """What a process has used so far. Raises ProcessLookupError where there is none."""
    stat = _stat(pid)
    if stat is None:
        raise ProcessLookupError(f"no process {pid}")
    return stat[1][1]


def descendants(roots: Sequence[int]) -> dict[int, tuple[float, bool]]:
    """By pid the processor seconds of the roots and all below them, and whether a JVM is above."""
    stats = dict(stat for pid in _pids() if (stat := _stat(pid)) is not None)
    children: dict[int, list[int]] = {}
    for pid, (parent, _, _) in stats.items():
        children.setdefault(parent, []).append(pid)
    found: dict[int, tuple[float, bool]] = {}
    left = [(pid, False) for pid in roots if pid in stats]
    while left:
        pid, below_java = left.pop()
        _, cpu, name = stats[pid]
        found[pid] = (cpu, below_java)
        left += [(child, below_java or name == "java") for child in children.get(pid, [])]
    return found


def run_measured(
    command: Sequence[str],
    seconds: float,
    *,
    cwd: Path,
    env: Mapping[str, str],
    beside: Sequence[int] = (),
    accepted: Sequence[int] = (0,),
) -> Usage:
    """Run a command and watch it, and `beside` it. Raises RuntimeError if it fails, TimeoutExpired after `seconds`."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True, cwd=cwd, env=env)
    sampler = TreeSampler([process.pid, *beside])
    sampler.start()
    try:
        output, _ = process.communicate(timeout=seconds)
    except BaseException:
        for pid in (process.pid, *descendants([process.pid])):
            _kill(pid)
        process.wait()
        raise
    finally:
        usage = sampler.stop()
    if process.returncode not in accepted:
        raise RuntimeError(f"{' '.join(command)} ended with {process.returncode}; the reason is on stderr")
    return msgspec.structs.replace(usage, output=output)


def _pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _kill(pid: int) -> None:
    try:
        os.kill(pid, 9)
    except ProcessLookupError:
        return


def _stat(pid: int) -> tuple[int, tuple[int, float, str]] | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    start, _, rest = text.rpartition(")")
    fields = rest.split()
    cpu = sum(int(fields[at]) for at in _TIMES) / _TICKS
    return pid, (int(fields[_PARENT]), cpu, start.partition("(")[2])


def _peak_mib(status: str) -> float:
    for line in status.splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    return 0.0
