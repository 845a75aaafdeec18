"""What a foreign or broken writer, or a disk, leaves in members' files; each in one member and in all of them."""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from pidkeeper.pipeline.audit import AuditOptions, look
from pidkeeper.pipeline.engine.engine import Engine
from pidkeeper.pipeline.files.location import locate
from pidkeeper.pipeline.paths import AuditPaths
from pidkeeper.protocol.founding import FoundingRecord
from pidkeeper.protocol.messages import AllocatedBlock
from pidkeeper.protocol.records import AllocateProducerIdsRecord, Record
from pidkeeper.snapshots.image import LastBlock
from tests.support.archive_edits import edit_archive
from tests.support.member_files import MemberFiles
from tests.support.sound_quorum import FIRST_BLOCK, IDS, block, records, snapshot, write_log, write_member, write_quorum

AT: Final = 20
"""The row that is changed, of the first archive file: that of offset 23."""

Fault = Callable[[MemberFiles], None]


def first_archive(member: MemberFiles) -> Path:
    return min((member.path / "archive").iterdir())


def last_archive(member: MemberFiles) -> Path:
    return max((member.path / "archive").iterdir())


def in_the_archive(edit: Callable[[list[AllocatedBlock]], None]) -> Fault:
    def fault(member: MemberFiles) -> None:
        edit_archive(first_archive(member), edit)

    return fault


def replaced(**columns: int) -> Callable[[list[AllocatedBlock]], None]:
    def edit(rows: list[AllocatedBlock]) -> None:
        rows[AT] = msgspec.structs.replace(rows[AT], **columns)

    return edit


def given_twice(rows: list[AllocatedBlock]) -> None:
    before = rows[AT - 1]
    rows[AT] = msgspec.structs.replace(rows[AT], first=before.first, last=before.last)


def given_in_part_twice(rows: list[AllocatedBlock]) -> None:
    rows[AT] = msgspec.structs.replace(rows[AT], first=rows[AT].first - 4)


def below_all(rows: list[AllocatedBlock]) -> None:
    del rows[:2]
    rows[AT] = msgspec.structs.replace(rows[AT], first=0, last=9)


def swapped(rows: list[AllocatedBlock]) -> None:
    rows[AT - 1 : AT + 1] = rows[AT], rows[AT - 1]


def swapped_ids(rows: list[AllocatedBlock]) -> None:
    one, two = rows[AT - 1], rows[AT]
    rows[AT - 1] = msgspec.structs.replace(one, first=two.first, last=two.last)
    rows[AT] = msgspec.structs.replace(two, first=one.first, last=one.last)


def repeated(rows: list[AllocatedBlock]) -> None:
    rows.insert(AT, rows[AT])


def dropped(rows: list[AllocatedBlock]) -> None:
    del rows[AT]


def no_block(rows: list[AllocatedBlock]) -> None:
    rows[AT] = msgspec.structs.replace(rows[AT], last=rows[AT].first - 1)


def flipped(find: Callable[[MemberFiles], Path], position: int) -> Fault:
    """One bit of one byte is another one."""

    def fault(member: MemberFiles) -> None:
        path = find(member)
        data = bytearray(path.read_bytes())
        data[position] ^= 1
        path.write_bytes(data)

    return fault


def cut_short(member: MemberFiles) -> None:
    file = first_archive(member)
    file.write_bytes(file.read_bytes()[:-48])


def without(find: Callable[[MemberFiles], Path]) -> Fault:
    return lambda member: find(member).unlink()


def emptied(member: MemberFiles) -> None:
    first_archive(member).write_bytes(b"")


def renamed(member: MemberFiles) -> None:
    file = first_archive(member)
    file.rename(file.with_name(file.name.replace("040", "041")))


def of_another_cluster(member: MemberFiles) -> None:
    shutil.rmtree(member.path)
    write_member(member.path, member.meta.node_id, "cluster-b")


def file_of_another_cluster(member: MemberFiles) -> None:
    other = write_member(member.path.parent.parent / f"other-{member.meta.node_id}", 9, "cluster-b")
    shutil.copy(first_archive(other), first_archive(member))
    shutil.rmtree(other.path)


def of_another_founding(member: MemberFiles) -> None:
    """Each member has a founding of its own, but that 2 and 3 share one."""
    founding = FoundingRecord(uuid.UUID(int=min(member.meta.node_id, 2)), 10, False, 1_700_000_000_000)
    shutil.rmtree(member.path)
    write_member(member.path, member.meta.node_id, founding=founding)


def snapshot_behind(member: MemberFiles) -> None:
    for path in (member.path / "snapshots").iterdir():
        path.unlink()
    older = block(55)
    last = LastBlock(older.first, IDS, older.broker_id, older.broker_epoch, older.offset, older.timestamp_ms)
    snapshot(member, 60, next_producer_id=older.last + 1, last_block=last)


def wal_segment(number: int) -> Callable[[MemberFiles], Path]:
    return lambda member: sorted((member.path / "wal").iterdir())[number]


