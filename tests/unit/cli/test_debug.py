"""`pidkeeper debug bundle`: what is in it, what is not, and what becomes of what cannot be had."""

from __future__ import annotations

import json
import stat
import tarfile
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from pidkeeper.cli import debug
from pidkeeper.cli.main import cli

NOBODY = ("-c", "http://127.0.0.1:1")
TOKEN = "t0ps3cret-of-the-members"


def bundle(out: Path, *arguments: str | Path) -> tuple[Result, dict[str, str]]:
    ran = CliRunner().invoke(cli, ["debug", "bundle", *map(str, [*arguments, *NOBODY, "--out", out])])
    if not out.exists():
        return ran, {}
    with tarfile.open(out) as archive:
        files = {entry.name.partition("/")[2]: archive.extractfile(entry) for entry in archive}
        return ran, {name: file.read().decode() for name, file in files.items() if file is not None}


@pytest.fixture
def secrets(tmp_path: Path) -> Path:
    """A configuration whose secrets stand where they should, and where they should not."""
    (tmp_path / "token").write_text(TOKEN + "\n")
    (tmp_path / "c.toml").write_text(
        f'# the token is {TOKEN}\nnode_id = 1\ntoken_file = "{tmp_path}/token"\n'
        'operator_token_file = "typed-here-by-mistake"\n'
        f'users_file = "{tmp_path}/users"\n[zookeeper]\npassword = "another-one"\nconnect = "zk:2181"\n'
    )
    return tmp_path


def test_settings_are_there_without_secrets_and_secrets_are_in_nothing_else(secrets: Path) -> None:
    log = secrets / "c.log"
    log.write_text(
        f"a line with {TOKEN} in it\nAuthorization: Bearer abc.def\nnobody types typed-here-by-mistake\n"
        "-----BEGIN PRIVATE KEY-----\nMIIabc\n-----END PRIVATE KEY-----\nthe end, another-one\n"
    )
    ran, files = bundle(secrets / "b.tar.gz", "--config", secrets / "c.toml", "--log", log)
    assert ran.exit_code == 6, ran.output
    everything = "".join(files.values())
    for secret in (TOKEN, "abc.def", "typed-here", "another-one", "MIIabc"):
        assert secret not in everything
    assert f'token_file = "{secrets}/token"' in files["config/c.toml"]
    assert 'connect = "zk:2181"' in files["config/c.toml"]
    assert f'users_file = "{secrets}/users"' in files["config/c.toml"]
    assert "a line with (left out) in it" in files["logs/c.log"]
    assert files["logs/c.log"].endswith("the end, (left out)\n")
    assert stat.S_IMODE((secrets / "b.tar.gz").stat().st_mode) == 0o600


def test_a_secret_that_is_empty_or_short_is_left_out_where_it_stands_alone(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text('token_file = ""\n[zookeeper]\npassword = "abc"\nconnect = "abc:2181"\n')
    (tmp_path / "c.log").write_text("a line of abc\n")
    _, files = bundle(tmp_path / "b.tar.gz", "--config", tmp_path / "c.toml", "--log", tmp_path / "c.log")
    assert files["logs/c.log"] == "a line of abc\n"
    assert 'password = "(left out)"' in files["config/c.toml"]
    assert 'connect = "abc:2181"' in files["config/c.toml"]


def test_of_a_long_log_the_end_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(debug, "MAX_LOG_BYTES", 10)
    (tmp_path / "a.log").write_text("0123456789abcde")
    _, files = bundle(tmp_path / "b.tar.gz", "--log", tmp_path / "a.log")
    assert files["logs/a.log"] == "56789abcde"


def test_of_a_data_directory_names_and_sizes_are_there(tmp_path: Path) -> None:
    data = tmp_path / "member"
    (data / "wal").mkdir(parents=True)
    (data / "wal" / "1.seg").write_bytes(b"secret blocks")
    _, files = bundle(tmp_path / "b.tar.gz", "--dir", data)
    assert "wal/1.seg\t13\t" in files["data/member.txt"]
    assert "secret blocks" not in "".join(files.values())


def test_what_cannot_be_had_is_told_and_the_rest_is_there(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text("here\n")
    (tmp_path / "bad.toml").write_text("no toml")
    arguments: list[str | Path] = [
        "--log",
        tmp_path / "none.log",
        "--log",
        tmp_path / "a.log",
        "--config",
        tmp_path / "bad.toml",
    ]
    ran, files = bundle(
        tmp_path / "b.tar.gz", *arguments, "--dir", tmp_path / "a.log", "--agents", "http://127.0.0.1:2"
    )
    assert ran.exit_code == 6
    assert files["logs/a.log"] == "here\n"
    problems = json.loads(files["bundle.json"])["problems"]
    hosts = (f"http://127.0.0.1:{port}: " for port in (1, 2))
    for of in ("none.log: No such file", "bad.toml: ", "it is no directory", *hosts):
        assert any(of in problem for problem in problems), of
        assert of in ran.output


def test_files_of_one_name_are_all_there(tmp_path: Path) -> None:
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a.log").write_text(folder)
    _, files = bundle(tmp_path / "b.tar.gz", "--log", tmp_path / "one" / "a.log", "--log", tmp_path / "two" / "a.log")
    assert (files["logs/a.log"], files["logs/a.log.2"]) == ("one", "two")


def test_a_file_that_is_there_is_not_written_over(tmp_path: Path) -> None:
    out = tmp_path / "b.tar.gz"
    out.write_text("mine")
    ran = CliRunner().invoke(cli, ["debug", "bundle", *NOBODY, "--out", str(out)])
    assert (ran.exit_code, "File exists" in ran.output, out.read_text()) == (1, True, "mine")
