"""Whether a log may lose its beginning: somebody asked for that, or its retention keeps no more (KIP-107, and Kafka's
`retention.ms` and `retention.bytes`). Told apart from the code under test.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from pidkeeper.protocol.segment_messages import HIGH_WATERMARK
from tests.simulation.log_model import ModelLog, Row
from tests.simulation.world import Violation

_Place = tuple[str, int]


class LogStarts:
    """Judges every start. `on_demand`, `by_retention`: how many there were."""

    def __init__(self) -> None:
        self.on_demand = self.by_retention = 0
        self._asked: dict[_Place, set[int]] = {}

    def ask(self, topic: str, partition: int, offset: int) -> None:
        """Somebody asks, or is about to, that a partition loses what lies below an offset, or HIGH_WATERMARK."""
        self._asked.setdefault((topic, partition), set()).add(offset)

    def check(self, log: ModelLog, start: int, now_ms: int) -> None:
        """A log is to begin at `start`, and still begins where it did. Raises Violation. `now_ms`: by the clocks."""
        ends, asked = log.ends, self._asked.get((log.topic, log.partition), set())
        facts = f"{log.topic}-{log.partition}, {ends}, is to begin at {start}"
        if not ends.start < start <= ends.end:
            raise Violation("log-start", facts)
        if start in asked or (start == ends.end and HIGH_WATERMARK in asked):
            self.on_demand += 1
            return
        if start > ends.last_stable:
            raise Violation("retention-undecided", facts)
        if not (_too_old(log, start, now_ms) or _too_large(log, start)):
            raise Violation("retention-too-much", f"{facts}: {log.record}, {log.size} bytes, at {now_ms}")
        self.by_retention += 1


def kept_too_long(logs: Iterable[ModelLog], now_ms: int) -> str:
    """Which log keeps what its retention does not keep, long after all that happened; empty if none does.

    What bears a time that is still to come, by a clock that was wrong, stays until then, and all that is behind it.
    """
    for log in logs:
        first, record = next(log.parts(), None), log.record
        if first is None or log.open:
            continue
        too_large = 0 <= record.retention_bytes <= log.size - _size(first) and log.size > record.retention_bytes
        # A marker in a tail has no time: it goes with what lies behind it.
        oldest = next((_latest(part) for part in log.parts() if _latest(part) >= 0), now_ms + 1)
        too_old = record.retention_ms >= 0 and oldest <= now_ms
        if too_large or too_old:
            return f"{log.topic}-{log.partition}, {log.ends}, keeps {log.size} bytes: {record}"
    return ""


_NEVER: Final = -1


def _too_old(log: ModelLog, start: int, now_ms: int) -> bool:
    """Whether all that would go has been kept long enough. What was rolled meanwhile goes later, with the rest."""
    kept_ms = log.record.retention_ms
    going = (row for row in log.rows[log.first :] if row.covered and row.offset < start)
    return kept_ms > _NEVER and all(row.latest < now_ms - kept_ms for row in going)


def _too_large(log: ModelLog, start: int) -> bool:
    """Whether enough would be left."""
    most = log.record.retention_bytes
    left = sum(_size(part) for part in log.parts() if part[-1].until > start)
    return most > _NEVER and left >= most


def _latest(part: list[Row]) -> int:
    return max(row.latest for row in part)


def _size(part: list[Row]) -> int:
    return sum(row.size for row in part)
