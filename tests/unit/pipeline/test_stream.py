"""Looks of which few count, and what they leave."""

from __future__ import annotations

from pathlib import Path

import pytest

from pidkeeper.pipeline import stream
from pidkeeper.pipeline.audit import AuditOptions
from pidkeeper.pipeline.engine.local import LocalEngine
from pidkeeper.pipeline.files.location import locate
from pidkeeper.pipeline.ledger import Ledger
from pidkeeper.pipeline.paths import AuditPaths
from pidkeeper.pipeline.segments import memory
from pidkeeper.pipeline.stream import StreamOptions, run_stream
from tests.support.member_files import MemberFiles
from tests.unit.pipeline.segments.logs import Log, encoded, write

LOOKS = 5
FIRST = 5
"""The first log offset."""


def test_of_looks_that_do_not_count_nothing_is_left(tmp_path: Path) -> None:
    members = [MemberFiles(tmp_path / "data" / str(number), number) for number in (1, 2, 3)]
    log = Log("orders")
    out = locate(tmp_path / "out")
    left: list[int] = []

    def grow() -> None:
        number = FIRST + len(left)
        for member in members:
            member.archive((number, number + 1))
        log.data(FIRST * 10, 0, len(left), 1)
        write(tmp_path / "kafka", [log])

    def wait(_: float) -> bool:
        left.append(sum(1 for folder in ("blocks", "producers") for _ in (tmp_path / "out" / folder).iterdir()))
        grow()
        return len(left) == LOOKS

    (tmp_path / "kafka").mkdir()
    grow()
    paths = AuditPaths([str(tmp_path / "data")], [str(tmp_path / "kafka")])
    told: list[str] = []
    verdict = run_stream(LocalEngine(), StreamOptions(AuditOptions(paths, out)), told.append, wait)
    assert (verdict.violations, verdict.blocks, verdict.batches) == (0, LOOKS, LOOKS), told
    newest = Ledger(out).newest()
    assert newest is not None
    # The first look counts, for it closed a part of the history; and the last one does.
    assert newest.number == 2
    # While it waits there are the files of the commit and those of the look.
    assert left == [left[0], *[2 * left[0]] * (LOOKS - 1)]


def test_what_would_be_read_again_and_again_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log("orders")
    numbers: list[int] = []
    told: list[str] = []
    out = locate(tmp_path / "out")

    def grow() -> None:
        log.data(0, 0, len(numbers), 1)
        write(tmp_path / "kafka", [log])

    def wait(_: float) -> bool:
        newest = Ledger(out).newest()
        numbers.append(0 if newest is None else newest.number)
        grow()
        return len(numbers) == LOOKS

    (tmp_path / "kafka").mkdir()
    grow()
    monkeypatch.setattr(stream, "MOST_AGAIN", 3 * len(encoded(log.rows[0])))
    options = AuditOptions(AuditPaths([], [str(tmp_path / "kafka")]), out)
    run_stream(LocalEngine(), StreamOptions(options), told.append, wait)
    # The fourth look reads four batches.
    assert numbers == [0, 0, 0, 1, 1]


def test_what_is_read_in_any_case_makes_no_look_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log("orders").run(0, 0, range(0, 30, 3))
    write(tmp_path / "kafka", [log])
    monkeypatch.setattr(stream, "MOST_AGAIN", len(encoded(log.rows[0])))
    monkeypatch.setattr(memory, "_UNSETTLED", "select number from segment_numbers where $most > 0")
    out = locate(tmp_path / "out")
    numbers: list[int] = []
    told: list[str] = []

    def wait(_: float) -> bool:
        newest = Ledger(out).newest()
        numbers.append(0 if newest is None else newest.number)
        return len(numbers) == LOOKS

    options = AuditOptions(AuditPaths([], [str(tmp_path / "kafka")]), out)
    run_stream(LocalEngine(), StreamOptions(options), told.append, wait)
    assert numbers == [1] * LOOKS
