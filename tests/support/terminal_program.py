"""A program on a terminal of its own, as a user has it: Ctrl-C reaches it and all that it started."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

CTRL_C: Final = b"\x03"
_TAKE_TERMINAL: Final = (
    "import fcntl, os, sys, termios\n"
    "fcntl.ioctl(0, termios.TIOCSCTTY, 0)\n"
    "os.execv(sys.executable, [sys.executable, *sys.argv[1:]])\n"
)
_POLL_SECONDS: Final = 0.1


class TerminalProgram:
    """Python with `arguments` as the leader of a session whose terminal this is."""

    def __init__(self, arguments: list[str], directory: Path, environment: dict[str, str]) -> None:
        self._reader, terminal = pty.openpty()
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _TAKE_TERMINAL, *arguments],
                stdin=terminal,
                stdout=terminal,
                stderr=terminal,
                cwd=directory,
                env=environment,
                start_new_session=True,
            )
        finally:
            os.close(terminal)
        self._written = b""

    @property
    def screen(self) -> str:
        """All that was written so far."""
        return self._written.decode(errors="replace")

    def press(self, key: bytes) -> None:
        """Type something."""
        os.write(self._reader, key)

    def wait_for(self, pattern: str, seconds: float) -> None:
        """Until the program wrote this. Raises AssertionError if it did not, or ended."""
        deadline = time.monotonic() + seconds
        while not re.search(pattern, self.screen):
            ended = not self._read()
            assert not ended and time.monotonic() < deadline, f"no {pattern!r} on the screen: {self.screen!r}"

    def wait(self, seconds: float) -> int:
        """Until it ends: its exit code. Raises AssertionError, subprocess.TimeoutExpired."""
        deadline = time.monotonic() + seconds
        while self._read():
            assert time.monotonic() < deadline, f"it goes on: {self.screen!r}"
        return self._process.wait(seconds)

    def wait_for_all(self, seconds: float) -> list[str]:
        """Until nothing is left of all that it started: the command lines of what is left after that time."""
        deadline = time.monotonic() + seconds
        while (left := self._session()) and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
        return left

    def close(self) -> None:
        """End it if it goes on."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        os.close(self._reader)

    def _read(self) -> bool:
        """Take what is there; False when nobody has the terminal any more."""
        if not select.select([self._reader], [], [], _POLL_SECONDS)[0]:
            return self._process.poll() is None
        with contextlib.suppress(OSError):  # EIO at the end
            piece = os.read(self._reader, 65536)
            self._written += piece
            return bool(piece)
        return False

    def _session(self) -> list[str]:
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):  # it ended
                after_name = (folder / "stat").read_text().rpartition(") ")[2].split()
                if int(after_name[3]) == self._process.pid and after_name[0] != "Z":
                    found.append((folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()[:200])
        return found
