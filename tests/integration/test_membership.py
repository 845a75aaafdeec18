"""Voters come and go while brokers allocate: real processes, the real command line, and a history without a hole."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import pytest

from pidkeeper.cli.failures import ExitCode
from pidkeeper.cli.local_cluster import Controller, LocalCluster
from tests.support.cluster import (
    allocate,
    config_of,
    ledger,
    new_leader,
    pidkeeper,
    quorum,
    register,
    running_cluster,
    wait_until,
)


class Load:
    """One broker that allocates without a pause, at whoever leads; `firsts` are the blocks that it was given."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.cluster = cluster
        self.firsts: list[int] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        self.progress()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(60)
        assert not self._thread.is_alive(), "the load does not end"

    def progress(self) -> None:
        """Wait for some more blocks."""
        before = len(self.firsts)
        wait_until(lambda: len(self.firsts) >= before + 20, "more blocks")

    def _run(self) -> None:
        epoch = -1
        targets = list(self.cluster.layout.controllers)
        while not self._stop.is_set():
            target = targets[0]
            try:
                if epoch < 0:
                    epoch = register(target, 1, "load").json()["broker_epoch"]
                answer = allocate(target, 1, epoch)
                self.firsts.append(answer.json()["producer_id_start"])
            except (OSError, KeyError, ValueError):  # dead, or not the leader: ask the next one
                targets = [*self.cluster.layout.controllers]
                self._stop.wait(0.01)
                known = [one for one in targets if self.cluster.running(one) and self._leads(one)]
                targets = known or targets

    def _leads(self, controller: Controller) -> bool:
        try:
            return bool(quorum(controller)["role"] == "leader")
        except (OSError, ValueError):
            return False


def add_voter(cluster: LocalCluster, controller: Controller) -> None:
    done = pidkeeper(
        "quorum", "add-voter", "--id", str(controller.id), "--peer", controller.peer, "--http", controller.http,
        "--timeout", "20", "--cluster", cluster.directory,
    )  # fmt: skip
    assert (done.returncode, done.stdout.strip()) == (0, f"member {controller.id} is a voter"), done.stderr


def remove_voter(cluster: LocalCluster, member_id: int) -> None:
    done = pidkeeper("quorum", "remove-voter", str(member_id), "--timeout", "20", "--cluster", cluster.directory)
    assert done.returncode == 0, done.stderr


def voters(cluster: LocalCluster) -> list[int]:
    return [voter["id"] for voter in quorum(cluster.leader())["voters"]]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    with running_cluster(tmp_path, controller_options={"snapshot_entries": 100}) as cluster:
        yield cluster


def check_history(cluster: LocalCluster, load: Load) -> None:
    """Nothing twice, and nothing that was acknowledged is missing."""
    assert len(load.firsts) == len(set(load.firsts))
    assert set(load.firsts) <= {block["first"] for block in ledger(cluster)}


def test_a_fourth_and_a_fifth_voter_join_under_load_and_the_leader_leaves(cluster: LocalCluster) -> None:
    with Load(cluster) as load:
        for count in (4, 5):
            added = cluster.add_controller()
            cluster.start(added)
            add_voter(cluster, added)
            cluster.wait_ready(added)
            assert voters(cluster) == list(range(1, count + 1))
            load.progress()
        old = cluster.leader()
        remove_voter(cluster, old.id)
        leader = new_leader(cluster, old)
        load.progress()
        assert old.id not in [voter["id"] for voter in quorum(leader)["voters"]]
        # Four voters are left; one of the first three may die, and the new ones carry on.
        dead = next(one for one in cluster.layout.controllers[:3] if one.id not in {old.id, leader.id})
        cluster.kill(dead, old)
        load.progress()
    cluster.start()
    cluster.wait_ready(*[one for one in cluster.layout.controllers if one.id != old.id])
    wait_until(lambda: quorum(old), "an answer of the removed member")
    check_history(cluster, load)
    assert not cluster.ready(old), "a removed member is not ready"


