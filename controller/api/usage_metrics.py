"""What the data directory takes on disk, looked at on a thread of its own: a disk that hangs holds up no scrape."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from pidkeeper.controller.storage.usage import Usage, usage

LOOK_SECONDS: Final = 5.0
"""Between two looks: a scrape that comes every 15 s is told nothing older, and a look takes some 20 calls."""


class UsageCollector(Collector):
    """Shows the last look; nothing after one that failed, which is better than what was once true."""

    def __init__(self, seen: Usage | None) -> None:
        self.seen = seen

    def collect(self) -> Iterable[Metric]:
        """One gauge for each fact."""
        if (seen := self.seen) is None:
            return
        for name, text, value in (
            ("raft_log_bytes", "Bytes of the write-ahead log on disk.", seen.log_bytes),
            ("archive_bytes", "Bytes of the archives of blocks and of their users on disk.", seen.archive_bytes),
            ("snapshot_bytes", "Bytes of the newest snapshot on disk; 0 without one.", seen.snapshot_bytes),
            (
                "snapshot_timestamp_seconds",
                "When the newest snapshot was written, since the epoch; no sample without one.",
                seen.snapshot_written,
            ),
            ("disk_free_bytes", "Free bytes where the data directory is.", seen.free_bytes),
        ):
            yield GaugeMetricFamily(f"pidkeeper_{name}", text, value=value)


@asynccontextmanager
async def usage_watched(directory: Path) -> AsyncIterator[UsageCollector]:
    """Look at the data directory every LOOK_SECONDS meanwhile; the first look is done by then."""
    collector = UsageCollector(await asyncio.to_thread(_look, directory))
    ended = threading.Event()

    def look_for_ever() -> None:
        while not ended.wait(LOOK_SECONDS):
            collector.seen = _look(directory)

    # Nobody waits for it at the end: it may hang with the disk.
    threading.Thread(target=look_for_ever, name="usage", daemon=True).start()
    try:
        yield collector
    finally:
        ended.set()


def _look(directory: Path) -> Usage | None:
    try:
        return usage(directory)
    except OSError:
        return None
