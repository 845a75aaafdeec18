"""`pidkeeper tokens`: a file that only has hashes, whatever becomes of a command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from pidkeeper.cli.main import cli
from pidkeeper.disk.files import OsFiles
from pidkeeper.service.token_list import TokenList


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli, ["tokens", *map(str, arguments)])


def create(file: Path, name: str, *roles: str) -> str:
    made = run("create", file, "--name", name, *(text for role in roles for text in ("--role", role)))
    assert made.exit_code == 0, made.output
    return made.output.strip()


def test_a_token_is_printed_once_and_good_until_it_is_revoked(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    first, second = (create(file, "seven", "broker:7") for _ in range(2))
    other = create(file, "al", "operator")
    assert len({first, second, other}) == 3
    assert all(token not in file.read_text() for token in (first, second, other))
    listed = json.loads(run("list", file, "-o", "json").output)["items"]
    assert [(one["name"], one["roles"]) for one in listed] == [
        ("seven", ["broker:7"]),
        ("seven", ["broker:7"]),
        ("al", ["operator"]),
    ]
    assert run("revoke", file, "--name", "seven", "--but-the-newest").output == "revoked 1 of 2 tokens of seven\n"
    known = TokenList(str(file))
    assert [known.find(token.encode()) is not None for token in (first, second, other)] == [False, True, True]
    assert run("revoke", file, "--name", "seven").exit_code == 0
    known = TokenList(str(file))
    assert [known.find(token.encode()) is not None for token in (first, second, other)] == [False, False, True]
    assert file.stat().st_mode & 0o007 == 0


@pytest.mark.parametrize(
    ("arguments", "code", "reason"),
    [
        (["create", "{file}", "--name", "a b", "--role", "viewer"], 2, "others than letters"),
        (["create", "{file}", "--name", "a", "--role", "root"], 2, "'root' is none"),
        (["create", "{file}", "--name", "a"], 2, "Missing option '--role'"),
        (["create", "{file}/x", "--name", "a", "--role", "viewer"], 1, "Not a directory"),
        (["revoke", "{file}", "--name", "nobody"], 5, "has no token of 'nobody'"),
        (["revoke", "{file}.none", "--name", "x"], 1, "cannot read"),
        (["list", "{file}.none"], 1, "cannot read"),
    ],
)
def test_what_cannot_be_changes_nothing(tmp_path: Path, arguments: list[str], code: int, reason: str) -> None:
    file = tmp_path / "tokens"
    create(file, "x", "viewer")
    before = file.read_bytes()
    ran = run(*(argument.format(file=file) for argument in arguments))
    assert (ran.exit_code, reason in ran.output) == (code, True), ran.output
    assert file.read_bytes() == before


def test_a_damaged_file_and_one_that_is_being_changed_stay_as_they_are(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_text("nonsense\n")
    ran = run("create", file, "--name", "x", "--role", "viewer")
    assert (ran.exit_code, file.read_text()) == (1, "nonsense\n")
    file.unlink()
    lock = OsFiles().lock(tmp_path / ".tokens.lock")
    ran = run("create", file, "--name", "x", "--role", "viewer")
    OsFiles().close(lock)
    assert ran.exit_code == 5
    assert "is being changed by another command" in ran.output
    assert not file.exists()
