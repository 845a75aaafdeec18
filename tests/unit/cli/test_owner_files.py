"""`ids owner --dir` of IDs that nobody has, from the files of a member that need not run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from pidkeeper.cli.main import cli
from pidkeeper.controller.storage.archive import AllocationArchive
from pidkeeper.controller.storage.directory import format_directory
from pidkeeper.disk.files import OsFiles
from pidkeeper.protocol.messages import AllocatedBlock
from pidkeeper.protocol.migration import MigrationPhase, MigrationRecord
from pidkeeper.snapshots.catalog import SnapshotCatalog
from pidkeeper.snapshots.image import StateImage

MIGRATED = MigrationRecord(MigrationPhase.FINALIZED, "pidkeeper/c", -1, 0)
Member = Callable[..., Path]


@pytest.fixture
def member(tmp_path: Path) -> Member:
    """Makes one that gave out 0 to 9 and 20 to 29, and knew 40 as the next ID when it took its snapshot."""

    def make(covered_from: int = 0, migration: MigrationRecord | None = None, snapshot: bool = True) -> Path:
        files, path = OsFiles(), tmp_path / "member"
        format_directory(files, path, "c", 1)
        archive = AllocationArchive(files, path / "archive", "c")
        archive.append([AllocatedBlock(0, 9, 1, 0, covered_from, 0)], covered_from, 10)
        archive.append([AllocatedBlock(20, 29, 1, 0, 10, 0)], 10, 20)
        if snapshot:
            image = StateImage(5, 7, 1, 20, 40, None, [], migration=migration)
            SnapshotCatalog(files, path / "snapshots", "c").save(image)
        return path

    return make


def said(directory: Path, producer_id: int) -> str:
    asked = CliRunner().invoke(cli, ["ids", "owner", str(producer_id), "--dir", str(directory)])
    assert asked.exit_code == 5, asked.output
    return asked.stderr


def test_why_nobody_has_an_id_is_told_as_of_the_newest_snapshot(member: Member) -> None:
    directory = member()
    assert "as of snapshot 7: producer ID 40 is not handed out yet: the next one is 40" in said(directory, 40)
    assert "skipped when the floor was raised, to 20 at most" in said(directory, 15)
    assert "skipped when the floor was raised, to 40 at most" in said(directory, 30)


def test_after_a_migration_zookeeper_may_have_given_it(member: Member) -> None:
    assert "given by ZooKeeper's controller" in said(member(migration=MIGRATED), 15)


def test_a_hole_in_the_archive_explains_nothing(member: Member) -> None:
    assert "that history is incomplete below ID 40" in said(member(covered_from=5), 15)


def test_without_a_snapshot_nothing_is_known_of_it(member: Member) -> None:
    assert "which has no whole snapshot: ask the quorum" in said(member(snapshot=False), 15)
