"""Numbers that fit into their fields and mean nothing: an audit tells of what it can, and comes to its end."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from pidkeeper.pipeline.audit import AuditOptions, keep, look
from pidkeeper.pipeline.engine.local import LocalEngine
from pidkeeper.pipeline.files.location import locate
from pidkeeper.pipeline.paths import AuditPaths
from pidkeeper.pipeline.verdict import Verdict
from pidkeeper.protocol.records import AllocateProducerIdsRecord
from pidkeeper.snapshots.image import LastBlock
from tests.support.archive_edits import edit_archive
from tests.support.member_files import MemberFiles
from tests.support.sound_quorum import ARCHIVED, IDS, block, blocks, records, snapshot, write_log, write_quorum

LONG: Final = (-(2**63), -(2**62), -1, 0, 2**62, 2**63 - 2, 2**63 - 1)
INT: Final = (-(2**31), -1, 0, 2**31 - 1)
OF_ARCHIVES: Final = [
    *product(("first", "last", "offset", "broker_epoch", "timestamp_ms"), LONG),
    *product(("broker_id",), INT),
]
OF_LOGS: Final = [
    *product(("broker_epoch", "producer_id_start", "producer_id_end", "length", "timestamp_ms"), LONG),
    *product(("broker_id",), INT),
]


def audit(path: Path) -> Verdict:
    """Twice into one ledger: the second one reads what the first one left."""
    options = AuditOptions(AuditPaths([str(path / "data")]), locate(path / "out"))
    for _ in range(2):
        outcome = look(LocalEngine(), options)
        keep(outcome, options.out)
    return outcome.verdict


def spoil(member: MemberFiles, changes: list[tuple[str, int]]) -> None:
    """Every change in another row of an archive file; those at its ends are in its header."""

    def edit(rows: list[Any]) -> None:
        for number, (field, value) in enumerate(changes, 1):
            rows[number] = msgspec.structs.replace(rows[number], **{field: value})

    edit_archive(member.found("archive")[0], edit)


@pytest.mark.parametrize("of_all", [False, True], ids=["one member", "all members"])
def test_in_archives(tmp_path: Path, of_all: bool) -> None:
    half = len(OF_ARCHIVES) // 2
    for number, changes in enumerate((OF_ARCHIVES[:half], OF_ARCHIVES[half:])):
        members = write_quorum(tmp_path / str(number) / "data")
        for member in members if of_all else members[:1]:
            spoil(member, changes)
        verdict = audit(tmp_path / str(number))
        assert verdict.verdict == "violations"


@pytest.mark.parametrize("stamp", LONG)
def test_a_time_alone_is_no_reason_to_fail(tmp_path: Path, stamp: int) -> None:
    for member in write_quorum(tmp_path / "data"):
        spoil(member, [("timestamp_ms", stamp)])
    verdict = audit(tmp_path)
    assert (verdict.verdict, verdict.blocks) == ("clean", len(blocks(0, 90)))


def test_in_logs(tmp_path: Path) -> None:
    told = records()
    start = ARCHIVED[-1] + 1 - len(OF_LOGS) % 2
    fields = AllocateProducerIdsRecord.__struct_fields__
    for number, (field, value) in enumerate(OF_LOGS):
        offset = start + number % (90 - start)
        values = {name: getattr(told[offset], name) for name in fields} | {field: value}
        told[offset] = AllocateProducerIdsRecord(**values)
    for member in write_quorum(tmp_path / "data"):
        for path in member.found("wal"):
            path.unlink()
        write_log(member, told)
    assert audit(tmp_path).verdict == "violations"


@pytest.mark.parametrize("value", LONG)
def test_in_snapshots(tmp_path: Path, value: int) -> None:
    newest, epoch = block(ARCHIVED[-1] - 1), max(value, 0)
    for member in write_quorum(tmp_path / "data"):
        for path in member.found("snapshots"):
            path.unlink()
        snapshot(member, ARCHIVED[-1], last_block=LastBlock(newest.first, IDS, 7, epoch, epoch, value))
    assert audit(tmp_path).blocks == len(blocks(0, 90))
