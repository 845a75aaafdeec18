"""Planted faults are found by the check that is theirs, once; lawful logs have no finding above a note."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from pidkeeper.pipeline.segments.conclude import ConcludeSettings
from pidkeeper.pipeline.segments.streams import PRODUCER_ID_EXPIRATION_MS
from tests.support.segment_builder import batch, marker
from tests.unit.pipeline.segments.in_process import Finding, audit
from tests.unit.pipeline.segments.logs import FIRST_SEGMENT, MAX_SEQUENCE, Log, compact, lawful_logs, write

HOUR_MS: Final = 3_600_000
P: Final = 17
"""The producer of most tests."""

Found = tuple[Any, ...]


def ordered(*sequences: int, epoch: int = 0, transactional: bool = False) -> Log:
    log = Log()
    log.run(P, epoch, sequences, transactional=transactional)
    return log


def wrapping() -> Log:
    log = Log()
    for sequence, count in ((MAX_SEQUENCE - 5, 3), (MAX_SEQUENCE - 2, 5), (2, 3), (5, 3)):
        log.data(P, 0, sequence, count)
    return log


def bumped() -> Log:
    log = ordered(100, 103)
    log.run(P, 1, (0, 3))
    return log


def ended(kind: str, epochs: tuple[int, int]) -> Log:
    """A transaction, its end of the second epoch, and long after it the next one in that epoch and its end."""
    log = ordered(0, 3, epoch=epochs[0], transactional=True)
    log.marker(P, epochs[1], kind)
    log.run(P, epochs[1], (6 if epochs[0] == epochs[1] else 0,), transactional=True)
    log.marker(P, epochs[1])
    log.now_ms += 9 * HOUR_MS
    log.data(P + 1, 0, 0)
    return log


def without(log: Log, *places: int) -> Log:
    log.rows = [row for place, row in enumerate(log.rows) if place not in places]
    return log


def coordinator() -> Log:
    log = Log("__consumer_offsets")
    log.run(P, 0, (0, 0, 0), transactional=True)
    log.marker(P, 0)
    return log


def empty_marker() -> Log:
    log = Log()
    log.marker(P, 3, "abort")
    log.run(P, 3, (0, 3), transactional=True)
    log.marker(P, 3)
    log.marker(P, 3)
    return log


def emptied() -> Log:
    """The cleaner leaves a batch of a transaction without its records; its marker is gone."""
    log = without(hanging(2), 3)
    log.rows[2]["record_count"] = 0
    return log


def old_events() -> Log:
    """A transaction whose records have the time of old events, right before the end of the log."""
    log = ordered(0)
    log.now_ms += 9 * HOUR_MS
    log.data(P + 1, 0, 0)
    row = log.data(P, 0, 3, transactional=False)
    row["name"] = f"{6:020}.log"
    row |= {"is_transactional": True, "max_timestamp_ms": log.rows[0]["max_timestamp_ms"], "producer_id": P + 2}
    return log


def without_producer() -> Log:
    log = Log()
    for _ in range(3):
        log.data(-1, -1, -1)
    return log


LAWFUL: Final[dict[str, Callable[[], Log]]] = {
    "in order from anywhere": lambda: ordered(50, 53, 56),
    "wrapped": wrapping,
    "epoch bumped": bumped,
    "compacted": lambda: without(ordered(0, 3, 6, 9, 12), 1, 2),
    "first of an epoch compacted": lambda: without(bumped(), 2),
    "committed": lambda: ended("commit", (0, 0)),
    "aborted": lambda: ended("abort", (0, 0)),
    "aborted by fencing": lambda: ended("abort", (0, 1)),
    "marker alone": empty_marker,
    "of the coordinator": coordinator,
    "no producer": without_producer,
    "emptied by compaction": emptied,
    "a transaction of old events": old_events,
}


def twice() -> Log:
    log = ordered(0, 3, 6, 9)
    log.run(P, 0, (3, 12))
    return log


def overlapping() -> Log:
    log = ordered(0, 3, 6, 9)
    log.data(P, 0, 4, 3)
    log.data(P, 0, 12)
    return log


def fenced_by_data() -> Log:
    log = bumped()
    log.run(P, 0, (106, 109))
    log.run(P, 1, (6,))
    return log


def fenced_by_marker() -> Log:
    log = ordered(0, 3, transactional=True)
    log.marker(P, 1, "abort")
    log.data(P, 0, 6, transactional=True)
    return log


def interleaved() -> Log:
    log = ordered(0, 3, 6)
    log.run(P, 0, (0, 9, 3, 12, 6, 9, 12, 15))
    return log


def mixed() -> Log:
    log = ordered(0, 3)
    log.data(P, 0, 6, transactional=True)
    log.marker(P, 0)
    return log


def hanging(hours: float, marker_epoch: int | None = None) -> Log:
    log = ordered(0, epoch=1, transactional=True)
    log.marker(P, 1)
    log.run(P, 1, (3, 6), transactional=True)
    if marker_epoch is not None:
        log.marker(P, marker_epoch)
    log.now_ms += int(hours * HOUR_MS)
    log.data(P + 1, 0, 0)
    return log


def silent(*sequences: int) -> Log:
    log = ordered(0, 3, 6)
    log.now_ms += PRODUCER_ID_EXPIRATION_MS
    log.run(P, 0, sequences)
    return log


def unknown_id() -> Log:
    log = ordered(0, 3)
    log.run(900, 0, (0, 3))
    return log


FAULTS: Final[dict[str, tuple[Callable[[], Log], list[Found]]]] = {
    "id of no block": (unknown_id, [("unallocated", "violation", 900, 6)]),
    "a batch twice": (twice, [("duplicate", "violation", P, 12)]),
    "the first batch twice": (lambda: ordered(0, 3, 0, 6), [("duplicate", "violation", P, 6)]),
    "a part twice": (overlapping, [("duplicate", "violation", P, 12)]),
    "written before what is retained": (lambda: ordered(50, 53, 20), [("duplicate", "violation", P, 6)]),
    "two batches changed places": (lambda: ordered(0, 3, 9, 6, 12), [("out_of_sequence", "violation", P, 6)]),
    "the first two changed places": (lambda: ordered(53, 50, 56), [("out_of_sequence", "violation", P, 3)]),
    "a batch lost": (lambda: ordered(0, 3, 9, 12), [("out_of_sequence", "violation", P, 6)]),
    "more sequences than offsets lost": (
        lambda: without(ordered(0, 3, 6, 10), 1, 2),
        [("out_of_sequence", "violation", P, 9)],
    ),
    "a wrap to 1": (lambda: ordered(MAX_SEQUENCE - 2, 1), [("out_of_sequence", "violation", P, 3)]),
    "an epoch from 3": (lambda: ordered(0).run(P, 1, (3, 6)), [("out_of_sequence", "violation", P, 3)]),
    "data of a fenced epoch": (fenced_by_data, [("fenced_epoch", "violation", P, 12)]),
    "data behind a fencing marker": (fenced_by_marker, [("fenced_epoch", "violation", P, 7)]),
    "two streams": (interleaved, [("shared_producer", "violation", P, 9)]),
    "in and out of transactions": (mixed, [("shared_producer", "violation", P, 6)]),
    "no marker for 2 hours": (lambda: hanging(2), [("hanging_transaction", "violation", P, 4)]),
    "no marker for half an hour": (lambda: hanging(0.5), [("hanging_transaction", "warning", P, 4)]),
    "a marker of an older epoch": (lambda: hanging(2, 0), [("hanging_transaction", "violation", P, 4)]),
    "a marker of a newer epoch": (lambda: hanging(2, 2), []),
    "no marker yet": (lambda: hanging(0.2).copy("young"), []),
    "goes on after a silence": (lambda: silent(9, 12), []),
    "restarts after a silence": (lambda: silent(0, 3), [("out_of_sequence", "note", P, 9)]),
    "changes places after a silence": (
        lambda: silent(12, 9),
        [("duplicate", "violation", P, 12), ("out_of_sequence", "note", P, 9)],
    ),
    "two streams, one with a hole": (
        lambda: ordered(0, 3, 6, 9, 12).run(P, 0, (0, 3, 9)),
        [("shared_producer", "violation", P, 15)],
    ),
    "jumps after a silence": (lambda: silent(500, 503), [("out_of_sequence", "note", P, 9)]),
}


def elsewhere(hours: float, *, broker_clock: bool) -> list[Log]:
    """An epoch that goes on in one partition after the next one began in another."""
    old, new = Log(broker_clock=broker_clock), Log(partition=1, broker_clock=broker_clock)
    old.run(P, 0, (0, 3))
    new.run(P, 1, (0, 3))
    old.now_ms += int(hours * HOUR_MS)
    return [old.run(P, 0, (6,)), new]


def overtaken_and_fenced() -> list[Log]:
    """An epoch that goes on in one partition, and later, fenced, in that of the next epoch."""
    old, new = Log(broker_clock=True), Log(partition=1, broker_clock=True)
    old.run(P, 0, (0, 3))
    new.run(P, 0, (0,)).run(P, 1, (0, 3))
    for log, sequence in ((old, 6), (new, 3)):
        log.now_ms += (1 + log.partition) * HOUR_MS
        log.run(P, 0, (sequence,))
    return [old.copy("fenced"), new.copy("fenced")]


def overtaken_by_two_clocks() -> list[Log]:
    """The same as by the broker's clock, and at the same moment by a client's, at a higher offset."""
    logs = elsewhere(1, broker_clock=True)
    client = Log(partition=2).run(P + 1, 0, (0, 3, 6, 9))
    client.data(P, 0, 0)["max_timestamp_ms"] = logs[0].now_ms
    return [*logs, client]


def damaged(log: Log, *positions: int) -> list[Log]:
    log.damaged = list(positions)
    return [log]


def hole() -> Log:
    return without(ordered(0, 3, 6, 9, 12), 2)


def lagging() -> Log:
    return without(hanging(2, 1).copy("2"), 4)


SEVERAL: Final[dict[str, tuple[Callable[[], list[Log]], list[Found]]]] = {
    "a fault in two copies": (
        lambda: [twice(), twice().copy("2"), ordered(0, 3, 6, 9, 12).copy("3")],
        [("duplicate", "violation", P, 12)],
    ),
    "a copy without the marker": (lambda: [hanging(2, 1), lagging()], []),
    "only that copy": (lambda: [lagging()], [("hanging_transaction", "warning", P, 4)]),
    "two partitions": (lambda: [ordered(0, 3), Log(partition=1).run(P, 0, (0, 3))], []),
    "an old epoch on its way": (lambda: elsewhere(0.1, broker_clock=True), []),
    "an old epoch goes on": (lambda: elsewhere(1, broker_clock=True), [("shared_producer", "violation", P, 6)]),
    "an old epoch goes on and is fenced": (
        overtaken_and_fenced,
        [("fenced_epoch", "violation", P, 9), ("shared_producer", "violation", P, 6)],
    ),
    "an old epoch goes on by two clocks": (overtaken_by_two_clocks, [("shared_producer", "violation", P, 6)]),
    "fenced in two copies": (
        lambda: [fenced_by_data(), fenced_by_data().copy("2")],
        [("fenced_epoch", "violation", P, 12)],
    ),
    "no marker in two copies": (
        lambda: [hanging(2), hanging(2).copy("2")],
        [("hanging_transaction", "violation", P, 4)],
    ),
    "no marker, and damage behind": (
        lambda: damaged(hanging(2), 800),
        [("hanging_transaction", "warning", P, 4)],
    ),
    "or records are old": (lambda: elsewhere(1, broker_clock=False), [("shared_producer", "note", P, 6)]),
    "damage in the gap": (lambda: damaged(hole(), 600), [("out_of_sequence", "warning", P, 9)]),
    "damage before the gap": (lambda: damaged(hole(), 100), []),
    "damage, but no offset missing": (
        lambda: damaged(ordered(0, 3, 9), 500),
        [("out_of_sequence", "violation", P, 6)],
    ),
}
APART: Final = 1000
"""Between the producers of two cases."""
BY_CHANCE: Final = 1 << 20
"""From here on are the producers of logs made by chance, each of them again so far from the next."""
SEEDS: Final = 3


def cases() -> dict[str, tuple[list[Log], list[Found]]]:
    single = {name: ([make()], expected) for name, (make, expected) in FAULTS.items()}
    several = {name: (make(), expected) for name, (make, expected) in SEVERAL.items()}
    return {name: ([make()], []) for name, make in LAWFUL.items()} | single | several


class Audited(NamedTuple):
    """What one audit finds: in each of `cases`, and in each topic of logs made by chance with the check expected."""

    cases: dict[str, list[Found]]
    by_topic: dict[str, list[Found]]
    expected: dict[str, str]


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory) -> Audited:
    """Everything has topics, producers and, for their clocks, members of its own, so all of it can be in one audit."""
    logs = [log.moved(f"case{n}", n * APART) for n, (case, _) in enumerate(cases().values()) for log in case]
    blocks = [(n * APART, n * APART + 500, 1) for n in range(len(cases()))]
    expected: dict[str, str] = {}
    for seed in range(SEEDS):
        first = (1 + 2 * seed) * BY_CHANCE
        made = lawful_by_chance(random.Random(seed), f"lawful{seed}-", first)
        logs += [log.copy(f"lawful{seed}") for log in made]
        made, wanted = edited_by_chance(random.Random(seed), f"edited{seed}-", first + BY_CHANCE)
        logs += [log.copy(f"edited{seed}") for log in made]
        expected |= wanted
        blocks.append((first, first + BY_CHANCE + STRANGE - 1, 1))
    rows = audit((tmp_path_factory.mktemp("audited"), logs), blocks)
    return Audited(of_cases(rows), of_topics(rows), expected)


def of_cases(rows: list[Finding]) -> dict[str, list[Found]]:
    found: dict[str, list[Found]] = {name: [] for name in cases()}
    for row in rows:
        if row.first_id is not None and row.first_id < BY_CHANCE:
            number, producer = divmod(row.first_id, APART)
            found[list(found)[number]].append((row.check, row.severity, producer, row.offset))
    return found


def of_topics(rows: list[Finding]) -> dict[str, list[Found]]:
    """Above a note."""
    found: dict[str, list[Found]] = {}
    for row in rows:
        if row.first_id is not None and row.first_id >= BY_CHANCE and row.severity != "note":
            place = (row.check, row.first_id, row.partition, row.offset, row.detail)
            found.setdefault(row.topic or "", []).append(place)
    return found


@pytest.mark.parametrize("name", LAWFUL)
def test_what_is_lawful_has_no_finding(audited: Audited, name: str) -> None:
    assert audited.cases[name] == []


@pytest.mark.parametrize("name", [*FAULTS, *SEVERAL])
def test_a_planted_fault_is_found_once(audited: Audited, name: str) -> None:
    assert sorted(audited.cases[name]) == (FAULTS | SEVERAL)[name][1]


def foreign(rows: list[Finding]) -> list[Found]:
    """The findings of `unallocated` alone."""
    assert {row.check for row in rows} <= {"unallocated"}
    return [(row.check, row.severity, row.first_id, row.offset) for row in rows]


def test_ids_against_blocks(tmp_path: Path) -> None:
    """Wide and narrow blocks over one another, ends, a hole, ranges far apart, and what is below."""
    log = Log()
    for producer in (5, 10, 19, 20, 1 << 21, 5 << 20, (5 << 20) + 1, 1 << 40):
        log.data(producer, 0, 0)
    blocks = [(10, 19, 1), (12, 13, 1), (1 << 20, 5 << 20, 2), ((1 << 20) + 5, (1 << 20) + 6, 2), (1 << 40, 1 << 40, 1)]
    assert sorted(foreign(audit((tmp_path, [log]), blocks)), key=str) == [
        ("unallocated", "violation", 20, 9),
        ("unallocated", "violation", (5 << 20) + 1, 18),
        ("unallocated", "warning", 5, None),
    ]


def test_without_any_block_there_is_one_note(tmp_path: Path) -> None:
    rows = audit((tmp_path, [ordered(0, 3), unknown_id().copy("2")]), blocks=())
    assert foreign(rows) == [("unallocated", "note", P, None)]
    assert (rows[0].last_id, rows[0].subject) == (900, "IDs 17 to 900")
    assert rows[0].detail.startswith("2 producer ids were not checked")


def test_burnt_ids_and_the_share_of_a_broker(tmp_path: Path) -> None:
    logs = [Log(partition=0), Log(partition=1)]
    for producer in range(60):
        logs[producer % 2].data(producer, 0, 0)
    logs[0].run(100, 0, (0, 3, 6))
    logs.append(logs[0].copy("2"))
    blocks = ((0, 999, 1), (1000, 1999, 1))
    some = audit((tmp_path, logs), blocks, shares=True, concluding=ConcludeSettings(many_producers=60))
    assert [(row.severity, row.topic, row.broker_id, row.first_id, row.last_id) for row in some] == [
        ("note", None, 1, 0, 1999),
        ("warning", "orders", None, 0, 59),
    ]
    assert "61 of 2000 IDs in 2 blocks wrote, 3.05 percent" in some[0].detail
    assert some[1].detail.startswith("60 producer ids wrote 60 batches in all from here on for 3600 s")
    assert audit(tmp_path, blocks, concluding=ConcludeSettings(many_producers=61)) == []


def test_what_a_client_may_write_does_not_end_the_run(tmp_path: Path) -> None:
    log = ordered(0, 3, 6)
    for row, stamp in zip(log.rows, ((1 << 63) - 1, -(1 << 63), -1), strict=True):
        row["max_timestamp_ms"] = stamp
    log.rows[1] |= {"base_offset": -(1 << 63), "last_offset": -(1 << 63) + 2, "producer_id": -1}
    far = Log("far")
    far.data(P + 1, 0, 0)
    far.rows[0] |= {"base_offset": (1 << 63) - 5, "last_offset": (1 << 63) - 3}
    for number, row in enumerate(ordered(0, 9, 3).rows):
        base = (1 << 63) - 1 - 3 * number
        far.rows.append(row | {"name": f"{1:020}.log", "base_offset": base, "last_offset": base + 2})
    far.rows += [row | {"name": f"{2 + n:020}.log"} for n, row in enumerate([*ordered(7).rows, *far.rows[:1]] * 3)]
    stray = ordered(0, 3)
    write(tmp_path, [log, far])
    (tmp_path / "odd").mkdir()
    (tmp_path / "odd" / "a.log").write_bytes(stray.segments()[FIRST_SEGMENT])
    found = audit(tmp_path, policies={"far": "delete", "orders": "delete"})
    assert {"duplicate", "missing_batches"} < {row.check for row in found}


# Chance: many small logs, each in topics of its own.


def lawful_by_chance(chance: random.Random, topic: str, first_id: int) -> list[Log]:
    logs = [log for n in range(40) for log in lawful_logs(chance, f"{topic}{n}", first_id + n * 10)]
    for log in logs:
        if chance.random() < 0.6:
            compact(chance, log)
        if chance.random() < 0.3:
            log.rows = log.rows[chance.randrange(len(log.rows) or 1) :]
    return logs


def test_lawful_logs_made_by_chance_have_no_finding(audited: Audited) -> None:
    assert {topic: found for topic, found in audited.by_topic.items() if topic not in audited.expected} == {}


def newest(log: Log) -> list[dict[str, Any]]:
    """Batches of data in the newest epoch of their producer."""
    top: dict[int, int] = {}
    for row in log.rows:
        top[row["producer_id"]] = max(row["producer_epoch"], top.get(row["producer_id"], 0))
    return [row for row in log.rows if not row["is_control"] and row["producer_epoch"] == top[row["producer_id"]]]


def again(chance: random.Random, log: Log) -> str | None:
    rows = newest(log)
    if not rows:
        return None
    row = chance.choice(rows)
    log.data(
        row["producer_id"],
        row["producer_epoch"],
        row["base_sequence"],
        row["last_offset"] - row["base_offset"] + 1,
        transactional=row["is_transactional"],
    )
    return "duplicate"


def neighbours(log: Log) -> list[tuple[int, int]]:
    """Places of batches that follow each other in one stream, the first of them not the stream's first sign."""
    pairs: list[tuple[int, int]] = []
    last: dict[tuple[int, int], int] = {}
    known: set[int] = set()
    checked: set[int] = set()
    for place, row in enumerate(log.rows):
        producer, key = row["producer_id"], (row["producer_id"], row["producer_epoch"])
        if not row["is_control"]:
            if last.get(key) in checked:
                pairs.append((last[key], place))
            if producer in known:
                checked.add(place)
            last[key] = place
            known.add(producer)
    return pairs


