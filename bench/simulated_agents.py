"""Simulated agents spread over processes, and what they did between two looks at them."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Final

import msgspec

from bench.agents_process import AgentsSpec, AgentsStatus
from pidkeeper.cli.local_cluster import import_root

POLL_SECONDS: Final = 0.2


class Looked(AgentsStatus, frozen=True, kw_only=True):
    """All agents together at one moment, `at` by the monotonic clock in seconds. `p99_ms`: the worst of the
    processes."""

    at: float

    @property
    def full(self) -> bool:
        """Whether every agent has as many IDs at hand as it should."""
        return all(one >= 0.9 * wanted for one, wanted in zip(self.remaining, self.wanted, strict=True))


class SimulatedAgents:
    """Agents that other processes run."""

    def __init__(self, processes: list[subprocess.Popen[bytes]]) -> None:
        self._processes = processes

    def look(self) -> Looked:
        """What they did until now. Raises RuntimeError if a process ended."""
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.write(b"\n")
            process.stdin.flush()
        return _together([_status(process) for process in self._processes])

    def look_until_full(self, seconds: float) -> Looked:
        """Wait until every agent is ready and its reserve is filled. Raises TimeoutError, RuntimeError."""
        deadline = time.monotonic() + seconds
        while True:
            looked = self.look()
            if looked.ready == len(looked.claimed) and looked.full:
                return looked
            if time.monotonic() > deadline or looked.ended:
                raise TimeoutError(
                    f"{looked.ready} of {len(looked.claimed)} agents are ready after {seconds:g} s; rounds "
                    f"{looked.rounds}; ended: {looked.ended}"
                )
            time.sleep(POLL_SECONDS)

    def stop(self) -> Looked:
        """End them, and what they did in all, with the starts of all blocks."""
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.close()
            process.stdin = None
        return _together([_status(process) for process in self._processes])


@contextlib.contextmanager
def simulated(spec: AgentsSpec, processes: int) -> Iterator[SimulatedAgents]:
    """The agents of `spec`, spread over so many processes, meanwhile; all of them begin at once."""
    started: list[subprocess.Popen[bytes]] = []
    try:
        for number in range(processes):
            mine = len(range(number, spec.agents, processes))
            first = spec.first_broker_id + sum(len(range(one, spec.agents, processes)) for one in range(number))
            started.append(_start(msgspec.structs.replace(spec, agents=mine, first_broker_id=first)))
        yield SimulatedAgents(started)
    finally:
        for process in started:
            process.kill()
            process.communicate()


def _start(spec: AgentsSpec) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.agents_process"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=import_root(),
    )
    assert process.stdin is not None
    process.stdin.write(msgspec.json.encode(spec) + b"\n")
    process.stdin.flush()
    return process


def _status(process: subprocess.Popen[bytes]) -> AgentsStatus:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise RuntimeError(f"a process of agents ended with {process.wait()}; the reason is on stderr")
    return msgspec.json.decode(line, type=AgentsStatus)


def _together(statuses: list[AgentsStatus]) -> Looked:
    return Looked(
        at=time.monotonic(),
        claimed=[one for status in statuses for one in status.claimed],
        failed=[one for status in statuses for one in status.failed],
        remaining=[one for status in statuses for one in status.remaining],
        wanted=[one for status in statuses for one in status.wanted],
        ready=sum(status.ready for status in statuses),
        registered_seconds=_last([status.registered_seconds for status in statuses]),
        ready_seconds=_last([status.ready_seconds for status in statuses]),
        rounds={outcome: sum(status.rounds[outcome] for status in statuses) for outcome in statuses[0].rounds},
        blocks=sum(status.blocks for status in statuses),
        p99_ms=max(status.p99_ms for status in statuses),
        cpu_seconds=sum(status.cpu_seconds for status in statuses),
        starts=[start for status in statuses for start in status.starts],
        ended=[reason for status in statuses for reason in status.ended],
    )


def _last(times: list[float | None]) -> float | None:
    known = [one for one in times if one is not None]
    return max(known) if len(known) == len(times) else None
