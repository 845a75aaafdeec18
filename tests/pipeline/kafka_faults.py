"""What a foreign or broken writer, or a disk, leaves in the segments of a real broker; in one replica and in both.

Where batches stand depends on the broker's run, so a fault returns the places that it is about, each under a name, and
the expectations in kafka_verdicts.json use these names.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from pidkeeper.controller.storage.archive import AllocationArchive
from pidkeeper.pipeline.audit import AuditOptions, Outcome, look
from pidkeeper.pipeline.engine.engine import Engine
from pidkeeper.pipeline.files.location import locate
from pidkeeper.pipeline.paths import AuditPaths
from pidkeeper.protocol.messages import AllocatedBlock
from tests.pipeline.member_faults import Said, findings_of
from tests.pipeline.real_producers import WRAPPING_PRODUCER
from tests.support.member_files import MemberFiles
from tests.support.segment_builder import batch
from tests.support.segment_edits import FIELDS, TRANSACTIONAL, Batch, PartitionLog, Place

REPLICAS: Final = (1, 2)
MEMBERS: Final = (1, 2, 3)
ALLOCATED: Final = AllocatedBlock(0, 4_999_999, 1, 0, 1, 1_700_000_000_000)
"""All IDs that the producers have, in one block: the record behind the registration of its broker."""
NOBODYS: Final = ALLOCATED.last + 7
MINUTE_MS: Final = 60_000
CLEANED: Final = "cleaner-offset-checkpoint"

Places = dict[str, Place]
Fault = Callable[[Path], Places]
"""Spoils the log directory of a broker; the places under the names that kafka_verdicts.json has for them."""

assert ALLOCATED.last >= WRAPPING_PRODUCER


def write_members(directory: Path) -> list[Path]:
    """The archives of all members of a quorum, in `directory`/members."""
    paths = []
    for node in MEMBERS:
        member = MemberFiles(directory / "members" / str(node), node)
        archive = AllocationArchive(member.files, member.path / "archive", member.meta.cluster_id)
        archive.append([ALLOCATED], 0, ALLOCATED.offset + 1)
        paths.append(member.path)
    return paths


def write_replicas(logs: Path, directory: Path) -> list[Path]:
    """The log directories of two brokers with the same segments, those of `logs`, in `directory`/kafka.

    Of an index, which a running broker preallocates, only what is written.
    """
    replicas = [directory / "kafka" / str(node) for node in REPLICAS]
    for node, replica in zip(REPLICAS, replicas, strict=True):
        replica.mkdir(parents=True)
        properties = (logs / "meta.properties").read_text()
        (replica / "meta.properties").write_text(re.sub(r"(?m)^node\.id=.*$", f"node.id={node}", properties))
        shutil.copy(logs / CLEANED, replica / CLEANED)
        for path in logs.glob("*-*/*.log"):
            folder = replica / path.parent.name
            folder.mkdir(exist_ok=True)
            shutil.copy(path, folder / path.name)
            index = path.with_suffix(".index")
            (folder / index.name).write_bytes(index.read_bytes().rstrip(b"\0"))
    return replicas


# Which batch.


def in_the_middle(log: PartitionLog) -> int:
    """A batch within the second segment, with data of the same producer before and behind it in that segment."""
    within = log.of_file(1)[1:-1]
    return next(at for before in within if (at := log.next_of(before)) in within and log.next_of(at) in within)


def first_of(number: int) -> Callable[[PartitionLog], int]:
    return lambda log: log.of_file(number)[0]


def last_of(number: int) -> Callable[[PartitionLog], int]:
    return lambda log: log.of_file(number)[-1]


def in_the_active(log: PartitionLog) -> int:
    """Data in the segment that the broker wrote to at last, with data of the same producer behind it."""
    return next(at for at in log.of_file(-1) if log.batches[at].is_data and log.next_of(at) is not None)


def last_data(log: PartitionLog) -> int:
    """The last batch that a producer with an ID wrote."""
    return max(index for index, one in enumerate(log.batches) if one.is_data)


def last_marker(log: PartitionLog) -> int:
    return max(index for index, one in enumerate(log.batches) if one.producer_id >= 0 and not one.is_data)


# What happens to batches: all bytes are right, and say something else than the broker wrote.


def edited(topic: str, edit: Callable[[PartitionLog], Places]) -> Fault:
    """A fault of a topic's only partition."""

    def fault(replica: Path) -> Places:
        log = PartitionLog(replica / f"{topic}-0")
        places = edit(log)
        log.write()
        return places

    return fault


