"""Tells on stderr what is being measured: one line that changes on a terminal, a line for each change elsewhere."""

from __future__ import annotations

import time
from typing import Self

from rich.console import Console
from rich.markup import escape
from rich.status import Status


class Progress:
    """Use as a context manager. `sections`: what there is to do, in order."""

    def __init__(self, sections: list[str]) -> None:
        self._sections = sections
        self._console = Console(stderr=True)
        self._status: Status | None = None
        self._began = time.monotonic()
        self._section = ""

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._status = self._console.status("")
            self._status.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._status is not None:
            self._status.stop()

    def begin(self, section: str) -> None:
        """The next section."""
        self._section = section
        self.tell("")

    def tell(self, what: str) -> None:
        """What the section is at."""
        number = self._sections.index(self._section) + 1
        minutes, seconds = divmod(int(time.monotonic() - self._began), 60)
        where = f"{minutes}:{seconds:02} measuring {self._section} ({number} of {len(self._sections)})"
        line = escape(f"{where}: {what}" if what else where)
        if self._status is not None:
            self._status.update(line)
        else:
            self._console.print(line, highlight=False, soft_wrap=True)
