"""Writes the log on a thread of its own: whoever reads it, or the disk that has it, may stall."""

from __future__ import annotations

import contextlib
import logging
import threading
from typing import Final, TextIO

MAX_WAITING: Final = 1000
"""Lines that wait to be written: of 300 bytes, 300 KB. Those behind them are left out."""

FLUSH_SECONDS: Final = 1.0
"""How long the end of the process, and whoever logs what is critical, waits for the log."""

LINGER_SECONDS: Final = 0.02
"""How long a line is waited for: most are written by then, so a process that is killed has told what it did."""


class LogWriter(logging.Handler):
    """Makes a line where it is logged, and has it written to `stream`, in order (decision 0042).

    No line is waited for while an earlier one is not written. The first one behind some that were left out says how
    many, as `unwritten`.
    """

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self._stream = stream
        self._changed = threading.Condition()
        self._waiting: list[str] = []
        self._unwritten = 0
        self._is_writing = False
        threading.Thread(target=self._write_for_ever, name="log", daemon=True).start()

    def emit(self, record: logging.LogRecord) -> None:
        """Have it written: within LINGER_SECONDS, or later; of what is critical, within FLUSH_SECONDS, or later."""
        with self._changed:
            if len(self._waiting) >= MAX_WAITING:
                self._unwritten += 1
                return
            if self._unwritten:
                record.unwritten = self._unwritten
        try:
            line = self.format(record)
        except Exception:  # noqa: BLE001 - as every handler of the standard library does
            self.handleError(record)
            return
        with self._changed:
            keeps_pace = self._is_done()
            self._unwritten = 0
            self._waiting.append(f"{line}\n")
            self._changed.notify_all()
            if record.levelno >= logging.CRITICAL:
                self._changed.wait_for(self._is_done, FLUSH_SECONDS)
            elif keeps_pace:
                self._changed.wait_for(self._is_done, LINGER_SECONDS)

    def flush(self) -> None:
        """Wait until all is written, FLUSH_SECONDS at most."""
        with self._changed:
            self._changed.wait_for(self._is_done, FLUSH_SECONDS)

    def _is_done(self) -> bool:
        return not self._waiting and not self._is_writing

    def _write_for_ever(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: bool(self._waiting))
                lines, self._waiting = self._waiting, []
                self._is_writing = True
            # Nobody may be there to read it, or no room: the lines are lost, and the service goes on.
            with contextlib.suppress(OSError, ValueError):
                self._stream.write("".join(lines))
                self._stream.flush()
            with self._changed:
                self._is_writing = False
                self._changed.notify_all()


def flush_log() -> None:
    """Wait for the log, before a process leaves without the end that flushes it."""
    for handler in logging.getLogger().handlers:
        handler.flush()
