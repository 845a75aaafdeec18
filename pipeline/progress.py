"""Says on standard error how far a long Spark run is: a line that is rewritten on a terminal, else a line at times."""

from __future__ import annotations

import contextlib
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, TextIO

if TYPE_CHECKING:
    from pyspark import SparkContext

TERMINAL_SECONDS: Final = 0.5
PLAIN_SECONDS: Final = 15.0
LINE_CELLS: Final = 80
"""Of a terminal that does not say how wide it is."""
CLEAR_TO_END: Final = "\x1b[K"
"""ECMA-48, EL: erase from the cursor to the end of the line."""


class Progress:
    """Names the step; `running` shows it with the tasks of the stages that are at work, and the time since it began."""

    def __init__(self, context: SparkContext, stream: TextIO | None = None) -> None:
        self._tracker = context.statusTracker()
        self._line = _Line(stream or sys.stderr)
        self._step = ""
        self._began = time.monotonic()
        self._ended = threading.Event()

    def step(self, text: str) -> None:
        """What is being done from here on."""
        self._step = text
        if self._line.terminal:
            self._show()

    @contextlib.contextmanager
    def running(self) -> Iterator[Progress]:
        """Shows it until the end of the context."""
        self._began = time.monotonic()
        thread = threading.Thread(target=self._run, daemon=True, name="progress")
        thread.start()
        try:
            yield self
        finally:
            self._ended.set()
            thread.join()
            self._line.clear()

    def _run(self) -> None:
        while not self._ended.wait(TERMINAL_SECONDS if self._line.terminal else PLAIN_SECONDS):
            self._show()

    def _show(self) -> None:
        seconds = int(time.monotonic() - self._began)
        self._line.show(f"{seconds // 60}:{seconds % 60:02d} {self._step}{self._tasks()}")

    def _tasks(self) -> str:
        try:
            found = [self._tracker.getStageInfo(stage) for stage in self._tracker.getActiveStageIds()]
        except Exception:  # noqa: BLE001 - the session may be stopping; what Java throws then is of no interest
            return ""
        stages = [stage for stage in found if stage is not None]
        done, total = sum(one.numCompletedTasks for one in stages), sum(one.numTasks for one in stages)
        return f": {done} of {total} tasks" if stages else ""


@contextlib.contextmanager
def starting(text: str, stream: TextIO | None = None) -> Iterator[None]:
    """Show on a terminal what is waited for before there is a session."""
    line = _Line(stream or sys.stderr)
    if line.terminal:
        line.show(text)
    try:
        yield
    finally:
        line.clear()


class _Line:
    """The last line of a terminal; elsewhere each text is a line of its own."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._lock = threading.Lock()
        self.terminal = stream.isatty()

    def show(self, text: str) -> None:
        """Write `text` over what is there, cut to what the terminal has room for: what wraps cannot be rewritten."""
        if not self.terminal:
            self._write(f"{text}\n")
            return
        room = shutil.get_terminal_size((LINE_CELLS, 24)).columns - 1
        self._write(f"\r{text[:room]}{CLEAR_TO_END}")

    def clear(self) -> None:
        """Leave an empty line on a terminal."""
        if self.terminal:
            self._write(f"\r{CLEAR_TO_END}")

    def _write(self, text: str) -> None:
        with self._lock:
            self._stream.write(text)
            self._stream.flush()