def repeated_at_the_end(log: PartitionLog) -> Places:
    return {"the copy": log.place(log.append(log.batches[last_data(log)]))}


def run_repeated_at_the_end(log: PartitionLog) -> Places:
    """The last two batches of a producer, one behind the other: a retry of both."""
    last = last_data(log)
    mine = [index for index in range(last + 1) if log.batches[index].producer_id == log.batches[last].producer_id]
    copies = [log.append(log.batches[index]) for index in mine[-2:]]
    return {"the copy": log.place(copies[0])}


def repeated_in_the_middle(log: PartitionLog) -> Places:
    """Just behind itself, and before the producer's next batch."""
    at = in_the_middle(log)
    log.insert(at + 1, log.batches[at])
    return {"the copy": log.place(at + 1)}


def dropped(choose: Callable[[PartitionLog], int], *, hole: bool = True) -> Callable[[PartitionLog], Places]:
    def edit(log: PartitionLog) -> Places:
        at = choose(log)
        behind = log.next_of(at)
        assert behind is not None
        log.drop(at, hole=hole)
        return {"the batch behind": log.place(at), "the producer's next": log.place(behind - 1)}

    return edit


def dropped_without_successor(log: PartitionLog) -> Places:
    """The last batch that its producer wrote; others go on."""
    at = last_data(log)
    log.drop(at, hole=True)
    return {"the batch behind": log.place(at)}


def swapped(log: PartitionLog) -> Places:
    """Two batches of a producer changed places before they got their offsets."""
    at = in_the_middle(log)
    behind = log.next_of(at)
    assert behind is not None
    one, other = log.batches[at], log.batches[behind]
    moved = other.last_offset_delta - one.last_offset_delta
    log.batches[at] = other.changed(base_offset=one.base_offset)
    for index in range(at + 1, behind):
        between = log.batches[index]
        log.batches[index] = between.changed(base_offset=between.base_offset + moved)
    log.batches[behind] = one.changed(base_offset=other.base_offset + moved)
    return {"the first of the two": log.place(at)}


def swapped_on_disk(log: PartitionLog) -> Places:
    """Two neighbours changed places with their offsets."""
    at = in_the_middle(log)
    log.batches[at : at + 2] = log.batches[at + 1], log.batches[at]
    return {"the first of the two": log.place(at), "the second of the two": log.place(at + 1)}


def fenced(log: PartitionLog) -> Places:
    """The last batch of the oldest epoch comes once more, as if it went on, behind those of the newest."""
    last = log.batches[last_data(log)]
    epoch = min(one.epoch for one in log.batches if one.producer_id == last.producer_id)
    old = [one for one in log.batches if one.is_data and (one.producer_id, one.epoch) == (last.producer_id, epoch)][-1]
    late = old.changed(base_sequence=old.base_sequence + old.last_offset_delta + 1)
    return {"the late batch": log.place(log.append(late))}


def of_nobody(log: PartitionLog) -> Places:
    """All batches of a producer have an ID that is in no block."""
    given = log.batches[0].producer_id
    log.batches = [one.changed(producer_id=NOBODYS) if one.producer_id == given else one for one in log.batches]
    return {"its first batch": log.place(0)}


def one_of_nobody(log: PartitionLog) -> Places:
    at = in_the_middle(log)
    behind = log.next_of(at)
    assert behind is not None
    log.batches[at] = log.batches[at].changed(producer_id=NOBODYS)
    return {"the batch": log.place(at), "the producer's next": log.place(behind)}


def begun_again(log: PartitionLog) -> Places:
    """Another client with the same ID begins at sequence 0, in the same epoch."""
    last = log.batches[last_data(log)]
    other = last.changed(base_sequence=0, last_offset_delta=1, record_count=2)
    return {"the other's batch": log.place(log.append(other))}


def outside_of_transactions(log: PartitionLog) -> Places:
    last = log.batches[last_data(log)]
    plain = last.changed(
        attributes=last.attributes & ~TRANSACTIONAL, base_sequence=last.base_sequence + last.last_offset_delta + 1
    )
    places = {"the plain batch": log.place(log.append(plain))}
    first = next(at for at, one in enumerate(log.batches) if one.is_data and one.producer_id == last.producer_id)
    return places | {"the producer's first": log.place(first)}


