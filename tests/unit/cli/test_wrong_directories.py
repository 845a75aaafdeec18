"""Every command that takes a directory or a file, with each kind of wrong one: a reason, a code, and no stack trace."""

from __future__ import annotations

import contextlib
import encodings.idna  # noqa: F401 - what is loaded when it is needed cannot be by who is nobody
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import click
import pyarrow.compute  # noqa: F401
import pytest

import pidkeeper.broker_agent.server
import pidkeeper.controller.server  # noqa: F401
from pidkeeper.cli.failures import ExitCode
from pidkeeper.cli.main import cli, main
from pidkeeper.controller.raft.messages import Entry, HardState
from pidkeeper.controller.storage.archive import AllocationArchive
from pidkeeper.controller.storage.directory import format_directory
from pidkeeper.controller.storage.wal import WriteAheadLog
from pidkeeper.disk.files import OsFiles
from pidkeeper.protocol.messages import AllocatedBlock
from pidkeeper.protocol.records import LeaderChangeRecord, encode_batch
from pidkeeper.snapshots.catalog import SnapshotCatalog
from pidkeeper.snapshots.image import StateImage

NOBODY: Final = 65534
"""The user that a privileged test run becomes to be refused something."""


def missing(path: Path) -> None:
    """Nothing is there."""


def a_file(path: Path) -> None:
    path.write_bytes(b"these are \xff no settings and no data\n")


def empty_file(path: Path) -> None:
    path.touch()


def empty(path: Path) -> None:
    path.mkdir()