def lose(chance: random.Random, log: Log) -> str | None:
    pairs = neighbours(log)
    if not pairs:
        return None
    del log.rows[chance.choice(pairs)[0]]
    log.close_up()
    return "out_of_sequence"


def swap(chance: random.Random, log: Log) -> str | None:
    pairs = neighbours(log)
    if not pairs:
        return None
    first, second = (log.rows[place] for place in chance.choice(pairs))
    for name in ("base_sequence", "last_sequence", "record_count"):
        first[name], second[name] = second[name], first[name]
    lengths = [row["last_offset"] - row["base_offset"] for row in (second, first)]
    for row, length in zip((first, second), lengths, strict=True):
        row["last_offset"] = row["base_offset"] + length
    log.close_up()
    return "out_of_sequence"


def fence(chance: random.Random, log: Log) -> str | None:
    rows = [row for row in log.rows if row["producer_epoch"] > 0]
    if not rows:
        return None
    row = chance.choice(rows)
    kind = row["is_transactional"]
    log.data(row["producer_id"], row["producer_epoch"] - 1, 1234, transactional=kind)
    return "fenced_epoch"


def restart(chance: random.Random, log: Log) -> str | None:
    rows = [row for row in newest(log) if row["last_sequence"] < 1 << 30]
    if not rows:
        return None
    row = chance.choice(rows)
    for sequence in (0, 7):
        log.data(row["producer_id"], row["producer_epoch"], sequence, 7, transactional=row["is_transactional"])
    return "shared_producer"


