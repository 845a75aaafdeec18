"""The command line as a whole: commands, exit codes, and failures without stack traces."""

from __future__ import annotations

import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from pidkeeper.cli import main as main_module
from pidkeeper.cli.failures import CommandError, ExitCode
from pidkeeper.cli.main import COMMANDS, LazyGroup, cli, main
from pidkeeper.controller.storage.directory import format_directory
from pidkeeper.controller.storage.founding import Founding, FoundingVoter, write_founding
from pidkeeper.disk.files import OsFiles

HEAVY = [
    "asyncio",
    "aiohttp",
    "rich",
    "http.client",
    "aiokafka",
    "pidkeeper.cli.dev",
    "pidkeeper.cli.ids",
    "pidkeeper.cli.transactions",
    "pidkeeper.cli.migrate",
]


def run(*arguments: str) -> Any:
    return CliRunner().invoke(cli, list(arguments))


def exit_code(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> object:
    """What the process would exit with."""
    monkeypatch.setattr(sys, "argv", ["pidkeeper", *arguments])
    with pytest.raises(SystemExit) as end:
        main()
    return end.value.code


def raising(action: Callable[[], object]) -> type[LazyGroup]:
    """A group whose every command does `action`."""

    class Group(LazyGroup):
        def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
            return click.Command(cmd_name, callback=action)

    return Group


def test_help_names_every_command_with_its_summary() -> None:
    result = run("--help")
    assert result.exit_code == 0
    for name, (_, summary) in COMMANDS.items():
        assert f"  {name} " in result.output
        assert summary.split(":")[0] in " ".join(result.output.split())


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(name: str) -> None:
    result = run(name, "--help")
    assert result.exit_code == 0, result.output
    assert result.output.startswith("Usage: ")


def test_help_imports_no_command() -> None:
    code = (
        "import sys; from pidkeeper.cli.main import cli; cli.main(['--help'], standalone_mode=False); "
        f"sys.exit(', '.join(name for name in {HEAVY!r} if name in sys.modules) or 0)"
    )
    result = subprocess.run(
        [sys.executable, "-c", code],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
        cwd=Path(main_module.__file__).parents[1],
    )
    assert result.stderr == ""
    assert result.returncode == 0


def test_the_version_is_that_of_the_distribution() -> None:
    result = run("--version")
    assert result.exit_code == 0
    assert "0.1.0" in result.output


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--help"], ExitCode.GOOD),
        (["no-such-command"], ExitCode.USAGE),
        (["ids", "owner", "minus-one"], ExitCode.USAGE),
        (["ids", "owner", "-5"], ExitCode.USAGE),
        (["ids", "owner", str(2**63)], ExitCode.USAGE),
        (["ids", "list", "--controllers", "ftp://x"], ExitCode.USAGE),
        (["ids", "list", "--output", "xml"], ExitCode.USAGE),
        (["controller", "run", "--config", "/nonexistent.toml"], ExitCode.USAGE),
        (["storage", "format", "--dir", "/nonexistent", "--node-id", "1"], ExitCode.USAGE),
        (["health", "-c", "http://127.0.0.1:1", "--timeout", "0.05"], ExitCode.UNREACHABLE),
        (["ids", "list", "-c", "http://127.0.0.1:1", "--timeout", "0.05"], ExitCode.UNREACHABLE),
        (["transactions", "list", "-c", "http://127.0.0.1:1", "--timeout", "0.05"], ExitCode.UNREACHABLE),
        (["transactions", "list", "--state", "Dead"], ExitCode.USAGE),
        (["transactions", "abort", "tx", "--producer-id", "5"], ExitCode.USAGE),
        (["transactions", "abort", "tx", "--producer-epoch", "5"], ExitCode.USAGE),
        (["transactions", "describe"], ExitCode.USAGE),
        (["transactions", "find-hanging", "--max-transaction-timeout", "-1"], ExitCode.USAGE),
        (["storage", "info", "--dir", "/nonexistent"], ExitCode.FAILED),
    ],
)
def test_exit_codes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str], code: ExitCode
) -> None:
    assert exit_code(monkeypatch, *arguments) == code
    captured = capsys.readouterr()
    assert "Traceback" not in captured.err
    assert bool(captured.err) == (code != ExitCode.GOOD)
    assert code == ExitCode.GOOD or captured.out == ""


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (CommandError("no", ExitCode.REFUSED), 5, "Error: no"),
        (CommandError("no"), 1, "Error: no"),
        (click.exceptions.Exit(10), 10, ""),
        (click.Abort(), 130, "interrupted"),
        (KeyboardInterrupt(), 130, "interrupted"),
    ],
)
def test_how_commands_end(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: BaseException, code: int, said: str
) -> None:
    def action() -> None:
        raise error

    monkeypatch.setattr(main_module, "cli", raising(action)("pidkeeper"))
    assert exit_code(monkeypatch, "anything") == code
    captured = capsys.readouterr()
    assert captured.err.strip() == said
    assert captured.out == ""


