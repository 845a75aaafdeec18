"""Damaged files: log segments, snapshots, archive files. Decoding them must never write."""

from __future__ import annotations

import struct
import uuid
from pathlib import PurePath
from typing import Any, Final

import google_crc32c
import msgspec

from pidkeeper.cli import offline
from pidkeeper.controller.raft.config import RaftConfig
from pidkeeper.controller.raft.core import RaftCore
from pidkeeper.controller.raft.invariants import InvariantViolation
from pidkeeper.controller.raft.messages import Entry, HardState
from pidkeeper.controller.state.machine import StateMachine
from pidkeeper.controller.storage import frames
from pidkeeper.controller.storage.archive import AllocationArchive
from pidkeeper.controller.storage.dump import DumpedDamage, DumpedFrame, dump_log
from pidkeeper.controller.storage.errors import LogCorruption
from pidkeeper.controller.storage.recovery import RecoveredLog, recover
from pidkeeper.controller.storage.segment import HEADER_BYTES
from pidkeeper.protocol.founding import FoundingRecord, SuccessionRecord
from pidkeeper.protocol.messages import AllocatedBlock
from pidkeeper.protocol.migration import MigrationPhase, MigrationRecord
from pidkeeper.protocol.records import LeaderChangeRecord, QuorumMember, Record, RecordError, VotersRecord, encode_batch
from pidkeeper.protocol.transactions import TopicPartitions, TransactionRecord
from pidkeeper.snapshots.archive_format import ArchiveError, decode_archive, encode_archive
from pidkeeper.snapshots.image import BrokerRegistration, Evidence, LastBlock, StateImage
from pidkeeper.snapshots.snapshot_format import SnapshotError, decode_snapshot
from tests.fuzz.mutator import Parts
from tests.fuzz.record_batches import VOTERS
from tests.fuzz.target import Target, Violation
from tests.support.log_builder import META, SMALL, WAL, entries, hard_state, new_disk, open_log, segments
from tests.support.snapshot_file import snapshot_file

ARCHIVE: Final = PurePath("/data/archive")
_U32: Final = struct.Struct(">I")
_U64: Final = struct.Struct(">Q")
_FRAME_HEAD: Final = struct.Struct(">IBQQ")
_BATCH_HEAD: Final = struct.Struct(">8sQI")
_IDENTITY_BYTES: Final = 120
_MEMBER: Final = QuorumMember(1, None, "h:1", "http://h", True)
RECORDS: Final[tuple[Record, ...]] = (
    LeaderChangeRecord(1),
    VotersRecord((_MEMBER, QuorumMember(2, "d", "h:2", "http://h", False))),
    VotersRecord((_MEMBER, QuorumMember(2, "d", "h:2", "http://h", True))),
)
"""What the entries of one of the logs hold: a member joins."""


class ReadOnlyFiles:
    """The half of `Files` that changes nothing: a call of any other kind is a violation."""

    def __init__(self, contents: dict[str, bytes]) -> None:
        self._contents = contents
        self._names = list(contents)

    def listdir(self, path: PurePath) -> list[str]:
        return sorted(self._contents)

    def open(self, path: PurePath) -> int:
        return self._names.index(path.name)

    def close(self, handle: int) -> None:
        return None

    def pread(self, handle: int, size: int, offset: int) -> bytes:
        return self._contents[self._names[handle]][offset : offset + size]

    def read_bytes(self, path: PurePath) -> bytes:
        return self._contents[path.name]

    def size(self, path: PurePath) -> int:
        return len(self._contents[path.name])

    def fsync_directory(self, path: PurePath) -> None:
        return None

    def __getattr__(self, name: str) -> Any:
        raise Violation(f"reading damaged files called {name}")


class FirstChoice:
    """Chance that always draws the lowest number."""

    def randrange(self, start: int, stop: int, /) -> int:
        return start


