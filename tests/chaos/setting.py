"""All that a run needs, set up and taken down again: proxies, small disks, clocks, the cluster between them."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, Final

from tests.chaos.against import FoundCluster
from tests.chaos.faults.clocks import Clocks, faketime, forget_the_dead
from tests.chaos.faults.full_disks import SMALL_LOG, small_disks
from tests.chaos.faults.memory import memory_groups
from tests.chaos.links.laying import Links, best_proxies
from tests.chaos.load.credentials import check_clients
from tests.chaos.load.crew import ALLOCATORS, CLIENTS, QUOTAS
from tests.chaos.shim.preload import Shim
from tests.chaos.stage import ChaosCluster, Preload, Stage
from tests.support.cluster import CONTROLLER_OPTIONS, WAIT_SECONDS

CONTROLLERS: Final = 3
AGENTS: Final = 2

CONTROLLER_SETTINGS: Final[dict[str, Any]] = (
    CONTROLLER_OPTIONS | SMALL_LOG | {"limits": QUOTAS, "broker_session_timeout_ms": None}
)
"""The session of an agent ends as by default, so that another one leads its partitions while it is away."""
AGENT_SETTINGS: Final[dict[str, Any]] = {
    # Kafka clients and raw claimers speak plaintext, so that a cut shows in what they say.
    "security": "optional",
}


@contextlib.asynccontextmanager
async def set_up(directory: Path) -> AsyncIterator[Stage]:
    """A stage in an empty directory: a secure cluster, all ready, with one controller more that is a learner.

    Raises RuntimeError where there is no compiler for what is preloaded, CommandError if a member does not start.
    """
    shim = Shim(directory / "shim")
    proxies = best_proxies()
    with _cluster(directory, (shim, *_clocks(directory))) as cluster:
        links = Links(cluster, shim, proxies)
        await proxies.start()
        try:
            cluster.add_controller()
            await links.lay(CLIENTS, ALLOCATORS)
            stage = Stage(cluster, links)
            await stage.in_turn(cluster.start)
            await stage.in_turn(functools.partial(cluster.wait_ready, *stage.members(), seconds=WAIT_SECONDS))
            stage.leader_id = (await stage.in_turn(cluster.leader)).id
            yield stage
        finally:
            await proxies.close()


@contextlib.asynccontextmanager
async def found(path: Path) -> AsyncIterator[Stage]:
    """The stage of a cluster that somebody else runs, as `path` says.

    Raises CommandError if it does not run, or does not let in those who ask in a run.
    """
    cluster = FoundCluster(path)
    stage = Stage(cluster)
    await stage.in_turn(functools.partial(cluster.wait_ready, *stage.members(), seconds=WAIT_SECONDS))
    await check_clients(cluster)
    stage.leader_id = (await stage.in_turn(cluster.leader)).id
    yield stage


@contextlib.contextmanager
def _cluster(directory: Path, preloads: tuple[Preload, ...]) -> Iterator[ChaosCluster]:
    """Not started. Whoever of it still runs at the end is killed, before the disks go."""
    home = directory / "cluster"
    with small_disks(home, range(1, CONTROLLERS + 1)), memory_groups() as groups:
        cluster = ChaosCluster(
            home,
            preloads,
            launcher=groups,
            controllers=CONTROLLERS,
            agents=AGENTS,
            secure=True,
            data=True,
            controller_options=CONTROLLER_SETTINGS,
            agent_options=AGENT_SETTINGS,
        )
        try:
            yield cluster
        finally:
            cluster.kill(*filter(cluster.running, cluster.members()))
            forget_the_dead()


def _clocks(directory: Path) -> tuple[Clocks, ...]:
    library = faketime()
    return () if library is None else (Clocks(library, directory / "clocks"),)
