"""Certificates of real members are made anew and run out: each fault bites, and says so, and is undone."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from pidkeeper.cli.controllers import CERTIFICATES
from tests.chaos.fault import FaultKind
from tests.chaos.faults import clocks
from tests.chaos.faults.certificates import ENDS, KINDS, ExpiringCertificate, ends, why_no_certificates
from tests.chaos.faults.clocks import SHORTEST_JUMP, ClockJump, Clocks, certified_time, faketime, why_no_clocks
from tests.chaos.faults.configuration import EDITS, NOT_ITS_NAME, Edit, EditedConfiguration
from tests.chaos.looking import LogSince, clock_offset, sample, until
from tests.chaos.plan import Target
from tests.chaos.small_stage import fault_of, kind_of, ready, small_cluster, stage_of, victim
from tests.chaos.stage import ChaosCluster, Stage
from tests.support.cluster import WAIT_SECONDS


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ChaosCluster]:
    directory, library = tmp_path_factory.mktemp("certificates"), faketime()
    preloads = () if library is None else (Clocks(library, directory / "clocks"),)
    with small_cluster(directory, *preloads, secure=True) as cluster:
        yield cluster
    clocks.forget_the_dead()


@pytest.mark.parametrize("target", [Target.LEADER, Target.AGENT])
async def test_a_certificate_that_is_made_anew_is_used(cluster: ChaosCluster, target: Target) -> None:
    stage = stage_of(cluster)
    fault = fault_of(stage, kind_of(KINDS, "certificate_renewed"), target)
    before = ends(cluster, victim(fault))
    await fault.begin()
    await fault.end()
    assert await fault.bites() == 1
    assert sample(cluster, victim(fault), ENDS) == ends(cluster, victim(fault)) > before


async def test_of_certificates_that_are_made_at_once_one_stays_with_its_own_key(cluster: ChaosCluster) -> None:
    stage = stage_of(cluster)
    faults = [fault_of(stage, kind_of(KINDS, "certificate_renewed"), Target.AGENT) for _ in range(8)]
    for _ in range(5):
        await asyncio.gather(*(fault.begin() for fault in faults))
        of_the_agent = cluster.directory / CERTIFICATES / faults[0].victims[0]
        # Raises ssl.SSLError if it is another one's key.
        ssl.create_default_context().load_cert_chain(f"{of_the_agent}.pem", f"{of_the_agent}.key")
    assert await faults[0].bites() == 1


async def test_a_certificate_runs_out_and_nobody_is_let_in_until_there_is_another(cluster: ChaosCluster) -> None:
    stage = stage_of(cluster)
    fault = fault_of(stage, kind_of(KINDS, "certificate_expires"), Target.FOLLOWER, seconds=30.0)
    assert isinstance(fault, ExpiringCertificate)
    await fault.begin()
    assert await until(lambda: fault.refused > 0, WAIT_SECONDS)
    assert not cluster.ready(victim(fault))
    await fault.end()
    assert await fault.bites() > 0
    await ready(stage)


async def test_a_certificate_that_is_replaced_before_its_end_did_not_run_out(cluster: ChaosCluster) -> None:
    stage = stage_of(cluster)
    fault = fault_of(stage, kind_of(KINDS, "certificate_expires"), Target.FOLLOWER, seconds=1.0)
    await fault.begin()
    await fault.end()
    assert await fault.bites() == 0


@pytest.mark.parametrize("edit", [edit for edit in EDITS if NOT_ITS_NAME in edit.told])
async def test_a_file_with_another_name_than_the_certificates_is_refused(cluster: ChaosCluster, edit: Edit) -> None:
    stage = stage_of(cluster)
    kind = FaultKind("edit", partial(EditedConfiguration, edit), (Target.FOLLOWER,), (3.0, 10.0), takes_down=True)
    fault = fault_of(stage, kind, Target.FOLLOWER)
    log = LogSince(cluster, victim(fault))
    await fault.begin()
    await fault.end()
    assert await fault.bites() == 1
    assert log.lines(NOT_ITS_NAME)


@pytest.mark.parametrize("pick", [0, 1])
async def test_a_clock_jumps_within_the_time_of_all_certificates(cluster: ChaosCluster, pick: int) -> None:
    stage = stage_of(cluster)
    earliest, latest = certified_time(cluster)
    fault = fault_of(stage, kind_of(clocks.KINDS, "clock_jump"), Target.FOLLOWER, pick=pick, strength=1.0)
    assert isinstance(fault, ClockJump)
    assert earliest < time.time() + fault.offset < latest
    assert fault.offset < 0 if pick else fault.offset > 0


async def test_a_clock_never_jumps_past_a_certificate_that_is_about_to_end(cluster: ChaosCluster) -> None:
    stage = stage_of(cluster)
    expires = fault_of(stage, kind_of(KINDS, "certificate_expires"), Target.LEADER)
    await expires.begin()
    fault = fault_of(stage, kind_of(clocks.KINDS, "clock_jump"), Target.FOLLOWER, pick=0, strength=1.0)
    await expires.end()
    assert isinstance(fault, ClockJump)
    assert fault.offset <= -SHORTEST_JUMP


async def test_a_member_whose_clock_leaps_past_all_certificates_lets_nobody_in(cluster: ChaosCluster) -> None:
    stage = stage_of(cluster)
    if (reason := why_no_clocks(stage)) is not None:
        pytest.skip(reason)
    fault = fault_of(stage, kind_of(clocks.KINDS, "clock_leap"), Target.FOLLOWER, pick=0, seconds=60.0)
    assert isinstance(fault, ClockJump)
    follower = victim(fault)
    await fault.begin()
    assert await until(lambda: not cluster.ready(follower), WAIT_SECONDS), "it let in who shows an expired one"
    assert await until(lambda: fault.seen, WAIT_SECONDS)
    await fault.end()
    assert await until(lambda: cluster.ready(follower), WAIT_SECONDS)
    assert await fault.bites() == 1


async def test_a_clock_does_not_leap_while_its_process_is_only_starting(cluster: ChaosCluster) -> None:
    stage = stage_of(cluster)
    if (reason := why_no_clocks(stage)) is not None:
        pytest.skip(reason)
    fault = fault_of(stage, kind_of(clocks.KINDS, "clock_leap"), Target.FOLLOWER, pick=0)
    follower = victim(fault)
    await stage.kill(follower)
    await stage.start(follower)
    await fault.begin()
    ended = await until(lambda: clock_offset(follower) is not None or not cluster.running(follower), WAIT_SECONDS)
    await fault.end()
    assert ended
    assert await until(lambda: cluster.ready(follower), WAIT_SECONDS)


def test_a_cluster_without_tls_has_no_certificates(tmp_path: Path) -> None:
    assert why_no_certificates(Stage(ChaosCluster(tmp_path))) == "the cluster has no certificates"
