"""`--watch`: what is printed again and again, and what ends it."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator

import click
import pytest
import yaml
from click.testing import CliRunner, Result

from pidkeeper.cli.failures import CommandError, ExitCode, NobodyError
from pidkeeper.cli.main import COMMANDS, LazyGroup, cli
from pidkeeper.cli.output import TABLE, output_option, print_document
from pidkeeper.cli.watch import watch_option

WATCHED = {
    "quorum describe",
    "agents list",
    "brokers list",
    "ids list",
    "topics describe",
    "groups list",
    "groups describe",
    "topics list",
    "transactions list",
    "migrate zookeeper status",
    "health",
}


@pytest.fixture
def naps(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long was slept; somebody presses Ctrl-C in the third pause."""
    slept: list[float] = []
    watching, really = threading.get_ident(), time.sleep

    def sleep(seconds: float) -> None:
        # Threads that other tests have left, as that of Spark's gateway, sleep by the same name.
        if threading.get_ident() != watching:
            really(seconds)
            return
        slept.append(seconds)
        if len(slept) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", sleep)
    return slept


def run(look: Callable[[int], None], *arguments: str) -> Result:
    """A command that prints which look it is, and then does what `look` does."""
    looks: list[int] = []

    @click.command()
    @output_option
    @watch_option
    def show(output: str) -> None:
        looks.append(len(looks) + 1)
        if output == TABLE:
            click.echo(f"look {looks[-1]}")
        else:
            print_document({"look": looks[-1], "text": "a  b"}, output)
        look(looks[-1])

    return CliRunner().invoke(show, [*arguments])


def nothing(_: int) -> None:
    """All is well."""


def test_without_it_a_command_runs_once(naps: list[float]) -> None:
    assert run(nothing).output == "look 1\n"
    assert naps == []


def test_in_a_pipe_json_is_one_document_a_line(naps: list[float]) -> None:
    result = run(nothing, "--watch", "0.5", "-o", "json")
    assert [json.loads(line) for line in result.stdout.splitlines()] == [
        {"schema_version": 1, "look": number, "text": "a  b"} for number in (1, 2, 3)
    ]
    assert naps == [0.5] * 3
    assert isinstance(result.exception, SystemExit), "interrupted"


def test_in_a_pipe_yaml_documents_can_be_told_apart(naps: list[float]) -> None:
    result = run(nothing, "--watch", "-o", "yaml")
    assert [one["look"] for one in yaml.safe_load_all(result.stdout)] == [1, 2, 3]
    assert naps == [2.0] * 3


def test_in_a_pipe_tables_follow_each_other_with_their_times(naps: list[float]) -> None:
    lines = run(nothing, "--watch").stdout.splitlines()
    assert lines[1::3] == ["look 1", "look 2", "look 3"]
    assert all(line.endswith("Z") and line[4] == "-" for line in lines[::3])


@pytest.mark.parametrize(
    "passing",
    [
        click.exceptions.Exit(ExitCode.UNHEALTHY),
        NobodyError("nobody answers"),
        NobodyError("nobody answers", misnamed=True),
    ],
    ids=["unhealthy", "unreachable", "a name that does not resolve for a while"],
)
def test_what_may_pass_by_itself_ends_nothing(naps: list[float], passing: Exception) -> None:
    def look(number: int) -> None:
        if number == 2:
            raise passing

    result = run(look, "--watch", "-o", "json")
    assert [json.loads(line)["look"] for line in result.stdout.splitlines()] == [1, 2, 3]
    assert ("nobody answers" in result.stderr) == isinstance(passing, CommandError)


@pytest.mark.parametrize("code", [ExitCode.NOT_AUTHORISED, ExitCode.REFUSED, ExitCode.FAILED, ExitCode.USAGE])
def test_what_stays_as_it_is_ends_it(naps: list[float], code: ExitCode) -> None:
    def look(number: int) -> None:
        raise CommandError("no", code)

    result = run(look, "--watch")
    assert (result.exit_code, naps) == (code, [])
    assert "Error: no" in result.stderr


@pytest.mark.parametrize("seconds", ["0", "-1", "x", "nan"])
def test_what_is_no_pause_is_a_usage_error(seconds: str) -> None:
    assert run(nothing, "--watch", seconds).exit_code == ExitCode.USAGE


def test_what_prints_the_facts_of_a_cluster_can_be_watched() -> None:
    def walk(command: click.Command, path: str) -> Iterator[str]:
        if isinstance(command, click.Group):
            context = click.Context(command)
            for name in list(COMMANDS) if isinstance(command, LazyGroup) else command.list_commands(context):
                found = command.get_command(context, name)
                assert found is not None
                yield from walk(found, f"{path} {name}".strip())
        elif any(option.name == "watch" and option.metavar == "[SECONDS]" for option in command.params):
            yield path

    assert set(walk(cli, "")) == WATCHED
