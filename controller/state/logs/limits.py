"""What is kept of partition logs, at most. At a bound a producer is told NOT_ENOUGH_REPLICAS, and tries again."""

from __future__ import annotations

from typing import Final

from pidkeeper.protocol import logs

MAX_PARTITIONS: Final = logs.MAX_PARTITIONS

MAX_ROWS: Final = 200_000
"""Batches and markers of all logs, and markers to come: 36 bytes each, which makes 7 MiB."""

MAX_SEGMENTS: Final = 150_000
"""Of all logs: 36 bytes each, beside their objects. At 8 MiB each they hold 1.2 TB."""

MAX_OBJECTS: Final = 400_000
"""Those included that are to be deleted: one for each row, one for each segment, and 50,000. Some 600 bytes each."""

MAX_PRODUCERS: Final = 100_000
"""Counted once for each log that knows them: about 600 bytes each in memory, 151 in a snapshot."""

MAX_COMMITTERS: Final = 1000
"""Brokers whose last commit is kept, as long as they are registered: up to 40 KiB each."""

MAX_ABORTED: Final = 200_000
"""Aborted transactions, once for each log: 24 bytes each."""
