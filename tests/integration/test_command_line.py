"""The command line against real members: exit codes, and one clear line for what the caller did wrong."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from pidkeeper.cli.local_cluster import LocalCluster
from tests.support.cluster import config_of, followers, pidkeeper, quorum, wait_until

NOBODY = "http://127.0.0.1:1"


def refused_line(*arguments: str | Path, code: int) -> str:
    """Run a command that must fail with `code` and say why on the last line, without a stack trace."""
    result = pidkeeper(*arguments)
    assert result.returncode == code, result
    assert "Traceback" not in result.stderr
    return result.stderr.splitlines()[-1]


@pytest.mark.parametrize("kind", ["controller", "agent"])
def test_a_configuration_key_that_does_not_exist_is_named(healthy: LocalCluster, tmp_path: Path, kind: str) -> None:
    member = healthy.layout.controllers[0] if kind == "controller" else healthy.layout.agents[0]
    settings = msgspec.toml.decode(config_of(healthy, member).read_bytes())
    config = tmp_path / "c.toml"
    config.write_bytes(msgspec.toml.encode(settings | {"heartbeet": 1}))
    line = refused_line(kind, "run", "--config", config, code=2)
    assert "heartbeet" in line
    assert "known" in line
    assert "http_listen" in line


@pytest.mark.parametrize("kind", ["controller", "agent"])
@pytest.mark.parametrize("content", [None, b"= not toml", b""], ids=["missing", "no-toml", "empty"])
def test_an_unusable_configuration_file_is_named(kind: str, content: bytes | None, tmp_path: Path) -> None:
    config = tmp_path / "c.toml"
    if content is not None:
        config.write_bytes(content)
    line = refused_line(kind, "run", "--config", config, code=2)
    assert str(config) in line or "missing required field" in line


@pytest.mark.parametrize("key", ["http_listen", "peer_listen"])
def test_a_controllers_port_in_use_is_named(healthy: LocalCluster, tmp_path: Path, key: str) -> None:
    member = healthy.layout.controllers[0]
    settings = msgspec.toml.decode(config_of(healthy, member).read_bytes())
    changes = {"data_dir": str(tmp_path / "data"), "http_listen": "127.0.0.1:0", "peer_listen": "127.0.0.1:0"}
    config = tmp_path / "c.toml"
    config.write_bytes(msgspec.toml.encode(settings | changes | {key: settings[key]}))
    assert pidkeeper("storage", "format", "--config", config).returncode == 0
    line = refused_line("controller", "run", "--config", config, code=1)
    assert settings[key] in line
    assert "in use" in line


@pytest.mark.parametrize("key", ["http_listen", "kafka_listen"])
def test_an_agents_port_in_use_is_named(healthy: LocalCluster, tmp_path: Path, key: str) -> None:
    settings = msgspec.toml.decode(config_of(healthy, healthy.layout.agents[0]).read_bytes())
    changes = {"broker_id": 8, "http_listen": "127.0.0.1:0", "kafka_listen": "127.0.0.1:0"}
    config = tmp_path / "c.toml"
    config.write_bytes(msgspec.toml.encode(settings | changes | {key: settings[key]}))
    line = refused_line("agent", "run", "--config", config, code=1)
    assert key in line
    assert settings[key] in line
    assert "in use" in line


def test_a_healthy_cluster_is_described(healthy: LocalCluster) -> None:
    described = pidkeeper("quorum", "describe", "--output", "json", "--cluster", healthy.directory)
    assert described.returncode == 0, described
    description = json.loads(described.stdout)
    leader = healthy.leader()
    assert (description["leader_id"], description["leader_http"]) == (leader.id, leader.http)
    assert description["cluster_id"] == healthy.layout.cluster_id
    assert (description["failure_tolerance"], description["healthy"], description["reasons"]) == (1, True, [])
    assert [voter["lag"] for voter in description["voters"]] == [0, 0, 0]
    healthy_now = pidkeeper("health", "--cluster", healthy.directory)
    assert (healthy_now.returncode, healthy_now.stdout) == (0, "healthy\n")


def test_ids_are_allocated_listed_and_owned(healthy: LocalCluster) -> None:
    cluster = ("--cluster", healthy.directory, "--output", "json")
    allocated = pidkeeper("ids", "allocate", "--broker", "60", "--blocks", "3", *cluster)
    blocks = json.loads(allocated.stdout)
    assert len(blocks) == 3
    first, size = blocks[0]["producer_id_start"], blocks[0]["producer_id_len"]
    for producer_id in (first, first + size - 1):
        owner = json.loads(pidkeeper("ids", "owner", str(producer_id), *cluster).stdout)
        assert (owner["broker_id"], owner["first"], owner["last"]) == (60, first, first + size - 1)
    listed = json.loads(pidkeeper("ids", "list", "--after", str(first - 1), "--limit", "3", *cluster).stdout)
    assert [block["first"] for block in listed["blocks"]] == [block["producer_id_start"] for block in blocks]


def test_an_id_that_nobody_was_given_is_refused_with_5(healthy: LocalCluster) -> None:
    line = refused_line("ids", "owner", str(2**62), "--cluster", healthy.directory, code=5)
    assert str(2**62) in line


@pytest.mark.parametrize("command", [("quorum", "describe"), ("health",), ("ids", "owner", "5"), ("ids", "list")])
def test_nobody_to_ask_is_3(command: tuple[str, ...]) -> None:
    assert NOBODY in refused_line(*command, "--controllers", NOBODY, "--timeout", "0.2", code=3)


def test_one_dead_member_is_unhealthy_with_the_reason(healthy: LocalCluster) -> None:
    leader = healthy.leader()
    dead, alive = followers(healthy, leader)
    healthy.kill(dead)
    wait_until(lambda: not quorum(leader)["healthy"], "the leader to miss a follower")
    verdict = pidkeeper("health", "--cluster", healthy.directory)
    assert (verdict.returncode, verdict.stdout) == (10, f"unhealthy: voter {dead.id} is unreachable or recovering\n")
    described = pidkeeper("quorum", "describe", "--output", "json", "--cluster", healthy.directory)
    assert described.returncode == 10
    assert json.loads(described.stdout)["failure_tolerance"] == 0
    # The second one takes the leader along: it steps down for want of a majority.
    healthy.kill(alive)
    wait_until(lambda: quorum(leader)["role"] != "leader", "the last member to step down")
    verdict = pidkeeper("health", "--cluster", healthy.directory)
    assert (verdict.returncode, verdict.stdout) == (10, "unhealthy: no leader is known\n")
    assert pidkeeper("quorum", "describe", "--cluster", healthy.directory).returncode == 10