def of_kafka(path: Path) -> None:
    """The log directory of a broker."""
    (path / "topic-0").mkdir(parents=True)
    (path / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=abc\n")
    (path / "topic-0" / "00000000000000000000.log").write_bytes(b"\0" * 61)


def of_a_member(path: Path) -> None:
    """A member of another cluster, with a log, a snapshot and an archive."""
    files = OsFiles()
    meta = format_directory(files, path, "elsewhere", 7)
    wal, _ = WriteAheadLog.open(files, path / "wal", meta, segment_bytes=1 << 16)
    wal.append([Entry(1, 1, encode_batch([LeaderChangeRecord(1)]))], HardState(1, 1, 0))
    wal.close()
    SnapshotCatalog(files, path / "snapshots", "elsewhere").save(StateImage(1, 2, 1, 2, 10, None, []))
    AllocationArchive(files, path / "archive", "elsewhere").append([AllocatedBlock(0, 9, 1, 0, 1, 0)], 0, 2)


def truncated(path: Path) -> None:
    """The same, but each of its files is cut within its first bytes."""
    of_a_member(path)
    for file in path.rglob("*"):
        if file.is_file():
            os.truncate(file, min(40, file.stat().st_size // 2))


def files_for_folders(path: Path) -> None:
    """The same, but a file has taken the place of each folder in it."""
    of_a_member(path)
    for folder in [child for child in path.iterdir() if child.is_dir()]:
        shutil.rmtree(folder)
        folder.touch()


def folders_for_files(path: Path) -> None:
    """The same, but a folder has taken the place of each file in it."""
    of_a_member(path)
    for file in [child for child in path.rglob("*") if child.is_file()]:
        file.unlink()
        file.mkdir()


def unreadable(path: Path) -> None:
    of_a_member(path)
    path.chmod(0)


def unreadable_file(path: Path) -> None:
    path.write_text("secret")
    path.chmod(0)


Make = Callable[[Path], None]
DIRECTORIES: Final[tuple[Make, ...]] = (
    missing,
    a_file,
    empty,
    of_kafka,
    truncated,
    files_for_folders,
    folders_for_files,
    unreadable,
)
FILES: Final[tuple[Make, ...]] = (missing, a_file, empty_file, empty, unreadable_file)
RULE: Final = ("allow", "--principal", "a", "--transactional-id", "b")
NOWHERE: Final = ("-c", "http://127.0.0.1:1", "--out", "{out}")
AUDIT: Final = ("--out", "{out}", "--engine", "local")

COMMANDS: Final[dict[str, tuple[tuple[str, ...], tuple[Make, ...]]]] = {
    "dev --dir": (("--agents", "0", "--dir", "{place}"), (a_file, of_kafka, of_a_member, unreadable)),
    "demo --keep": (("--keep", "{place}"), (a_file, of_kafka, of_a_member, unreadable)),
    "controller run --config": (("--config", "{place}"), FILES),
    "controller config --config": (("--config", "{place}"), FILES),
    "agent run --config": (("--config", "{place}"), FILES),
    "agent config --config": (("--config", "{place}"), FILES),
    "storage format --config": (("--config", "{place}"), FILES),
    "storage format --dir": (
        ("--cluster-id", "c", "--node-id", "1", "--dir", "{place}"),
        (a_file, of_kafka, of_a_member, truncated, files_for_folders, folders_for_files, unreadable),
    ),
    "storage info --config": (("--config", "{place}"), FILES),
    "storage info --dir": (
        ("--dir", "{place}"),
        (missing, a_file, empty, of_kafka, truncated, folders_for_files, unreadable),
    ),
    "storage backup --dir": (("--to", "{out}", "--dir", "{place}"), DIRECTORIES),
    "storage backup --to": (("--dir", "{member}", "--to", "{place}"), (a_file, of_kafka, of_a_member, unreadable)),
    "storage recover --config": (("--at-least", "5", "--config", "{place}"), FILES),
    "storage recover --dir": (("--at-least", "5", "--dir", "{place}"), DIRECTORIES),
    "storage verify --dir": (("--dir", "{place}"), DIRECTORIES),
    "ids owner --dir": (("5000", "--dir", "{place}"), DIRECTORIES),
    "log dump --dir": (("--dir", "{place}"), DIRECTORIES),
    "groups reset-offsets --password-file": (
        ("g", "--topic", "t", "--to-latest", "--user", "u", "--password-file", "{place}"),
        (missing, empty_file, empty, unreadable_file),
    ),
    "log read --password-file": (
        ("t", "--user", "u", "--password-file", "{place}"),
        (missing, empty_file, empty, unreadable_file),
    ),
    "snapshot list --dir": (("--dir", "{place}"), (missing, a_file, empty, of_kafka, files_for_folders, unreadable)),
    "snapshot verify --dir": (("--dir", "{place}"), DIRECTORIES),
    "snapshot inspect file": (("{place}",), FILES),
    "tokens create file": (("{place}", "--name", "a", "--role", "viewer"), (a_file, empty, unreadable_file)),
    "tokens list file": (("{place}",), (missing, a_file, empty, unreadable_file)),
    "tokens revoke file": (("{place}", "--name", "a"), FILES),
    "users create file": (("{place}", "--name", "a"), (a_file, empty, unreadable_file)),
    "users list file": (("{place}",), (missing, a_file, empty, unreadable_file)),
    "users delete file": (("{place}", "--name", "a"), FILES),
    "acls add file": (("{place}", *RULE), (a_file, empty, unreadable_file)),
    "acls list file": (("{place}",), (missing, a_file, empty, unreadable_file)),
    "acls remove file": (("{place}", *RULE), FILES),
    "acls check file": (("{place}", *RULE[1:]), (missing, a_file, empty, unreadable_file)),
    "certs dev --dir": (("--cluster-id", "c", "--dir", "{place}"), (a_file, unreadable)),
    "archive ship directories": (("{place}", "--to", "{out}"), DIRECTORIES),
    "archive ship --to": (("{member}", "--to", "{place}"), (a_file, unreadable)),
    "debug bundle --config": (("--config", "{place}", *NOWHERE), FILES),
    "debug bundle --log": (("--log", "{place}", *NOWHERE), (missing, empty, unreadable_file)),
    "debug bundle --dir": (("--dir", "{place}", *NOWHERE), (missing, a_file, unreadable)),
    "debug bundle --out": (("-c", "http://127.0.0.1:1", "--out", "{place}"), (a_file, empty, unreadable_file)),
    "audit run data": (("{place}", *AUDIT), DIRECTORIES),
    "audit run --cluster": (("--cluster", "{place}", *AUDIT), (*DIRECTORIES, of_a_member)),
    "audit run --segments": (("--segments", "{place}", *AUDIT), (missing, empty, unreadable)),
    "audit run --out": (("{member}", "--engine", "local", "--out", "{place}"), (a_file, unreadable)),
    "audit stream data": (("--once", "{place}", *AUDIT), DIRECTORIES),
    "audit stream --cluster": (("--once", "--cluster", "{place}", *AUDIT), (*DIRECTORIES, of_a_member)),
    "audit stream --segments": (("--once", "--segments", "{place}", *AUDIT), (missing, empty, unreadable)),
    "audit stream --out": (("--once", "{member}", "--engine", "local", "--out", "{place}"), (a_file, unreadable)),
    "audit report --out": (("--out", "{place}"), DIRECTORIES),
    "audit owner --out": (("5", "--out", "{place}"), DIRECTORIES),
    "audit floor data": (("{place}",), DIRECTORIES),
    "audit floor --cluster": (("--cluster", "{place}"), (*DIRECTORIES, of_a_member)),
    "audit floor --segments": (("--segments", "{place}"), (missing, empty, unreadable)),
}
"""By command and parameter: how it is called, and what is wrong for it."""

PLACES_OR_URIS: Final = {
    *("archive ship target", "audit run data", "audit run segments", "audit stream data", "audit stream segments"),
    *("audit floor data", "audit floor segments"),
}
"""Parameters that are texts for click, because they may be globs or URIs."""

ASKING: Final = ("cluster", "token_file", "ca_file", "certificate_file", "key_file")
"""Parameters of all commands that ask controllers, which `health` stands for."""
for _option in ASKING:
    name = f"--{_option.replace('_', '-')}"
    COMMANDS[f"health {name}"] = (
        (name, "{place}", *(("-c", "https://127.0.0.1:1") if _option != "cluster" else ())),
        (missing, empty, unreadable_file, a_file),
    )
CASES = [(call, make) for call, (_, makes) in COMMANDS.items() for make in makes]


def parameters() -> Iterator[str]:
    """Whatever of all commands takes a directory or a file, as COMMANDS names it."""

    def walk(command: click.Command, path: str) -> Iterator[str]:
        if isinstance(command, click.Group):
            context = click.Context(command)
            for name in command.list_commands(context):
                found = command.get_command(context, name)
                assert found is not None
                yield from walk(found, f"{path} {name}".strip())
            return
        asks = {one.name for one in command.params} >= set(ASKING)
        for one in command.params:
            if isinstance(one.type, click.Path) or f"{path} {one.name}" in PLACES_OR_URIS:
                yield f"{'health' if asks and one.name in ASKING else path} {one.opts[0]}"

    return walk(cli, "")


def test_every_parameter_that_takes_a_directory_is_tried() -> None:
    assert set(COMMANDS) == set(parameters())


@contextlib.contextmanager
def an_unprivileged_user() -> Iterator[None]:
    """Be somebody whom the file system refuses something."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def scratch() -> Iterator[Path]:
    """A directory that everybody may write to, which those of pytest are not."""
    with tempfile.TemporaryDirectory(prefix="pidkeeper-wrong-") as name:
        path = Path(name)
        path.chmod(0o777)
        yield path
        for one in path.iterdir():
            one.chmod(0o700)


def ended(monkeypatch: pytest.MonkeyPatch, arguments: list[str]) -> object:
    monkeypatch.setattr(sys, "argv", ["pidkeeper", *arguments])
    with pytest.raises(SystemExit) as end:
        main()
    return end.value.code


def arguments_of(call: str, scratch: Path) -> list[str]:
    """What is typed; {place} is for the test to make."""
    names = {"{place}": str(scratch / "place"), "{out}": str(scratch / "out"), "{member}": str(scratch / "member")}
    if "{member}" in COMMANDS[call][0]:
        of_a_member(scratch / "member")
    return [*call.split()[:-1], *(names.get(text, text) for text in COMMANDS[call][0])]


@pytest.mark.parametrize(("call", "make"), CASES, ids=[f"{call}: {make.__name__}" for call, make in CASES])
def test_a_wrong_directory_is_told_in_a_line(
    call: str, make: Make, scratch: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    make(scratch / "place")
    arguments = arguments_of(call, scratch)
    with an_unprivileged_user() if make in {unreadable, unreadable_file} else contextlib.nullcontext():
        code = ended(monkeypatch, arguments)
    out, err = capsys.readouterr()
    assert code in {1, 2, 5, 6}, (code, out, err)
    assert "Traceback" not in err
    if not call.startswith(("archive", "audit")):
        assert "[Errno" not in err, "a number of the system tells nobody anything"
    if make is unreadable and call.split(maxsplit=1)[0] in {"storage", "ids", "log", "snapshot", "dev"}:
        assert "run this as the user whose files these are" in err, "what to do is told"
    if code == ExitCode.INCOMPLETE:
        assert "incomplete" in out
    else:
        assert "must be given together" in err or "place" in out + err, "what was wrong is named"


@pytest.mark.parametrize("call", ["storage format --dir", "tokens create file", "certs dev --dir", "dev --dir"])
def test_a_full_disk_is_told_in_a_line(
    call: str, scratch: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """No file may grow: that fails where a full disk would, with another number of the same kind."""
    arguments = arguments_of(call, scratch)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
    try:
        code = ended(monkeypatch, arguments)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    _, err = capsys.readouterr()
    assert code in {1, 5}
    assert err.startswith("Error: ")
    assert "File too large" in err
    assert len(err.splitlines()) == 1


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no device that is always full")
def test_what_cannot_be_printed_is_told_in_a_line() -> None:
    command = [sys.executable, "-m", "pidkeeper.cli", "completion", "bash"]
    with Path("/dev/full").open("wb") as full:
        printed = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False, timeout=60)
    assert (printed.returncode, printed.stderr) == (1, "Error: No space left on device\n")
