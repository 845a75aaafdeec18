"""`pidkeeper store` against the real HTTP interfaces of a member and of an agent."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from pidkeeper.broker_agent.data.store_report import StoreReport, Tally, UnnamedObjects
from pidkeeper.cli.failures import ExitCode
from pidkeeper.cli.main import cli
from pidkeeper.controller.state.requests import ReleaseCollection
from pidkeeper.protocol.errors import ErrorCode
from tests.support.memory_member import FOUNDING_ID
from tests.support.served_member import ServedMember
from tests.unit.cli.test_controllers import Server, problem

OLD = uuid.UUID(int=5)
DEAD = f"wal/{OLD}/7/5/00000000000000000001"
REPORT = StoreReport(
    founding_id=FOUNDING_ID,
    foundings=[OLD],
    held=True,
    complete=True,
    listed=Tally(1200, 5000),
    unnamed=[
        UnnamedObjects(OLD, True, Tally(1, 70, [DEAD]), Tally()),
        UnnamedObjects(None, True, Tally(2, 9), Tally()),
    ],
    unknown=Tally(1, 3, ["wal/notes"]),
    missing=Tally(1, 4, ["wal/lost"]),
)


@pytest.fixture
def member() -> Iterator[ServedMember]:
    one = ServedMember("store", lambda _: None)
    yield one
    one.close()


@pytest.fixture
def agent() -> Iterator[Server]:
    one = Server((200, REPORT))
    yield one
    one.close()


def report(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["store", "report", *arguments])


def test_a_report_is_printed_with_all_that_is_in_it(agent: Server) -> None:
    result = report("--agent", agent.url)
    assert result.exit_code == 0, result.output
    assert [asked[:2] for asked in agent.asked] == [("GET", "/v1/store/report")]
    lines = [line.split() for line in result.stdout.splitlines()]
    assert ["Founding", str(FOUNDING_ID)] in lines
    assert ["Collected", str(OLD)] in lines
    assert "Held          yes: nothing is deleted before `pidkeeper store release`" in result.stdout
    assert "1,200 of 5,000 bytes" in result.stdout
    assert [str(OLD), "no", "1", "70", "0", "0"] in lines
    assert ["others", "no", "2", "9", "0", "0"] in lines
    for line in (f"dead: {DEAD}", "unknown: wal/notes", "missing: wal/lost"):
        assert line in result.stdout


def test_a_report_is_a_document_for_programs(agent: Server) -> None:
    document = json.loads(report("--agent", agent.url, "-o", "json").stdout)
    assert document["schema_version"] == 1
    assert document["unnamed"][0]["dead"] == {"objects": 1, "bytes": 70, "names": [DEAD]}


def test_one_that_is_not_complete_says_so(agent: Server) -> None:
    agent.answers = [(200, StoreReport(FOUNDING_ID, [], False, False, Tally(), [], Tally(), None))]
    result = report("--agent", agent.url)
    assert "no time to look at everything" in result.stdout
    assert "not found out" in result.stdout


def test_the_next_agent_is_asked_where_one_is_away(agent: Server, tmp_path: Path) -> None:
    agents = [{"id": 1, "http": "http://127.0.0.1:1"}, {"id": 2, "http": agent.url}]
    (tmp_path / "cluster.json").write_text(
        json.dumps({"controllers": [{"id": 1, "http": agent.url}], "agents": agents})
    )
    assert report("--cluster", str(tmp_path)).exit_code == 0
    assert report("--agent", "http://127.0.0.1:1").exit_code == ExitCode.UNREACHABLE


def test_an_agent_has_to_be_named(agent: Server) -> None:
    result = report()
    assert result.exit_code == ExitCode.USAGE
    assert "say which agent" in result.output
    agent.answers = [problem(ErrorCode.RESOURCE_NOT_FOUND)]
    assert report("--agent", agent.url).exit_code == ExitCode.REFUSED


def released(member: ServedMember) -> list[tuple[uuid.UUID, ...]]:
    return [one.foundings for one in member.member.submitted if isinstance(one, ReleaseCollection)]


def test_what_is_released_is_told_before_it_is_asked_for(member: ServedMember, agent: Server) -> None:
    both = ["--founding", str(FOUNDING_ID), "--founding", str(OLD), "--founding", str(OLD)]
    result = member.run("release", *both, "--agent", agent.url, typed="n\n")
    assert result.exit_code != 0
    assert f"will be collected: {OLD}: 1 objects of 70 bytes that no log names" in result.output
    assert f"will be collected: {FOUNDING_ID}: 0 objects" in result.output
    assert released(member) == []
    assert member.run("release", *both, typed="y\n").exit_code == 0
    assert released(member) == [(FOUNDING_ID, OLD)]
    document = member.json("release", "--founding", str(FOUNDING_ID), "--yes")
    assert document == {"foundings": [str(FOUNDING_ID)]}
    assert len(agent.asked) == 1


def test_what_is_collected_no_more_is_told(member: ServedMember) -> None:
    assert member.run("release", "--founding", str(FOUNDING_ID), "--founding", str(OLD), "--yes").exit_code == 0
    result = member.run("release", "--founding", str(FOUNDING_ID), "--yes")
    assert f"will not be collected any more: {OLD}" in result.output


def test_what_cannot_be_released(member: ServedMember) -> None:
    result = member.run("release", "--founding", str(OLD), "--yes")
    assert result.exit_code == ExitCode.REFUSED
    assert "which is not among them" in result.output
    assert member.run("release", "--founding", "x", "--yes").exit_code == ExitCode.USAGE
    many = [word for number in range(65) for word in ("--founding", str(uuid.UUID(int=number)))]
    assert "64 foundings at most" in member.run("release", *many, "--yes").output
    assert member.run("release", "--yes").exit_code == ExitCode.USAGE
