"""Says on standard error how far a long Spark run is: a line that is rewritten on a terminal, else a line at times."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, TextIO

if TYPE_CHECKING:
    from pyspark import SparkContext

TERMINAL_SECONDS: Final = 0.5
PLAIN_SECONDS: Final = 15.0
LINE_CELLS: Final = 100
"""A longer line would wrap on most terminals, and then rewriting it does not work."""


class Progress:
    """Names the step; `running` shows it with the tasks of the stages that are at work."""

    def __init__(self, context: SparkContext, stream: TextIO | None = None) -> None:
        self._tracker = context.statusTracker()
        self._stream = stream or sys.stderr
        self._terminal = self._stream.isatty()
        self._step = ""
        self._ended = threading.Event()

    def step(self, text: str) -> None:
        """What is being done from here on."""
        self._step = text
        if self._terminal:
            self._show()

    @contextlib.contextmanager
    def running(self) -> Iterator[Progress]:
        """Shows it until the end of the context."""
        thread = threading.Thread(target=self._run, daemon=True, name="progress")
        thread.start()
        try:
            yield self
        finally:
            self._ended.set()
            thread.join()
            if self._terminal:
                self._stream.write(f"\r{' ' * LINE_CELLS}\r")
                self._stream.flush()

    def _run(self) -> None:
        while not self._ended.wait(TERMINAL_SECONDS if self._terminal else PLAIN_SECONDS):
            self._show()

    def _show(self) -> None:
        text = f"{self._step}{self._tasks()}"[:LINE_CELLS]
        self._stream.write(f"\r{text:<{LINE_CELLS}}" if self._terminal else f"{text}\n")
        self._stream.flush()

    def _tasks(self) -> str:
        try:
            found = [self._tracker.getStageInfo(stage) for stage in self._tracker.getActiveStageIds()]
        except Exception:  # noqa: BLE001 - the session may be stopping; what Java throws then is of no interest
            return ""
        stages = [stage for stage in found if stage is not None]
        done, total = sum(one.numCompletedTasks for one in stages), sum(one.numTasks for one in stages)
        return f": {len(stages)} stage(s), {done} of {total} tasks" if stages else ""
