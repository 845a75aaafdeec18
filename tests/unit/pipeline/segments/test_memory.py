"""An audit that remembers says what one says that reads everything, and reads what changed."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from pidkeeper.pipeline import gathering
from pidkeeper.pipeline.audit import AuditOptions, Outcome, keep, look
from pidkeeper.pipeline.engine.local import LocalEngine
from pidkeeper.pipeline.files.location import locate
from pidkeeper.pipeline.files.parquet import read_parquet
from pidkeeper.pipeline.ledger import PRODUCERS, Ledger
from pidkeeper.pipeline.paths import AuditPaths
from pidkeeper.pipeline.segments import conclude, keeping, listing, memory, plan, read
from pidkeeper.pipeline.segments.segment_files import list_segments
from pidkeeper.pipeline.verdict import Verdict
from tests.support.member_files import MemberFiles
from tests.unit.pipeline.segments.logs import MAX_SEQUENCE, Log, Row, compact, encoded

HOUR_MS: Final = 3_600_000
CHECKS: Final = (*conclude.CHECKS, "files")
P: Final = 17
SEEDS: Final = int(os.environ.get("PIDKEEPER_SEEDS", "1"))
ROUNDS: Final = 4


class Disk:
    """Logs of brokers as files, of which those are written that change. Every change is one that may happen to them.

    wild: how often producers and disks do what they should not. Where they never do, nearly all producers are spotless.
    """

    def __init__(self, path: Path, chance: random.Random) -> None:
        self.path = path
        self.chance = chance
        self.wild = chance.choice((0, 1, 3))
        self.logs = [Log("orders"), Log("orders", 1), Log("payments")]
        self.policies: dict[str, str | None] = {"orders": "delete"}
        self.spoilt: dict[str, bytes | None] = {}
        self.written: dict[str, bytes] = {}
        self.allocated = 0
        self.epochs: dict[int, int] = {}
        self.next: dict[tuple[int, int, str], int] = {}
        self.topics = 0
        self.member = MemberFiles(path / "data")
        self.allocate(9)  # all IDs that are written with but one
        for _ in range(20):
            self.append()

    def sync(self) -> set[str]:
        """Write what changed; the paths of the segments that did, of those that are audited."""
        now: dict[str, bytes] = {}
        for log in self.logs:
            (self.path / log.member).mkdir(exist_ok=True)
            (self.path / log.member / "meta.properties").write_text(f"node.id={log.member}\n")
            for name, data in log.segments().items():
                now[f"{log.member}/{log.folder}/{name}"] = data
        now |= {name: data for name, data in self.spoilt.items() if data is not None}
        for name in self.written.keys() - now.keys():
            (self.path / name).unlink()
        changed = {name for name, data in now.items() if self.written.get(name) != data}
        for name in changed:
            (self.path / name).parent.mkdir(exist_ok=True, parents=True)
            (self.path / name).write_bytes(now[name])
        self.written = now
        listed = list_segments([str(self.path / member) for member in {name[0] for name in now}])
        return changed & {str(Path(file.path).relative_to(self.path)) for file in listed}

    def step(self) -> None:
        """Something happens; damage on its own, for nothing shows it in a segment that also grew."""
        self.spoilt = {name: data for name, data in self.spoilt.items() if self.chance.random() < 0.5}
        if self.chance.random() < self.wild / 10:
            self.chance.choice((self.flip, self.truncate, self.foreign))()
            return
        for _ in range(self.chance.randint(1, 3)):
            happens: list[tuple[Callable[[], None], int]] = [
                (self.append, 6),
                (self.stumble, self.wild),
                (self.roll, 3),
                (self.retain, 2),
                (self.clean, 1),
                (self.wait, 2),
                (self.replicate, 1),
                (self.allocate, 1),
                (self.begin, 1),
                (self.compacted_from_now_on, 1),
            ]
            what, weights = zip(*happens, strict=True)
            self.chance.choices(what, weights)[0]()

    # What producers do.

    def append(self) -> None:
        self.append_to(self.chance.choice(self.logs), self.chance.randint(1, 4))

    def append_to(self, log: Log, count: int) -> None:
        for _ in range(count):
            producer = self.chance.choice((P, P + 1, 30, 31, 32, *range(40, 90), 91))
            kind = producer % 6
            if kind == 1 and self.chance.random() < 0.3:
                log.marker(producer, self.epochs.get(producer, 0), self.chance.choice(("commit", "abort")))
                continue
            if self.chance.random() < 0.05:
                self.epochs[producer] = self.epochs.get(producer, 0) + 1
            epoch = self.epochs.get(producer, 0)
            place = (producer, epoch, f"{log.member}/{log.folder}")
            records = self.chance.randint(1, 5)
            log.data(producer, epoch, self.next.get(place, 0), records, transactional=kind == 1)
            self.next[place] = (self.next.get(place, 0) + records) & MAX_SEQUENCE

    def stumble(self) -> None:
        """What no producer should do."""
        log = self.chance.choice(self.logs)
        data = [row for row in log.rows if row["base_sequence"] >= 0]
        if not data:
            return
        row = self.chance.choice(data)
        producer, epoch, first = row["producer_id"], row["producer_epoch"], row["base_sequence"]
        match self.chance.randint(0, 4):
            case 0:
                log.data(producer, epoch, first, transactional=row["is_transactional"])
            case 1:
                log.data(producer, epoch, first + 100, transactional=row["is_transactional"])
            case 2:
                log.data(producer, max(0, epoch - 1), first)
            case 3:
                log.data(producer, epoch, 0, transactional=not row["is_transactional"])
            case 4:
                log.end += 3

    # What brokers do.

    def roll(self) -> None:
        log = self.chance.choice(self.logs)
        self._name_what_follows(log)

    def _name_what_follows(self, log: Log) -> None:
        name = f"{log.end:020}.log"
        taken = log._append

        def append(*values: Any) -> Row:
            row = taken(*values)
            row["name"] = name
            return row

        log._append = append  # type: ignore[assignment,method-assign]

    def retain(self) -> None:
        log = self.chance.choice(self.logs)
        names = sorted({row["name"] for row in log.rows})
        if len(names) > 1:
            log.rows = [row for row in log.rows if row["name"] != names[0]]

    def clean(self) -> None:
        log = self.chance.choice(self.logs)
        last = max((row["name"] for row in log.rows), default="")
        closed = [row for row in log.rows if row["name"] != last]
        cleaned = Log(rows=closed)
        compact(self.chance, cleaned)
        log.rows = cleaned.rows + [row for row in log.rows if row["name"] == last]

    def wait(self) -> None:
        for log in self.logs:
            log.now_ms += self.chance.choice((0, HOUR_MS // 2, 30 * HOUR_MS))

    def replicate(self) -> None:
        log = self.chance.choice(self.logs)
        if log.member == "1" and not any((each.member, each.folder) == ("2", log.folder) for each in self.logs):
            other = log.copy("2")
            other.rows = other.rows[: self.chance.randint(1, len(other.rows))] if other.rows else []
            self.logs.append(other)

    def begin(self) -> None:
        """A topic before all others."""
        self.topics += 1
        self.logs.append(Log(f"a{20 - self.topics:02}", now_ms=self.logs[0].now_ms))

    def compacted_from_now_on(self) -> None:
        self.policies["orders"] = self.chance.choice(("delete", "compact"))

    def allocate(self, more: int = 1) -> None:
        self.member.archive((self.allocated, self.allocated + more))
        self.allocated += more

    # What disks do.

    def _one(self) -> str | None:
        names = sorted(self.written)
        return self.chance.choice(names) if names else None

    def flip(self) -> None:
        name = self._one()
        if name and self.written[name]:
            data = bytearray(self.written[name])
            data[self.chance.randrange(len(data))] ^= 1 << self.chance.randrange(8)
            self.spoilt[name] = bytes(data)

    def truncate(self) -> None:
        name = self._one()
        if name:
            self.spoilt[name] = self.written[name][: -self.chance.randint(1, 120)]

    def foreign(self) -> None:
        self.spoilt["1/other-0/00000000000000000000.log"] = self.chance.choice((b"", b"x" * 99, bytes(99)))


def options(disk: Disk, out: str) -> AuditOptions:
    paths = AuditPaths(
        [str(disk.path / "data")], [str(disk.path / member) for member in ("1", "2") if (disk.path / member).exists()]
    )
    return AuditOptions(paths, locate(disk.path / out))


def audited(disk: Disk, out: str = "out") -> Outcome:
    given = options(disk, out)
    outcome = look(LocalEngine(), given)
    keep(outcome, given.out)
    return outcome


def said(outcome: Outcome) -> dict[str, list[str]]:
    """All that it says of segments."""
    found = {name: outcome.tables[name].to_pylist() for name in ("findings", "files", "batches_daily")}
    found["findings"] = [row for row in found["findings"] if row["check"] in CHECKS]
    return {name: sorted(map(repr, rows)) for name, rows in found.items()}


def figures(verdict: Verdict) -> Verdict:
    checks = {name: verdict.checks[name] for name in CHECKS}
    return msgspec.structs.replace(
        verdict, wall_seconds=0, files_read_anew=0, checks=checks, verdict="", violations=0, warnings=0, notes=0
    )


def read_now(disk: Disk, outcome: Outcome) -> set[str]:
    """The paths of the segments that were read."""
    numbers = {one.number: one.path for one in outcome.segments.segments} if outcome.segments else {}
    rows = outcome.evidence["kafka-segment_parts"].to_pylist()
    return {str(Path(numbers[row["file_id"]]).relative_to(disk.path)) for row in rows if row["anew"]}


def audited_after(disk: Disk) -> Outcome:
    disk.sync()
    return audited(disk)


def kept_files(disk: Disk) -> set[str]:
    return {f"{PRODUCERS}/{path.name}" for path in (disk.path / "out" / PRODUCERS).iterdir()}


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts, groups and buckets as of large files, and bursts of few producers."""
    monkeypatch.setattr(conclude, "ConcludeSettings", partial(conclude.ConcludeSettings, many_producers=2))
    monkeypatch.setattr(listing, "RANGE_BYTES", 700)
    monkeypatch.setattr(listing, "BUCKET_BYTES", 2000)
    monkeypatch.setattr(listing, "OUTGROWN", 1000)
    monkeypatch.setattr(keeping, "GROUP_ROWS", 4)
    monkeypatch.setattr(keeping, "GROUPS_AT_ONCE", 2)


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Disk:
    made = Disk(tmp_path, random.Random(getattr(request, "param", 0)))
    monkeypatch.setattr(listing, "read_policies", lambda _: made.policies)
    return made


