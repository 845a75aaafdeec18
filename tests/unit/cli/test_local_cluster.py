"""The layout of a local cluster; nothing here starts a process."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from pidkeeper.broker_agent.config import load_config as load_agent_config
from pidkeeper.cli import local_cluster
from pidkeeper.cli.failures import CommandError, ExitCode
from pidkeeper.cli.local_cluster import Layout, LocalCluster, free_ports, member_name
from pidkeeper.cli.main import cli
from pidkeeper.controller.config import load_config


def write_layout(cluster: LocalCluster) -> None:
    """What `start` leaves behind."""
    (cluster.directory / "cluster.json").write_bytes(msgspec.json.encode(cluster.layout))


def test_every_member_has_ports_of_its_own(tmp_path: Path) -> None:
    layout = LocalCluster(tmp_path / "new", controllers=5, agents=3).layout
    addresses = [a for c in layout.controllers for a in (c.http.removeprefix("http://"), c.peer)]
    addresses += [a for agent in layout.agents for a in (agent.http.removeprefix("http://"), agent.kafka)]
    addresses += [c.kafka for c in layout.controllers if c.kafka is not None]
    assert len(set(addresses)) == 21
    assert all(address.startswith("127.0.0.1:") for address in addresses)
    assert [c.id for c in layout.controllers] == [1, 2, 3, 4, 5]
    assert [a.id for a in layout.agents] == [1, 2, 3]


def test_ports_from_a_base(tmp_path: Path) -> None:
    layout = LocalCluster(tmp_path, controllers=1, agents=1, base_port=20_000).layout
    assert (layout.controllers[0].http, layout.controllers[0].peer) == ("http://127.0.0.1:20000", "127.0.0.1:20001")
    assert (layout.agents[0].http, layout.agents[0].kafka) == ("http://127.0.0.1:20002", "127.0.0.1:20003")
    assert layout.controllers[0].kafka == "127.0.0.1:20004"


def test_two_clusters_are_two_clusters(tmp_path: Path) -> None:
    one, other = LocalCluster(tmp_path / "a").layout, LocalCluster(tmp_path / "b").layout
    assert one.cluster_id != other.cluster_id


def test_the_configurations_are_what_the_members_read(tmp_path: Path) -> None:
    cluster = LocalCluster(
        tmp_path, controller_options={"snapshot_entries": 50}, agent_options={"controllers": ["http://127.0.0.1:9"]}
    )
    for controller in cluster.layout.controllers:
        settings = load_config(cluster._write_config(controller), {}).member_settings()
        assert settings.node_id == controller.id
        assert settings.data_dir == controller.data_dir
        assert settings.snapshot_entries == 50
        assert [voter.http for voter in settings.voters] == [c.http for c in cluster.layout.controllers]
        assert str(settings.peer_listen) == controller.peer
        assert settings.peer_keys == ((tmp_path / "config" / "peer-key").read_bytes().strip(),)
    for agent in cluster.layout.agents:
        config = load_agent_config(cluster._write_config(agent), environment={})
        assert config.broker_id == agent.id
        assert list(config.controllers) == ["http://127.0.0.1:9"]


def test_a_second_run_resumes_the_same_cluster(tmp_path: Path) -> None:
    first = LocalCluster(tmp_path, controllers=3, agents=1)
    write_layout(first)
    again = LocalCluster(tmp_path, controllers=1, agents=5, base_port=30_000)
    assert again.layout == first.layout


def test_cluster_json_is_what_others_build_on(tmp_path: Path) -> None:
    cluster = LocalCluster(tmp_path)
    write_layout(cluster)
    document = json.loads((tmp_path / "cluster.json").read_text())
    assert set(document) == {"cluster_id", "controllers", "agents", "to_found"}
    assert set(document["controllers"][0]) >= {"id", "http", "peer", "pid", "data_dir"}
    assert set(document["agents"][0]) == {"id", "http", "kafka", "pid"}
    assert msgspec.convert(document, Layout) == cluster.layout


def test_who_reads_cluster_json_while_it_is_written_meets_it_whole(tmp_path: Path) -> None:
    """`dev` writes it again for every member that it starts again."""
    cluster = LocalCluster(tmp_path)
    cluster.layout.controllers.clear()
    cluster.layout.agents.clear()
    cluster.start()
    before = (tmp_path / "cluster.json").open("rb")
    cluster.layout.zookeeper = "127.0.0.1:2181/other"
    cluster.start()
    with before:
        assert msgspec.json.decode(before.read(), type=Layout).zookeeper is None, "it was written in place"
    assert msgspec.json.decode((tmp_path / "cluster.json").read_bytes(), type=Layout) == cluster.layout


@pytest.mark.parametrize("content", ["", "{}", '{"cluster_id": 5, "controllers": [], "agents": []}'])
def test_a_directory_of_something_else_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "cluster.json").write_text(content)
    with pytest.raises(CommandError, match=r"cluster.json does not describe a cluster: .*use another --dir"):
        LocalCluster(tmp_path)
    assert (tmp_path / "cluster.json").read_text() == content


def test_what_was_not_started_is_dead_and_not_ready(tmp_path: Path) -> None:
    cluster = LocalCluster(tmp_path, controllers=1, agents=1)
    with pytest.raises(CommandError, match=r"controller-1 ended while starting:\n\(no log\)"):
        cluster.wait_ready(seconds=0.05)
    cluster.layout.to_found = None
    assert cluster.dead() == cluster.members()
    assert not any(cluster.running(member) or cluster.ready(member) for member in cluster.members())
    (tmp_path / "logs" / "controller-1.log").write_text("".join(f"line {n}\n" for n in range(40)))
    with pytest.raises(CommandError, match=r"controller-1 ended while starting:\nline 25\n") as failed:
        cluster.wait_ready()
    assert "line 39" in str(failed.value)
    with pytest.raises(CommandError, match=r"no controller leads after 0\.05 s"):
        cluster.leader(seconds=0.05)
    assert cluster.log_end(cluster.layout.agents[0]) == "(no log)"
    assert cluster.stop() == {}


def test_names(tmp_path: Path) -> None:
    cluster = LocalCluster(tmp_path, controllers=1, agents=1)
    assert [member_name(member) for member in cluster.members()] == ["controller-1", "agent-1"]


def test_a_controller_that_is_added_is_a_learner_of_the_others(tmp_path: Path) -> None:
    cluster = LocalCluster(tmp_path)
    added = cluster.add_controller()
    assert (added.id, added.learner) == (4, True)
    settings = load_config(cluster._write_config(added), {}).member_settings()
    assert ([voter.id for voter in settings.voters], settings.learner is not None) == ([1, 2, 3], True)
    first = load_config(cluster._write_config(cluster.layout.controllers[0]), {}).member_settings()
    assert ([voter.id for voter in first.voters], first.learner) == ([1, 2, 3], None)
    write_layout(cluster)
    assert LocalCluster(tmp_path).layout == cluster.layout


def test_a_controller_that_is_added_takes_no_port_of_one_that_does_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = LocalCluster(tmp_path / "c")
    others = cluster.ports()
    assert len(others) == 3 * 3 + 2 * 2
    spare = free_ports(3, others)
    monkeypatch.setattr(local_cluster, "LISTEN_PORTS", [*others, *spare])
    cluster.add_controller()
    assert cluster.ports() - others == set(spare)


def test_a_cluster_that_begins_in_zookeeper_goes_on_with_it(tmp_path: Path) -> None:
    connect = "127.0.0.1:2181/rehearsal"
    first = LocalCluster(tmp_path, zookeeper=connect)
    write_layout(first)
    for again in (LocalCluster(tmp_path), LocalCluster(tmp_path, zookeeper=connect)):
        assert again.layout == first.layout
        settings = load_config(again._write_config(again.layout.controllers[0]), {}).member_settings()
        assert (settings.bridge, settings.zookeeper and settings.zookeeper.connect) == (True, connect)
    with pytest.raises(CommandError, match=r"created with ZooKeeper at .*/rehearsal, not with other:1: ") as refused:
        LocalCluster(tmp_path, zookeeper="other:1")
    assert refused.value.exit_code == ExitCode.REFUSED


def test_a_cluster_that_began_without_zookeeper_does_not_get_one(tmp_path: Path) -> None:
    first = LocalCluster(tmp_path)
    write_layout(first)
    settings = load_config(first._write_config(first.layout.controllers[0]), {}).member_settings()
    assert (settings.bridge, settings.zookeeper) == (False, None)
    with pytest.raises(CommandError, match="was created without ZooKeeper, not with z:2181: use another --dir"):
        LocalCluster(tmp_path, zookeeper="z:2181")


def test_dev_refuses_what_is_no_connect_string(tmp_path: Path) -> None:
    result = CliRunner().invoke(cli, ["dev", "--dir", str(tmp_path / "new"), "--zookeeper", "z:21:81"])
    assert (result.exit_code, "'z:21:81' is not host:port,host:port/chroot" in result.output) == (ExitCode.USAGE, True)
    assert not (tmp_path / "new").exists()
