"""Which topics are never compacted, by the metadata log that every broker of a KRaft cluster has among its segments.

`__cluster_metadata-0` holds record batches of magic 2 whose records are framed messages (KIP-631): an unsigned varint
each for the version of the frame, the kind of message and its version, then its fields. Three kinds matter here.

    2 TopicRecord        compact string name, 16 bytes id
    4 ConfigRecord       int8 type of resource, compact strings name of the resource, name and value, null for a reset
    9 RemoveTopicRecord  16 bytes id

Kinds 23 to 25 begin, end and abort a transaction of such records (KIP-868). A compact string is an unsigned varint, one
more than its length and 0 for null, and its bytes. A snapshot, `<offset>-<epoch>.checkpoint`, holds what all records
below its offset amount to, as the same batches.

What is not in the log: `log.cleanup.policy` in a broker's own properties, which is for whoever asks to say; and that a
topic was once compacted, if the log does not go back to when it was changed to "delete". That a cleaner has been over a
topic is looked up in brokers' `cleaner-offset-checkpoint`, and then nothing is said of it.
"""

from __future__ import annotations

import enum
import re
import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import BinaryIO, Final

import msgspec
from google_crc32c import value as crc32c

from pidkeeper.pipeline.files.location import Location
from pidkeeper.pipeline.formats.log_segment import Window
from pidkeeper.pipeline.formats.record_batch import (
    AFTER_CRC,
    COMPRESSION_MASK,
    CONTROL,
    HEADER_BYTES,
    LEAST_LENGTH,
    MAGIC,
    PREFIX_BYTES,
    START,
)
from pidkeeper.pipeline.segments.plan import is_whole
from pidkeeper.pipeline.segments.segment_files import SegmentFile

METADATA_TOPIC: Final = "__cluster_metadata"
DELETE: Final = "delete"
"""Kafka's default of `log.cleanup.policy`."""
MAX_CHECKPOINT_BYTES: Final = 64 << 20
"""Of cleaner-offset-checkpoint: a line for each compacted partition."""

_SNAPSHOT: Final = re.compile(r"(\d{20})-\d{10}\.checkpoint")
_COUNT: Final = struct.Struct(">i")
_FRAME_VERSION: Final = 1
_OF_TOPIC, _OF_BROKER = 2, 4
_ID_BYTES: Final = 16
_MAX_VARINT_BYTES: Final = 10


def read_policies(files: Sequence[SegmentFile], default: str | None = DELETE) -> dict[str, str | None]:
    """`cleanup.policy` of each topic that the furthest metadata log among `files` has; None where it is in doubt.

    Nothing where there is no such log, or none that can be read from its beginning. `default`: what topics have that
    no setting of the cluster says anything of. Raises nothing for files that cannot be read or are damaged.
    """
    logs: dict[Location, list[SegmentFile]] = {}
    for file in files:
        if file.topic == METADATA_TOPIC:
            logs.setdefault(file.location.parent, []).append(file)
    copies = [copy for folder, segments in logs.items() if (copy := _read_copy(folder, segments, default)) is not None]
    if not copies:
        return {}
    policies = max(copies, key=lambda copy: copy[0])[1]
    cleaned = _cleaned({file.location.parent.parent for file in files})
    return {topic: None if topic in cleaned and is_whole(policy) else policy for topic, policy in policies.items()}


def _read_copy(
    folder: Location, segments: Sequence[SegmentFile], default: str | None
) -> tuple[int, dict[str, str | None]] | None:
    """Up to which offset a copy of the log goes, and what it says; None if that cannot be known."""
    settings = _Settings(default)
    first = min(segment.base_offset or 0 for segment in segments)
    end = 0
    try:
        # The oldest one that will do, for what came behind it is told in full.
        snapshots = [name for name in folder.names() if _SNAPSHOT.fullmatch(name) and _offset(name) >= first]
        if first and snapshots:
            end = _offset(snapshots[0])
            settings.replay(message for batch in _messages(folder / snapshots[0]) for _, message in batch)
        for segment in sorted(segments, key=lambda segment: segment.base_offset or 0):
            for batch in _messages(segment.location):
                if batch[0][0] > end:
                    return None
                settings.replay(message for offset, message in batch if offset >= end)
                end = max(end, batch[-1][0] + 1)
    except (OSError, EOFError, ValueError, IndexError, struct.error):
        return None
    return end, settings.policies()