def without_its_marker(*, minutes: int, hole: bool) -> Callable[[PartitionLog], Places]:
    """The last transaction was never ended, and the log goes on so much later."""

    def edit(log: PartitionLog) -> Places:
        at = last_marker(log)
        ended = log.batches[at].producer_id
        before = [index for index in range(at) if log.batches[index].producer_id == ended]
        since = max((index for index in before if not log.batches[index].is_data), default=-1)
        begun = next(index for index in before if index > since)
        log.drop(at, hole=hole)
        end = log.batches[-1].end_offset + hole
        newest = max(one.max_timestamp for one in log.batches)
        log.batches.append(Batch(batch(end, base_timestamp=newest + minutes * MINUTE_MS), log.files[-1]))
        return {"the transaction": log.place(begun), "the batch behind": log.place(len(log.batches) - 1)}

    return edit


def at_another_offset(step: int) -> Callable[[PartitionLog], Places]:
    """The CRC covers no offset."""

    def edit(log: PartitionLog) -> Places:
        at = in_the_middle(log)
        data = bytearray(log.batches[at].data)
        data[:8] = (log.batches[at].base_offset + step).to_bytes(8, "big")
        log.batches[at].data = bytes(data)
        return {"the batch": log.place(at), "the batch behind": log.place(at + 1)}

    return edit


# What happens to bytes and files.


def in_the_folder(topic: str, spoil: Callable[[PartitionLog], Places]) -> Fault:
    """A fault that changes files themselves; the log is as it was before."""
    return lambda replica: spoil(PartitionLog(replica / f"{topic}-0"))


def flip(place: Place, byte: int, bit: int = 1) -> None:
    assert place.position is not None
    data = bytearray(place.file.read_bytes())
    data[place.position + byte] ^= bit
    place.file.write_bytes(data)


def flipped(byte: int, bit: int = 1) -> Callable[[PartitionLog], Places]:
    """A bit of a batch of which nothing else is wrong; from the batch's end, if `byte` is negative."""

    def spoil(log: PartitionLog) -> Places:
        at = in_the_middle(log)
        flip(log.place(at), byte % len(log.batches[at].data), bit)
        return {"the batch": log.place(at)} | behind(log, at)

    return spoil


def with_length(step: int) -> Callable[[PartitionLog], Places]:
    """A batch's length is so many bytes off."""

    def spoil(log: PartitionLog) -> Places:
        at = in_the_middle(log)
        place = log.place(at)
        assert place.position is not None
        data = bytearray(place.file.read_bytes())
        where = place.position + FIELDS["length"][0]
        data[where : where + 4] = (log.batches[at].length + step).to_bytes(4, "big", signed=True)
        place.file.write_bytes(data)
        stop = place.position + len(log.batches[at].data) + step
        return {"the batch": place, "the end it says": Place(place.file, stop)} | behind(log, at)

    return spoil


def cut(number: int) -> Callable[[PartitionLog], Places]:
    """A segment ends within its last batch."""

    def spoil(log: PartitionLog) -> Places:
        last = log.place(log.of_file(number)[-1])
        assert last.position is not None
        last.file.write_bytes(last.file.read_bytes()[: last.position + 100])
        return {"the cut batch": last} | behind(log, log.of_file(number)[-1])

    return spoil


def behind(log: PartitionLog, index: int) -> Places:
    """The next batch in the log and the next of its producer, if there are any."""
    found: Places = {}
    if index + 1 < len(log.batches):
        found["the batch behind"] = log.place(index + 1)
    if (mine := log.next_of(index)) is not None:
        found["the producer's next"] = log.place(mine)
    return found


def emptied(number: int) -> Callable[[PartitionLog], Places]:
    def spoil(log: PartitionLog) -> Places:
        path = log.path(log.files[number])
        path.write_bytes(b"")
        return {"the segment": Place(path, 0)} | between(log, number)

    return spoil


def removed(number: int) -> Callable[[PartitionLog], Places]:
    def spoil(log: PartitionLog) -> Places:
        log.path(log.files[number]).unlink()
        return between(log, number)

    return spoil


def between(log: PartitionLog, number: int) -> Places:
    """Where it shows that a segment is not there: what stands behind it, and producers that had not ended before it."""
    gone = log.of_file(number)
    known = {log.batches[index].producer_id for index in range(gone[0]) if log.batches[index].is_data}
    found: Places = {}
    if gone[-1] + 1 < len(log.batches):
        found["the batch behind"] = log.place(gone[-1] + 1)
    for index in gone:
        one = log.batches[index]
        later = [at for at in range(gone[-1] + 1, len(log.batches)) if log.batches[at].producer_id == one.producer_id]
        if one.is_data and later:
            name = "the producer's next" if one.producer_id in known else "a producer's first"
            found[name] = log.place(later[0])
    return found


