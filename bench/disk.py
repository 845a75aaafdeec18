"""The write that every durable allocation rests on: one `pwrite` and one `fdatasync`."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from bench.figures import quantile_ms

RECORD_BYTES: Final = 64
PREALLOCATED_BYTES: Final = 8 * 1024 * 1024
"""More than a measurement writes; when the end is reached, writing starts over at the front."""


class SyncLatency(msgspec.Struct, frozen=True):
    """Latency of one write of 64 bytes with its fdatasync, milliseconds."""

    syncs: int
    p50_ms: float
    p99_ms: float


def open_preallocated(path: Path) -> int:
    """A file descriptor of a fresh zero-filled file whose blocks are on the disk."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
    os.write(fd, bytes(PREALLOCATED_BYTES))
    os.fsync(fd)
    return fd


def measure_fdatasync(
    path: Path, *, preallocated: bool, seconds: float, clock: Callable[[], float] = time.perf_counter
) -> SyncLatency:
    """Write 64 bytes after 64 bytes for `seconds`, each with its own fdatasync."""
    fd = open_preallocated(path) if preallocated else os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
    record = b"\x5a" * RECORD_BYTES
    latencies: list[float] = []
    offset = 0
    try:
        end = clock() + seconds
        started = clock()
        while started < end:
            os.pwrite(fd, record, offset)
            os.fdatasync(fd)
            done = clock()
            latencies.append(done - started)
            started = done
            offset = (offset + RECORD_BYTES) % PREALLOCATED_BYTES
    finally:
        os.close(fd)
        path.unlink()
    return SyncLatency(len(latencies), quantile_ms(latencies, 0.5), quantile_ms(latencies, 0.99))