def _offset(snapshot: str) -> int:
    return int(snapshot.partition("-")[0])


def _cleaned(folders: set[Location]) -> set[str]:
    """Topics that brokers' cleaners have been over. The file: version, count, then topic, partition, offset a line."""
    found = set()
    for folder in folders:
        try:
            text = (folder / "cleaner-offset-checkpoint").read(MAX_CHECKPOINT_BYTES).decode(errors="replace")
        except OSError:
            continue
        found |= {line.split(" ")[0] for line in text.splitlines() if line.count(" ") == 2}
    return found


class _Settings:
    """What the records amount to."""

    def __init__(self, default: str | None) -> None:
        self._default = default
        self._of_brokers: dict[str, str] = {}
        self._of_topics: dict[str, str] = {}
        self._names: dict[bytes, str] = {}
        self._compacted: set[str] = set()
        self._touched: set[str] = set()
        self._waiting: list[_Message] | None = None

    def policies(self) -> dict[str, str | None]:
        """By topic. One that was compacted before it was changed may have holes from then."""
        return {name: None if self._once_compacted(name) else self._policy(name) for name in self._names.values()}

    def replay(self, messages: Iterable[_Message | None]) -> None:
        """Take records into account that came at once, as a topic and its settings do; None says nothing here."""
        for message in messages:
            if message is not None:
                self._take(message)
        # Only now, for between the two a topic seems to have another policy than it ever had.
        self._compacted |= {name for name in self._touched if not is_whole(self._policy(name))}
        self._touched.clear()

    def _take(self, message: _Message) -> None:
        """Those of a transaction wait for its end."""
        match message.kind:
            case _Kind.BEGIN:
                self._waiting = []
            case _Kind.END:
                waiting, self._waiting = self._waiting or [], None
                for each in waiting:
                    self._apply(each)
            case _Kind.ABORT:
                self._waiting = None
            case _ if self._waiting is not None:
                self._waiting.append(message)
            case _:
                self._apply(message)

    def _apply(self, message: _Message) -> None:
        match message.kind:
            case _Kind.TOPIC:
                self._names[message.topic_id] = message.name
                self._touched.add(message.name)
            case _Kind.REMOVE_TOPIC:
                name = self._names.pop(message.topic_id, "")
                self._of_topics.pop(name, None)
                self._compacted.discard(name)
                self._touched.discard(name)
            case _ if message.resource == _OF_TOPIC and message.setting == "cleanup.policy":
                _put(self._of_topics, message.name, message.value)
                self._touched.add(message.name)
            case _ if message.resource == _OF_BROKER and message.setting == "log.cleanup.policy":
                _put(self._of_brokers, message.name, message.value)
                self._touched.update(self._names.values())

    def _policy(self, topic: str) -> str | None:
        """None if it is in doubt: brokers that differ, or a default that is not known."""
        if topic in self._of_topics:
            return self._of_topics[topic]
        policies = {self._of_brokers.get("", self._default), *self._of_brokers.values()}
        return policies.pop() if len(policies) == 1 else None

    def _once_compacted(self, topic: str) -> bool:
        return topic in self._compacted and is_whole(self._policy(topic))


def _put(settings: dict[str, str], name: str, value: str | None) -> None:
    if value is None:
        settings.pop(name, None)
    else:
        settings[name] = value


# Bytes.


class _Kind(enum.IntEnum):
    TOPIC = 2
    CONFIG = 4
    REMOVE_TOPIC = 9
    BEGIN = 23
    END = 24
    ABORT = 25


class _Message(msgspec.Struct, frozen=True):
    """A record. `name` is that of a topic or of what a setting is for; `value` is None if the setting was reset."""

    kind: _Kind
    name: str = ""
    topic_id: bytes = b""
    resource: int = 0
    setting: str = ""
    value: str | None = None


