"""New rows of a producer that was spotless are followed on from where it ended, and its old rows are not read."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping
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
OF_A_CASE: Final = 10
"""Producer IDs of each case: it has a producer of its own, and others behind it."""
STRANGER: Final = 900
HOUR_MS: Final = 3_600_000
COORDINATED: Final = "__consumer_offsets"
Op = tuple[Any, ...]
"""Epoch and first sequence of three records, "inside" and the same of epoch 0 in a transaction, "commit" and epoch; or
"wait" and hours, "to" and a partition, "as" and how far behind the producer another one is, "roll" and 0."""


class Case(NamedTuple):
    """What a producer wrote before an audit, what it wrote then, and which check speaks of it.

    again: how many of the old rows are read.
    """

    known: list[Op]
    more: list[Op]
    check: str | None = None
    again: int = 0
    topic: str = "orders"


def of_case(number: int) -> int:
    return number * OF_A_CASE + P


def appended(log: Log, producer: int, what: Any, number: int) -> Row:
    if what == "commit":
        return log.marker(producer, number)
    inside = what == "inside"
    return log.data(producer, 0 if inside else what, number, transactional=inside)


class Brokers:
    """Two partitions of each topic on one broker, by its clock."""

    def __init__(self, path: Path, *topics: str) -> None:
        self.path = path
        self.logs = [Log(topic, number, broker_clock=True) for topic in topics or ("orders",) for number in (0, 1)]
        self.names = [FIRST_SEGMENT] * len(self.logs)
        MemberFiles(path / "data").archive((0, 20))
        (path / "kafka" / "1").mkdir(parents=True)
        (path / "kafka" / "1" / "meta.properties").write_text("node.id=1\n")

    def do(self, operations: list[Op], topic: int = 0) -> None:
        log, producer = self.logs[2 * topic], of_case(topic)
        for what, number in operations:
            match what:
                case "to":
                    log = self.logs[2 * topic + number]
                case "as":
                    producer = of_case(topic) + number
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


@pytest.fixture(scope="module")
def rows_read() -> Iterator[Counter[int]]:
    """By producer, how many rows are read from the ledger for whom they concern."""
    counts: Counter[int] = Counter()
    pieces = keeping.Kept._pieces

    def counted(self: keeping.Kept, file: str, producers: Any) -> Iterator[Any]:
        for table in pieces(self, file, producers):
            if producers is not None:
                counts.update(table["producer_id"].to_pylist())
            yield table

    with pytest.MonkeyPatch.context() as lasting:
        lasting.setattr(keeping.Kept, "_pieces", counted)
        yield counts


@pytest.fixture
def read_again(rows_read: Counter[int]) -> Counter[int]:
    """Those of the test."""
    rows_read.clear()
    return rows_read


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
        [("inside", 3), ("wait", 9), ("as", 1), ("to", 1), (0, 0)],
        "hanging_transaction",
        2,
    ),
    "who was in doubt goes on": Case([(0, 0), (0, 6)], [(0, 9)], "out_of_sequence", 2),
    "whom nobody knows": Case([(0, 0)], [("as", STRANGER), (0, 0)], "unallocated"),
}
CASES: Final = SPOTLESS | IN_DOUBT


class Followed(NamedTuple):
    """What came of cases that share a ledger, each in a topic of its own.

    again, anew: all that an audit says that remembers, and one that reads all. checks: those of findings above a note,
    by topic. rows_read: how many old rows the first one read, by producer.
    """

    again: dict[str, list[str]]
    anew: dict[str, list[str]]
    checks: Mapping[str, list[str]]
    rows_read: Counter[int]


def followed_on(brokers: Brokers, rows_read: Counter[int]) -> Followed:
    rows_read.clear()
    again = brokers.audit()
    read = Counter(rows_read)
    checks: dict[str, list[str]] = {}
    for row in again.tables["findings"].to_pylist():
        if row["check"] in conclude.CHECKS and row["severity"] != "note":
            checks.setdefault(row["topic"], []).append(row["check"])
    return Followed(said(again), said(look(LocalEngine(), brokers.options("anew"))), checks, read)


def named(number: int, topic: str) -> str:
    return topic if topic == COORDINATED else f"{topic}{number}"


@pytest.fixture(scope="module")
def followed(rows_read: Counter[int], tmp_path_factory: pytest.TempPathFactory) -> Followed:
    """All of CASES."""
    topics = [named(number, case.topic) for number, case in enumerate(CASES.values())]
    brokers = Brokers(tmp_path_factory.mktemp("followed"), *topics)
    for number, case in enumerate(CASES.values()):
        brokers.do(case.known, number)
    brokers.audit()
    for number, case in enumerate(CASES.values()):
        brokers.do(case.more, number)
    return followed_on(brokers, rows_read)


@pytest.mark.parametrize("name", CASES)
def test_new_rows_are_judged_and_only_of_who_is_in_doubt_the_old_ones_are_read(name: str, followed: Followed) -> None:
    number, case = list(CASES).index(name), CASES[name]
    assert followed.checks.get(named(number, case.topic), []) == ([] if case.check is None else [case.check])
    assert followed.rows_read[of_case(number)] == case.again


def test_it_says_what_an_audit_says_that_reads_all(followed: Followed) -> None:
    assert followed.again == followed.anew
    assert followed.rows_read.total() == sum(case.again for case in CASES.values())


def test_it_is_followed_on_through_many_audits(read_again: Counter[int], tmp_path: Path) -> None:
    brokers = Brokers(tmp_path)
    for number in range(4):
        brokers.do([(0, 6 * number), (0, 6 * number + 3), ("wait", 10)])
        again = brokers.audit()
    assert read_again.total() == 0
    assert said(again) == said(look(LocalEngine(), brokers.options("anew")))
    days = again.tables["batches_daily"].to_pylist()
    assert [(row["batches"], row["producers"]) for row in days] == [(2, 1), (4, 1), (2, 1)], days


def test_rows_that_appear_in_front_are_judged_with_those_behind_them(read_again: Counter[int], tmp_path: Path) -> None:
    """Though by their sequences they would follow them."""
    brokers = Brokers(tmp_path)
    brokers.logs[0].end = 6
    brokers.do([(0, 0), (0, 3)])
    logs = tmp_path / "kafka/1/orders-0"
    (logs / FIRST_SEGMENT).rename(logs / f"{6:020}.log")
    brokers.audit()
    write(tmp_path / "kafka", [Log().run(P, 0, (6, 9))])
    assert brokers.audit_beside_one_that_reads_all() == {"shared_producer": 1}
    assert read_again.total() == 2


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
         ("as", 1), ("to", 1), (0, 0)],
        "hanging_transaction",
        3,
    ),
    "the first, of one in doubt": (0, [(0, 0), ("roll", 0), (0, 3), (0, 9)], "out_of_sequence", 2),
}  # fmt: skip


@pytest.fixture(scope="module", params=[False, True], ids=["nothing new", "new rows beside it"])
def left(request: pytest.FixtureRequest, rows_read: Counter[int], tmp_path_factory: pytest.TempPathFactory) -> Followed:
    """All of LOST."""
    brokers = Brokers(tmp_path_factory.mktemp("lost"), *(f"orders{number}" for number in range(len(LOST))))
    for number, (_, known, _, _) in enumerate(LOST.values()):
        brokers.do(known, number)
    brokers.audit()
    for number, (segment, _, _, _) in enumerate(LOST.values()):
        brokers.lose(2 * number, segment)
        if request.param:
            brokers.do([("as", 2), ("to", 1), (0, 0)], number)
    return followed_on(brokers, rows_read)


@pytest.mark.parametrize("name", LOST)
def test_what_is_lost_with_a_segment(name: str, left: Followed) -> None:
    number, (_, _, check, count) = list(LOST).index(name), LOST[name]
    assert left.checks.get(f"orders{number}", []) == ([] if check is None else [check])
    assert left.rows_read[of_case(number)] == count


def test_without_it_an_audit_says_what_one_says_that_reads_all(left: Followed) -> None:
    assert left.again == left.anew
    assert left.rows_read.total() == sum(count for _, _, _, count in LOST.values())


def test_who_lost_rows_is_followed_on_from_what_is_left(read_again: Counter[int], tmp_path: Path) -> None:
    brokers = Brokers(tmp_path)
    brokers.do([(0, 0), ("roll", 0), (0, 3)])
    brokers.audit()
    brokers.lose(0, 0)
    brokers.do([(0, 6)])
    assert brokers.audit_beside_one_that_reads_all() == {}
    brokers.lose(0, 0)
    brokers.do([("roll", 0), (0, 90)])
    assert brokers.audit_beside_one_that_reads_all() == {}
    assert read_again.total() == 0
