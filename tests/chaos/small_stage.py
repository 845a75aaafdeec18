"""A small cluster for the tests of faults, and faults that were not drawn from a seed."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from tests.chaos.fault import Fault, FaultKind
from tests.chaos.plan import Planned, Target
from tests.chaos.stage import ChaosCluster, Launcher, Preload, Stage
from tests.support.cluster import CONTROLLER_OPTIONS, WAIT_SECONDS

AGENT_OPTIONS: Final[dict[str, Any]] = {"min_reserve_ids": 10_000}


@contextlib.contextmanager
def small_cluster(
    directory: Path,
    *preloads: Preload,
    launcher: Launcher | None = None,
    secure: bool = False,
    agents: int = 1,
    **controller_options: Any,
) -> Iterator[ChaosCluster]:
    """Three controllers and an agent, all ready. Whatever still runs at the end is killed."""
    cluster = ChaosCluster(
        directory,
        preloads,
        launcher=launcher,
        agents=agents,
        secure=secure,
        # The patient profile: other tests on the machine are to disturb nobody's lead.
        controller_options={**CONTROLLER_OPTIONS, "profile": "wan", **controller_options},
        agent_options=AGENT_OPTIONS,
    )
    try:
        cluster.start()
        cluster.wait_ready(seconds=WAIT_SECONDS)
        yield cluster
    finally:
        cluster.kill(*(member for member in cluster.members() if cluster.running(member)))


def kind_of(kinds: tuple[FaultKind, ...], name: str) -> FaultKind:
    """The kind of this name."""
    return {kind.name: kind for kind in kinds}[name]


def stage_of(cluster: ChaosCluster) -> Stage:
    """The stage of a cluster all of which is ready, with the leader known."""
    cluster.start()
    cluster.wait_ready(seconds=WAIT_SECONDS)
    stage = Stage(cluster)
    stage.leader_id = cluster.leader().id
    return stage


def fault_of(
    stage: Stage, kind: FaultKind, target: Target, *, pick: int = 0, strength: float = 0.5, seconds: float = 5.0
) -> Fault:
    """A fault of the kind that begins now."""
    assert target in kind.targets
    return kind.make(stage, Planned(kind.name, target, time.monotonic(), seconds, pick, strength, alone=True))


def victim(fault: Fault) -> Any:
    """The only member that the fault is for."""
    (name,) = fault.victims
    return fault.stage.cluster.member(name)


async def ready(stage: Stage) -> None:
    """Wait until everybody is well again. Raises CommandError."""
    await asyncio.to_thread(stage.cluster.wait_ready, seconds=WAIT_SECONDS)
