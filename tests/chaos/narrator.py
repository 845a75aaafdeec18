"""What a run says while it goes on, on stderr: how far it is, and which faults are under way."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from tests.chaos.plan import Act

LINE_SECONDS: Final = 10.0
"""Where there is no terminal for a bar, a line this often shows that something happens."""


class Narrator:
    """A bar on a terminal, plain lines elsewhere."""

    def __init__(self, seconds: float) -> None:
        self.console = Console(stderr=True, highlight=False, soft_wrap=True)
        self._seconds = seconds
        self._bar = Progress(
            BarColumn(),
            TextColumn("{task.completed:.0f} of {task.total:.0f} s"),
            TextColumn("{task.fields[faults]} faults; now {task.fields[now]}"),
            TimeElapsedColumn(),
            console=self.console,
        )
        self._task = self._bar.add_task("chaos", total=seconds, faults=0, now="setting up")
        self._faults = 0
        self._begun = 0.0
        self._next_line = 0.0

    def say(self, sentence: str) -> None:
        """Print a sentence."""
        self.console.print(sentence)

    @contextlib.contextmanager
    def playing(self) -> Iterator[None]:
        """Faults are under way in the block."""
        self._begun = time.monotonic()
        if self.console.is_terminal:
            self._bar.start()
        try:
            yield
        finally:
            self._bar.stop()

    def show(self, act: Act) -> None:
        """This act begins."""
        self._faults += len(act)
        now = ", ".join(f"{planned.kind} ({planned.target})" for planned in act)
        since = time.monotonic() - self._begun
        self._bar.update(self._task, completed=min(since, self._seconds), faults=self._faults, now=now)
        if not self.console.is_terminal and time.monotonic() >= self._next_line:
            self._next_line = time.monotonic() + LINE_SECONDS
            self.say(f"{since:.0f} of {self._seconds:.0f} s, {self._faults} faults; now {now}")
