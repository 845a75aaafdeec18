"""A store's server as one process on loopback, that can be hurt."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import ClassVar, Final

ROOT: Final = Path(__file__).parents[2]
CONTAINER: Final = "records"
"""The bucket's name; Azure calls it a container."""
START_SECONDS: Final = 90.0
"""Until a bucket can be made: 18 s were seen on two busy cores."""
STOP_SECONDS: Final = 10.0
POLL_SECONDS: Final = 0.2


class StoreServer(ABC):
    """`url` and `options`: of a store in CONTAINER. Every start is at the same address, and finds the files of before.

    survives: what it has acknowledged is still there after `kill`. misses: the tests of the port's contract that it
    does not pass.
    """

    name: ClassVar[str]
    survives: ClassVar[bool]
    misses: ClassVar[tuple[str, ...]] = ()
    url: str
    options: dict[str, str]

    def __init__(
        self, command: Sequence[str], directory: Path, environment: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        self._command = command
        self._environment = environment
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None

    @abstractmethod
    def has_container(self) -> bool:
        """Make it, unless it is there; whether it is, and can be written to."""

    def start(self) -> None:
        """Returns once there is a bucket. Raises TimeoutError, with the end of its log."""
        told = self._directory / "log"
        with told.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._directory,
                env=os.environ | self._environment,
            )
        deadline = time.monotonic() + START_SECONDS
        while not self.has_container():
            if time.monotonic() > deadline or self._process.poll() is not None:
                raise TimeoutError(f"{self.name} does not serve: {told.read_bytes()[-2000:]!r}")
            time.sleep(POLL_SECONDS)

    def pause(self) -> None:
        """It stands still, and its connections with it."""
        os.kill(self._pid, signal.SIGSTOP)

    def go_on(self) -> None:
        """After `pause`."""
        os.kill(self._pid, signal.SIGCONT)

    def kill(self) -> None:
        """It ends at once."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """Ask it to end, and then make it."""
        if self._process is None or self._process.poll() is not None:
            return
        self.go_on()
        try:
            self._end(signal.SIGTERM)
        except subprocess.TimeoutExpired:
            self._end(signal.SIGKILL)

    @property
    def _pid(self) -> int:
        assert self._process is not None, "started before"
        return self._process.pid

    def _end(self, number: signal.Signals) -> None:
        assert self._process is not None, "started before"
        self._process.send_signal(number)
        self._process.wait(STOP_SECONDS)
