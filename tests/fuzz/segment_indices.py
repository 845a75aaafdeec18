"""Indices of segments, which lie in a store that others write to as well."""

from __future__ import annotations

import google_crc32c

from pidkeeper.broker_agent.data.segment_building import SegmentBuilder
from pidkeeper.broker_agent.data.segment_index import IndexDamagedError, decode_index
from pidkeeper.protocol.log_messages import AbortedTransaction
from tests.fuzz.mutator import Parts
from tests.fuzz.target import Target, Violation
from tests.support.segment_builder import batch

SIZES = ((1,), (3000, 50, 9000, 4000), (10,) * 3)


class SegmentIndexTarget(Target):
    """An index under a right CRC: every offset leads into the segment, and all of it is the same once stored again."""

    name = "segment_index"
    refusals = (IndexDamagedError,)
    steps = 400
    steps_per_byte = 40

    def __init__(self) -> None:
        self.corpus: list[Parts] = [(_index(sizes)[4:],) for sizes in SIZES]

    def assemble(self, parts: Parts) -> bytes:
        """What they cover, behind its CRC."""
        covered = b"".join(parts)
        crc: int = google_crc32c.value(covered)
        return crc.to_bytes(4, "big") + covered

    def feed(self, data: bytes) -> None:
        index = decode_index(data)
        for offset in (index.base_offset, index.end_offset - 1):
            span = index.span(offset, 1000)
            if not 0 <= span.start < span.end <= index.size:
                raise Violation(f"offset {offset} leads to {span} of {index.size} bytes")
        stored = index.encode()
        if decode_index(stored).encode() != stored:
            raise Violation("it changed when it was stored again")


def _index(sizes: tuple[int, ...]) -> bytes:
    builder = SegmentBuilder(7)
    for number, size in enumerate(sizes):
        builder.add(batch(7 + number, (b"x" * size,)))
    return builder.finish([AbortedTransaction(1000, 3, 9), AbortedTransaction(1001, 7, 40)]).sparse
