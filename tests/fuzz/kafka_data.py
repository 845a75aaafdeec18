"""Requests of the data plane, and the record batches that Produce carries."""

from __future__ import annotations

import struct
from typing import Final

import google_crc32c
from msgspec.structs import replace

from pidkeeper.broker_agent.kafka.wire.data.produce import ProduceRequest
from pidkeeper.broker_agent.kafka.wire.data.record_batch import (
    BatchError,
    check_crc,
    control_batch,
    read_batch_header,
    with_base_offset,
)
from pidkeeper.service.kafka.wire.primitives import WireError
from tests.fuzz.mutator import Parts
from tests.fuzz.target import Target, Violation
from tests.support.data_codecs import read
from tests.support.data_frames import valid_frames
from tests.support.split_batches import split_batches

_HEAD: Final = struct.Struct(">qiibI")
_OFFSET: Final = 2**40


def _body(records: int, payload: bytes) -> bytes:
    """A batch from its attributes on."""
    return struct.pack(">hiqqqhii", 0, records - 1, 5, 6, 7, 1, 0, records) + payload


def _batch(body: bytes) -> bytes:
    return _HEAD.pack(0, len(body) + 9, -1, 2, google_crc32c.value(body)) + body


class KafkaDataTarget(Target):
    """A frame read as a listener would, and the headers of the batches in it."""

    name = "kafka_data"
    refusals = (WireError,)
    steps = 2000
    steps_per_byte = 60

    def __init__(self) -> None:
        records = _batch(_body(3, b"records")) + _batch(_body(1, b""))
        self.corpus: list[Parts] = [(frame,) for frame in valid_frames(records).values()]

    def assemble(self, parts: Parts) -> bytes:
        """The frame, without its length."""
        return b"".join(parts)

    def feed(self, data: bytes) -> None:
        _, request = read(data)
        if isinstance(request, ProduceRequest):
            pieces = [part.records for topic in request.topics for part in topic.partitions if part.records is not None]
            if sum(map(len, pieces)) > len(data) or any(bytes(piece) not in data for piece in pieces):
                raise Violation(f"{len(pieces)} pieces of records are not of the {len(data)} bytes of the frame")
            for piece in pieces:
                _check(memoryview(piece))


class KafkaBatchesTarget(Target):
    """Record batches, which must fill their buffer, and be the same with another offset."""

    name = "kafka_batches"
    refusals = (BatchError,)
    steps = 1000
    steps_per_byte = 20

    def __init__(self) -> None:
        bodies = [_body(1, b""), _body(3, b"records"), _body(2**31 - 1, bytes(300))]
        bodies += [
            control_batch(7, 1, committed=committed, base_offset=0, timestamp_ms=5, coordinator_epoch=0)[21:]
            for committed in (False, True)
        ]
        self.corpus: list[Parts] = [(body,) for body in bodies] + [tuple(bodies), tuple(bodies[1:3])]

    def assemble(self, parts: Parts) -> bytes:
        """Every body behind its offset, length, leader epoch, magic and CRC."""
        return b"".join(map(_batch, parts))

    def feed(self, data: bytes) -> None:
        _check(memoryview(data))


def _check(buffer: memoryview) -> None:
    headers = split_batches(buffer)
    if sum(header.size for header in headers) != len(buffer):
        raise Violation(f"{len(headers)} batches do not fill {len(buffer)} bytes")
    for header in headers:
        check_crc(buffer, header)
        moved = with_base_offset(buffer[header.position : header.end], _OFFSET, 3)
        expected = replace(header, position=0, base_offset=_OFFSET, partition_leader_epoch=3)
        if (found := read_batch_header(moved)) != expected:
            raise Violation(f"{header} became {found}")
        check_crc(moved, found)
