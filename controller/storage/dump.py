"""Reading a log for people: every frame with its place, up to the end or to the first damage."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePath

import msgspec

from pidkeeper.controller.storage import frames
from pidkeeper.controller.storage.errors import LogCorruption
from pidkeeper.controller.storage.recovery import LogReader
from pidkeeper.disk.files import Files
from pidkeeper.protocol.records import Record, decode_batch


class DumpedFrame(msgspec.Struct, frozen=True):
    """One frame: `segment` and `offset` say where, `type` is its name, `records` what an entry holds.

    `detail` is for the eye: the vote of a hard state, or why a hard state or an entry's records cannot be decoded.
    """

    segment: str
    offset: int
    type: str
    term: int
    index: int
    records: list[Record]
    detail: str = ""


class DumpedDamage(msgspec.Struct, frozen=True):
    """Where reading ended early. `torn`: by the end of the last batch, which the next start cuts off; else corrupt."""

    segment: str
    offset: int
    index: int
    reason: str
    torn: bool


def dump_log(files: Files, path: PurePath) -> Iterator[DumpedFrame | DumpedDamage]:
    """Every frame of the log in the directory `path`, oldest first, whoever's it is; damage comes last."""
    reader = LogReader(files, path, None)
    try:
        for header, batch in reader.batches():
            for offset, frame in batch.frames:
                yield _dumped(header.name, offset, frame)
    except LogCorruption as error:
        yield DumpedDamage(error.segment, error.offset, error.index, error.reason, torn=False)
    if (tail := reader.truncated) is not None:
        yield DumpedDamage(tail.segment, tail.offset, reader.next_index, tail.reason, torn=True)


def _dumped(segment: str, offset: int, frame: frames.Frame) -> DumpedFrame:
    name = frames.TYPE_NAMES.get(frame.type, f"unknown type {frame.type}")
    records: list[Record] = []
    detail = ""
    try:
        if frame.type == frames.HARD_STATE:
            state = frames.decode_hard_state(frame)
            detail = f"vote {state.vote}" + (", recovering" if state.recovering else "")
        elif frame.type == frames.ENTRY and frame.payload:
            records = decode_batch(frame.payload)
    except ValueError as error:  # a RecordError is one
        detail = str(error)
    return DumpedFrame(segment, offset, name, frame.term, frame.index, records, detail)
