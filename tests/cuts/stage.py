"""A cluster between whose agents and controllers a watch stands, on machines whose power can be cut."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

from pidkeeper.cli.local_cluster import Controller, Member, member_name
from tests.chaos.shim.preload import Shim
from tests.chaos.stage import ChaosCluster
from tests.cuts.machines import STORE, Machines, machines
from tests.cuts.relay import Relay
from tests.cuts.watch import Struck, Watch
from tests.support.cluster import CONTROLLER_OPTIONS, WAIT_SECONDS, bring_back, labelled

CONTROLLERS: Final = 3
SWEEP_MS: Final = 2000

CONTROLLER_SETTINGS: Final[dict[str, Any]] = CONTROLLER_OPTIONS | {
    # An agent that was killed is missed soon, so that another one has its duties meanwhile.
    "broker_session_timeout_ms": 3000,
    "snapshot_entries": 200,
    "log_roll_rows": 12,
    "log_roll_ms": 2000,
    "log_segment_bytes": 1 << 18,
    "log_segment_delete_delay_ms": 300,
}
"""Rolls, garbage and snapshots within seconds of a load of some records."""


class Stage:
    """What a run has. `no_power`: why no power can be cut here, None if it can."""

    def __init__(
        self, cluster: ChaosCluster, shim: Shim, on: Machines, watch: Watch, store: Path, no_power: str | None
    ) -> None:
        self.cluster = cluster
        self.watch = watch
        self.store = store
        self.no_power = no_power
        self._shim = shim
        self._machines = on

    def ended_by_itself(self) -> list[str]:
        """What is left of members that nobody killed and that do not run: their names, and the ends of their logs."""
        return [f"{member_name(one)} ended by itself:\n{self.cluster.log_end(one)}" for one in self.cluster.dead()]

    def restart(self, struck: Struck) -> None:
        """Start again who was killed, on disks as a power cut has left them, and wait until all are ready.

        Raises CommandError.
        """
        self.cluster.kill(*struck.victims)
        self._machines.bring_back(*struck.machines)
        self.cluster.start(*struck.victims)
        self.cluster.wait_ready(*struck.victims, seconds=WAIT_SECONDS)

    def leader(self) -> Controller:
        """Who leads. Raises CommandError."""
        return self.cluster.leader()

    @property
    def bootstrap(self) -> str:
        """Where Kafka clients begin."""
        return ",".join(one.kafka for one in self.cluster.layout.agents)


@contextlib.asynccontextmanager
async def set_up(directory: Path, agents: int) -> AsyncIterator[Stage]:
    """A stage in an empty directory, all members ready. Whoever runs at the end is killed, before disks go.

    Raises RuntimeError where there is no compiler for what is preloaded, CommandError if a member does not start.
    """
    home = directory / "cluster"
    shim = Shim(directory / "shim")
    with machines(home, CONTROLLERS) as (on, no_power):
        cluster = ChaosCluster(
            home,
            (shim,),
            controllers=CONTROLLERS,
            agents=agents,
            controller_options=CONTROLLER_SETTINGS,
            agent_options={"heartbeat_interval_ms": 200},
            data=True,
        )
        store = home / STORE
        cluster.agent_options["data"] = {"store": str(store), "sweep_interval_ms": SWEEP_MS}
        watch = Watch(cluster, shim, on, store, directory / "deleted")
        stage = Stage(cluster, shim, on, watch, store, no_power)
        async with contextlib.AsyncExitStack() as stack:
            stack.callback(lambda: cluster.kill(*filter(cluster.running, cluster.members())))
            for relay in _relays(cluster, watch):
                await stack.enter_async_context(relay.serving())
                shim.control(f"agent-{relay.agent}").route(relay.upstream, relay.port)
            await asyncio.to_thread(bring_back, cluster)
            yield stage


def _relays(cluster: ChaosCluster, watch: Watch) -> list[Relay]:
    return [
        Relay(agent.id, controller.id, int(controller.http.rpartition(":")[2]), watch)
        for agent in cluster.layout.agents
        for controller in cluster.layout.controllers
    ]


def garbage_objects(leader: Member) -> float:
    """Objects that no log needs and that are not deleted yet, as the leader counts them."""
    return sum(labelled(leader, "pidkeeper_logs_garbage_objects").values())