def hang(chance: random.Random, log: Log) -> str | None:
    data = {row["producer_id"] for row in log.rows if row["is_transactional"] and not row["is_control"]}
    if not data:
        return None
    producer = chance.choice(sorted(data))
    row = [row for row in log.rows if row["producer_id"] == producer][-1]
    follows = (row["last_sequence"] + 1) & MAX_SEQUENCE
    if row["is_control"]:
        last = [each for each in newest(log) if each["producer_id"] == producer]
        follows = (last[-1]["last_sequence"] + 1) & MAX_SEQUENCE if last else 0
    log.data(producer, row["producer_epoch"], follows, transactional=True)
    log.now_ms += 2 * HOUR_MS
    log.data(-1, -1, -1)
    return "hanging_transaction"


STRANGE: Final = 1 << 16
"""From the first producer of edited logs to one whose ID is in no block."""


def edited_by_chance(chance: random.Random, topic: str, first_id: int) -> tuple[list[Log], dict[str, str]]:
    """Lawful logs with one edit in each topic, and which check is to find it; one of them has a strange ID too."""
    edits = (again, lose, swap, fence, restart, hang)
    expected: dict[str, str] = {}
    logs = []
    for number in range(48):
        made = lawful_logs(chance, f"{topic}{number}", first_id + number * 10)
        logs += made
        check = edits[number % len(edits)](chance, chance.choice(made))
        if check is not None:
            expected[made[0].topic] = check
    logs[0].data(first_id + STRANGE + chance.randrange(10), 0, chance.choice((0, 1000)))
    return logs, expected


