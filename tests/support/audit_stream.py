"""`pidkeeper audit stream` as a process of its own, and what it says, with the time of each line."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple, Self

from tests.support.cluster import REPOSITORY, wait_until

ENOUGH: Final = "1000000"
"""Blocks within a minute: tests take them as fast as they can."""
END_SECONDS: Final = 30.0
_REACH: Final = re.compile(r"more blocks, ([\d,]+) in all, up to ID (\d+); ([\d,]+) new findings")


class Line(NamedTuple):
    """What was said, and when by `time.monotonic`."""

    at: float
    text: str


class AuditStream:
    """Looks at these directories, every `every` seconds, in one process without Spark."""

    def __init__(self, data: Sequence[str | Path], out: Path, every: float = 1.0) -> None:
        self.lines: list[Line] = []
        options = ["--engine", "local", "--every", str(every), "--out", str(out), "--storm-blocks", ENOUGH]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "pidkeeper.cli", "audit", "stream", *map(str, data), *options],
            cwd=REPOSITORY,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._reader = threading.Thread(target=self._read, name="stream")
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.lines.append(Line(time.monotonic(), line.rstrip()))

    @property
    def highest(self) -> int:
        """The highest ID that it has told of; -1 before any."""
        return max((int(found[2]) for line in self.lines if (found := _REACH.search(line.text))), default=-1)

    @property
    def findings(self) -> list[Line]:
        """All that it found wrong."""
        return [line for line in self.lines if line.text.startswith("  ")]

    def reach(self, highest: int) -> None:
        """Wait until it has told of this ID."""
        wait_until(lambda: self.highest >= highest, f"ID {highest} in the stream: {self.lines}")

    def end(self) -> int:
        """Ask it to end: the exit code."""
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(END_SECONDS)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join()
        assert self._process.stdout is not None
        self._process.stdout.close()
