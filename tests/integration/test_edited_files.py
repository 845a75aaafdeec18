"""Files that name other voters than the disks do: nobody votes by a file, and nobody is kept down by one."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pidkeeper.cli.local_cluster import Controller, LocalCluster
from tests.integration.test_membership import Load, add_voter, check_history, remove_voter, voters
from tests.support.cluster import (
    allocate,
    bring_back,
    exit_code,
    followers,
    ledger,
    log_of,
    new_leader,
    pidkeeper,
    quorum,
    register,
    running_cluster,
    wait_until,
)

OBSERVED_SECONDS = 2.0
"""How long it is watched that nobody is elected: several election timeouts of at most 0.6 s."""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    with running_cluster(tmp_path, controller_options={"snapshot_entries": 100}) as cluster:
        yield cluster


def name_in_files(cluster: LocalCluster, *controllers: Controller) -> None:
    """Whoever is started from now on reads this file."""
    tables: list[dict[str, Any]] = [{"id": one.id, "peer": one.peer, "http": one.http} for one in controllers]
    cluster.controller_options["voters"] = tables


def test_a_lagging_member_that_is_alone_in_its_file_hands_out_nothing(cluster: LocalCluster) -> None:
    lagging, other = followers(cluster, cluster.leader())
    epoch = register(cluster.leader(), 5, "files").json()["broker_epoch"]
    allocate(cluster.leader(), 5, epoch)
    cluster.kill(lagging)
    given = [allocate(cluster.leader(), 5, epoch).json()["producer_id_start"] for _ in range(3)]
    cluster.kill(*(one for one in cluster.layout.controllers if one is not lagging))

    name_in_files(cluster, lagging)
    cluster.start(lagging)
    wait_until(lambda: _answers(lagging), "an answer of the lagging member")
    until = time.monotonic() + OBSERVED_SECONDS
    while time.monotonic() < until:
        assert quorum(lagging)["leader_id"] is None
        assert allocate(lagging, 5, epoch).status == 421
    (warning,) = quorum(lagging)["warnings"]
    assert warning.startswith(f"member {lagging.id}: its file names the voters [{lagging.id}], the quorum is [1, 2, 3]")
    assert warning in log_of(cluster, lagging)

    del cluster.controller_options["voters"]
    cluster.start(other)
    leader = new_leader(cluster, lagging)
    more = allocate(leader, 5, register(leader, 5, "again").json()["broker_epoch"]).json()["producer_id_start"]
    assert more > max(given)
    bring_back(cluster)
    assert {block["first"] for block in ledger(cluster)} >= {*given, more}
    told = pidkeeper("health", "--cluster", cluster.directory)
    assert f"warning: {warning}" in told.stdout, "the member that differs is named, whoever is asked"


def test_a_replaced_disk_counts_by_those_who_are_there_whatever_its_file_says(tmp_path: Path) -> None:
    """As after `helm upgrade --set controller.replicas=3` of five: its file names three of them."""
    with running_cluster(tmp_path, controllers=5) as cluster:
        leader = cluster.leader()
        epoch = register(leader, 5, "files").json()["broker_epoch"]
        allocate(leader, 5, epoch)
        replaced, other, *_ = followers(cluster, leader)
        rest = [one for one in cluster.layout.controllers if one not in (replaced, other)]
        cluster.kill(replaced)
        shutil.rmtree(replaced.data_dir)
        name_in_files(cluster, replaced, other, rest[0])
        cluster.start(replaced)
        cluster.wait_ready(replaced)
        assert [one["id"] for one in quorum(replaced)["voters"]] == [1, 2, 3, 4, 5]
        (warning,) = quorum(replaced)["warnings"]
        assert warning.startswith(f"member {replaced.id}: its file names the voters")

        cluster.kill(*rest)
        until = time.monotonic() + OBSERVED_SECONDS
        while time.monotonic() < until:
            assert {quorum(one)["leader_id"] for one in (replaced, other)} <= {None, *(one.id for one in rest)}
            assert [allocate(one, 5, epoch).status for one in (replaced, other)] == [421, 421]
        # By what it has made durable, too.
        cluster.kill(replaced)
        cluster.start(replaced)
        wait_until(lambda: _answers(replaced), "an answer of the member whose disk was replaced")
        assert [one["id"] for one in quorum(replaced)["voters"]] == [1, 2, 3, 4, 5]
        del cluster.controller_options["voters"]
        bring_back(cluster)
        more = allocate(cluster.leader(), 5, register(cluster.leader(), 5, "again").json()["broker_epoch"])
        assert more.json()["producer_id_start"] > 0
        firsts = [block["first"] for block in ledger(cluster)]
        assert len(firsts) == len(set(firsts))


def test_a_file_of_another_quorum_is_refused_with_what_to_do(cluster: LocalCluster) -> None:
    added = cluster.add_controller()
    cluster.start(added)
    add_voter(cluster, added)
    first = next(one for one in followers(cluster, cluster.leader()) if one is not added)
    remove_voter(cluster, first.id)
    wait_until(lambda: first.id not in [one["id"] for one in quorum(first)["voters"]], "the removed member to know it")
    cluster.kill(first)
    name_in_files(cluster, first)
    cluster.start(first)
    assert exit_code(cluster, first) == 1
    assert f"names the voters [{first.id}], but the quorum on this disk is" in log_of(cluster, first)
    assert "add-voter" in log_of(cluster, first)


def test_all_members_are_replaced_with_files_changed_before_after_and_all_at_once(cluster: LocalCluster) -> None:
    """Under load. No file makes or unmakes a voter, and no roll is refused."""
    old = list(cluster.layout.controllers)
    with Load(cluster) as load:
        for gone, when in zip(old, ("before", "after", "at the end"), strict=True):
            new = cluster.add_controller()
            present = [one for one in cluster.layout.controllers if cluster.running(one)]
            if when == "before":
                name_in_files(cluster, *(one for one in present if one is not gone), new)
                roll(cluster, [one for one in present if one is not gone])
                assert voters(cluster) == [1, 2, 3]
                del cluster.controller_options["voters"]
            cluster.start(new)
            add_voter(cluster, new)
            remove_voter(cluster, gone.id)
            cluster.kill(gone)
            load.progress()
            if when == "after":
                name_in_files(cluster, *(one for one in present if one is not gone), new)
                roll(cluster, [one for one in present if one is not gone])
                del cluster.controller_options["voters"]
    new_ones = cluster.layout.controllers[3:]
    assert voters(cluster) == [4, 5, 6]
    cluster.kill(*new_ones)
    name_in_files(cluster, *new_ones)
    cluster.start(*new_ones)
    cluster.wait_ready(*new_ones)
    assert voters(cluster) == [4, 5, 6]
    assert [quorum(one)["warnings"] for one in new_ones] == [[], [], []]
    # The new ones know no blocks from before they came; those that were removed still do.
    name_in_files(cluster, *cluster.layout.controllers)
    cluster.start(*old)
    wait_until(lambda: all(_answers(one) for one in old), "answers of the removed members")
    check_history(cluster, load)


def _answers(controller: Controller) -> bool:
    try:
        return bool(quorum(controller)["node_id"] == controller.id)
    except OSError:
        return False


def roll(cluster: LocalCluster, members: list[Controller]) -> None:
    """Restart one after the other."""
    for member in members:
        cluster.kill(member)
        cluster.start(member)
        cluster.wait_ready(member)
