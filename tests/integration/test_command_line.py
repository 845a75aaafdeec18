"""The command line against real members: exit codes, and one clear line for what the caller did wrong."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from pidkeeper.cli.controllers import AN_AGENT
from pidkeeper.cli.local_cluster import LocalCluster
from pidkeeper.cli.main import cli
from pidkeeper.cli.output import SCHEMA_VERSION
from tests.support.cluster import (
    REPOSITORY,
    WAIT_SECONDS,
    allocate,
    assert_healthy,
    bring_back,
    config_of,
    followers,
    log_of,
    pidkeeper,
    quorum,
    wait_until,
)
from tests.support.http_calls import call
from tests.support.terminal_program import CTRL_C, TerminalProgram

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


@pytest.mark.parametrize("key", ["http_listen", "kafka_listen", "peer_listen"])
def test_a_controllers_port_in_use_is_named(healthy: LocalCluster, tmp_path: Path, key: str) -> None:
    member = healthy.layout.controllers[0]
    settings = msgspec.toml.decode(config_of(healthy, member).read_bytes())
    listeners = dict.fromkeys(("http_listen", "kafka_listen", "peer_listen"), "127.0.0.1:0")
    changes = {"data_dir": str(tmp_path / "data"), **listeners}
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
    assert_healthy(healthy)
    described = pidkeeper("quorum", "describe", "--output", "json", "--cluster", healthy.directory)
    assert described.returncode == 0, described
    description = json.loads(described.stdout)
    leader = healthy.leader()
    assert (description["leader_id"], description["leader_http"]) == (leader.id, leader.http)
    assert description["cluster_id"] == healthy.layout.cluster_id
    assert (description["failure_tolerance"], description["healthy"], description["reasons"]) == (1, True, [])
    assert [voter["lag"] for voter in description["voters"]] == [0, 0, 0]


def test_ids_are_allocated_listed_and_owned(healthy: LocalCluster) -> None:
    cluster = ("--cluster", healthy.directory, "--output", "json")
    allocated = pidkeeper("ids", "allocate", "--broker", "60", "--blocks", "3", *cluster)
    blocks = json.loads(allocated.stdout)["items"]
    assert len(blocks) == 3
    first, size = blocks[0]["producer_id_start"], blocks[0]["producer_id_len"]
    for producer_id in (first, first + size - 1):
        owner = json.loads(pidkeeper("ids", "owner", str(producer_id), *cluster).stdout)
        assert (owner["broker_id"], owner["first"], owner["last"]) == (60, first, first + size - 1)
    listed = json.loads(pidkeeper("ids", "list", "--after", str(first - 1), "--limit", "3", *cluster).stdout)
    assert [block["first"] for block in listed["blocks"]] == [block["producer_id_start"] for block in blocks]


def test_an_id_without_an_owner_is_refused_with_5_and_why(healthy: LocalCluster) -> None:
    ask = ("ids", "owner")
    by = ("--cluster", healthy.directory)
    following = quorum(healthy.leader())["next_producer_id"]
    line = refused_line(*ask, str(2**62), *by, code=5)
    assert f"{2**62} is not handed out yet: the next one is {following}" in line
    raised = pidkeeper("ids", "raise-floor", "--yes", str(following + 5000), *by)
    assert raised.returncode == 0, raised
    line = refused_line(*ask, str(following + 4999), *by, code=5)
    assert f"it was skipped when the floor was raised to {following + 5000} (at " in line


def test_a_fenced_broker_gets_nothing_under_its_old_epoch_and_registers_anew(healthy: LocalCluster) -> None:
    by = ("--cluster", healthy.directory)
    (agent,) = healthy.layout.agents

    def epochs() -> dict[int, int]:
        listed = json.loads(pidkeeper("brokers", "list", *by, "-o", "json").stdout)["items"]
        return {one["broker_id"]: one["broker_epoch"] for one in listed}

    before = epochs()[agent.id]
    fenced = json.loads(pidkeeper("brokers", "fence", str(agent.id), *by, "-o", "json").stdout)
    assert (fenced["broker_id"], fenced["broker_epoch"]) == (agent.id, before)
    refusal = allocate(healthy.leader(), agent.id, before).json()["code"]
    assert refusal in {"BROKER_ID_NOT_REGISTERED", "STALE_BROKER_EPOCH"}
    wait_until(lambda: epochs().get(agent.id, 0) > before, "the agent to register anew")
    assert allocate(healthy.leader(), agent.id, before).json()["code"] == "STALE_BROKER_EPOCH"
    line = refused_line("brokers", "fence", str(agent.id), "--epoch", str(before), *by, code=5)
    assert f"not {before}: nothing was changed" in line
    assert f"orders fence_broker: id={agent.id}" in log_of(healthy, healthy.leader())


def test_the_agents_are_shown_with_what_they_say_themselves(healthy: LocalCluster) -> None:
    (agent,) = healthy.layout.agents
    listed = pidkeeper("agents", "list", "--cluster", healthy.directory)
    assert listed.returncode == 0, listed
    (row,) = [line.split() for line in listed.stdout.splitlines()[2:] if line.split()[0] == str(agent.id)]
    assert (row[1], row[-1]) == ("ready", agent.http)
    controllers = ",".join(one.http for one in healthy.layout.controllers)
    described = pidkeeper("agents", "describe", str(agent.id), "-c", controllers, "--agents", agent.http)
    assert described.returncode == 0, described
    assert f"Kafka        {agent.kafka}" in described.stdout
    assert AN_AGENT in refused_line("health", "-c", agent.http, code=4)


def test_watching_shows_each_state_in_the_place_of_the_one_before(healthy: LocalCluster) -> None:
    arguments = ["-m", "pidkeeper.cli", "brokers", "list", "--watch", "0.2", "--cluster", str(healthy.directory)]
    watching = TerminalProgram(arguments, REPOSITORY, {**os.environ, "TERM": "xterm"})
    try:
        watching.wait_for(r"(?s)every 0\.2 s: .*brokers list.*\x1b\[1A.*every 0\.2 s", WAIT_SECONDS)
        watching.press(CTRL_C)
        assert watching.wait(WAIT_SECONDS) == 130
        assert "interrupted" in watching.screen
        assert "Traceback" not in watching.screen
    finally:
        watching.close()


def test_watching_goes_on_while_nobody_leads(healthy: LocalCluster, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pidkeeper.cli", "health", "--watch", "0.1", "--timeout", "1", "-o", "json"]
    with (tmp_path / "out").open("wb") as out, (tmp_path / "err").open("wb") as err:
        watching = subprocess.Popen(
            [*command, "--cluster", str(healthy.directory)], stdout=out, stderr=err, cwd=REPOSITORY
        )

    def told(number: int) -> list[bool]:
        """Whether the quorum was healthy, from the look of this number on."""
        lines = (tmp_path / "out").read_text().splitlines(keepends=True)
        return [json.loads(line)["healthy"] for line in lines if line.endswith("\n")][number:]

    try:
        wait_until(lambda: True in told(0), "a healthy quorum")
        healthy.kill(*healthy.layout.controllers)
        wait_until(lambda: "no controller answers" in (tmp_path / "err").read_text(), "that nobody answers")
        seen = len(told(0))
        bring_back(healthy)
        wait_until(lambda: told(seen)[-1:] == [True], "a healthy quorum again")
        watching.send_signal(signal.SIGINT)
        assert watching.wait(WAIT_SECONDS) == 130
        assert "Traceback" not in (tmp_path / "err").read_text()
    finally:
        watching.kill()
        watching.wait()


DOCUMENTS = Path(__file__).resolve().parents[1] / "golden" / "documents.json"
"""The fields of what commands print for programs, as dotted paths. They are there until SCHEMA_VERSION rises."""


def fields_of(value: object, path: str = "") -> set[str]:
    if isinstance(value, dict):
        paths = {name: f"{path}.{name}".lstrip(".") for name in value}
        return set(paths.values()).union(*(fields_of(value[name], inner) for name, inner in paths.items()))
    if isinstance(value, list):
        return set().union(*(fields_of(inner, f"{path}[]") for inner in value))
    return set()


def test_the_documents_for_programs_have_the_fields_that_they_had(healthy: LocalCluster, tmp_path: Path) -> None:
    broker = pidkeeper("ids", "allocate", "--broker", "61", "--cluster", healthy.directory)
    assert broker.returncode == 0, broker
    asked = ["--cluster", str(healthy.directory)]
    read = ["--dir", healthy.layout.controllers[0].data_dir]
    first = broker.stdout.splitlines()[2].split()[0]
    tokens = str(tmp_path / "tokens")
    assert CliRunner().invoke(cli, ["tokens", "create", tokens, "--name", "a", "--role", "viewer"]).exit_code == 0
    begin = {"transactional_id": "documents", "transaction_timeout_ms": 60_000}
    pair = call(healthy.layout.agents[0].http, "POST", "/v1/init-producer-id", begin)
    assert pair.status == 200
    blank = str(tmp_path / "blank")
    commands = {
        "quorum describe": asked,
        "health": asked,
        "ids allocate": ["--broker", "61", *asked],
        "ids list": ["--limit", "1", *asked],
        "ids owner": [first, *asked],
        "ids raise-floor": ["0", "--yes", *asked],
        "brokers list": asked,
        "brokers fence": ["61", *asked],
        "agents list": asked,
        "agents describe": ["1", *asked],
        "topics create": ["documents", "--partitions", "2", *asked],
        "topics list": asked,
        "topics describe": ["documents", *asked],
        "groups reset-offsets": ["documents", "--topic", "documents", "--to-earliest", "--execute", *asked],
        "groups list": asked,
        "groups describe": ["documents", *asked],
        "groups delete-offsets": ["documents", "--topic", "documents:1", "--yes", *asked],
        "groups delete": ["documents", "--yes", *asked],
        "topics delete": ["documents", "--yes", *asked],
        "transactions list": asked,
        "transactions describe": ["documents", *asked],
        "storage format": ["--dir", blank, "--cluster-id", "c", "--node-id", "1"],
        "storage info": read,
        "storage verify": read,
        "snapshot list": read,
        "tokens list": [tokens],
    }
    found = {}
    for command, arguments in commands.items():
        printed = CliRunner().invoke(cli, [*command.split(), *arguments, "-o", "json"])
        assert printed.exit_code == 0, (command, printed.output)
        document = json.loads(printed.stdout)
        assert document["schema_version"] == SCHEMA_VERSION
        found[command] = sorted(fields_of(document))
    assert found == json.loads(DOCUMENTS.read_text()), "a field that is new is added there, one that is there stays"


@pytest.mark.parametrize("command", [("quorum", "describe"), ("health",), ("ids", "owner", "5"), ("ids", "list")])
def test_nobody_to_ask_is_3(command: tuple[str, ...]) -> None:
    assert NOBODY in refused_line(*command, "--controllers", NOBODY, "--timeout", "0.2", code=3)


def test_one_dead_member_is_unhealthy_with_the_reason(healthy: LocalCluster) -> None:
    leader = healthy.leader()
    dead, alive = followers(healthy, leader)
    healthy.kill(dead)
    wait_until(lambda: not quorum(leader)["healthy"], "the leader to miss a follower")
    verdict = pidkeeper("health", "--cluster", healthy.directory)
    assert verdict.returncode == 10
    assert f"voter {dead.id} is unreachable or recovering" in verdict.stdout
    described = pidkeeper("quorum", "describe", "--output", "json", "--cluster", healthy.directory)
    assert described.returncode == 10
    assert json.loads(described.stdout)["failure_tolerance"] == 0
    # The second one takes the leader along: it steps down for want of a majority.
    healthy.kill(alive)
    wait_until(lambda: quorum(leader)["role"] != "leader", "the last member to step down")
    verdict = pidkeeper("health", "--cluster", healthy.directory)
    assert (verdict.returncode, verdict.stdout) == (10, "unhealthy: no leader is known\n")
    assert pidkeeper("quorum", "describe", "--cluster", healthy.directory).returncode == 10
