"""New rows of a producer that was spotless are followed on from where it ended, and its old rows are not read."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from pidkeeper.pipeline.audit import AuditOptions, Outcome, keep, look
from pidkeeper.pipeline.engine.local import LocalEngine
from pidkeeper.pipeline.files.location import locate
from pidkeeper.pipeline.paths import AuditPaths
from pidkeeper.pipeline.segments import conclude, keeping
from tests.support.member_files import MemberFiles
from tests.unit.pipeline.segments.logs import FIRST_SEGMENT, Log, Row, write
from tests.unit.pipeline.segments.test_memory import said

P: Final = 5
STRANGER: Final = 99
HOUR_MS: Final = 3_600_000
COORDINATED: Final = "__consumer_offsets"
Op = tuple[Any, ...]
"""Epoch and first sequence of three records, "inside" and the same of epoch 0 in a transaction, "commit" and epoch; or
"wait" and hours, "to" and a partition, "as" and another producer, "roll" and 0."""


class Case(NamedTuple):
    """What a producer wrote before an audit, what it wrote then, and which check speaks of it.

    again: how many of the old rows are read.
    """

    known: list[Op]
    more: list[Op]
    check: str | None = None
    again: int = 0
    topic: str = "orders"


def appended(log: Log, producer: int, what: Any, number: int) -> Row:
    if what == "commit":
        return log.marker(producer, number)
    inside = what == "inside"
    return log.data(producer, 0 if inside else what, number, transactional=inside)


class Brokers:
    """Two partitions of one broker, by its clock."""

    def __init__(self, path: Path, topic: str = "orders") -> None:
        self.path = path
        self.logs = [Log(topic, number, broker_clock=True) for number in (0, 1)]
        self.names = [FIRST_SEGMENT, FIRST_SEGMENT]
        MemberFiles(path / "data").archive((0, 1))
        (path / "kafka" / "1").mkdir(parents=True)
        (path / "kafka" / "1" / "meta.properties").write_text("node.id=1\n")

    def do(self, operations: list[Op]) -> None:
        log, producer = self.logs[0], P
        for what, number in operations:
            match what:
                case "to":
                    log = self.logs[number]
                case "as":
                    producer = number
                case "roll":
                    self.names[self.logs.index(log)] = f"{log.end:020}.log"
                case "wait":
                    for each in self.logs:
                        each.now_ms += number * HOUR_MS
                case _:
                    appended(log, producer, what, number)["name"] = self.names[self.logs.index(log)]
        self.sync()

    def sync(self) -> None:
        """Files of which nothing changed are left alone."""
        for log in self.logs:
            for name, data in log.segments().items():
                path = self.path / "kafka" / log.member / log.folder / name
                path.parent.mkdir(parents=True, exist_ok=True)
                if not path.exists() or path.read_bytes() != data:
                    path.write_bytes(data)

    def lose(self, partition: int, number: int) -> None:
        """A segment of a log, by its place in it."""
        log = self.logs[partition]
        name = sorted(log.segments())[number]
        log.rows = [row for row in log.rows if row["name"] != name]
        (self.path / "kafka" / log.member / log.folder / name).unlink()

    def options(self, out: str) -> AuditOptions:
        return AuditOptions(AuditPaths([str(self.path / "data")], [str(self.path / "kafka")]), locate(self.path / out))

    def audit(self) -> Outcome:
        outcome = look(LocalEngine(), self.options("out"))
        keep(outcome, self.options("out").out)
        return outcome

    def audit_beside_one_that_reads_all(self) -> dict[str, int]:
        """How many findings each check of segments has, but for notes."""
        again, anew = self.audit(), look(LocalEngine(), self.options("anew"))
        assert said(again) == said(anew)
        counts = {name: again.verdict.checks[name] for name in conclude.CHECKS}
        return {name: found for name, one in counts.items() if (found := one.violations + one.warnings)}


@pytest.fixture
def read_again(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many rows are read from the ledger for whom they concern."""
    counts: list[int] = []
    pieces = keeping.Kept._pieces

    def counted(self: keeping.Kept, file: str, producers: Any) -> Iterator[Any]:
        for table in pieces(self, file, producers):
            if producers is not None:
                counts.append(table.num_rows)
            yield table

    monkeypatch.setattr(keeping.Kept, "_pieces", counted)
    return counts


SPOTLESS: Final = {
    "it goes on": Case([(0, 0), (0, 3)], [(0, 6)]),
    "behind several segments": Case(
        [(0, 0), ("roll", 0), (0, 3), ("roll", 0), (0, 6), (1, 0), ("roll", 0), (1, 3)], [(1, 6)]
    ),
    "in a new epoch": Case([(0, 0)], [(1, 0), (1, 3)]),
    "in one of two partitions": Case([(0, 0), ("to", 1), (0, 0)], [("to", 1), (0, 3)]),
    "in a partition more": Case([(0, 0)], [("to", 1), (0, 0)]),
    "behind what retention left": Case([(0, 7)], [(0, 10)]),
    "behind a marker that retention left": Case([("commit", 0)], [(0, 7)]),
    "in a new transaction": Case([("inside", 0), ("commit", 0)], [("inside", 3), ("commit", 0)]),
}
IN_DOUBT: Final = {
    "a batch twice": Case([(0, 0), (0, 3)], [(0, 3)], "duplicate", 2),
    "a batch is missing": Case([(0, 0)], [(0, 6)], "out_of_sequence", 1),
    "a sequence of the old epoch": Case([(0, 0), (0, 3), (1, 0)], [(1, 6)], "out_of_sequence", 3),
    "a new epoch from its middle": Case([("commit", 0), ("commit", 1)], [(1, 7)], "out_of_sequence", 2),
    "an old epoch from its beginning": Case([(0, 0), (1, 0)], [(0, 0)], "fenced_epoch", 2),
    "the same where nobody checks sequences": Case([(1, 0)], [(0, 0)], "fenced_epoch", 1, COORDINATED),
    "an old epoch hours after the new one": Case(
        [(0, 0), ("to", 1), (1, 0)], [("wait", 5), (0, 3)], "shared_producer", 2
    ),
    "in a transaction and outside of one": Case(
        [(0, 0)], [("to", 1), ("inside", 0), ("commit", 0)], "shared_producer", 1
    ),
    "a transaction without an end": Case(
        [("inside", 0), ("commit", 0)],
        [("inside", 3), ("wait", 9), ("as", P + 1), ("to", 1), (0, 0)],
        "hanging_transaction",
        2,
    ),
    "who was in doubt goes on": Case([(0, 0), (0, 6)], [(0, 9)], "out_of_sequence", 2),
    "whom nobody knows": Case([(0, 0)], [("as", STRANGER), (0, 0)], "unallocated"),
}


