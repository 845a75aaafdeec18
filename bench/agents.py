"""`python -m bench.agents`: a thousand agents at three controllers with their default quotas.

They come all at once, claim for a while, go on while one caller asks for blocks as fast as it can, and while the leader
is killed. The simulated agents are the product's own supply of IDs, without listeners (`bench/agents_process.py`).
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

import click
import msgspec

from bench.agents_process import AgentsSpec, Transport
from bench.closed_loop import SUCCESS, LoadResult
from bench.cluster import host_port, register
from bench.figures import repeats
from bench.floor import ALLOCATE_PATH
from bench.http_load import LoadSpec
from bench.load_process import LOAD_START_SECONDS, run_load
from bench.process_tree import cpu_seconds
from bench.report import Row, at_most, informing, not_below
from bench.section_command import measure_and_print
from bench.simulated_agents import Looked, SimulatedAgents, simulated
from pidkeeper.cli.local_cluster import LocalCluster
from pidkeeper.controller.api.limits import ApiLimits

FIRST_BROKER_ID: Final = 10_000
GREEDY_BROKER_ID: Final = 9_999
GREEDY_CONNECTIONS: Final = 4
FULL_SECONDS: Final = 90.0
"""100 blocks for each of 1,000 agents take 18 s of the quota of all."""

LEAST_SHARE: Final = 0.9
QUOTA: Final = ApiLimits().broker_allocations
QUOTA_SLACK: Final = 1.05
GREED_WARMUP: Final = 2.0
"""In which it uses up its burst."""


class AgentsPlan(msgspec.Struct, frozen=True, kw_only=True):
    """`agents` in so many `processes`, each with so many `claims` a second, and a heartbeat every `heartbeat_seconds`;
    `seconds` of each phase."""

    agents: int
    claims: float
    heartbeat_seconds: float
    processes: int
    seconds: float


FULL: Final = AgentsPlan(agents=1000, claims=500.0, heartbeat_seconds=2.0, processes=2, seconds=30.0)
QUICK: Final = msgspec.structs.replace(FULL, agents=200, seconds=5.0)


class Phase(NamedTuple):
    """Between two looks at the agents; `leader` and `loads`: cores that they kept busy."""

    before: Looked
    after: Looked
    leader: float
    loads: float

    @property
    def seconds(self) -> float:
        """How long it took."""
        return self.after.at - self.before.at

    @property
    def failed(self) -> int:
        """Claims without an ID."""
        return sum(self.after.failed) - sum(self.before.failed)

    @property
    def claims(self) -> list[float]:
        """IDs a second of each agent."""
        return [
            (after - before) / self.seconds
            for before, after in zip(self.before.claimed, self.after.claimed, strict=True)
        ]

    @property
    def blocks(self) -> float:
        """Blocks of 1,000 IDs a second that came to all agents."""
        held = sum(self.after.remaining) - sum(self.before.remaining)
        return (sum(self.after.claimed) - sum(self.before.claimed) + held) / 1000 / self.seconds

    def rounds(self, outcome: str) -> int:
        """Requests for blocks that came out so."""
        return self.after.rounds[outcome] - self.before.rounds[outcome]


class AgentsBench:
    """Measures in `directory`. `violations` and `notes` gather what the rows cannot say."""

    def __init__(self, directory: Path, plan: AgentsPlan, transport: Transport = "http") -> None:
        self._directory = directory
        self._plan = plan
        self._transport: Transport = transport
        self._name = f"{plan.agents:,} agents at {plan.claims:g} claims/s" + (
            " by Kafka's protocol" if transport == "kafka" else ""
        )
        self.violations: list[str] = []
        self.notes: list[str] = []

    def measure(self) -> list[Row]:
        """Rows of the section. Raises RuntimeError, TimeoutError if controllers or agents end or do not begin."""
        plan = self._plan
        cluster = LocalCluster(self._directory / f"agents-{self._transport}", controllers=3, agents=0)
        try:
            cluster.start()
            cluster.wait_ready()
            cluster.leader()
            spec = AgentsSpec(
                self._addresses(cluster),
                self._transport,
                FIRST_BROKER_ID,
                plan.agents,
                plan.claims,
                plan.heartbeat_seconds,
            )
            with simulated(spec, plan.processes) as agents:
                return self._measure(cluster, agents)
        finally:
            cluster.stop()

    def _addresses(self, cluster: LocalCluster) -> list[str]:
        controllers = cluster.layout.controllers
        return [one.http if self._transport == "http" else cluster.kafka_url(one) for one in controllers]

    def _measure(self, cluster: LocalCluster, agents: SimulatedAgents) -> list[Row]:
        begun, next_id, block_ids = agents.look_until_full(FULL_SECONDS), *_allocated(cluster)
        steady = self._phase(cluster, agents, begun, lambda: time.sleep(self._plan.seconds))
        loads: list[LoadResult] = []
        pressed = self._phase(cluster, agents, steady.after, lambda: loads.append(self._greed(cluster)))
        killed = self._phase(cluster, agents, pressed.after, lambda: self._kill_leader(cluster))
        last = agents.stop()
        starts = [*last.starts, *(start for load in loads for start in load.starts)]
        if repeated := repeats(starts):
            self.violations.append(f"{repeated} of {len(starts)} block starts came twice")
        if last.ended:
            self.violations.append(f"agents ended: {last.ended}")
        return [
            *self._begin_rows(begun, next_id // block_ids),
            *self._steady_rows(steady),
            *self._served_rows("", steady),
            self._greedy_row(loads[0]),
            *self._served_rows(" beside it", pressed),
            *self._served_rows(" while the leader is killed", killed),
        ]

    def _phase(
        self, cluster: LocalCluster, agents: SimulatedAgents, before: Looked, meanwhile: Callable[[], None]
    ) -> Phase:
        leader = cluster.leader().pid
        cpu = cpu_seconds(leader)
        meanwhile()
        try:
            cpu = cpu_seconds(leader) - cpu
        except ProcessLookupError:  # it was killed
            cpu = math.nan
        after = agents.look()
        seconds = after.at - before.at
        return Phase(before, after, cpu / seconds, (after.cpu_seconds - before.cpu_seconds) / seconds)

    def _greed(self, cluster: LocalCluster) -> LoadResult:
        """One caller that asks for blocks as fast as it can, whatever it is told."""
        leader, seconds = cluster.leader(), self._plan.seconds
        body = register(leader, GREEDY_BROKER_ID)
        spec = LoadSpec(
            *host_port(leader.http), ALLOCATE_PATH, body, GREEDY_CONNECTIONS, seconds - GREED_WARMUP, GREED_WARMUP
        )
        return run_load("bench.http_load", spec, LoadResult, seconds + LOAD_START_SECONDS)

    def _kill_leader(self, cluster: LocalCluster) -> None:
        """`kill -9`; it comes back in the middle of the phase."""
        leader, half = cluster.leader(), self._plan.seconds / 2
        cluster.kill(leader)
        time.sleep(half)
        cluster.start(leader)
        cluster.wait_ready(leader)
        time.sleep(half)

    def _begin_rows(self, begun: Looked, allocated: int) -> list[Row]:
        throttled = (
            f"{begun.rounds['throttled']:,} requests for blocks were throttled, {begun.rounds['failed']:,} failed"
        )
        assert begun.registered_seconds is not None and begun.ready_seconds is not None, "all reserves are full"
        return [
            informing("agents", f"{self._name}, all at once: the last is registered", "s", [begun.registered_seconds]),
            informing("agents", f"{self._name}, all at once: the last is ready", "s", [begun.ready_seconds], throttled),
            informing(
                "agents",
                f"{self._name}, all at once: blocks whose answer came too late",
                "blocks",
                [float(max(0, allocated - begun.blocks))],
                f"of {allocated:,}",
            ),
        ]

    def _steady_rows(self, phase: Phase) -> list[Row]:
        requests = (phase.rounds("ok") + phase.rounds("throttled") + phase.rounds("failed")) / phase.seconds
        rounds = f"in {requests:.0f} requests/s, of which {phase.rounds('throttled')} were throttled in all"
        return [
            informing("agents", f"{self._name}: the leader keeps busy", "cores", [phase.leader]),
            informing("agents", f"{self._name}: blocks", "blocks/s", [phase.blocks], rounds),
            informing(
                "agents",
                f"{self._name}: request for blocks",
                "ms, p99",
                [phase.after.p99_ms],
                f"the agents kept {phase.loads:.2f} cores busy",
            ),
        ]

    def _served_rows(self, when: str, phase: Phase) -> list[Row]:
        shares = [one / self._plan.claims for one in phase.claims]
        reserves = [one / wanted for one, wanted in zip(phase.after.remaining, phase.after.wanted, strict=True)]
        remark = f"{sum(phase.claims):,.0f} ids/s in all; least reserve {min(reserves):.2f} of what it should be"
        return [
            at_most("agents", f"{self._name}{when}: claims without an ID", "claims", [float(phase.failed)], 0.0),
            not_below("agents", f"{self._name}{when}: least served", "of its rate", [min(shares)], LEAST_SHARE, remark),
        ]

    def _greedy_row(self, load: LoadResult) -> Row:
        refused = sum(count for status, count in load.statuses.items() if status != SUCCESS)
        return at_most(
            "agents",
            "one that asks as fast as it can, beside them",
            "blocks/s",
            [load.rate],
            QUOTA.per_second * QUOTA_SLACK,
            f"{refused:,} of {refused + load.statuses[SUCCESS]:,} requests were refused",
        )


def _allocated(cluster: LocalCluster) -> tuple[int, int]:
    """The next producer ID, and how many are in a block."""
    status = json.loads(cluster.get(cluster.leader(), "/v1/quorum", timeout=10.0)[1])
    return status["next_producer_id"], status["block_size"]


@click.command()
@click.option("--quick", is_flag=True, help="A small and short measurement.")
@click.option(
    "--transport", type=click.Choice(["http", "kafka"]), default="http", help="How agents ask. Default: http."
)
def main(quick: bool, transport: Transport) -> None:
    """Measure a thousand agents, and print it."""
    measure_and_print(lambda directory: AgentsBench(directory, QUICK if quick else FULL, transport))


if __name__ == "__main__":
    main()