def wal_with(edit: Callable[[list[Record]], None]) -> Fault:
    """Another log, whole and under right checksums."""

    def fault(member: MemberFiles) -> None:
        told = records()
        edit(told)
        for path in (member.path / "wal").iterdir():
            path.unlink()
        write_log(member, told)

    return fault


def wal_changed(offset: int, **columns: int) -> Callable[[list[Record]], None]:
    def edit(told: list[Record]) -> None:
        record = told[offset]
        assert isinstance(record, AllocateProducerIdsRecord)
        told[offset] = msgspec.structs.replace(record, **columns)

    return edit


def wal_given_twice(told: list[Record]) -> None:
    before = told[79]
    assert isinstance(before, AllocateProducerIdsRecord)
    told[80] = msgspec.structs.replace(
        before, broker_id=7 + 80 % 2, broker_epoch=1 + 80 % 2, timestamp_ms=before.timestamp_ms + 2000
    )


def wal_cut(member: MemberFiles) -> None:
    """The log ends below what it says is committed."""
    wal_segment(2)(member).unlink()


def without_logs(member: MemberFiles) -> None:
    shutil.rmtree(member.path / "wal")


def without_anything(member: MemberFiles) -> None:
    shutil.rmtree(member.path)
    member.path.mkdir()


FAULTS: Final[dict[str, Fault]] = {
    "nothing wrong": lambda _: None,
    "IDs given twice": in_the_archive(given_twice),
    "IDs given in part twice": in_the_archive(given_in_part_twice),
    "a block below all": in_the_archive(below_all),
    "IDs swapped": in_the_archive(swapped_ids),
    "rows swapped": in_the_archive(swapped),
    "a row repeated": in_the_archive(repeated),
    "a row dropped": in_the_archive(dropped),
    "a row that is no block": in_the_archive(no_block),
    "another owner": in_the_archive(replaced(broker_id=9, broker_epoch=1)),
    "another epoch": in_the_archive(replaced(broker_epoch=22)),
    "an impossible epoch": in_the_archive(replaced(broker_epoch=23)),
    "an offset of another file": in_the_archive(replaced(offset=70)),
    "a byte of a row": flipped(first_archive, 128 + 48 * AT + 7),
    "a byte of a header": flipped(first_archive, 80),
    "a file cut short": cut_short,
    "an empty file": emptied,
    "the first file gone": without(first_archive),
    "the second file gone": without(last_archive),
    "a file under another name": renamed,
    "a file of another cluster": file_of_another_cluster,
    "another cluster": of_another_cluster,
    "another founding": of_another_founding,
    "a snapshot behind": snapshot_behind,
    "a byte of a snapshot": flipped(lambda member: next((member.path / "snapshots").iterdir()), 130),
    "a byte of the log": flipped(wal_segment(1), 700),
    "a byte of the log's end": flipped(wal_segment(2), 900),
    "IDs given twice in the log": wal_with(wal_given_twice),
    "another owner in the log": wal_with(wal_changed(70, broker_id=9)),
    "another time in the log": wal_with(wal_changed(70, timestamp_ms=1)),
    "the end of the log gone": wal_cut,
    "the logs gone": without_logs,
    "nothing there": without_anything,
}


class Case(NamedTuple):
    """A fault in one member, the first, or in all alike."""

    fault: str
    of_all: bool

    @property
    def name(self) -> str:
        return f"{self.fault}, {'all' if self.of_all else 'one'}"


CASES: Final = [Case(fault, of_all) for fault in FAULTS for of_all in (False, True)]


def write_case(directory: Path, case: Case) -> None:
    """The files of three members, spoilt, in `directory`."""
    for member in write_quorum(directory):
        if case.of_all or member.meta.node_id == 1:
            FAULTS[case.fault](member)


assert block(FIRST_BLOCK + AT).first == AT * IDS


class Said(NamedTuple):
    """What an audit says of a case: every finding above a note with its check, severity, subject, file and byte."""

    verdict: str
    unseen: list[str]
    findings: list[list[str | int | None]]


def expected() -> dict[str, Said]:
    """By name of the case; files are paths below the directory of all members."""
    told = json.loads(Path(__file__).with_name("member_verdicts.json").read_text())
    return {name: Said(**one) for name, one in told.items()}


def said_of(engine: Engine, directory: Path, case: Case) -> Said:
    """Write the files, spoil them, and audit them."""
    data = directory / "data"
    write_case(data, case)
    outcome = look(engine, AuditOptions(AuditPaths([str(data)]), locate(directory / "out")))
    return Said(
        outcome.verdict.verdict,
        outcome.verdict.coverage.unseen,
        findings_of(outcome.tables["findings"].to_pylist(), data),
    )


def findings_of(rows: list[dict[str, Any]], data: Path | str) -> list[list[str | int | None]]:
    """Those above a note, as in `Said`."""
    return sorted(
        [row["check"], row["severity"], row["subject"], (row["file"] or "").removeprefix(f"{data}/"), row["position"]]
        for row in rows
        if row["severity"] != "note"
    )
