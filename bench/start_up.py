"""How long processes take to start: the command, a controller, an agent; and the memory that one has then."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from bench.figures import quantile_ms
from bench.report import Row, at_most, informing
from bench.section_command import run_section
from pidkeeper.cli.local_cluster import LocalCluster, Member, import_root

POLL_SECONDS: Final = 0.005
READY_SECONDS: Final = 60.0
HELP_SECONDS: Final = 30.0
MAX_HELP_MS: Final = 100.0
HELPS: Final = 20
"""Starts of the command in one repetition."""


def seconds_until_ready(cluster: LocalCluster, member: Member) -> float:
    """Start `member` and wait for its /readyz. Raises RuntimeError if it ends, TimeoutError after READY_SECONDS."""
    begun = time.monotonic()
    cluster.start(member)
    while not cluster.ready(member):
        if not cluster.running(member):
            raise RuntimeError(f"a member ended while starting:\n{cluster.log_end(member)}")
        if time.monotonic() - begun > READY_SECONDS:
            raise TimeoutError(f"not ready after {READY_SECONDS:g} s:\n{cluster.log_end(member)}")
        time.sleep(POLL_SECONDS)
    return time.monotonic() - begun


def help_seconds() -> float:
    """One run of `pidkeeper --help`. Raises CalledProcessError, TimeoutExpired."""
    begun = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "pidkeeper.cli", "--help"],
        stdout=subprocess.DEVNULL,
        cwd=import_root(),
        timeout=HELP_SECONDS,
        check=True,
    )
    return time.perf_counter() - begun


def resident_mib(pid: int) -> float:
    """Resident memory of a process. Raises OSError without such a process."""
    fields = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return int(fields["VmRSS"].split()[0]) / 1024


class StartUpBench:
    """`repetitions` of each start, in `directory`. `violations` and `notes` gather what the rows cannot say."""

    def __init__(self, directory: Path, repetitions: int) -> None:
        self._directory = directory
        self._repetitions = repetitions
        self.violations: list[str] = []
        self.notes: list[str] = []

    def measure(self) -> list[Row]:
        """Rows of the section. Raises RuntimeError, TimeoutError."""
        helps = [quantile_ms([help_seconds() for _ in range(HELPS)], 0.5) for _ in range(self._repetitions)]
        controllers, agents = self._members()
        return [
            at_most("start", "pidkeeper --help", "ms, p50", helps, MAX_HELP_MS),
            informing("start", "controller, the only voter, from its start until it is ready", "ms", controllers),
            informing("start", "agent, from its start until it has IDs", "ms", agents),
        ]

    def _members(self) -> tuple[list[float], list[float]]:
        cluster = LocalCluster(self._directory / "start", controllers=1, agents=1)
        controllers, agents = [], []
        (controller,), (agent,) = cluster.layout.controllers, cluster.layout.agents
        try:
            cluster.start(controller)
            cluster.wait_ready(controller)
            for _ in range(self._repetitions):
                cluster.kill(controller)
                controllers.append(seconds_until_ready(cluster, controller) * 1000.0)
                agents.append(seconds_until_ready(cluster, agent) * 1000.0)
                cluster.kill(agent)
        finally:
            cluster.stop()
        return controllers, agents


if __name__ == "__main__":
    run_section(lambda directory, quick: StartUpBench(directory, 1 if quick else 5))
