"""Logs of Kafka batch by batch, as files on disk, and lawful ones of several producers made by chance."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.support.segment_builder import batch, record

START_MS: Final = 1_700_000_000_000
MAX_SEQUENCE: Final = (1 << 31) - 1
FIRST_SEGMENT: Final = f"{0:020}.log"
Row = dict[str, Any]


def damaged_bytes() -> bytes:
    """A batch with a wrong CRC."""
    data = bytearray(batch(0))
    data[-1] ^= 1
    return bytes(data)


def encoded(row: Row) -> bytes:
    """The batch of a row, or damage where one was."""
    if row.get("damage"):
        return damaged_bytes()
    kind = row["marker"]
    payload = record(0, struct.pack(">hi", 0, 0), struct.pack(">hh", 0, int(kind == "commit"))) if kind else b""
    return batch(
        row["base_offset"],
        producer=(row["producer_id"], row["producer_epoch"], row["base_sequence"]),
        transactional=row["is_transactional"],
        log_append_time=row["broker_clock"],
        control=kind is not None,
        max_timestamp=row["max_timestamp_ms"],
        last_offset_delta=row["last_offset"] - row["base_offset"],
        record_count=row["record_count"],
        payload=payload,
    )


@dataclass
class Log:
    """One partition as one member has it: batches are appended in one segment, a second apart.

    The names of `rows` are those of the headers; `position` is where `damaged` lies between them, not on disk. `name`
    is that of the segment.
    """

    topic: str = "orders"
    partition: int = 0
    member: str = "1"
    rows: list[Row] = field(default_factory=list)
    end: int = 0
    now_ms: int = START_MS
    broker_clock: bool = False
    damaged: list[int] = field(default_factory=list)

    @property
    def folder(self) -> str:
        return f"{self.topic}-{self.partition}"

    def data(self, producer: int, epoch: int, sequence: int, count: int = 3, *, transactional: bool = False) -> Row:
        """Append a batch."""
        last = (sequence + count - 1) & MAX_SEQUENCE if sequence >= 0 else -1
        return self._append(producer, epoch, count, sequence, last, transactional)

    def marker(self, producer: int, epoch: int, kind: str = "commit") -> Row:
        """Append the end of a transaction."""
        return self._append(producer, epoch, 1, -1, -1, True, kind)

    def _append(
        self, producer: int, epoch: int, count: int, first: int, last: int, transactional: bool, kind: str | None = None
    ) -> Row:
        self.now_ms += 1000
        row = {
            "name": FIRST_SEGMENT,
            "position": self.end * 100,
            "base_offset": self.end,
            "last_offset": self.end + count - 1,
            "broker_clock": self.broker_clock,
            "is_transactional": transactional,
            "is_control": kind is not None,
            "max_timestamp_ms": self.now_ms,
            "producer_id": producer,
            "producer_epoch": epoch,
            "base_sequence": first,
            "last_sequence": last,
            "record_count": count,
            "marker": kind,
        }
        self.rows.append(row)
        self.end += count
        return row

    def run(self, producer: int, epoch: int, sequences: Sequence[int], *, transactional: bool = False) -> Log:
        """Batches of three records at these sequences."""
        for sequence in sequences:
            self.data(producer, epoch, sequence, transactional=transactional)
        return self

    def close_up(self) -> None:
        """Give offsets and positions anew: what was taken out of `rows` was never there."""
        self.end = 0
        for row in self.rows:
            count = row["last_offset"] - row["base_offset"] + 1
            row |= {"base_offset": self.end, "last_offset": self.end + count - 1, "position": self.end * 100}
            self.end += count

    def moved(self, topic: str, more: int) -> Log:
        """The same log in another topic, unless it is one of the coordinators', with other producers."""
        other = Log(self.topic if self.topic.startswith("__") else topic, self.partition, self.member)
        other.damaged = self.damaged
        for row in self.rows:
            producer = row["producer_id"]
            other.rows.append(row | {"producer_id": producer + more * (producer >= 0)})
        return other

    def copy(self, member: str) -> Log:
        """The same log on another member."""
        other = Log(self.topic, self.partition, member, end=self.end, now_ms=self.now_ms)
        other.rows = [dict(row) for row in self.rows]
        return other

    def segments(self) -> dict[str, bytes]:
        """The bytes of each segment by its name."""
        found: dict[str, bytearray] = {}
        damaged = sorted(self.damaged)
        for row in self.rows:
            data = found.setdefault(row["name"], bytearray())
            while damaged and damaged[0] < row["position"]:
                data += damaged_bytes()
                damaged.pop(0)
            data += encoded(row)
        return {name: bytes(data) for name, data in found.items()}


def write(directory: Path, logs: Iterable[Log]) -> None:
    """As brokers have them: a folder for each member with one for each partition."""
    for log in logs:
        member = directory / log.member
        (member / log.folder).mkdir(parents=True, exist_ok=True)
        if log.member.isdigit():
            (member / "meta.properties").write_text(f"node.id={log.member}\n")
        for name, data in log.segments().items():
            (member / log.folder / name).write_bytes(data)


@dataclass
class _Producer:
    id: int
    transactional: bool
    new_epoch_each_time: bool
    epoch: int = 0
    next: dict[int, int] = field(default_factory=dict)
    written: set[int] = field(default_factory=set)


def lawful_logs(chance: random.Random, topic: str, first_id: int, steps: int = 40) -> list[Log]:
    """Logs of up to three partitions that three producers wrote: bumps, transactions, and sequences that wrap."""
    logs = [Log(topic, partition) for partition in range(chance.randint(1, 3))]
    producers = [_Producer(first_id + n, chance.random() < 0.6, chance.random() < 0.5) for n in range(3)]
    for producer in producers:
        start = chance.choice((0, 0, 17, MAX_SEQUENCE - chance.randint(0, 40)))
        producer.next = {log.partition: start for log in logs}
    for _ in range(steps):
        _step(chance, logs, chance.choice(producers))
    for producer in producers:
        _end(chance, logs, producer)
    return logs


def _step(chance: random.Random, logs: list[Log], producer: _Producer) -> None:
    for log in logs:
        log.now_ms = max(each.now_ms for each in logs)
    log = chance.choice(logs)
    action = chance.random()
    if action < 0.75:
        count, sequence = chance.randint(1, 6), producer.next[log.partition]
        log.data(producer.id, producer.epoch, sequence, count, transactional=producer.transactional)
        producer.next[log.partition] = (sequence + count) & MAX_SEQUENCE
        producer.written.add(log.partition)
    elif action < 0.9:
        _end(chance, logs, producer)
    elif not producer.transactional:
        _bump(producer)
    elif chance.random() < 0.3:
        log.marker(producer.id, producer.epoch)  # of a transaction that wrote nothing here
        producer.written.discard(log.partition)


def _end(chance: random.Random, logs: list[Log], producer: _Producer) -> None:
    if not producer.transactional:
        return
    fenced = chance.random() < 0.2
    if producer.new_epoch_each_time or fenced:
        _bump(producer)
    kind = "abort" if fenced else chance.choice(("commit", "abort"))
    for log in logs:
        if log.partition in producer.written:
            log.marker(producer.id, producer.epoch, kind)
    producer.written.clear()


def _bump(producer: _Producer) -> None:
    producer.epoch += 1
    producer.next = dict.fromkeys(producer.next, 0)


def compact(chance: random.Random, log: Log) -> None:
    """Take out batches of data, and the records of others."""
    for row in list(log.rows):
        if row["is_control"] or chance.random() > 0.3:
            continue
        if chance.random() < 0.5:
            row["record_count"] = 0
        else:
            log.rows.remove(row)