def retained(log: PartitionLog) -> Places:
    """Retention has removed the two oldest segments."""
    for number in (0, 1):
        log.path(log.files[number]).unlink()
    return {}


def renamed(step: int) -> Callable[[PartitionLog], Places]:
    """The third segment has a name that is wrong by so many offsets."""

    def spoil(log: PartitionLog) -> Places:
        file = log.files[2]
        log.path(file).rename(log.path(file + step))
        return {"the segment": Place(log.path(file + step), 0)}

    return spoil


def names_swapped(log: PartitionLog) -> Places:
    """The second and the third segment have each other's names."""
    one, other = (log.path(file) for file in log.files[1:3])
    first, second = one.read_bytes(), other.read_bytes()
    one.write_bytes(second)
    other.write_bytes(first)
    return {"the second name": Place(one, 0), "the third name": Place(other, 0)}


def segment_of(topic: str, number: int) -> Callable[[PartitionLog], Places]:
    """Under the name of a segment are the bytes of another topic's first one."""

    def spoil(log: PartitionLog) -> Places:
        other = PartitionLog(log.folder.parent / f"{topic}-0")
        path = log.path(log.files[number])
        shutil.copy(other.path(other.files[0]), path)
        return {"the segment": Place(path, 0)} | between(log, number)

    return spoil


def zeros_behind(number: int) -> Callable[[PartitionLog], Places]:
    """As preallocated."""

    def spoil(log: PartitionLog) -> Places:
        path = log.path(log.files[number])
        end = path.stat().st_size
        with path.open("ab") as file:
            file.write(bytes(8192))
        return {"the zeros": Place(path, end)}

    return spoil


def torn(log: PartitionLog) -> Places:
    """The broker was copied while it wrote: the last batch is there in part."""
    return cut(-1)(log)


def lying_indexes(log: PartitionLog) -> Places:
    """Each segment has the index of another one, and the first has bytes that are no index."""
    indexes = [log.path(file).with_suffix(".index") for file in log.files]
    contents = [path.read_bytes() for path in indexes]
    for path, content in zip(indexes, [*contents[1:], contents[0]], strict=True):
        path.write_bytes(content[::-1] or b"\xff" * 64)
    indexes[0].write_bytes(bytes(range(1, 241)))
    return {}


def nothing(_: Path) -> Places:
    return {}


_MAGIC_AT: Final = 16
_SEQUENCE_AT: Final = FIELDS["base_sequence"][0]
FAULTS: Final[dict[str, Fault]] = {
    "nothing wrong": nothing,
    "a batch repeated at the end": edited("python", repeated_at_the_end),
    "two batches repeated at the end": edited("stamped", run_repeated_at_the_end),
    "a batch repeated in a later segment": edited("codecs", repeated_in_the_middle),
    "a batch of a segment gone": edited("codecs", dropped(in_the_middle)),
    "a batch never written": edited("codecs", dropped(in_the_middle, hole=False)),
    "the last batch of a segment gone": edited("codecs", dropped(last_of(0))),
    "the first batch of a segment gone": edited("codecs", dropped(first_of(1))),
    "the first batch of all gone": edited("codecs", dropped(first_of(0))),
    "a producer's last batch gone": edited("codecs", dropped_without_successor),
    "a batch of a compacted topic gone": edited("compacted", dropped(in_the_active)),
    "a batch of a compacted topic never written": edited("compacted", dropped(in_the_active, hole=False)),
    "batches swapped": edited("codecs", swapped),
    "batches swapped with their offsets": edited("codecs", swapped_on_disk),
    "a fenced epoch": edited("transactions", fenced),
    "a producer of no block": edited("wrapped", of_nobody),
    "a batch of another's producer": edited("codecs", one_of_nobody),
    "a stream that begins again": edited("python", begun_again),
    "inside and outside of transactions": edited("transactions", outside_of_transactions),
    "a marker gone, 10 minutes ago": edited("transactions", without_its_marker(minutes=10, hole=False)),
    "a marker gone, an hour ago": edited("transactions", without_its_marker(minutes=60, hole=False)),
    "a marker gone, two hours ago": edited("transactions", without_its_marker(minutes=120, hole=False)),
    "a marker lost, two hours ago": edited("transactions", without_its_marker(minutes=120, hole=True)),
    "a byte of a record": in_the_folder("codecs", flipped(-9)),
    "a byte of a sequence": in_the_folder("codecs", flipped(_SEQUENCE_AT + 3, 8)),
    "a byte of a magic": in_the_folder("codecs", flipped(_MAGIC_AT, 4)),
    "a length with one more": in_the_folder("codecs", with_length(1)),
    "a length with one less": in_the_folder("codecs", with_length(-1)),
    "a length beyond the segment": in_the_folder("codecs", with_length(1 << 24)),
    "a length below none": in_the_folder("codecs", with_length(-(1 << 24))),
    "an offset one further": edited("codecs", at_another_offset(1)),
    "an offset far beyond": edited("codecs", at_another_offset(1 << 24)),
    "an offset of no segment": edited("codecs", at_another_offset(1 << 48)),
    "a segment cut short": in_the_folder("codecs", cut(0)),
    "an empty segment": in_the_folder("codecs", emptied(1)),
    "the first segment empty": in_the_folder("codecs", emptied(0)),
    "the last segment empty": in_the_folder("codecs", emptied(-1)),
    "the first segment gone": in_the_folder("codecs", removed(0)),
    "a segment gone": in_the_folder("codecs", removed(1)),
    "the last segment gone": in_the_folder("codecs", removed(-1)),
    "two segments gone by retention": in_the_folder("codecs", retained),
    "a segment of another topic": in_the_folder("codecs", segment_of("asynchronous", 1)),
    "a segment of another topic at the start": in_the_folder("codecs", segment_of("transactions", 0)),
    "a name some offsets too high": in_the_folder("codecs", renamed(10)),
    "a name some offsets too low": in_the_folder("codecs", renamed(-10)),
    "names swapped": in_the_folder("codecs", names_swapped),
    "zeros at the end": in_the_folder("codecs", zeros_behind(-1)),
    "zeros at the end of an older segment": in_the_folder("codecs", zeros_behind(0)),
    "a torn end": in_the_folder("codecs", torn),
    "indexes that lie": in_the_folder("codecs", lying_indexes),
}


