"""Faults aimed at consumer groups bite in a real cluster, and groups go on, during each and behind it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Final

import pytest

from tests.chaos.checker import check
from tests.chaos.coordinators import Coordinators
from tests.chaos.fault import Fault
from tests.chaos.faults.groups import KINDS
from tests.chaos.ledgers import LedgerKeeper
from tests.chaos.links.laying import Links, best_proxies
from tests.chaos.load.crew import CLIENTS, GROUPS, at_work, crew_of_records
from tests.chaos.load.groups_process import COPIERS, FOLLOWERS
from tests.chaos.load.journal import Outcome, clock, entries
from tests.chaos.load.kinds import COMMIT, FOUND
from tests.chaos.load.records_process import PARTITIONS
from tests.chaos.looking import until
from tests.chaos.plan import Target
from tests.chaos.shim.build import why_no_shim
from tests.chaos.shim.preload import Shim
from tests.chaos.small_stage import fault_of, kind_of
from tests.chaos.stage import ChaosCluster, Stage
from tests.chaos.watched import watched
from tests.support.cluster import CONTROLLER_OPTIONS, bring_back

pytestmark = pytest.mark.skipif(why_no_shim() is not None, reason=str(why_no_shim()))

PATIENCE_SECONDS: Final = 60.0
SECONDS: Final = 300.0


class Load:
    """What the members of groups have told. `journal`: where they do."""

    def __init__(self, stage: Stage, journal: Path) -> None:
        self.stage = stage
        self.journal = journal

    async def come(self, condition: Callable[[], bool], what: str) -> None:
        """Raises AssertionError if it does not come to that."""
        assert await until(condition, PATIENCE_SECONDS), what

    async def go_on(self) -> None:
        """Both groups commit what they begin to commit from now on."""
        now = clock()
        await self.come(lambda: {COPIERS, FOLLOWERS} <= self._committing(now), "both groups to commit")

    def has_all(self, process: str, since: int) -> bool:
        """Whether members of a process have been given all partitions of both groups."""
        whole = {
            one.arguments["group"]
            for one in entries(self.journal)
            if one.kind == FOUND and one.actor.startswith(process) and one.invoked > since and one.outcome is Outcome.OK
            if len(one.result["offsets"]) == PARTITIONS
        }
        return {COPIERS, FOLLOWERS} <= whole

    def is_shared(self) -> bool:
        """Whether no process has all partitions of a group, by what its members were given last."""
        given: dict[str, int] = {}
        for one in entries(self.journal):
            if one.kind == FOUND and one.outcome is Outcome.OK:
                given[one.actor] = len(one.result["offsets"])
        return len(given) == 2 * len(GROUPS) and max(given.values()) < PARTITIONS

    def _committing(self, since: int) -> set[str]:
        told = [one for one in entries(self.journal) if one.kind == COMMIT and one.invoked > since]
        return {one.arguments["group"] for one in told if one.outcome is Outcome.OK}


@contextlib.asynccontextmanager
async def staged(directory: Path) -> AsyncIterator[Stage]:
    """A controller and two agents that keep records, between links."""
    proxies, shim = best_proxies(), Shim(directory / "shim")
    await proxies.start()
    cluster = ChaosCluster(
        directory / "cluster",
        (shim,),
        controllers=1,
        agents=2,
        data=True,
        controller_options=CONTROLLER_OPTIONS | {"broker_session_timeout_ms": 2000},
        agent_options={"heartbeat_interval_ms": 200, "groups": {"initial_rebalance_delay_ms": 100}},
    )
    try:
        links = Links(cluster, shim, proxies)
        await links.lay(CLIENTS)
        await asyncio.to_thread(bring_back, cluster)
        yield Stage(cluster, links)
    finally:
        cluster.kill(*filter(cluster.running, cluster.members()))
        await proxies.close()


@pytest.mark.timeout(SECONDS)
async def test_groups_survive_what_is_aimed_at_them(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    async with staged(tmp_path) as stage:
        everybody = crew_of_records(stage, journal, seed=1)
        async with watched(Coordinators(stage).watch()), at_work(everybody):
            load = Load(stage, journal)
            await load.go_on()
            for name in ("coordinator_killed", "coordinator_paused", "coordinator_without_quorum"):
                await _another_coordinates(load, name)
            await _one_of_two_members_is_cut_off(load)
            await _a_member_loses_its_partitions(load)
        await asyncio.to_thread(LedgerKeeper(stage.cluster, journal).finish)
    verdict = check(journal)
    assert verdict.violations == []
    assert verdict.fatal_errors == []
    assert min(verdict.copies_checked, verdict.commits_checked) > 100


async def _another_coordinates(load: Load, name: str) -> None:
    stage = load.stage
    fault, was = _fault(stage, name, Target.COORDINATOR), stage.coordinator_id
    assert fault.victims == (f"agent-{was}",)
    await _begun(fault)
    await load.come(lambda: stage.coordinator_id not in {0, was}, f"{name}: another coordinator")
    await load.go_on()
    await _ended(fault)
    assert await fault.bites() > 0, name
    await load.come(lambda: stage.coordinator_id == was, f"{name}: the old coordinator")
    await load.go_on()


async def _one_of_two_members_is_cut_off(load: Load) -> None:
    fault = _fault(load.stage, "coordinator_without_half", Target.COORDINATOR)
    assert load.stage.links is not None
    await _begun(fault)
    hurt = {
        link.source
        for link in load.stage.links.to(fault.victims[0])
        if not load.stage.links.claim((link.name, "disabled"))
    }
    assert len(hurt & set(GROUPS)) == 1
    await load.go_on()
    await _ended(fault)
    assert await fault.bites() > 0
    await load.go_on()


async def _a_member_loses_its_partitions(load: Load) -> None:
    # Whoever was cut off for long has to come back first: else nobody has anything to lose.
    await load.come(load.is_shared, "both processes to have partitions")
    fault = _fault(load.stage, "member_paused", Target.CLUSTER)
    begun, (paused,) = clock(), fault.victims
    (other,) = {*GROUPS} - {paused}
    await fault.begin()
    try:
        second = _fault(load.stage, "member_paused", Target.CLUSTER)
        assert second.victims == (other,), "the one that does not stand still"
        await load.come(lambda: load.has_all(other, begun), "the other members to have all partitions")
    finally:
        # It could not end otherwise.
        await fault.end()
    assert await fault.bites() == 1
    await load.go_on()


def _fault(stage: Stage, name: str, target: Target) -> Fault:
    return fault_of(stage, kind_of(KINDS, name), target)


async def _begun(fault: Fault) -> None:
    """As a course begins one that takes its victims down."""
    fault.stage.down.update(fault.victims)
    await fault.begin()


async def _ended(fault: Fault) -> None:
    await fault.end()
    fault.stage.down.difference_update(fault.victims)
    await asyncio.to_thread(bring_back, fault.stage.cluster)
