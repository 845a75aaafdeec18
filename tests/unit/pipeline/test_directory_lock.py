"""Two commands of an audit do not write to one directory at a time, and one command may have it for two purposes."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pidkeeper.cli.audit_session import held
from pidkeeper.pipeline.directory_lock import InUseError, locked, same_directory

REPOSITORY = Path(__file__).resolve().parents[3]
HOLD = (
    "import pathlib, sys\n"
    "from cli.audit_session import held\n"
    "with held(out=pathlib.Path(sys.argv[1])):\n"
    "    print('held', flush=True)\n"
    "    sys.stdin.read()\n"
)


@pytest.fixture
def other(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process, which holds `one`."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path / "one")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=REPOSITORY,
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_two_processes_cannot_hold_one_directory(tmp_path: Path, other: subprocess.Popen[str]) -> None:
    one = tmp_path / "one"
    for place, option in ((one, "--out"), (f"file://{one}/", "--state")):
        with (
            pytest.raises(InUseError, match=f"{one} is in use: another .* writes there; .* or name another {option}"),
            locked(place, option),
        ):
            pytest.fail("it is held")
    with locked(tmp_path / "two", "--out"), locked("hdfs://host/one", "--out"):
        pass
    other.kill()
    other.communicate(timeout=60)
    for _ in range(2):
        with locked(one, "--out"):
            pass


def test_a_file_system_without_locks_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(OSError, match=f"{tmp_path} cannot be locked .*No locks.*--out"), locked(tmp_path, "--out"):
        pytest.fail("it is not held")


def test_output_and_state_are_held_both_and_let_go(tmp_path: Path) -> None:
    out, state = tmp_path / "out", tmp_path / "out" / "state"
    with held(out=out, state=state):
        for place in (out, state):
            with pytest.raises(InUseError), locked(place, "--out"):
                pytest.fail("it is held")
    with pytest.raises(ZeroDivisionError), held(out=out, state=state):
        raise ZeroDivisionError
    with locked(state, "--state"):
        with pytest.raises(InUseError, match="another --state"), held(out=out, state=state):
            pytest.fail("its state is held")
        with locked(out, "--out"):
            pass
    with held(), held(out=out), held(state=state):
        pass


def test_a_directory_that_is_output_and_state_is_locked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    out = tmp_path / "out"
    (tmp_path / "link").symlink_to(out)
    for state in (out, Path("out"), tmp_path / "link", tmp_path / "x" / ".." / "out", f"file://{out}/"):
        assert same_directory(out, state)
        with held(out=out, state=state), pytest.raises(InUseError), locked(out, "--out"):
            pytest.fail("it is held")
    assert not same_directory("hdfs://host/out", "hdfs://host/out"), "neither is of this machine"
    assert not same_directory(out, "s3a://bucket/out")
