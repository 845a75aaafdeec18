"""What `pidkeeper storage verify` says of a directory that is whole, torn or damaged."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from pidkeeper.cli.storage import storage
from pidkeeper.controller.raft.messages import Entry, HardState
from pidkeeper.controller.storage.archive import AllocationArchive
from pidkeeper.controller.storage.directory import format_directory
from pidkeeper.controller.storage.founding import Founding, FoundingVoter, write_founding
from pidkeeper.controller.storage.wal import WriteAheadLog
from pidkeeper.disk.files import OsFiles
from pidkeeper.protocol.messages import AllocatedBlock
from pidkeeper.protocol.records import LeaderChangeRecord, encode_batch
from pidkeeper.snapshots.catalog import SnapshotCatalog
from pidkeeper.snapshots.image import StateImage


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A member's directory with three batches in its log, one snapshot and one archive file."""
    files, path = OsFiles(), tmp_path / "member"
    meta = format_directory(files, path, "c", 1)
    write_founding(files, path, Founding.of([FoundingVoter(one, "h:1", "http://h") for one in (1, 2)]))
    wal, _ = WriteAheadLog.open(files, path / "wal", meta, segment_bytes=1 << 20)
    for index in (1, 2, 3):
        wal.append([Entry(1, index, encode_batch([LeaderChangeRecord(1)]))], HardState(1, 1, index - 1))
    wal.close()
    SnapshotCatalog(files, path / "snapshots", "c").save(StateImage(1, 2, 1, 2, 0, None, []))
    AllocationArchive(files, path / "archive", "c").append([AllocatedBlock(0, 9, 1, 0, 1, 0)], 0, 2)
    return path


def run(directory: Path) -> Result:
    return CliRunner().invoke(storage, ["verify", "--dir", str(directory), "--output", "json"])


def test_a_whole_directory(directory: Path) -> None:
    before = {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}
    result = run(directory)
    assert result.exit_code == 0
    findings = json.loads(result.stdout)["items"]
    assert [finding["problem"] for finding in findings] == [None] * 5
    notes = ["cluster c, node 1", "voters [1, 2]", "3 entries to index 3", "", "1 blocks"]
    assert [finding["note"] for finding in findings] == notes
    assert {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()} == before


def flip(path: Path, offset: int) -> None:
    data = bytearray(path.read_bytes())
    data[offset] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("pattern", "offset", "message"),
    [
        ("wal/*.wal", 300, "the log is corrupt: segment"),
        ("snapshots/*.snap", -1, "snapshot-00000000000000000002"),
        ("archive/*.arc", -1, "checksum"),
        ("meta.json", 0, "is malformed"),
        ("founding.json", 0, "is malformed"),
    ],
)
def test_damage_is_named(directory: Path, pattern: str, offset: int, message: str) -> None:
    (path,) = directory.glob(pattern)
    flip(path, offset)
    result = run(directory)
    assert result.exit_code == 1
    assert "damaged: " in result.stderr
    problems = [finding["problem"] for finding in json.loads(result.stdout)["items"] if finding["problem"] is not None]
    assert len(problems) == 1
    assert message in problems[0]


def test_a_directory_that_is_not_formatted(tmp_path: Path) -> None:
    result = run(tmp_path)
    assert result.exit_code == 1
    assert "is not formatted" in result.stdout