def resize(cluster: LocalCluster, *wanted: int, options: tuple[str, ...] = ()) -> list[str]:
    """What `quorum resize` says of these voters."""
    listed = ",".join(map(str, wanted))
    places = [f"--member={one.id}={one.peer},{one.http}" for one in cluster.layout.controllers]
    done = pidkeeper(
        "quorum", "resize", "--voters", listed, *places, *options, "--timeout", "20", "--cluster", cluster.directory
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_quorum_is_resized_there_and_back_and_there_again(cluster: LocalCluster) -> None:
    for one in (cluster.add_controller(), cluster.add_controller()):
        cluster.start(one)
    joined = ["member 4 is a voter", "member 5 is a voter", "voters are 1, 2, 3, 4, 5"]
    with Load(cluster) as load:
        assert resize(cluster, 1, 2, 3, options=("--remove-only",)) == ["voters are 1, 2, 3"]
        assert resize(cluster, 1, 2, 3, 4, 5) == joined
        assert resize(cluster, 1, 2, 3, 4, 5) == joined[2:]
        assert pidkeeper("quorum", "transfer", "--to", "4", "--cluster", cluster.directory).returncode == 0
        wait_until(lambda: cluster.leader().id == 4, "member 4 leads")
        gone = ["member 5 is removed", "member 4 is removed", "voters are 1, 2, 3"]
        assert resize(cluster, 1, 2, 3, options=("--remove-only",)) == gone
        load.progress()
        added = cluster.layout.controllers[3:]
        cluster.kill(*added)
        cluster.start(*added)
        assert resize(cluster, 1, 2, 3, 4, 5) == joined, "with the disks that they had"
        cluster.wait_ready()
        load.progress()
    check_history(cluster, load)


def test_a_resize_that_cannot_be_is_refused_and_changes_nothing(cluster: LocalCluster) -> None:
    absent = ("--voters=1,2,4", "--member=4=127.0.0.1:1,http://127.0.0.1:1", "--wait=0.5")
    for options, code, said in (
        (("--voters=4,5",), ExitCode.REFUSED, "none of the voters 1, 2, 3 would stay"),
        (("--voters=1,2,4",), ExitCode.USAGE, "where is member 4 reached?"),
        (("--voters=1,2,4", "--member=4=here"), ExitCode.USAGE, "'4=here' is not like 4=host:9090,http://host:8080"),
        (("--voters=1,2,4", "--member=4,5=h:1,http://h:2"), ExitCode.USAGE, "names 2 members: one for each --member"),
        (absent, ExitCode.UNREACHABLE, "no answer from member 4"),
    ):
        done = pidkeeper("quorum", "resize", *options, "--cluster", cluster.directory)
        assert done.returncode == code, done.stderr
        assert said in " ".join(done.stderr.split())
    assert voters(cluster) == [1, 2, 3]


def test_voters_that_were_added_are_still_there_after_all_were_killed(cluster: LocalCluster) -> None:
    with Load(cluster) as load:
        added = cluster.add_controller()
        cluster.start(added)
        add_voter(cluster, added)
        load.progress()
    cluster.kill(*cluster.layout.controllers)
    cluster.start()
    cluster.wait_ready()
    assert voters(cluster) == [1, 2, 3, 4]
    check_history(cluster, load)


def test_a_dead_member_is_replaced_by_one_with_the_same_id_and_an_empty_disk(cluster: LocalCluster) -> None:
    with Load(cluster) as load:
        leader = cluster.leader()
        dead = next(one for one in cluster.layout.controllers if one.id != leader.id)
        cluster.kill(dead)
        remove_voter(cluster, dead.id)
        assert dead.id not in voters(cluster)
        load.progress()
        shutil.rmtree(dead.data_dir)
        cluster.start(dead)
        add_voter(cluster, dead)
        cluster.wait_ready(dead)
        load.progress()
        # The other one that was there from the start dies: now the replacement counts.
        other = next(one for one in cluster.layout.controllers if one.id not in {leader.id, dead.id})
        cluster.kill(other)
        load.progress()
    cluster.start()
    cluster.wait_ready()
    check_history(cluster, load)


def test_changes_that_make_no_sense_are_refused_and_change_nothing(cluster: LocalCluster) -> None:
    options = ("--cluster", cluster.directory)
    unknown = pidkeeper("quorum", "remove-voter", "9", *options)
    assert (unknown.returncode, "member 9 is not in the quorum" in unknown.stderr) == (5, True)
    moved = pidkeeper(
        "quorum", "add-voter", "--id", "1", "--peer", "127.0.0.1:1", "--http", "http://127.0.0.1:1", *options
    )
    assert (moved.returncode, "remove it before you add another" in moved.stderr) == (5, True)
    nowhere = pidkeeper(
        "quorum", "add-voter", "--id", "4", "--peer", "nowhere", "--http", "http://127.0.0.1:1", *options
    )
    assert (nowhere.returncode, "is not host:port" in nowhere.stderr) == (5, True)
    silent = pidkeeper(
        "quorum", "add-voter", "--id", "4", "--peer", "127.0.0.1:1", "--http", "http://127.0.0.1:1", "--wait", "0.5",
        *options,
    )  # fmt: skip
    assert (silent.returncode, "member 4 is still a learner" in silent.stderr) == (1, True), silent.stderr
    assert [learner["id"] for learner in quorum(cluster.leader())["learners"]] == [4]
    remove_voter(cluster, 4)
    description = quorum(cluster.leader())
    assert ([voter["id"] for voter in description["voters"]], description["learners"]) == ([1, 2, 3], [])
    assert config_of(cluster, cluster.layout.controllers[0]).exists()
