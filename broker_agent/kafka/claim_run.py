"""Many equal InitProducerId requests in one chunk, answered in one go.

What a pipelining client sends differs in the correlation ids alone. Compared as one large number under a mask that
hides those ids, a whole run of requests is recognised in one step, and its answers are packed in one.
"""

from __future__ import annotations

import struct
from typing import Final

from pidkeeper.broker_agent.kafka.wire.init_producer_id import CLASSIC_FRAME, FLEXIBLE_FRAME

MAX_RUN: Final = 64
"""Requests in one run; a longer one is cut. More would not be cheaper: the cost that a run shares is one call."""

_ANSWERS: Final = {True: ("i4s7xq3x", FLEXIBLE_FRAME.size - 4), False: ("i4s6xq2x", CLASSIC_FRAME.size - 4)}
"""An answer without an error: its length, the correlation id, zeroes, the producer id, zeroes."""


class ClaimRun:
    """`count` requests that equal `frame` but for their correlation ids. `flexible`: the form of the answers."""

    __slots__ = ("_answers", "_correlation_ids", "_fields", "_mask", "_pattern")

    def __init__(self, frame: bytes, count: int, *, flexible: bool) -> None:
        rest = len(frame) - 12
        self._mask = int.from_bytes((b"\xff" * 8 + b"\0" * 4 + b"\xff" * rest) * count, "big")
        self._pattern = int.from_bytes(frame * count, "big") & self._mask
        self._correlation_ids = struct.Struct(f"8x4s{rest}x" * count)
        form, answer_length = _ANSWERS[flexible]
        self._answers = struct.Struct(">" + form * count)
        self._fields: list[bytes | int] = [answer_length, 0, 0] * count

    def matches(self, data: bytes) -> bool:
        """Whether `data`, which is as long as the run, is such a run."""
        return int.from_bytes(data, "big") & self._mask == self._pattern

    def answer(self, data: bytes, first_id: int) -> bytes:
        """The answers to the run `data`: the IDs from `first_id` on, in order."""
        fields = self._fields.copy()
        fields[1::3] = self._correlation_ids.unpack(data)
        fields[2::3] = range(first_id, first_id + len(fields) // 3)
        return self._answers.pack(*fields)
