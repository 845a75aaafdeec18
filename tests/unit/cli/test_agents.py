"""`pidkeeper agents` and `brokers` against servers that answer as the test says: states, and exit codes."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner, Result

from pidkeeper.broker_agent.api.models import AgentStatus
from pidkeeper.cli.failures import ExitCode
from pidkeeper.cli.main import cli
from pidkeeper.protocol.errors import ErrorCode
from pidkeeper.protocol.messages import BrokerDescription, BrokersResponse, FenceBrokerResponse
from tests.unit.cli.test_controllers import NOWHERE, Server, description, problem

KNOWN = BrokerDescription(1, 12, False, "kafka.example:9092", "one", 250)
LIST = ("agents", "list")
DESCRIBE = ("agents", "describe", "1")


def status(broker_id: int = 1, **fields: Any) -> AgentStatus:
    told: dict[str, Any] = {
        "broker_id": broker_id,
        "broker_epoch": 12,
        "cluster_id": "c",
        "founding_id": uuid.UUID(int=1),
        "incarnation_id": "one",
        "ready": True,
        "reasons": [],
        "fenced": False,
        "leader": "http://leader:1",
        "reserve_ids": 4200,
        "reserve_blocks": 5,
        "reserve_target_ids": 5000,
        "highest_held": 9999,
        "claimed": 800,
        "claim_errors": 3,
        "claim_rate": 12.5,
        "blocks_received": 6,
        "version": "9.8.7",
    }
    return AgentStatus(**told | fields)


class Place:
    """A controller that knows some brokers, and agents."""

    def __init__(self) -> None:
        self.servers: list[Server] = []
        self.agents: list[str] = []

    def knows(self, *brokers: BrokerDescription) -> str:
        return self.serve(description(1, leads=True), (200, BrokersResponse(list(brokers))))

    def agent(self, *answers: Any) -> None:
        self.agents.append(self.serve(*answers))

    def serve(self, *answers: Any) -> str:
        self.servers.append(Server(*answers))
        return self.servers[-1].url

    def close(self) -> None:
        for server in self.servers:
            server.close()


@pytest.fixture
def place() -> Iterator[Place]:
    made = Place()
    yield made
    made.close()


def run(command: tuple[str, ...], controller: str, agents: list[str] | None = None) -> Result:
    asked = ["--agents", ",".join(agents)] if agents else []
    return CliRunner().invoke(cli, [*command, "-c", controller, "--timeout", "0.3", *asked])


def items(result: Result) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(result.stdout)["items"]
    return found


def test_an_agent_is_what_the_quorum_and_the_agent_itself_say(place: Place) -> None:
    place.agent((200, status()))
    controller = place.knows(KNOWN)
    shown = run(DESCRIBE, controller, place.agents)
    assert shown.exit_code == 0, shown.output
    for line in (
        "BrokerId     1 ",
        "State        ready",
        f"Http         {place.agents[0]}",
        "Kafka        kafka.example:9092",
        "BrokerEpoch  12",
        "LastContact  0.2 s ago",
        "ReserveIds   4,200 of 5,000, in 5 blocks",
        "Claims/s     12.5",
        "Claimed      800, and 3 refused",
        "Version      9.8.7",
    ):
        assert line in shown.stdout
    (one,) = items(run((*LIST, "-o", "json"), place.knows(KNOWN), place.agents))
    assert one["registration"] == msgspec.to_builtins(KNOWN)
    assert one["status"] == msgspec.to_builtins(status())


@pytest.mark.parametrize(
    ("known", "told", "state", "reason"),
    [
        (KNOWN, status(), "ready", None),
        (KNOWN, status(ready=False, reasons=["the reserve is empty"]), "not ready", "the reserve is empty"),
        (msgspec.structs.replace(KNOWN, fenced=True), status(), "fenced", "fenced"),
        (None, status(), "not registered", "not registered"),
        (KNOWN, None, "registered", None),
        (msgspec.structs.replace(KNOWN, fenced=True), None, "fenced", "fenced"),
    ],
)
def test_the_state_of_an_agent_decides_how_the_command_exits(
    place: Place, known: BrokerDescription | None, told: AgentStatus | None, state: str, reason: str | None
) -> None:
    if told is not None:
        place.agent((200, told))
    listed = run(LIST, place.knows(*([] if known is None else [known])), place.agents)
    assert state in listed.stdout
    assert listed.exit_code == (0 if reason is None else ExitCode.UNHEALTHY)
    assert reason is None or f"broker 1: {state}" in listed.stderr
    assert (reason or "") in listed.stderr


def test_agents_that_go_by_different_files_are_told_of_and_nothing_else_comes_of_it(place: Place) -> None:
    ours, theirs = "0123456789ab", "000000000000"
    brokers = [msgspec.structs.replace(KNOWN, broker_id=number) for number in (1, 2, 3)]
    place.agent((200, status(users_fingerprint=ours, acls_fingerprint=ours)))
    place.agent((200, status(broker_id=2, users_fingerprint=ours, acls_fingerprint=theirs, quotas_fingerprint=theirs)))
    place.agent((200, status(broker_id=3)))
    listed = run(LIST, place.knows(*brokers), place.agents)
    assert listed.exit_code == 0
    assert listed.stderr == f"warning: agents differ in acls_file, by broker: {ours}: 1; no file: 2\n"


def test_an_agent_that_gives_no_answer_is_shown_as_such(place: Place) -> None:
    place.agent((200, status()))
    listed = run(LIST, place.knows(KNOWN), [*place.agents, NOWHERE])
    assert listed.exit_code == ExitCode.UNHEALTHY
    rows = [line.split()[:3] for line in listed.stdout.splitlines()[2:]]
    assert rows == [["1", "ready", "12"], ["-", "no", "answer"]]
    assert NOWHERE in listed.stderr


def test_a_cluster_json_says_whose_agent_gives_no_answer(place: Place, tmp_path: Path) -> None:
    file = {"controllers": [{"id": 1, "http": place.knows(KNOWN)}], "agents": [{"id": 1, "http": NOWHERE}]}
    (tmp_path / "cluster.json").write_text(json.dumps(file))
    (one,) = items(CliRunner().invoke(cli, [*LIST, "--cluster", str(tmp_path), "-o", "json"]))
    assert (one["broker_id"], one["http"], one["status"]) == (1, NOWHERE, None)
    assert NOWHERE in one["problem"]
    assert one["registration"]["broker_epoch"] == 12


def test_a_token_that_an_agent_does_not_take_is_told(place: Place) -> None:
    place.agent(problem(ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
    listed = run(LIST, place.knows(KNOWN), place.agents)
    assert listed.exit_code == ExitCode.UNHEALTHY
    assert "detail of CLUSTER_AUTHORIZATION_FAILED" in listed.stderr


def test_without_controllers_the_agents_still_say_how_they_are(place: Place) -> None:
    place.agent((200, status()))
    listed = run(LIST, NOWHERE, place.agents)
    assert listed.exit_code == ExitCode.UNREACHABLE
    assert "ready" in listed.stdout
    assert "not registered" not in listed.stdout, "nobody knows that"
    assert NOWHERE in listed.stderr
    assert run(LIST, NOWHERE).exit_code == ExitCode.UNREACHABLE


def test_two_processes_of_one_broker_are_both_shown(place: Place) -> None:
    place.agent((200, status(incarnation_id="one")))
    place.agent((200, status(incarnation_id="two")))
    both = run((*DESCRIBE, "-o", "json"), place.knows(KNOWN), place.agents)
    assert {json.loads(line)["status"]["incarnation_id"] for line in both.stdout.splitlines()} == {"one", "two"}


def test_a_broker_that_nobody_knows_is_refused(place: Place) -> None:
    refused = run(("agents", "describe", "7"), place.knows(KNOWN))
    assert refused.exit_code == ExitCode.REFUSED
    assert "broker 7 is not registered" in refused.stderr


def test_brokers_are_listed_as_the_leader_has_them(place: Place) -> None:
    silent = BrokerDescription(2, 15, True, None, "two", None)
    listed = run(("brokers", "list"), place.knows(KNOWN, silent))
    assert listed.exit_code == 0
    assert [line.split() for line in listed.stdout.splitlines()[2:]] == [
        ["1", "12", "no", "kafka.example:9092", "0.2", "s", "ago", "one"],
        ["2", "15", "yes", "-", "-", "two"],
    ]


def test_an_older_controller_tells_less_of_a_broker(place: Place) -> None:
    older = {"brokers": [{"broker_id": 1, "broker_epoch": 12, "fenced": False, "kafka": None}]}
    controller = place.serve(description(1, leads=True), (200, older))
    listed = run(("brokers", "list"), controller)
    assert listed.stdout.splitlines()[2].split() == ["1", "12", "no", "-", "-", "-"]


@pytest.mark.parametrize(("options", "body"), [((), {}), (("--epoch", "12"), {"broker_epoch": 12})])
def test_a_broker_is_fenced(place: Place, options: tuple[str, ...], body: dict[str, int]) -> None:
    controller = place.serve((200, FenceBrokerResponse(1, 12)))
    fenced = run(("brokers", "fence", "1", *options), controller)
    assert fenced.exit_code == 0, fenced.output
    assert "epoch 12 is stale" in fenced.stdout
    ((method, path, sent, _),) = place.servers[-1].asked
    assert (method, path, json.loads(sent)) == ("POST", "/v1/brokers/1/fence", body)
