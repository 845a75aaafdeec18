"""What the checker must find: what a real run has left passes, and each lie that is put into a copy of it does not."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path

import pytest

from pidkeeper.cli.local_cluster import LocalCluster
from tests.chaos.checker import check
from tests.chaos.controls import PLANTED, mock_cluster, planted, raftos, why_no_raftos
from tests.chaos.copies import Copy
from tests.chaos.ledgers import LedgerKeeper
from tests.chaos.load.actor import Actor
from tests.chaos.load.allocators import Allocator, StaleAllocator
from tests.chaos.load.claimers import WireClaimer
from tests.chaos.load.crew import GROUPS, GROUPS_END_SECONDS, GROUPS_MODULE, RECORDS_END_SECONDS, RECORDS_MODULE
from tests.chaos.load.groups_process import COPIERS, FOLLOWERS
from tests.chaos.load.journal import entries
from tests.chaos.load.kafka_clients import KafkaClients
from tests.chaos.load.kinds import COMMIT, FENCED, TRANSACTION, ZOMBIE
from tests.chaos.load.quorum_operator import QuorumOperator
from tests.chaos.record_lies import hasty_agent
from tests.support.cluster import running_cluster
from tests.support.waiting import until


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a run without faults has left."""
    directory = tmp_path_factory.mktemp("kept")
    with running_cluster(tmp_path_factory.mktemp("cluster"), agents=1, data=True) as cluster:
        asyncio.run(run(cluster, directory))
        LedgerKeeper(cluster, directory).finish()
    return directory


async def run(cluster: LocalCluster, directory: Path) -> None:
    """Until every lie can be told of it."""
    (agent,) = cluster.layout.agents

    def controllers() -> tuple[str, ...]:
        return tuple(one.http for one in cluster.layout.controllers)

    def clients(name: str, module: str, end_seconds: float) -> KafkaClients:
        last = name == GROUPS[0]
        kafka = (agent.kafka,)
        return KafkaClients(
            name, directory, "confluent-kafka", lambda: kafka, module=module, end_seconds=end_seconds, last=last
        )

    operator = QuorumOperator(directory, lambda: cluster.layout.controllers, seed=1)
    actors: list[Actor | KafkaClients | QuorumOperator] = [
        operator,
        Allocator("allocator", directory, controllers, 1001),
        StaleAllocator("stale", directory, controllers, 1002),
        WireClaimer("wire", directory, agent.id, lambda: (agent.kafka,), 500.0),
        KafkaClients("aiokafka", directory, "aiokafka", lambda: (agent.kafka,), ids=1),
        *(clients(name, GROUPS_MODULE, GROUPS_END_SECONDS) for name in GROUPS),
        clients("records", RECORDS_MODULE, RECORDS_END_SECONDS),
    ]
    async with contextlib.AsyncExitStack() as stack:
        for actor in actors:
            await stack.enter_async_context(actor.running())
        await until(lambda: any(entry.kind == ZOMBIE and entry.code == FENCED for entry in entries(directory)))
        await until(lambda: {True, False} <= _ended(directory))
        await until(lambda: {COPIERS, FOLLOWERS} <= _committing(directory))


def _ended(directory: Path) -> set[bool]:
    """How transactions with records have ended so far: committed or not."""
    return {entry.result["committed"] for entry in entries(directory) if entry.kind == TRANSACTION and entry.result}


def _committing(directory: Path) -> set[str]:
    """The groups that have committed offsets."""
    return {entry.arguments["group"] for entry in entries(directory) if entry.kind == COMMIT and entry.returned}


def test_what_a_run_has_left_passes(kept: Path) -> None:
    verdict = check(kept)
    assert verdict.violations == []
    assert (verdict.duplicates, verdict.lost, verdict.fatal_client_errors) == (0, 0, 0)
    assert min(verdict.ids_checked, verdict.blocks_checked, verdict.pairs_checked, verdict.stale_refused) > 1
    assert min(verdict.records_checked, verdict.transactions_checked) > 1
    assert (verdict.records_lost, verdict.records_doubled, verdict.records_reordered) == (0, 0, 0)
    assert verdict.transactions_torn == 0
    assert min(verdict.copies_checked, verdict.commits_checked) > 1
    assert (verdict.copies_lost, verdict.copies_doubled, verdict.copies_reordered) == (0, 0, 0)
    assert (verdict.commits_lost, verdict.commits_of_zombies) == (0, 0)


@pytest.mark.parametrize("lie", PLANTED, ids=lambda lie: lie.__name__)
def test_a_lie_is_found(lie: Callable[[Copy], None], kept: Path, tmp_path: Path) -> None:
    control = planted(lie, kept, tmp_path)
    assert control.flagged, f"{control.name} is not found by {PLANTED[lie]}, but by {control.by}"


async def test_an_agent_that_acknowledges_before_it_commits_is_found(tmp_path: Path) -> None:
    control = await hasty_agent(tmp_path)
    assert control.flagged, control.by


async def test_an_allocator_that_repeats_itself_is_found(tmp_path: Path) -> None:
    control = await mock_cluster(tmp_path)
    assert control.flagged
    assert control.duplicates > 0


def test_a_quorum_that_offers_an_id_again_is_found(tmp_path: Path) -> None:
    if (reason := why_no_raftos()) is not None:
        pytest.skip(reason)
    control = raftos(tmp_path)
    assert control.flagged
    assert control.duplicates > 0
