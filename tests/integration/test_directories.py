"""What a member does with a directory that is empty, another's, in use, torn or corrupt."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from pidkeeper.cli.local_cluster import Controller, LocalCluster
from tests.support.cluster import (
    allocate,
    bring_back,
    config_of,
    exit_code,
    followers,
    log_of,
    metrics,
    pidkeeper,
    quorum,
    register,
    running_cluster,
    wait_until,
)
from tests.support.http_calls import call

BROKER = 5
CATCHING_UP = "[-]voting failed: the disk was lost or cut: catching up before it votes again"
OBSERVED_SECONDS = 2.0
"""How long it is watched that nobody is elected: several election timeouts of at most 0.6 s."""


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with running_cluster(tmp_path_factory.mktemp("directories")) as cluster:
        yield cluster


@pytest.fixture
def cluster(shared: LocalCluster) -> LocalCluster:
    bring_back(shared)
    return shared


def allocate_blocks(cluster: LocalCluster, count: int) -> int:
    """Allocate one by one, so that each is a batch of its own; returns the first ID of the last block."""
    leader = cluster.leader()
    epoch = register(leader, BROKER, "directories").json()["broker_epoch"]
    answers = [allocate(leader, BROKER, epoch) for _ in range(count)]
    assert {answer.status for answer in answers} == {200}, answers
    return int(answers[-1].json()["producer_id_start"])


def unready(controller: Controller) -> str:
    """Why a running member is not ready."""
    answer = call(controller.http, "GET", "/readyz")
    assert answer.status == 503
    return answer.body.decode()


def segments(controller: Controller) -> list[Path]:
    return sorted((Path(controller.data_dir) / "wal").glob("*.wal"))


def batch_offsets(data: bytes | bytearray) -> list[int]:
    return [match.start() for match in re.finditer(b"PIDBATCH", data)]


def start_refused(config: Path) -> str:
    """Run a controller that must refuse to start with exit code 1; returns what it says, on one line."""
    result = pidkeeper("controller", "run", "--config", config)
    assert result.returncode == 1, result
    (line,) = result.stderr.splitlines()
    return line


def changed_config(cluster: LocalCluster, controller: Controller, target: Path, **changes: object) -> Path:
    """The configuration of `controller` with other values."""
    settings = msgspec.toml.decode(config_of(cluster, controller).read_bytes())
    target.write_bytes(msgspec.toml.encode(settings | changes))
    return target


def test_a_member_without_its_directory_comes_back_by_snapshot(tmp_path: Path) -> None:
    with running_cluster(tmp_path, controller_options={"snapshot_entries": 40}) as cluster:
        leader = cluster.leader()
        lost = followers(cluster, leader)[0]
        allocate_blocks(cluster, 100)
        wait_until(lambda: quorum(leader)["snapshot_index"] > 0, "a snapshot of the leader")
        cluster.kill(lost)
        shutil.rmtree(lost.data_dir)
        allocate_blocks(cluster, 10)
        bring_back(cluster)
        samples = metrics(lost)
        assert samples["pidkeeper_raft_snapshots_installed_total"] >= 1
        assert samples["pidkeeper_raft_recovering"] == 0
        last = allocate_blocks(cluster, 1)
        wait_until(lambda: quorum(lost)["next_producer_id"] > last, "the member that came back to apply what is new")


def test_a_recovering_member_helps_to_elect_nobody_who_misses_something(cluster: LocalCluster) -> None:
    leader = cluster.leader()
    lost, behind = followers(cluster, leader)
    cluster.kill(behind)
    acknowledged = allocate_blocks(cluster, 20)
    cluster.kill(lost, leader)
    shutil.rmtree(lost.data_dir)
    cluster.start(lost, behind)
    wait_until(lambda: quorum(behind)["role"] == "pre-candidate", "a first attempt at an election")
    wait_until(lambda: CATCHING_UP in unready(lost), "the emptied member to hear of the founding")
    watched = time.monotonic() + OBSERVED_SECONDS
    while time.monotonic() < watched:
        assert {quorum(member)["leader_id"] for member in (lost, behind)} == {None}
    assert quorum(behind)["next_producer_id"] <= acknowledged, "this member was to miss acknowledged blocks"
    bring_back(cluster)
    assert metrics(lost)["pidkeeper_raft_recovering"] == 0
    assert allocate_blocks(cluster, 1) > acknowledged


def test_a_directory_of_another_cluster_is_refused(cluster: LocalCluster, tmp_path: Path) -> None:
    member = cluster.layout.controllers[0]
    pidkeeper("storage", "format", "--dir", tmp_path / "data", "--cluster-id", "elsewhere", "--node-id", "1")
    config = changed_config(cluster, member, tmp_path / "c.toml", data_dir=str(tmp_path / "data"))
    line = start_refused(config)
    assert "belongs to cluster elsewhere" in line
    assert cluster.layout.cluster_id in line


def test_a_directory_of_another_member_is_refused(cluster: LocalCluster, tmp_path: Path) -> None:
    first, second, _ = cluster.layout.controllers
    cluster.kill(first)
    config = changed_config(cluster, first, tmp_path / "c.toml", data_dir=second.data_dir)
    assert "belongs to node 2, but node 1 was asked for" in start_refused(config)


def test_a_directory_in_use_is_refused(cluster: LocalCluster) -> None:
    member = cluster.layout.controllers[0]
    line = start_refused(config_of(cluster, member))
    assert member.data_dir in line
    assert "in use by another process" in line
    assert cluster.ready(member)


def test_an_unformatted_directory_is_refused(cluster: LocalCluster, tmp_path: Path) -> None:
    config = changed_config(cluster, cluster.layout.controllers[0], tmp_path / "c.toml", data_dir=str(tmp_path / "no"))
    line = start_refused(config)
    assert f"{tmp_path / 'no'} is not formatted" in line
    assert "pidkeeper storage format" in line
    assert not (tmp_path / "no").exists()


@pytest.mark.parametrize("kept", [1, 23, 25, -1])
@pytest.mark.parametrize("zero_filled", [False, True], ids=["cut", "zeroed"])
def test_a_log_cut_within_its_last_batch_opens(cluster: LocalCluster, kept: int, zero_filled: bool) -> None:
    last = allocate_blocks(cluster, 3)
    victim = followers(cluster, cluster.leader())[0]
    wait_until(lambda: quorum(victim)["next_producer_id"] > last, "the follower to hold the newest block")
    cluster.kill(victim)
    newest = segments(victim)[-1]
    data = newest.read_bytes()
    begin, end = batch_offsets(data)[-1], len(data.rstrip(b"\0"))
    cut = begin + kept if kept >= 0 else end + kept
    assert begin < cut < end, f"{cut} is not within {begin} to {end}"
    newest.write_bytes(data[:cut] + bytes(len(data) - cut if zero_filled else 0))
    said = len(log_of(cluster, victim))
    bring_back(cluster)
    assert f"was torn at byte {begin} and was never acknowledged" in log_of(cluster, victim)[said:]
    (copy,) = newest.parent.glob(f"{newest.name}.{begin}.broken")
    assert copy.read_bytes() == data[:cut].rstrip(b"\0")
    assert metrics(victim)["pidkeeper_raft_recovering"] == 0
    assert allocate_blocks(cluster, 1) > last
    wait_until(lambda: quorum(victim)["next_producer_id"] > last, "the follower to hold what it lost")


def test_a_flipped_bit_in_an_earlier_batch_refuses_to_start(cluster: LocalCluster, tmp_path: Path) -> None:
    last = allocate_blocks(cluster, 30)
    victim = followers(cluster, cluster.leader())[0]
    wait_until(lambda: quorum(victim)["next_producer_id"] > last, "the follower to hold the newest block")
    cluster.kill(victim)
    newest = segments(victim)[-1]
    data = bytearray(newest.read_bytes())
    batches = batch_offsets(data)
    assert len(batches) >= 4, f"only batches at {batches}"
    begin = batches[len(batches) // 2]
    data[begin + 40] ^= 0x10
    newest.write_bytes(data)
    cluster.start(victim)
    assert exit_code(cluster, victim) == 1
    line = log_of(cluster, victim).splitlines()[-1]
    place = re.search(r"segment (\S+), byte offset (\d+), log index (\d+)", line)
    assert place is not None, line
    assert place[1] == newest.name
    assert begin <= int(place[2]) <= begin + 40
    assert int(place[3]) > 0
    assert "move its data directory away, format a new one" in line
    assert newest.read_bytes() == data, "a refused log is left as it is"
    # The remedy that it names.
    shutil.move(victim.data_dir, tmp_path / "away")
    bring_back(cluster)
    assert allocate_blocks(cluster, 1) > last