class LogTarget(Target):
    """`recover` over segments of 1 KiB each, and a member that starts from what it found."""

    name = "wal"
    refusals: tuple[type[Exception], ...] = (LogCorruption, InvariantViolation, RecordError)
    steps = 4000
    steps_per_byte = 4

    def __init__(self) -> None:
        raw = [(log,) for log in _logs()]
        self.corpus: list[Parts] = raw + [_split_segment(log[:SMALL]) for (log,) in raw]

    def assemble(self, parts: Parts) -> bytes:
        """One part: whole segments. More: a segment's header, and frames that each become a batch, as many as fit."""
        if len(parts) == 1:
            return parts[0]
        identity = parts[0][:_IDENTITY_BYTES].ljust(_IDENTITY_BYTES, b"\0")
        sized = identity + _U64.pack(SMALL)
        data = sized + _U32.pack(google_crc32c.value(sized)) + bytes(4)
        seed = google_crc32c.value(identity)
        sequence, chain = _U64.unpack_from(identity, 108)[0], _U32.unpack_from(identity, 116)[0]
        for body in parts[1:]:
            batch, chain = _encode_batch(body, sequence % 2**64, len(data), seed, chain)
            if len(data) + len(batch) > SMALL:
                break
            data += batch
            sequence += 1
        return data.ljust(SMALL, b"\0")

    def feed(self, data: bytes) -> None:
        log = recover(_segments(data), WAL, META).log
        _check_recovered(log)
        first = log.entries[0].index if log.entries else 0
        if first <= log.snapshot.index + 1:
            RaftCore(
                RaftConfig(node_id=1, voters=(1, 2, 3)),
                FirstChoice(),
                hard_state=log.hard_state,
                snapshot=log.snapshot,
                entries=log.entries,
                leader_change_data=b"",
            )


class Damaged(Exception):  # noqa: N818 - the finding of the reader
    """The dump ended with damage."""


class DumpTarget(LogTarget):
    """`dump_log` over the same files, as the command line prints it: damage is reported, never raised.

    What `recover` accepts is dumped to its end, with every entry that it recovered.
    """

    name = "dump"
    refusals = (Damaged,)
    steps = 8000
    steps_per_byte = 16

    def feed(self, data: bytes) -> None:
        items = list(dump_log(_segments(data), WAL))
        for item in items:
            msgspec.json.encode(offline._plain(item))
            "  ".join(offline._columns(item))
        damage = [item for item in items if isinstance(item, DumpedDamage)]
        if damage and (len(damage) > 1 or items[-1] is not damage[0]):
            raise Violation(f"damage is not the last thing told: {damage}")
        try:
            log = recover(_segments(data), WAL, None).log
        except LogCorruption as error:
            # Or the frames are whole and contradict one another: the dump shows them, and the start judges.
            raise Damaged(error.reason) from error
        if (log.truncated is not None) != bool(damage) or any(not one.torn for one in damage):
            raise Violation(f"recovered with {log.truncated}, but the dump tells of {damage}")
        told = {(one.term, one.index) for one in items if isinstance(one, DumpedFrame) and one.type == "entry"}
        if missing := [entry for entry in log.entries if (entry.term, entry.index) not in told]:
            raise Violation(f"entries {missing} are not in the dump")
        if damage:
            raise Damaged(damage[0].reason)


def _segments(data: bytes) -> Any:
    """The input as files of one segment each, by the names that their headers ask for."""
    contents = {}
    for start in range(0, min(len(data), 8 * SMALL), SMALL):
        segment = data[start : start + SMALL]
        number, first_index = struct.unpack(">QQ", segment[92:108].rjust(16, b"\0"))
        contents[f"{number:016d}-{first_index:020d}.wal"] = segment
    return ReadOnlyFiles(contents)


def _check_recovered(log: RecoveredLog) -> None:
    indexes = [entry.index for entry in log.entries]
    if indexes != list(range(indexes[0], indexes[0] + len(indexes)) if indexes else ()):
        raise Violation(f"recovered entries are not contiguous: {indexes}")
    if log.clean and log.truncated is not None:
        raise Violation("a log with a torn end counts as closed on purpose")


