"""What crowds of slow and idle connections on every listener cost a good client, at two limits of open files."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Final

import msgspec

from bench.cluster import RAISED_OPTIONS, host_port, register
from bench.crowd import crowded, target
from bench.crowd_process import CrowdStatus, Target
from bench.figures import repeats
from bench.good_clients import Ask, GoodResult, GoodSpec
from bench.limited_files import LimitedFilesCluster
from bench.load_process import run_load
from bench.report import Row, at_most_times

FILES: Final = 1024
RAISED_FILES: Final = 20_000
LIMITS: Final = {
    "hard limit of 1,024 files": (FILES, FILES),
    "soft limit of 1,024 files": (FILES, RAISED_FILES),
}
IDLE: Final = 5000
SLOW: Final = 1000
LISTENERS: Final = 12
"""HTTP, probes and peers of three controllers; HTTP, probes and Kafka of an agent."""
MALFORMED: Final = 100
"""Requests a second at each listener: 54,000 in three rounds of 15 s."""
PAUSE_SECONDS: Final = 0.02
CLIENT_START_SECONDS: Final = 30.0


class CrowdPlan(msgspec.Struct, frozen=True, kw_only=True):
    """`rounds` at each limit: `seconds` without a crowd, and as many with each of three.

    All send `malformed` requests a second to each listener. The first has `slow` connections in all, the second so many
    at each listener, and the third `idle` ones at each on top.
    """

    rounds: int
    seconds: float
    idle: int = IDLE
    slow: int = SLOW
    malformed: int = MALFORMED


class CrowdBench:
    """Measures at one limit. `violations` and `notes` gather what the rows cannot say."""

    def __init__(self, directory: Path, plan: CrowdPlan) -> None:
        self._directory = directory
        self._plan = plan
        self.violations: list[str] = []
        self.notes: list[str] = []

    def measure(self, name: str, files: tuple[int, int]) -> list[Row]:
        """Rows for one limit, of both crowds. Raises RuntimeError if a member ends."""
        cluster = LimitedFilesCluster(
            self._directory, files=files, controllers=3, agents=1, controller_options=RAISED_OPTIONS
        )
        calm: list[GoodResult] = []
        plan = self._plan
        crowds = {
            "slow in all": (0, math.ceil(plan.slow / LISTENERS)),
            "slow": (0, plan.slow),
            "slow and idle": (plan.idle, plan.slow),
        }
        pressed: dict[str, list[GoodResult]] = {kind: [] for kind in crowds}
        try:
            cluster.start()
            cluster.wait_ready()
            for _ in range(self._plan.rounds):
                calm.append(self._ask(cluster))
                for kind, (idle, slow) in crowds.items():
                    with crowded(self._targets(cluster, idle, slow)) as crowd:
                        pressed[kind].append(self._ask(cluster))
                        self._note_crowd(f"{name}, {kind}", crowd.begun, crowd.disperse())
            if dead := cluster.dead():
                raise RuntimeError(f"{name}: {dead} ended under the crowd")
        finally:
            unclean = {member: code for member, code in cluster.stop().items() if code != 0}
            if unclean:
                self.notes.append(f"{name}: did not stop cleanly: {unclean}")
        self._check(name, [*calm, *(one for results in pressed.values() for one in results)])
        return [
            self._row(f"{name}, {kind}", number, calm, results)
            for kind, results in pressed.items()
            for number in range(len(calm[0].served))
        ]

    def _ask(self, cluster: LimitedFilesCluster) -> GoodResult:
        spec = GoodSpec(_asks(cluster), self._plan.seconds, PAUSE_SECONDS)
        return run_load("bench.good_clients", spec, GoodResult, self._plan.seconds + CLIENT_START_SECONDS)

    def _targets(self, cluster: LimitedFilesCluster, idle: int, slow: int) -> list[Target]:
        count = (idle, slow, self._plan.malformed)
        targets = [target(member.http, "http", *count) for member in cluster.members()]
        targets += [target(address, "http", *count) for address in cluster.probes.values()]
        targets += [target(controller.peer, "peer", *count) for controller in cluster.layout.controllers]
        targets += [target(agent.kafka, "kafka", *count) for agent in cluster.layout.agents]
        assert len(targets) == LISTENERS
        return targets

    def _note_crowd(self, name: str, begun: CrowdStatus, ended: CrowdStatus) -> None:
        self.notes.append(
            f"{name}: a crowd of {begun.opened:,} connections; {begun.open:,} of them were open at its begin and "
            f"{ended.open:,} at its end; {ended.opened:,} were opened in all, {ended.failed:,} could not be; "
            f"{ended.malformed:,} malformed requests"
        )

    def _check(self, name: str, results: list[GoodResult]) -> None:
        for what, ids in (
            ("block starts", [start for result in results for start in result.starts]),
            ("ids", [claimed for result in results for claimed in result.ids]),
        ):
            if repeated := repeats(ids):
                self.violations.append(f"{name}: {repeated} of {len(ids)} {what} came twice")

    def _row(self, name: str, number: int, calm: list[GoodResult], pressed: list[GoodResult]) -> Row:
        before, during = [result.served[number] for result in calm], [result.served[number] for result in pressed]
        for when, served in (("without", before), ("with", during)):
            for one in served:
                if one.failures:
                    self.notes.append(f"{name}, {when} a crowd: {one.name}: {one.answers} answers, {one.failures}")
        row = at_most_times(
            2.0,
            "crowd",
            f"{before[0].name}, {name}",
            "ms, p99",
            [one.p99_ms for one in during],
            [one.p99_ms for one in before],
        )
        answers, longest = sum(one.answers for one in during), max(one.max_ms for one in during)
        return msgspec.structs.replace(row, remark=f"{answers} answers, longest {longest:.0f} ms")


def _asks(cluster: LimitedFilesCluster) -> list[Ask]:
    leader, agent = cluster.leader(), cluster.layout.agents[0]
    body = register(leader)
    epoch = json.loads(body)["broker_epoch"]
    at_leader, at_agent, at_kafka = host_port(leader.http), host_port(agent.http), host_port(f"http://{agent.kafka}")
    allocate = ("POST", "/v1/producer-ids/allocate", body)
    broker = json.loads(body)["broker_id"]
    heartbeat = ("POST", f"/v1/brokers/{broker}/heartbeat", json.dumps({"broker_epoch": epoch}))
    asks = [
        Ask("allocate", *at_leader, *allocate),
        Ask("allocate, new connections", *at_leader, *allocate, anew=True),
        Ask("heartbeat", *at_leader, *heartbeat),
        Ask("InitProducerId, HTTP", *at_agent, "POST", "/v1/init-producer-id", "{}"),
        Ask("InitProducerId, Kafka", *at_kafka),
        Ask("InitProducerId, Kafka, new connections", *at_kafka, anew=True),
    ]
    for member, address in cluster.probes.items():
        if member in {f"controller-{leader.id}", f"agent-{agent.id}"}:
            probed = host_port(f"http://{address}")
            asks.append(Ask(f"probe of the {member.partition('-')[0]}", *probed, "GET", "/livez", anew=True))
    return asks
