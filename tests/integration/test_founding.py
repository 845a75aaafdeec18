"""A quorum of real processes is founded by one command, and by nothing else."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from pidkeeper.cli.failures import ExitCode
from pidkeeper.cli.local_cluster import LocalCluster
from tests.support.cluster import (
    CONTROLLER_OPTIONS,
    allocate,
    bring_back,
    ledger,
    log_of,
    pidkeeper,
    quorum,
    register,
    running_cluster,
    wait_until,
)
from tests.support.http_calls import call

WAITS = "the disk is blank, and no founded member has connected: `pidkeeper quorum found` founds a new quorum, once"


@pytest.fixture
def blank(tmp_path: Path) -> Iterator[LocalCluster]:
    """Three controllers with blank disks, which nobody has founded."""
    cluster = LocalCluster(tmp_path, agents=0, controller_options=CONTROLLER_OPTIONS)
    try:
        cluster.start()
        wait_until_waiting(cluster)
        yield cluster
    finally:
        cluster.kill(*[one for one in cluster.members() if cluster.running(one)])


def wait_until_waiting(cluster: LocalCluster) -> None:
    for one in cluster.layout.controllers:
        wait_until(lambda one=one: quorum(one)["reasons"], "an answer")  # type: ignore[misc]


def assert_nobody_hands_out(cluster: LocalCluster) -> None:
    for one in cluster.layout.controllers:
        described = quorum(one)
        assert (described["term"], described["leader_id"], described["founding_id"]) == (0, None, None)
        assert described["reasons"][0].startswith(WAITS)
        assert register(one, 7, "x").status == allocate(one, 7, 0).status == 421
        assert call(one.http, "GET", "/livez").status == 200
        assert call(one.http, "GET", "/readyz").status == 503


def test_one_command_founds_the_quorum_and_refuses_to_do_it_again(blank: LocalCluster) -> None:
    assert_nobody_hands_out(blank)
    told = pidkeeper("health", "--cluster", blank.directory)
    assert told.returncode == ExitCode.UNHEALTHY
    assert WAITS in told.stdout
    assert WAITS in log_of(blank, blank.layout.controllers[0])
    found = ("quorum", "found", "--cluster", blank.directory, "--voters")

    third = blank.layout.controllers[2]
    blank.kill(third)
    early = pidkeeper(*found, "1,2,3", "--wait", "0.2", "--timeout", "0.5")
    assert early.returncode == ExitCode.UNREACHABLE
    assert "VOTERS_NOT_CONNECTED: member 3 is not connected: start it" in early.stderr
    blank.start(third)
    for wrong, code, what in (
        ("1,2", ExitCode.REFUSED, "the file of member 1 names the voters [1, 2, 3], not [1, 2]; nothing was founded"),
        ("1;2", ExitCode.USAGE, "'1;2' is no list of ids like 1,2,3"),
        ("", ExitCode.USAGE, "is no list of ids"),
    ):
        refused = pidkeeper(*found, wrong)
        assert (refused.returncode, what in refused.stderr) == (code, True), refused.stderr
    assert_nobody_hands_out(blank)

    founding_id = str(uuid.uuid4())
    for _ in range(2):
        founded = pidkeeper(*found, "3,1,2", "--founding-id", founding_id)
        assert founded.stdout == f"founded quorum {founding_id} of the voters 1, 2, 3\n", founded.stderr
    again = pidkeeper(*found, "1,2,3")
    assert again.returncode == ExitCode.REFUSED
    assert f"belongs to a quorum already: founding {founding_id}, of the voters [1, 2, 3]" in again.stderr
    blank.layout.to_found = None
    bring_back(blank)
    leader = blank.leader()
    epoch = register(leader, 7, "x").json()["broker_epoch"]
    assert allocate(leader, 7, epoch).json()["producer_id_start"] == 0
    assert founding_id in pidkeeper("quorum", "describe", "--cluster", blank.directory).stdout


def test_members_whose_disks_were_all_lost_hand_out_nothing(tmp_path: Path) -> None:
    """They were a new cluster at ID 0, healthy, and nothing was said of it."""
    with running_cluster(tmp_path, agents=1) as cluster:
        agent = cluster.layout.agents[0]
        given = [call(agent.http, "POST", "/v1/init-producer-id", {}).json()["producer_id"] for _ in range(5)]
        before = ledger(cluster)
        controllers = cluster.layout.controllers
        cluster.kill(*controllers)
        for one in controllers:
            shutil.rmtree(one.data_dir)
        cluster.start()
        wait_until_waiting(cluster)
        wait_until(lambda: all(len(quorum(one)["reasons"]) == 1 for one in controllers), "blank members")
        assert_nobody_hands_out(cluster)
        more = call(agent.http, "POST", "/v1/init-producer-id", {}).json()["producer_id"]
        assert more == max(given) + 1 <= before[-1]["last"], "what the agent holds it goes on to hand out"