def _logs() -> list[bytes]:
    """Small logs as the write-ahead log writes them: one segment, several, truncated and restarted ones."""
    found = []
    for last, commit, restart in ((3, 2, False), (30, 12, False), (8, 7, True)):
        files = new_disk()
        log, _ = open_log(files)
        log.append(entries(1, last // 2), hard_state(1, 0))
        log.append(entries(last // 2 + 1, last), hard_state(1, commit))
        log.append(entries(last, last + 1, term=2), hard_state(2, commit))
        if restart:
            log.append([], HardState(2, 2, commit, recovering=True))
        else:
            log.close()
        found.append(b"".join([files.read_bytes(WAL / name) for name in segments(files)]))
    files = new_disk()
    log, _ = open_log(files)
    log.append([Entry(1, at, encode_batch([record])) for at, record in enumerate(RECORDS, 1)], hard_state(1, 2))
    log.append([Entry(2, 3, encode_batch([RECORDS[0]])), Entry(2, 4, b"")], hard_state(2, 3))
    log.close()
    return [*found, b"".join([files.read_bytes(WAL / name) for name in segments(files)])]


def _split_segment(segment: bytes) -> Parts:
    """The header's identity and the frames of a segment, without what `LogTarget.assemble` adds."""
    sequence, chain = _U64.unpack_from(segment, 108)[0], _U32.unpack_from(segment, 116)[0]
    seed, position, parts = google_crc32c.value(segment[:_IDENTITY_BYTES]), HEADER_BYTES, [segment[:_IDENTITY_BYTES]]
    while batch := frames.decode_batch(segment, position, sequence, seed, chain):
        parts += [
            _FRAME_HEAD.pack(len(one.payload), one.type, one.term, one.index) + one.payload for _, one in batch.frames
        ]
        position, sequence, chain = batch.end, sequence + 1, batch.chain
    return tuple(parts)


def _encode_batch(body: bytes, sequence: int, position: int, seed: int, chain: int) -> tuple[bytes, int]:
    extend = google_crc32c.extend
    if len(body) >= _FRAME_HEAD.size and google_crc32c.value(body) % 2:
        # Every other frame tells its length truly, so that what is behind the framing meets odd payloads.
        body = _U32.pack(len(body) - _FRAME_HEAD.size) + body[4:]
    written = 24 + len(body) + 4
    size = written + 29
    padding = bytes(-size % 8)
    head = _BATCH_HEAD.pack(b"PIDBATCH", sequence, size + len(padding))
    data = head + _U32.pack(extend(seed, _U64.pack(position) + head))
    chain = extend(chain, body)
    commit = _FRAME_HEAD.pack(4, frames.COMMIT, 0, sequence) + _U32.pack(written)
    last = extend(chain, commit)
    return data + body + _U32.pack(chain) + commit + _U32.pack(last) + padding, last


def images() -> list[StateImage]:
    """Images of an empty state, small ones without and with a configuration, a migration, transactions or a founding,
    and one at the limits of its fields."""
    broker = BrokerRegistration(7, 3, "incarnation", True, ("before", "long before"))
    other = BrokerRegistration(2**31 - 1, 2**63 - 1, "i" * 64, False, ())
    block = LastBlock(first=0, length=1000, broker_id=7, broker_epoch=3, offset=4, timestamp_ms=1_700_000_000_000)
    idle = TransactionRecord("a", 7, 0, -1, -1, 60_000, 0, 1)
    topics = TopicPartitions("t", (0, 300)), TopicPartitions("u", (2**31 - 1,))
    ongoing = TransactionRecord("b" * 249, 8, 2, 8, 1, 60_000, 1, 9, topics, 4)
    return [
        StateImage(1, 0, 0, 0, 0, None, []),
        StateImage(5, 9, 2, 5, 1000, block, [broker], transactions=[idle]),
        StateImage(3, 9, 2, 5, 1000, block, [broker], transactions=[idle, ongoing]),
        StateImage(1, 9, 2, 5, 1000, block, [broker]),
        *[StateImage(2, 9, 2, 5, 1000, block, [broker], voters) for voters in VOTERS],
        *[
            StateImage(4, 9, 2, 5, 1000, block, [broker], migration=MigrationRecord(phase, "q" * 128, 2**31 - 1, -1))
            for phase in (MigrationPhase.BRIDGE, MigrationPhase.ROLLED_BACK)
        ],
        StateImage(1, 2**63 - 1, 2**62, 2**63 - 1, 2**63 - 1, block, [broker, other]),
        StateImage(
            8,
            9,
            2,
            5,
            5000,
            block,
            [broker],
            founding=FoundingRecord(uuid.UUID(int=2), 1000, False, 1),
            evidence=(Evidence(7, uuid.UUID(int=9), 9000, 3), Evidence(8, uuid.UUID(int=9), 2**40, 4, dismissed=True)),
            succession=SuccessionRecord(uuid.UUID(int=2), uuid.UUID(int=1), 5000, 3),
        ),
    ]


class SnapshotTarget(Target):
    """`decode_snapshot`, and a state machine restored from what it found: by assertion, if ids share a producer ID."""

    name = "snapshot"
    refusals = (SnapshotError, AssertionError)
    steps = 500
    steps_per_byte = 2

    def __init__(self) -> None:
        files = [snapshot_file("cluster-a", image) for image in images()]
        self.corpus: list[Parts] = [(data[:92], data[100:-4]) for data in files]

    def assemble(self, parts: Parts) -> bytes:
        """The header up to the term, and the body."""
        header, body = parts[0], b"".join(parts[1:])
        data = header + _U64.pack(len(body)) + body
        return data + _U32.pack(google_crc32c.value(data))

    def feed(self, data: bytes) -> None:
        image = decode_snapshot(data, "one", "cluster-a")
        machine = StateMachine("cluster-a")
        machine.restore(image)
        if decode_snapshot(snapshot_file("cluster-a", machine.image(image.index, image.term)), "two", None) != image:
            raise Violation("the state restored from a snapshot gives another snapshot")


class ArchiveTarget(Target):
    """`decode_archive`, and the archive of a member opened over the same file, searched and read."""

    name = "archive"
    refusals = (ArchiveError,)
    steps = 4000
    steps_per_byte = 40

    def __init__(self) -> None:
        blocks = [
            AllocatedBlock(at * 1000, at * 1000 + 999, at % 3, 5, 10 + at * 2, 1_700_000_000_000) for at in range(8)
        ]
        files = [encode_archive("cluster-a", 0, 100, blocks[:count]) for count in (0, 1, 8)]
        self.corpus: list[Parts] = [
            (data[:116], *[data[at : at + 48] for at in range(128, len(data), 48)]) for data in files
        ]

    def assemble(self, parts: Parts) -> bytes:
        """The header up to the checksum of the rows, and the rows."""
        rows = b"".join(parts[1:])
        header = parts[0] + _U32.pack(google_crc32c.value(rows)) + bytes(4)
        return header + _U32.pack(google_crc32c.value(header)) + rows

    def feed(self, data: bytes) -> None:
        from_offset, to_offset = struct.unpack(">qq", data[76:92].rjust(16, b"\0"))
        files = ReadOnlyFiles({f"{from_offset:020d}-{to_offset:020d}.arc": data})
        whole = _rows(data)
        archive = AllocationArchive(files, ARCHIVE, "cluster-a")  # type: ignore[arg-type]
        read = list(archive)
        for block in read:
            archive.find(block.first)
        if whole is not None and read != whole:
            raise Violation(f"the archive lists {len(read)} blocks of a file of {len(whole)}")


def _rows(data: bytes) -> list[AllocatedBlock] | None:
    try:
        return decode_archive(data)[1]
    except ArchiveError:
        return None


def entry_frame(entry: Entry) -> frames.Frame:
    """The frame that keeps a log entry."""
    return frames.Frame(frames.ENTRY, entry.term, entry.index, entry.data)