@pytest.mark.parametrize("seed", range(SEEDS))
def test_an_edit_by_chance_is_found_by_its_check(audited: Audited, seed: int) -> None:
    topic = f"edited{seed}-"
    found = {name: some for name, some in audited.by_topic.items() if name.startswith(topic)}
    assert [each[0] for each in found[f"{topic}0"]].count("unallocated") == 1
    found[f"{topic}0"] = [each for each in found[f"{topic}0"] if each[0] != "unallocated"]
    expected = {name: [check] for name, check in audited.expected.items() if name.startswith(topic)}
    assert {name: [each[0] for each in some] for name, some in found.items() if some} == expected, found
    assert len(expected) > 30, "too few edits were possible"


def test_segments_with_a_bad_batch_and_a_torn_end(tmp_path: Path) -> None:
    def save(name: str, *batches: bytes) -> None:
        (tmp_path / name).mkdir()
        (tmp_path / name / FIRST_SEGMENT).write_bytes(b"".join(batches))

    values = (b"one", b"two")
    stream = [batch(2 * n, values, producer=(P, 0, 2 * n)) for n in range(6)]
    save("whole-0", *stream)
    bad = bytearray(stream[2])
    bad[-1] ^= 1
    save("bad-0", *stream[:2], bytes(bad), *stream[3:])
    save("torn-0", *stream[:3], stream[3][:-5])
    (tmp_path / "torn-0" / f"{8:020}.log").write_bytes(b"".join(stream[4:]))
    save("lost-0", *stream[:2], *[batch(2 * n, values, producer=(P, 0, 2 * n + 2)) for n in range(2, 5)])
    save("ended-0", batch(0, producer=(P + 1, 0, 0), transactional=True), marker(1, (P + 1, 0), commit=True))
    assert sorted((row.check, row.severity, row.first_id, row.offset) for row in audit(tmp_path)) == [
        ("out_of_sequence", "violation", P, 4),
        ("out_of_sequence", "warning", P, 6),
        ("out_of_sequence", "warning", P, 8),
    ]
