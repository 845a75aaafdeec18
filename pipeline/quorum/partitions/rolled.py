"""Where the tails of a snapshot's logs begin: behind what agents rolled into segments, and what logs have lost."""

from __future__ import annotations

from typing import Final

import numpy as np

from pidkeeper.snapshots.logs_image import LogsImage

_END_OFFSETS: Final = 1
"""The column of a segment's end, as `snapshots.logs_image` has it of `controller.state.logs.rolled`."""
_KINDS: Final = ("<i8", "<i8", "<i8", "<u4", "<u4", "<i8")


def tail_starts(logs: LogsImage) -> dict[int, int]:
    """By log the first offset that is in no segment. Raises ValueError for columns that cannot be read.

    A first batch of the tail may begin below it, where the log has lost a part of the batch.
    """
    starts = {log.number: log.start for log in logs.logs}
    for rolled in logs.segments:
        lengths = {len(c) / np.dtype(kind).itemsize for c, kind in zip(rolled.columns, _KINDS, strict=False)}
        if len(rolled.columns) != len(_KINDS) or len(lengths) != 1 or lengths.pop() % 1:
            raise ValueError(f"log {rolled.number}: the columns of its segments do not fit together")
        ends = np.frombuffer(rolled.columns[_END_OFFSETS], _KINDS[_END_OFFSETS])
        if rolled.number in starts and len(ends):
            starts[rolled.number] = max(starts[rolled.number], int(ends[-1]))
    return starts
