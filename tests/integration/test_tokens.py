"""Tokens with roles: who gets in with which, and how they are changed and revoked under load."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pidkeeper.cli.local_cluster import LocalCluster
from tests.integration.test_peer_keys import Claims
from tests.support.cluster import CONTROLLER_OPTIONS, SOON_ANOTHER, exit_code, log_of, pidkeeper, wait_until
from tests.support.http_calls import call

INIT = "/v1/init-producer-id"


class Tokens:
    """A file of tokens, and what they are."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def create(self, name: str, role: str) -> str:
        made = pidkeeper("tokens", "create", self.file, "--name", name, "--role", role)
        assert made.returncode == 0, made.stderr
        return made.stdout.strip()

    def revoke(self, name: str, *options: str) -> None:
        done = pidkeeper("tokens", "revoke", self.file, "--name", name, *options)
        assert done.returncode == 0, done.stderr


@pytest.fixture
def tokens(tmp_path: Path) -> Tokens:
    return Tokens(tmp_path / "tokens")


@pytest.fixture
def cluster(tmp_path: Path, tokens: Tokens) -> Iterator[LocalCluster]:
    """One controller and the agent of broker 1, whose token is beside the others."""
    operators, own = tmp_path / "operators", tmp_path / "agent"
    operators.write_text("the operators' token")
    own.write_text(tokens.create("agent-1", "broker:1"))
    listed = {"tokens_file": str(tokens.file)}
    cluster = LocalCluster(
        tmp_path / "cluster",
        controllers=1,
        agents=1,
        controller_options=CONTROLLER_OPTIONS | listed | {"operator_token_file": str(operators)},
        agent_options={"token_file": str(own), **SOON_ANOTHER},
    )
    try:
        cluster.start()
        cluster.wait_ready()
        yield cluster
    finally:
        cluster.kill(*[member for member in cluster.members() if cluster.running(member)])


def test_a_token_is_good_for_its_roles_alone(cluster: LocalCluster, tokens: Tokens) -> None:
    (controller,) = cluster.layout.controllers
    roles = ("viewer", "broker:2", "operator")
    known = {role: tokens.create(f"one-{number}", role) for number, role in enumerate(roles)}
    calls = (
        ("GET", "/v1/quorum", None),
        ("POST", "/v1/brokers/2/register", {"incarnation_id": "two"}),
        ("POST", "/v1/brokers/3/register", {"incarnation_id": "three"}),
        ("POST", "/v1/producer-ids/floor", {"at_least": 0}),
    )

    def answers(token: str | None) -> list[int]:
        return [call(controller.http, method, path, body, token=token).status for method, path, body in calls]

    assert answers(None) == answers("wrong") == [401] * 4
    assert answers(known["viewer"]) == [200, 403, 403, 403]
    assert answers(known["broker:2"]) == [200, 200, 403, 403]
    assert answers(known["operator"]) == [200, 200, 200, 200]
    log = log_of(cluster, controller)
    assert log.count("one-2 orders raise_floor: at_least=0") == 1, "who gives orders is told, with their words"
    assert "one-1 orders" not in log
    assert known["operator"] not in log


def test_the_token_of_an_agent_is_changed_under_load_and_then_revoked(cluster: LocalCluster, tokens: Tokens) -> None:
    (agent,) = cluster.layout.agents
    own = Path(cluster.agent_options["token_file"])
    with Claims(agent) as claims:
        own.write_text(tokens.create("agent-1", "broker:1"))
        wait_until(lambda: len(claims.claimed) > 2500, "claims over more than two blocks")
        tokens.revoke("agent-1", "--but-the-newest")
        before = len(claims.claimed)
        wait_until(lambda: len(claims.claimed) > before + 2500, "claims over more than two blocks")
    assert claims.failed == []
    assert cluster.running(agent)
    tokens.revoke("agent-1")
    assert exit_code(cluster, agent) == 4
    assert "a valid bearer token is required" in log_of(cluster, agent)
    assert own.read_text() not in log_of(cluster, agent)


def test_an_agents_own_callers_have_tokens_of_theirs(cluster: LocalCluster, tokens: Tokens) -> None:
    (agent,) = cluster.layout.agents
    cluster.kill(agent)
    app, grafana = tokens.create("app", "producer"), tokens.create("grafana", "viewer")
    cluster.agent_options["tokens_file"] = str(tokens.file)
    cluster.start(agent)
    cluster.wait_ready(agent)
    asked = [
        call(agent.http, "POST", INIT, {"transactional_id": None}, token=token).status for token in (app, grafana, None)
    ]
    assert asked == [200, 403, 401]
    assert call(agent.http, "GET", "/v1/status", token=grafana).status == 200


def test_a_file_of_no_use_is_told_at_the_start(tmp_path: Path) -> None:
    bad = tmp_path / "tokens"
    bad.write_text("alice operator secret\n")
    cluster = LocalCluster(tmp_path / "cluster", controllers=1, agents=0, controller_options={"tokens_file": str(bad)})
    (controller,) = cluster.layout.controllers
    cluster.start(controller)
    assert exit_code(cluster, controller) == 2
    assert f"tokens_file: {bad}, line 1: what follows the roles must be sha256:" in log_of(cluster, controller)
    assert "secret" not in log_of(cluster, controller)