class _Cursor:
    """Reads field after field. Raises IndexError or struct.error where the bytes end, ValueError for nonsense."""

    def __init__(self, data: bytes, at: int = 0) -> None:
        self._data = data
        self.at = at

    def take(self, size: int) -> bytes:
        if size < 0 or self.at + size > len(self._data):
            raise IndexError(f"{size} bytes at byte {self.at} of {len(self._data)}")
        self.at += size
        return self._data[self.at - size : self.at]

    def unsigned(self) -> int:
        """A varint of up to 64 bits."""
        value = 0
        for count in range(_MAX_VARINT_BYTES):
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << (7 * count)
            if byte < 0x80:
                return value
        raise ValueError(f"a varint before byte {self.at} is too long")

    def signed(self) -> int:
        """A zigzag varint."""
        value = self.unsigned()
        return (value >> 1) ^ -(value & 1)

    def text(self) -> str | None:
        """A compact string."""
        size = self.unsigned()
        return None if size == 0 else self.take(size - 1).decode()


def _messages(place: Location) -> Iterator[list[tuple[int, _Message | None]]]:
    """Of each batch offset and message of its records, up to the end or to the first batch that is not whole."""
    size = place.entry().size
    with place.open() as file:
        for batch in _batches(file, size):
            yield _decoded(batch)


def _decoded(batch: bytes) -> list[tuple[int, _Message | None]]:
    """At least one record: a control batch has a None for each of its own."""
    base_offset, *_, attributes, delta = START.unpack_from(batch)
    if attributes & CONTROL:
        return [(base_offset + number, None) for number in range(delta + 1)]
    if attributes & COMPRESSION_MASK:
        raise ValueError(f"the metadata from offset {base_offset} on is compressed, which no controller does")
    cursor = _Cursor(batch, HEADER_BYTES)
    records = [_record(cursor) for _ in range(_COUNT.unpack_from(batch, HEADER_BYTES - _COUNT.size)[0])]
    found = [(base_offset + offset_delta, _decode(value)) for offset_delta, value in records]
    if not found:
        raise ValueError(f"a batch without a record at offset {base_offset}")
    return found


def _batches(file: BinaryIO, size: int) -> Iterator[bytes]:
    window = Window(file, size)
    position = 0
    while position + HEADER_BYTES <= size:
        at = window.hold(position, HEADER_BYTES)
        _, length, _, magic, crc, *_ = START.unpack_from(window.data, at)
        whole = PREFIX_BYTES + length
        if magic != MAGIC or length < LEAST_LENGTH or position + whole > size:
            return
        at = window.hold(position, whole)
        batch = window.data[at : at + whole]
        if crc32c(batch[AFTER_CRC:]) != crc:
            return
        yield batch
        position += whole


def _record(cursor: _Cursor) -> tuple[int, bytes]:
    """Offset delta and value of a record: varint length, attributes, two deltas, key and value, headers."""
    length = cursor.signed()
    end = cursor.at + length
    cursor.take(1)
    cursor.signed()
    delta = cursor.signed()
    cursor.take(max(0, cursor.signed()))
    value = cursor.take(max(0, cursor.signed()))
    cursor.take(end - cursor.at)
    return delta, value


def _decode(value: bytes) -> _Message | None:
    """None for a kind that does not matter here. Fields that a later version may add stand behind these."""
    cursor = _Cursor(value)
    frame, kind, _ = cursor.unsigned(), cursor.unsigned(), cursor.unsigned()
    if frame != _FRAME_VERSION:
        raise ValueError(f"a frame of version {frame}")
    match kind:
        case _Kind.TOPIC:
            return _Message(_Kind.TOPIC, cursor.text() or "", cursor.take(_ID_BYTES))
        case _Kind.REMOVE_TOPIC:
            return _Message(_Kind.REMOVE_TOPIC, topic_id=cursor.take(_ID_BYTES))
        case _Kind.CONFIG:
            resource = cursor.take(1)[0]
            name, setting, setting_value = cursor.text(), cursor.text(), cursor.text()
            return _Message(_Kind.CONFIG, name or "", b"", resource, setting or "", setting_value)
        case _Kind.BEGIN | _Kind.END | _Kind.ABORT:
            return _Message(_Kind(kind))
    return None
