"""What the demonstration says while it runs, on stderr: sentences, and how far the load is."""

from __future__ import annotations

import time
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

LINE_SECONDS: Final = 5.0
"""Where there is no terminal for a bar, a line this often shows that something happens."""


class Narrator:
    """A bar on a terminal with sentences above it, plain lines elsewhere."""

    def __init__(self, claims: int) -> None:
        self._console = Console(stderr=True, highlight=False, soft_wrap=True)
        self._bar = Progress(
            TextColumn("claiming"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("leaders killed: {task.fields[killed]}"),
            TimeElapsedColumn(),
            console=self._console,
        )
        self._task = self._bar.add_task("claims", total=claims, killed=0, start=False)
        self._next_line = 0.0

    def say(self, sentence: str) -> None:
        """Print a sentence."""
        self._console.print(sentence)

    def begin(self) -> None:
        """The load begins."""
        self._bar.start_task(self._task)
        if self._console.is_terminal:
            self._bar.start()

    def show(self, claims: int, killed: int) -> None:
        """So many IDs are claimed, so many leaders killed."""
        self._bar.update(self._task, completed=claims, killed=killed)
        if not self._console.is_terminal and time.monotonic() >= self._next_line:
            self._next_line = time.monotonic() + LINE_SECONDS
            self.say(f"claimed {claims:,} IDs, {killed} leaders killed")

    def end(self) -> None:
        """The load is over; the bar stays as it is."""
        self._bar.stop()