@pytest.mark.parametrize("disk", range(SEEDS), indirect=True)
def test_whatever_happens_an_audit_says_what_one_says_that_reads_all(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(ROUNDS):
        monkeypatch.setattr(gathering, "SMALL_BYTES", disk.chance.choice((0, 1 << 30)))
        policies = dict(disk.policies)
        if number:
            disk.step()
        changed = disk.sync()
        again, anew = audited(disk), look(LocalEngine(), options(disk, f"anew-{number}"))
        assert said(again) == said(anew), f"audit {number}"
        assert figures(again.verdict) == figures(anew.verdict)
        if disk.policies != policies:
            changed |= {name for name in disk.written if name[2:].startswith("orders")}
        assert read_now(disk, again) == changed


def test_where_nothing_changed_nothing_is_read_and_written(disk: Disk) -> None:
    assert read_now(disk, audited_after(disk)) == set(disk.written)
    before = kept_files(disk)
    again = audited(disk)
    assert (read_now(disk, again), again.verdict.files_read_anew) == (set(), 0)
    assert kept_files(disk) == before != set()


def test_a_segment_that_grew_is_read_on_from_its_last_batch(disk: Disk) -> None:
    log = disk.logs[0]
    first = audited_after(disk)
    name = f"1/orders-0/{log.rows[-1]['name']}"
    end = len(disk.written[name])
    disk.append_to(log, 30)
    disk.sync()
    assert first.segments is not None
    given = options(disk, "out")
    listed = listing.list_and_plan(given.paths.segments, 0, given.out, "00000002-00000000", first.segments)
    starts = {part.part.range.start for task in listed.plan.tasks for part in task.parts}
    last = end - len(encoded(log.rows[-31]))
    assert min(starts) == last
    assert read_now(disk, audited(disk)) == {name}


def test_rows_are_taken_together_and_what_nobody_needs_is_swept(disk: Disk) -> None:
    audited_after(disk)
    for _ in range(6):
        disk.append_to(disk.logs[0], 2)
        audited_after(disk)
    commit = Ledger(locate(disk.path / "out")).newest()
    assert commit is not None and commit.segments is not None
    files = {file for bucket in commit.segments.buckets for of_name in bucket.values() for file, _ in of_name}
    assert max(len(bucket.get("rows", ())) for bucket in commit.segments.buckets) <= 4
    rows = sum(count for bucket in commit.segments.buckets for _, count in bucket.get("rows", ()))
    assert rows == commit.verdict.batches
    # Those of the newest number stay: a run that is not over may have it.
    assert {name for name in kept_files(disk) if not name.startswith(f"{PRODUCERS}/{commit.number:08d}")} <= files
    assert files <= kept_files(disk)


def test_what_is_known_of_a_producer_is_as_much_however_many_parts_a_segment_has(disk: Disk) -> None:
    for count in (60, 20):
        disk.append_to(disk.logs[0], count)
        outcome = audited_after(disk)
    assert outcome.segments is not None
    assert max(len(segment.starts) for segment in outcome.segments.segments) > 2
    for name in ("producer_epochs", "dated"):
        files = [file for bucket in outcome.segments.buckets for file, _ in bucket[name]]
        rows = [row for file in files for row in read_parquet(locate(disk.path / "out") / file).to_pylist()]
        places = [(row["producer_id"], row.get("epoch"), row["part"], row.get("day")) for row in rows]
        assert len(set(places)) == len(places) > 20
        assert {part % (1 << plan.INDEX_BITS) for _, _, part, _ in places} == {0}


def test_a_run_that_does_not_count_changes_nothing(disk: Disk) -> None:
    audited_after(disk)
    disk.append_to(disk.logs[0], 10)
    changed = disk.sync()
    look(LocalEngine(), options(disk, "out"))
    again = audited(disk)
    assert read_now(disk, again) == changed
    assert said(again) == said(look(LocalEngine(), options(disk, "anew")))


def test_all_is_read_where_that_is_wanted_and_where_the_ledger_was_begun_with_too_few_buckets(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = audited_after(disk)
    given = msgspec.structs.replace(options(disk, "out"), anew=True)
    assert read_now(disk, look(LocalEngine(), given)) == set(disk.written)
    monkeypatch.setattr(memory, "VERSION", 99)
    monkeypatch.setattr(listing, "VERSION", 99)
    assert read_now(disk, audited(disk)) == set(disk.written)
    assert read_now(disk, audited(disk)) == set()
    monkeypatch.setattr(listing, "OUTGROWN", 2)
    monkeypatch.setattr(listing, "BUCKET_BYTES", 300)
    many = audited(disk)
    assert read_now(disk, many) == set(disk.written)
    assert first.segments is not None and many.segments is not None
    assert len(many.segments.buckets) > 2 * len(first.segments.buckets)
    assert said(many) == said(first)


def test_an_audit_of_something_else_between_two_forgets_nothing(disk: Disk) -> None:
    audited_after(disk)
    other = msgspec.structs.replace(options(disk, "out"), paths=AuditPaths([str(disk.path / "data")]))
    keep(look(LocalEngine(), other), other.out)
    assert read_now(disk, audited(disk)) == set()


def test_a_ledger_that_never_saw_segments_takes_them(disk: Disk) -> None:
    other = msgspec.structs.replace(options(disk, "out"), paths=AuditPaths([str(disk.path / "data")]))
    keep(look(LocalEngine(), other), other.out)
    assert read_now(disk, audited_after(disk)) == set(disk.written)


def test_segments_that_went_away_are_no_finding(disk: Disk) -> None:
    audited_after(disk)
    gone = disk.logs.pop(0)
    again = audited_after(disk)
    assert again.verdict.batches == sum(len(log.rows) for log in disk.logs)
    assert gone.folder not in repr(said(again))


@pytest.mark.parametrize("count", [1, 2])
def test_a_segment_of_which_not_all_was_told_is_read_again(
    disk: Disk, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read, "MAX_OFFSET_HOLES", 2)
    monkeypatch.setattr(memory, "MAX_OFFSET_HOLES", 2)
    log = Log("orders", 7)
    disk.logs = [log]
    for _ in range(count + 1):
        disk.append_to(log, 1)
        log.end += 5
    first = audited_after(disk)
    again = audited(disk)
    assert read_now(disk, again) == (set(disk.written) if count == 2 else set())
    assert said(again) == said(first)


def test_an_id_that_is_not_allocated_any_more_is_found_without_new_rows(disk: Disk) -> None:
    disk.logs[0].data(15, 0, 0)
    disk.allocate(2)
    assert not [row for row in said(audited_after(disk))["findings"] if "producer 15'" in row]
    for path in (disk.path / "data" / "archive").iterdir():
        path.unlink()
    disk.member.archive((0, 1))
    again = audited(disk)
    assert read_now(disk, again) == set()
    assert [row for row in said(again)["findings"] if "producer 15'" in row and "'unallocated'" in row]
    assert said(again) == said(look(LocalEngine(), options(disk, "anew")))