@pytest.mark.parametrize("name", SPOTLESS | IN_DOUBT)
def test_it_says_what_an_audit_says_that_reads_all(name: str, read_again: list[int], tmp_path: Path) -> None:
    case = (SPOTLESS | IN_DOUBT)[name]
    brokers = Brokers(tmp_path, case.topic)
    brokers.do(case.known)
    brokers.audit()
    brokers.do(case.more)
    assert brokers.audit_beside_one_that_reads_all() == ({} if case.check is None else {case.check: 1})
    assert sum(read_again) == case.again


def test_it_is_followed_on_through_many_audits(read_again: list[int], tmp_path: Path) -> None:
    brokers = Brokers(tmp_path)
    for number in range(4):
        brokers.do([(0, 6 * number), (0, 6 * number + 3), ("wait", 10)])
        again = brokers.audit()
    assert sum(read_again) == 0
    assert said(again) == said(look(LocalEngine(), brokers.options("anew")))
    days = again.tables["batches_daily"].to_pylist()
    assert [(row["batches"], row["producers"]) for row in days] == [(2, 1), (4, 1), (2, 1)], days


def test_rows_that_appear_in_front_are_judged_with_those_behind_them(read_again: list[int], tmp_path: Path) -> None:
    """Though by their sequences they would follow them."""
    brokers = Brokers(tmp_path)
    brokers.logs[0].end = 6
    brokers.do([(0, 0), (0, 3)])
    logs = tmp_path / "kafka/1/orders-0"
    (logs / FIRST_SEGMENT).rename(logs / f"{6:020}.log")
    brokers.audit()
    write(tmp_path / "kafka", [Log().run(P, 0, (6, 9))])
    assert brokers.audit_beside_one_that_reads_all() == {"shared_producer": 1}
    assert sum(read_again) == 2


def test_rows_of_a_file_that_is_read_from_its_beginning_count_once(tmp_path: Path) -> None:
    brokers = Brokers(tmp_path)
    brokers.do([("to", 1), (0, 0), (0, 3)])
    brokers.audit()
    os.utime(tmp_path / "kafka/1/orders-1" / FIRST_SEGMENT, ns=(1, 1))
    brokers.do([(0, 0), (0, 0)])
    assert brokers.audit_beside_one_that_reads_all() == {"duplicate": 1}


# Of a topic of which nobody says that it is never compacted, what is missing between others explains a gap.
LOST: Final[dict[str, tuple[int, list[Op], str | None, int]]] = {
    "the first": (0, [(0, 0), ("roll", 0), (0, 3), (0, 6), ("roll", 0), (0, 9)], None, 0),
    "the last": (2, [(0, 0), ("roll", 0), (0, 3), (0, 6), ("roll", 0), (0, 9)], None, 0),
    "one between others": (1, [(0, 0), ("roll", 0), (0, 3), (0, 6), ("roll", 0), (0, 9)], None, 2),
    "the first, of transactions": (
        0, [("inside", 0), ("roll", 0), ("commit", 0), ("inside", 3), ("roll", 0), ("commit", 0)], None, 3
    ),
    "the last, of transactions": (
        2,
        [("inside", 0), ("roll", 0), ("commit", 0), ("inside", 3), ("roll", 0), ("commit", 0), ("wait", 9),
         ("as", P + 1), ("to", 1), (0, 0)],
        "hanging_transaction",
        3,
    ),
    "the first, of one in doubt": (0, [(0, 0), ("roll", 0), (0, 3), (0, 9)], "out_of_sequence", 2),
}  # fmt: skip


@pytest.mark.parametrize("name", LOST)
@pytest.mark.parametrize("grows", [False, True])
def test_what_is_lost_with_a_segment(name: str, grows: bool, read_again: list[int], tmp_path: Path) -> None:
    number, known, check, count = LOST[name]
    brokers = Brokers(tmp_path)
    brokers.do(known)
    brokers.audit()
    brokers.lose(0, number)
    if grows:
        brokers.do([("as", P + 2), ("to", 1), (0, 0)])
    assert brokers.audit_beside_one_that_reads_all() == ({} if check is None else {check: 1})
    assert sum(read_again) == count


def test_who_lost_rows_is_followed_on_from_what_is_left(read_again: list[int], tmp_path: Path) -> None:
    brokers = Brokers(tmp_path)
    brokers.do([(0, 0), ("roll", 0), (0, 3)])
    brokers.audit()
    brokers.lose(0, 0)
    brokers.do([(0, 6)])
    assert brokers.audit_beside_one_that_reads_all() == {}
    brokers.lose(0, 0)
    brokers.do([("roll", 0), (0, 90)])
    assert brokers.audit_beside_one_that_reads_all() == {}
    assert sum(read_again) == 0