class Case(NamedTuple):
    """A fault in the replica of broker 1, or in both alike."""

    fault: str
    of_both: bool

    @property
    def name(self) -> str:
        return f"{self.fault}, {'both' if self.of_both else 'one'}"


CASES: Final = [Case(fault, of_both) for fault in FAULTS for of_both in (False, True)]


def write_case(logs: Path, directory: Path, case: Case) -> Places:
    """The files of a quorum and of two brokers, spoilt, in `directory`; the places of broker 1."""
    write_members(directory)
    replicas = write_replicas(logs, directory)
    spoilt = replicas if case.of_both else replicas[:1]
    places, *_ = [FAULTS[case.fault](replica) for replica in spoilt]
    return places


def audited(engine: Engine, directory: Path) -> Outcome:
    """What `write_case` has left."""
    paths = AuditPaths([str(path) for path in sorted((directory / "members").iterdir())], [str(directory / "kafka")])
    return look(engine, AuditOptions(paths, locate(directory / "out")))


def said_of(engine: Engine, logs: Path, directory: Path, case: Case) -> tuple[Said, Said]:
    """What the audit says of a case, and what it should say; files are paths below the log directories of brokers."""
    places = write_case(logs, directory, case)
    outcome = audited(engine, directory)
    kafka = directory / "kafka"
    findings = findings_of(outcome.tables["findings"].to_pylist(), kafka)
    return Said(outcome.verdict.verdict, outcome.verdict.coverage.unseen, findings), expected(case, places, kafka)


def verdicts() -> dict[str, Any]:
    """By name of the case. A finding: check, severity, subject, broker, name of the place."""
    found: dict[str, Any] = json.loads(Path(__file__).with_name("kafka_verdicts.json").read_text())
    return found


def expected(case: Case, places: Mapping[str, Place], kafka: Path) -> Said:
    """That of kafka_verdicts.json for the broker's bytes; without what this run of the broker has no place for."""
    told = verdicts()[case.name]
    return Said(
        told["verdict"],
        told["unseen"],
        sorted(
            [check, severity, subject.format(file=places[name].file.name, producer=places[name].producer), *at]
            for check, severity, subject, broker, name in told["findings"]
            if name in places
            for at in [_of_broker(places[name], broker, kafka)]
        ),
    )


def _of_broker(place: Place, broker: int, kafka: Path) -> tuple[str, int | None]:
    """Both replicas have the same files."""
    path = place.file.relative_to(kafka)
    return str(Path(str(broker), *path.parts[1:])), place.position
