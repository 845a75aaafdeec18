"""Processes of a peer: started, signalled, brought back, and ended with this process, however that ends."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeVar

HOST: Final = "127.0.0.1"
POLL_SECONDS: Final = 0.02
END_SECONDS: Final = 15.0
"""How long a node may take to end after a signal that ends it."""

_KILLER: Final = 'cat; kill -9 "$1" 2>/dev/null'
"""Its standard input ends with this process."""

Found = TypeVar("Found")


class Node:
    """One process. `port`: where clients ask it, on HOST. Its output goes to `directory`/log."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        directory: Path,
        port: int,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.name: Final = name
        self.port: Final = port
        self.directory: Final = directory
        self._command = list(command)
        self._environment = dict(environment or {})
        self._process: subprocess.Popen[bytes] | None = None
        self._killer: subprocess.Popen[bytes] | None = None

    @property
    def running(self) -> bool:
        """Whether the process lives; it may be paused."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """Of the process that was started last."""
        assert self._process is not None, f"{self.name} was never started"
        return self._process.pid

    def start(self) -> None:
        """Start it on the data it has, without waiting for it. Nothing happens if it runs."""
        if self.running:
            return
        self._dismiss_killer()
        self.directory.mkdir(parents=True, exist_ok=True)
        with (self.directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.directory,
                env=os.environ | self._environment,
                # A Ctrl-C at the terminal is for the benchmark, which ends its nodes itself.
                start_new_session=True,
            )
        command = ["sh", "-c", _KILLER, "killer", str(self._process.pid)]
        self._killer = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to it. Nothing happens if it has ended."""
        if self._process is not None:
            self._process.send_signal(number)

    def wait_ended(self) -> None:
        """Wait until the process is gone. Raises TimeoutError."""
        self._dismiss_killer()
        if self._process is not None:
            try:
                self._process.wait(END_SECONDS)
            except subprocess.TimeoutExpired as error:
                raise TimeoutError(f"{self.name} did not end within {END_SECONDS:g} s of its signal") from error

    def close(self) -> None:
        """`kill -9`, and wait until it is gone."""
        self._dismiss_killer()
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def log_end(self, lines: int = 15) -> str:
        """The last lines of its output."""
        log = self.directory / "log"
        return "\n".join(log.read_text(errors="replace").splitlines()[-lines:]) if log.exists() else "(no log)"

    def _dismiss_killer(self) -> None:
        # Before the process is waited for: afterwards its number may belong to another one.
        if self._killer is not None:
            self._killer.kill()
            self._killer.communicate()
            self._killer = None


def wait_for(found: Callable[[], Found | None], what: str, nodes: Sequence[Node], seconds: float) -> Found:
    """The first answer of `found` that is not None or false; meanwhile an OSError means that there is none yet.

    Raises TimeoutError with the ends of the nodes' logs.
    """
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            if answer := found():
                return answer
        time.sleep(POLL_SECONDS)
    logs = "\n".join(f"{node.name} (running: {node.running}):\n{node.log_end()}" for node in nodes)
    raise TimeoutError(f"not within {seconds:g} s: {what}\n{logs}")
