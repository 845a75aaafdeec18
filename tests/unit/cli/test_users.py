"""`pidkeeper users` and `pidkeeper acls`: files that agents read again, whatever becomes of a command."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from pidkeeper.broker_agent.security.user_list import UserList
from pidkeeper.cli.main import cli
from pidkeeper.cli.users import MAX_PASSWORD_CHARACTERS


def run(*arguments: str | Path, typed: str | None = None) -> Result:
    return CliRunner().invoke(cli, [*map(str, arguments)], input=typed)


def test_a_password_is_printed_once_and_what_is_kept_of_it_is_enough(tmp_path: Path) -> None:
    file = tmp_path / "users"
    made = run("users", "create", file, "--name", "alice")
    given = run("users", "create", file, "--name", "bob", "--password-file", "-", typed="pencil\n")
    assert (made.exit_code, given.exit_code, given.output) == (0, 0, "")
    password = made.output.strip()
    assert password not in file.read_text()
    known = UserList(str(file))
    for name, secret in (("alice", password), ("bob", "pencil")):
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
            user = known.find(name, mechanism)
            assert user is not None
            assert user.verifier.matches(secret)
    listed = json.loads(run("users", "list", file, "-o", "json").output)["items"]
    assert [(one["name"], one["mechanism"], one["iterations"]) for one in listed] == [
        ("alice", "SCRAM-SHA-256", 8192),
        ("alice", "SCRAM-SHA-512", 8192),
        ("bob", "SCRAM-SHA-256", 8192),
        ("bob", "SCRAM-SHA-512", 8192),
    ]


def test_a_new_password_takes_the_place_of_the_old_one(tmp_path: Path) -> None:
    file = tmp_path / "users"
    run("users", "create", file, "--name", "alice")
    one = ["--mechanism", "SCRAM-SHA-512", "--iterations", "4096", "--password-file", "-"]
    assert run("users", "create", file, "--name", "alice", *one, typed="brush").exit_code == 0
    known = UserList(str(file))
    assert known.find("alice", "SCRAM-SHA-256") is None
    user = known.find("alice", "SCRAM-SHA-512")
    assert user is not None
    assert user.verifier.matches("brush")
    assert run("users", "delete", file, "--name", "alice").output == "deleted alice\n"
    assert file.read_text() == ""


def test_comments_owner_and_mode_stay(tmp_path: Path) -> None:
    file = tmp_path / "users"
    run("users", "create", file, "--name", "alice")
    assert stat.S_IMODE(file.stat().st_mode) & 0o007 == 0
    file.write_text("# those of the shop\n" + file.read_text())
    file.chmod(0o644)
    assert run("users", "create", file, "--name", "bob").exit_code == 0
    assert stat.S_IMODE(file.stat().st_mode) == 0o644
    assert [line.split()[0] for line in file.read_text().splitlines()] == ["#", "alice", "alice", "bob", "bob"]


@pytest.mark.parametrize(
    "typed", ["", "\n", "two\nlines", "\u00fcber", "tab\tbed", "x" * (MAX_PASSWORD_CHARACTERS + 1)]
)
def test_what_clients_would_not_agree_about_is_no_password(tmp_path: Path, typed: str) -> None:
    made = run("users", "create", tmp_path / "users", "--name", "al", "--password-file", "-", typed=typed)
    assert (made.exit_code, "printable characters of ASCII" in made.output) == (2, True)
    assert not (tmp_path / "users").exists()


@pytest.mark.parametrize(
    ("arguments", "code", "reason"),
    [
        (["users", "create", "{dir}/users", "--name", "a b"], 2, "others than letters"),
        (["users", "create", "{dir}/users", "--name", "a", "--iterations", "4095"], 2, "not in the range"),
        (["users", "create", "{dir}/none/users", "--name", "a"], 1, "No such file"),
        (["users", "delete", "{dir}/users", "--name", "nobody"], 5, "has no user 'nobody'"),
        (["users", "list", "{dir}/none"], 1, "cannot read"),
        (["users", "list", "{dir}/acls"], 1, "must be NAME and a verifier"),
        (["acls", "remove", "{dir}/acls", "deny", "--principal", "a", "--transactional-id", "b"], 5, "has no rule"),
        (["acls", "add", "{dir}/acls", "allow", "--principal", "", "--transactional-id", "b"], 2, "is empty"),
        (["acls", "add", "{dir}/acls", "allow", "--principal", "a", "--transactional-id", "b\nallow"], 2, "be printed"),
        (["acls", "list", "{dir}/users"], 1, "must be allow"),
        (
            ["acls", "add", "{dir}/acls", "allow", "--principal", "a"],
            2,
            "--topic and --group",
        ),
        (
            [
                "acls",
                "add",
                "{dir}/acls",
                "allow",
                "--principal",
                "a",
                "--transactional-id",
                "b",
                "--operation",
                "read",
            ],
            2,
            "is of a --topic",
        ),
        (["acls", "add", "{dir}/acls", "allow", "--principal", "a", "--topic", "\n"], 2, "be printed"),
    ],
)
def test_what_cannot_be_changes_nothing(tmp_path: Path, arguments: list[str], code: int, reason: str) -> None:
    run("users", "create", tmp_path / "users", "--name", "alice")
    run("acls", "add", tmp_path / "acls", "allow", "--principal", "alice", "--transactional-id", "shop-*")
    before = [(tmp_path / name).read_bytes() for name in ("users", "acls")]
    ran = run(*(argument.format(dir=tmp_path) for argument in arguments))
    assert (ran.exit_code, reason in ran.output) == (code, True), ran.output
    assert [(tmp_path / name).read_bytes() for name in ("users", "acls")] == before


def test_rules_are_added_once_tried_out_and_removed(tmp_path: Path) -> None:
    file = tmp_path / "acls"
    rule = ["--principal", "producer shop", "--transactional-id", "shop-*"]
    for _ in range(2):
        assert run("acls", "add", file, "allow", *rule).output == (
            "added allow 'producer shop' transactional-id 'shop-*'\n"
        )
    listed = json.loads(run("acls", "list", file, "-o", "json").output)["items"]
    assert listed == [
        {"effect": "allow", "principal": "producer shop", "resource": "transactional-id", "pattern": "shop-*"}
    ]
    checks = [
        run("acls", "check", file, "--principal", "producer shop", "--transactional-id", name)
        for name in ("shop-1", "x")
    ]
    assert [check.exit_code for check in checks] == [0, 1]
    assert checks[1].output == "producer shop may not use transactional id x\n"
    assert run("acls", "remove", file, "allow", *rule).exit_code == 0
    assert file.read_text() == ""


def test_rules_for_topics(tmp_path: Path) -> None:
    file = tmp_path / "acls"
    run("acls", "add", file, "allow", "--principal", "alice", "--topic", "own*")
    run("acls", "add", file, "allow", "--principal", "alice", "--topic", "in", "--operation", "read")
    listed = json.loads(run("acls", "list", file, "-o", "json").output)["items"]
    assert [(one["resource"], one["pattern"]) for one in listed] == [("topic", "own*"), ("topic-read", "in")]

    def check(topic: str, *operation: str) -> tuple[int, str]:
        told = run("acls", "check", file, "--principal", "alice", "--topic", topic, *operation)
        return told.exit_code, told.output

    assert check("own-1") == (0, "alice may do everything with topic own-1\n")
    assert check("in") == (1, "alice may not do everything with topic in\n")
    assert check("in", "--operation", "describe") == (0, "alice may describe topic in\n")
    assert check("in", "--operation", "write") == (1, "alice may not write topic in\n")
    run("acls", "remove", file, "allow", "--principal", "alice", "--topic", "in", "--operation", "read")
    assert check("in", "--operation", "read")[0] == 1


def test_rules_for_groups(tmp_path: Path) -> None:
    file = tmp_path / "acls"
    run("acls", "add", file, "allow", "--principal", "alice", "--group", "own*")
    run("acls", "add", file, "allow", "--principal", "alice", "--group", "in", "--operation", "read")
    assert file.read_text() == "allow alice group 'own*'\nallow alice group-read in\n"

    def check(group: str, *operation: str) -> tuple[int, str]:
        told = run("acls", "check", file, "--principal", "alice", "--group", group, *operation)
        return told.exit_code, told.output

    assert check("own-1") == (0, "alice may do everything with group own-1\n")
    assert check("in") == (1, "alice may not do everything with group in\n")
    assert check("in", "--operation", "describe") == (0, "alice may describe group in\n")
    assert check("in", "--operation", "delete") == (1, "alice may not delete group in\n")
    refused = run("acls", "check", file, "--principal", "alice", "--group", "in", "--operation", "write")
    assert (refused.exit_code, "nobody can write a group" in refused.output) == (2, True)