def test_a_command_that_returns_something_has_succeeded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(main_module, "cli", raising(lambda: "a value")("pidkeeper"))
    assert exit_code(monkeypatch, "anything") == 0


def test_the_exit_codes_are_the_documented_ones() -> None:
    assert {code.name: code.value for code in ExitCode} == {
        "GOOD": 0,
        "FAILED": 1,
        "USAGE": 2,
        "UNREACHABLE": 3,
        "NOT_AUTHORISED": 4,
        "REFUSED": 5,
        "INCOMPLETE": 6,
        "UNHEALTHY": 10,
        "INTERRUPTED": 130,
    }


def test_storage_is_formatted_once(tmp_path: Path) -> None:
    options = ["storage", "format", "--dir", str(tmp_path / "d"), "--cluster-id", "c", "--node-id", "1"]
    (tmp_path / "d").mkdir()
    assert run(*options).exit_code == 0
    again = run(*options)
    assert again.exit_code == ExitCode.REFUSED
    assert "is formatted already" in again.output
    assert run(*options, "--if-needed", "-o", "json").exit_code == 0
    info = run("storage", "info", "--dir", str(tmp_path / "d"), "-o", "json")
    assert info.exit_code == 0
    assert '"cluster_id": "c"' in info.output
    assert '"founding": null' in info.output
    write_founding(OsFiles(), tmp_path / "d", Founding.of([FoundingVoter(one, "h:1", "http://h") for one in (3, 1)]))
    assert "FoundingVoters  1, 3" in run("storage", "info", "--dir", str(tmp_path / "d")).output


def test_a_directory_that_is_left_takes_the_place_of_its_quorum(tmp_path: Path) -> None:
    directory, lost = tmp_path / "data", uuid.uuid4()
    format_directory(OsFiles(), directory, "c", 1)
    recover = ["storage", "recover", "--dir", str(directory), "--at-least", "5000"]
    refused = run(*recover)
    assert refused.exit_code == ExitCode.REFUSED
    assert f"{directory} is blank: there is nothing to recover from" in refused.output
    write_founding(OsFiles(), directory, Founding.of([FoundingVoter(1, "h:1", "http://h")], lost))
    for options, told in (
        (["--dry-run"], "Nothing was changed (--dry-run)"),
        ([], "Done. Next:\n1. start member 1\n"),
        ([], "Done before, nothing was changed. Next:"),
        (["--dry-run"], "Nothing was changed (--dry-run)"),
    ):
        recovered = run(*recover, *options)
        assert recovered.exit_code == 0, recovered.output
        for line in (f"Predecessor  {lost}", "KnownNextId  0", "FirstId      5000", "Skipped      5000", told):
            assert line in recovered.output, line
    assert f"Predecessor     {lost}" in run("storage", "info", "--dir", str(directory)).output


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ([], "name what is left"),
        (["--dir", "d", "--voters", "1"], "name what is left"),
        (["--dir", "d", "--config", "c"], "name what is left"),
        (["--dir", "d", "--predecessor", str(uuid.UUID(int=1))], "--predecessor goes with --voters"),
        (["--voters", "1;2"], "'1;2' is no list of ids like 1,2,3"),
    ],
)
def test_a_recovery_names_what_is_left_in_one_way(given: list[str], told: str) -> None:
    answer = run("storage", "recover", "--at-least", "5", *given)
    assert answer.exit_code == ExitCode.USAGE
    assert told in answer.output


def test_options_that_the_environment_sets_say_so() -> None:
    shown = " ".join(run("agents", "list", "--help").output.split())
    context = click.Context(cli)
    found = {
        (option.name, option.envvar)
        for name in COMMANDS
        for command in _leaves(cli.get_command(context, name))
        for option in command.params
        if option.envvar is not None
    }
    assert {name for name, _ in found} == {
        *("controllers", "cluster", "token_file", "ca_file", "certificate_file", "key_file", "urls")
    }
    for _, variable in found:
        assert f"[env var: {variable}]" in shown


def _leaves(command: click.Command | None) -> Iterator[click.Command]:
    assert command is not None
    if not isinstance(command, click.Group):
        yield command
        return
    for one in command.commands.values():
        yield from _leaves(one)


def test_the_environment_says_which_controllers_to_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIDKEEPER_CONTROLLERS", "http://127.0.0.1:1")
    assert "http://127.0.0.1:1" in run("health", "--timeout", "0.1").output
