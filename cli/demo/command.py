"""`pidkeeper demo`: the main job from end to end, with its proof as a table or as JSON."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import click
import msgspec
import uvloop

from pidkeeper.cli.demo.evidence import Verdict, judge, quantile
from pidkeeper.cli.demo.history import whole_history
from pidkeeper.cli.demo.load import AllocationProbe, ClaimLoad
from pidkeeper.cli.demo.narrator import Narrator
from pidkeeper.cli.demo.witnesses import aiokafka_ids, confluent_ids
from pidkeeper.cli.failures import OF_A_MEMBER, OF_KAFKA, CommandError, check_not_anothers
from pidkeeper.cli.kafka_load import ClaimTally
from pidkeeper.cli.local_cluster import LocalCluster
from pidkeeper.cli.output import JSON, print_document, print_table

LIMIT_SECONDS: Final = 200.0
"""The demonstration ends by itself, also when something hangs."""

WITNESSES_PER_AGENT: Final = 5
AFTER_RESTART_CLAIMS: Final = 20_000
SNAPSHOT_ENTRIES: Final = 100
"""So often that members archive, merge archives and send each other snapshots within the demonstration."""


class Facts(msgspec.Struct):
    """What the demonstration found; the JSON line has these keys."""

    producer_ids: int
    duplicates: int
    blocks: int
    leader_kills: int
    claim_errors: int
    longest_service_gap_ms: float
    allocate_p50_ms: float
    allocate_p99_ms: float


@click.command()
@click.option(
    "--claims", default=1_000_000, show_default=True, type=click.IntRange(1000), help="IDs to claim under load."
)
@click.option("--rate", default=40_000, show_default=True, type=click.IntRange(100), help="Claims per second.")
@click.option(
    "--kills",
    default=3,
    show_default=True,
    type=click.IntRange(0, 20),
    help="How often the leader is killed with kill -9.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the facts as one JSON object on the last line.")
@click.option(
    "--keep", type=click.Path(path_type=Path, file_okay=False), help="Run in this directory, and keep it afterwards."
)
def demo(claims: int, rate: int, kills: int, as_json: bool, keep: Path | None) -> None:
    """Run three controllers, two agents and real Kafka clients; kill leaders; check that no ID is handed out twice.

    Exits 1 if an ID was handed out twice, if a claim failed, or if anything else went wrong.
    """
    if keep is not None:
        check_not_anothers(keep, OF_KAFKA | OF_A_MEMBER)
    directory = keep or Path(tempfile.mkdtemp(prefix="pidkeeper-demo-"))
    cluster = LocalCluster(directory, controller_options={"snapshot_entries": SNAPSHOT_ENTRIES}, data=True)
    demonstration = Demonstration(cluster, claims=claims, rate=rate, kills=kills)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            facts = runner.run(demonstration.run())
    except TimeoutError as error:
        raise CommandError(f"the demonstration did not end within {LIMIT_SECONDS:g} s") from error
    finally:
        cluster.stop()
        if keep is None:
            shutil.rmtree(directory, ignore_errors=True)
    _print(facts, demonstration.problems)
    if as_json:
        print_document(facts, JSON, one_of_many=True)
    if demonstration.problems:
        raise click.exceptions.Exit(1)


class Demonstration:
    """One run. `problems` is what went wrong, in words."""

    def __init__(self, cluster: LocalCluster, *, claims: int, rate: int, kills: int) -> None:
        self.cluster = cluster
        self.claims = claims
        self.rate = rate
        self.kills = kills
        self.killed = 0
        self.problems: list[str] = []
        self._narrator = Narrator(claims)
        self._witnessed: list[list[int]] = []

    async def run(self) -> Facts:
        """All acts in turn. Raises TimeoutError after LIMIT_SECONDS, CommandError if the cluster does not come up."""
        async with asyncio.timeout(LIMIT_SECONDS):
            self._narrator.say("starting 3 controllers and 2 agents")
            await asyncio.to_thread(self.cluster.start)
            await asyncio.to_thread(self.cluster.wait_ready)
            await self._witness()
            load, probe = await self._load()
            before = max((max(tally.ids, default=-1) for tally in _tallies(load)), default=-1)
            after = await self._restart_everything(before)
            verdict = await asyncio.to_thread(self._judge, load, after)
        errors = sum(
            sum(tally.errors.values()) + tally.lost_connections for tally in (*_tallies(load), *_tallies(after))
        )
        self._note(errors, verdict)
        if probe.failures:
            self.problems.append(f"{probe.failures} allocations over HTTP got no answer in time")
        return Facts(
            producer_ids=verdict.producer_ids,
            duplicates=verdict.duplicates,
            blocks=verdict.blocks,
            leader_kills=self.killed,
            claim_errors=errors,
            longest_service_gap_ms=round(max(tally.longest_gap for tally in _tallies(load)) * 1000, 1),
            allocate_p50_ms=round(quantile(probe.latencies_ms, 0.50), 2),
            allocate_p99_ms=round(quantile(probe.latencies_ms, 0.99), 2),
        )

    async def _witness(self) -> None:
        for agent in self.cluster.layout.agents:
            aiokafka = await aiokafka_ids(agent.kafka, WITNESSES_PER_AGENT)
            confluent = await asyncio.to_thread(confluent_ids, agent.kafka, WITNESSES_PER_AGENT)
            self._narrator.say(
                f"through agent {agent.id} aiokafka producers got {aiokafka}, confluent-kafka producers got {confluent}"
            )
            self._witnessed += [aiokafka, confluent]

    async def _load(self) -> tuple[ClaimLoad, AllocationProbe]:
        layout = self.cluster.layout
        load = ClaimLoad(layout.agents, self.rate)
        probe = AllocationProbe(tuple(controller.http for controller in layout.controllers))
        async with load.running(), probe.running():
            killing = asyncio.create_task(self._kill_leaders(load))
            self._narrator.begin()
            while load.claims < self.claims or not killing.done():
                self._narrator.show(load.claims, self.killed)
                await asyncio.sleep(0.1)
            self._narrator.show(load.claims, self.killed)
            self._narrator.end()
            await killing
        return load, probe

    async def _kill_leaders(self, load: ClaimLoad) -> None:
        for number in range(1, self.kills + 1):
            await load.reach(self.claims * number // (self.kills + 1))
            leader = await asyncio.to_thread(self.cluster.leader)
            await asyncio.to_thread(self.cluster.kill, leader)
            self.killed += 1
            successor = await asyncio.to_thread(self.cluster.leader)
            self._narrator.say(f"kill -9 of the leader, controller {leader.id}; controller {successor.id} leads now")
            await asyncio.to_thread(self.cluster.start, leader)
            await asyncio.to_thread(self.cluster.wait_ready, leader)

    async def _restart_everything(self, before: int) -> ClaimLoad:
        self._narrator.say("kill -9 of every process at once, then a restart of all of them")
        await asyncio.to_thread(self.cluster.kill, *self.cluster.members())
        await asyncio.to_thread(self.cluster.start)
        await asyncio.to_thread(self.cluster.wait_ready)
        load = ClaimLoad(self.cluster.layout.agents, self.rate)
        async with load.running():
            await load.reach(AFTER_RESTART_CLAIMS)
        lowest = min(min(tally.ids) for tally in _tallies(load) if tally.ids)
        self._narrator.say(f"the highest ID before was {before}, the lowest after is {lowest}")
        if lowest <= before:
            self.problems.append(f"after the restart ID {lowest} was handed out, which is not above {before}")
        return load

    def _judge(self, *loads: ClaimLoad) -> Verdict:
        claimed: defaultdict[int | None, list[Iterable[int]]] = defaultdict(list, {None: list(self._witnessed)})
        for load in loads:
            for agent, tallies in load.tallies.items():
                claimed[agent] += [tally.ids for tally in tallies]
        return judge(claimed, whole_history(self.cluster.layout.controllers))

    def _note(self, errors: int, verdict: Verdict) -> None:
        if errors:
            self.problems.append(f"{errors} claims failed")
        if verdict.duplicates:
            self.problems.append(f"{verdict.duplicates} IDs were handed out twice")
        if verdict.strays:
            self.problems.append(f"{verdict.strays} IDs lie outside the blocks of the agent that gave them out")
        if verdict.overlaps:
            self.problems.append(f"{verdict.overlaps} blocks overlap")


def _tallies(load: ClaimLoad) -> list[ClaimTally]:
    return [tally for tallies in load.tallies.values() for tally in tallies]


def _print(facts: Facts, problems: list[str]) -> None:
    rows: list[tuple[str, object]] = [
        ("IDs handed out", f"{facts.producer_ids:,}"),
        ("duplicates", f"{facts.duplicates}"),
        ("blocks allocated", f"{facts.blocks:,}"),
        ("leaders killed", f"{facts.leader_kills}"),
        ("claims that failed", f"{facts.claim_errors}"),
        ("longest time without an ID", f"{facts.longest_service_gap_ms:.1f} ms"),
        ("allocate, median", f"{facts.allocate_p50_ms:.2f} ms"),
        ("allocate, 99th percentile", f"{facts.allocate_p99_ms:.2f} ms"),
        ("verdict", "; ".join(problems) or "no ID twice, nothing lost"),
    ]
    print_table(("fact", "measured"), rows, title="pidkeeper demo")
