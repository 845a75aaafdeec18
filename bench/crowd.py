"""Crowds of idle and slow connections, spread over processes: none of them may open files for all."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from bench.crowd_process import CrowdSpec, CrowdStatus, Kind, Target
from pidkeeper.cli.local_cluster import import_root

REOPENED_A_SECOND: Final = 20
"""How fast those that a listener closed come back, at each: it is always full, and always has newcomers."""

TARGETS_PER_PROCESS: Final = 2
"""6,000 connections to each stay below the 20,000 files that a process may have where the limits are low."""


def target(address: str, kind: Kind, idle: int, slow: int, malformed: int = 0) -> Target:
    """A crowd at `address`, as host:port or a base URL, and malformed requests a second."""
    host, _, port = address.removeprefix("http://").rpartition(":")
    return Target(host, int(port), kind, idle, slow, malformed)


class Crowd:
    """Connections that other processes hold. `begun`: what it was when each had been opened once."""

    def __init__(self, processes: list[subprocess.Popen[bytes]], begun: CrowdStatus) -> None:
        self._processes = processes
        self.begun = begun

    def disperse(self) -> CrowdStatus:
        """End it, and what it was at its end."""
        return _sum(_status(process, end=True) for process in self._processes)


@contextlib.contextmanager
def crowded(targets: Sequence[Target]) -> Iterator[Crowd]:
    """A crowd at `targets` meanwhile; when this begins, each of its connections has been opened once."""
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for at in range(0, len(targets), TARGETS_PER_PROCESS):
            processes += [_start(targets[at : at + TARGETS_PER_PROCESS])]
        yield Crowd(processes, _sum([_status(process) for process in processes]))
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def _start(targets: Sequence[Target]) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.crowd_process"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=import_root(),
    )
    assert process.stdin is not None
    process.stdin.write(msgspec.json.encode(CrowdSpec(list(targets), REOPENED_A_SECOND)) + b"\n")
    process.stdin.flush()
    return process


def _status(process: subprocess.Popen[bytes], *, end: bool = False) -> CrowdStatus:
    assert process.stdin is not None and process.stdout is not None
    if end:
        process.stdin.close()
        process.stdin = None
    line = process.stdout.readline()
    if not line:
        raise RuntimeError(f"a process of the crowd ended with {process.wait()}; the reason is on stderr")
    return msgspec.json.decode(line, type=CrowdStatus)


def _sum(statuses: Iterator[CrowdStatus] | list[CrowdStatus]) -> CrowdStatus:
    every = list(statuses)
    return CrowdStatus(
        opened=sum(one.opened for one in every),
        open=sum(one.open for one in every),
        failed=sum(one.failed for one in every),
        malformed=sum(one.malformed for one in every),
    )
