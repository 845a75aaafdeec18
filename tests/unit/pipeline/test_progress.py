"""The line of progress, on a real terminal and in a file."""

from __future__ import annotations

import contextlib
import io
import os
import pty
import re
import termios
import time
from typing import Any, NamedTuple

import pytest

from pidkeeper.pipeline import progress
from pidkeeper.pipeline.progress import Progress, starting

COLUMNS = 30


class Stage(NamedTuple):
    numCompletedTasks: int  # noqa: N815 - as Spark calls it
    numTasks: int  # noqa: N815


class Context:
    """Of a SparkContext what is asked for: two stages at work, of which one has just ended."""

    def statusTracker(self) -> Context:
        return self

    def getActiveStageIds(self) -> list[int]:
        return [1, 2, 3]

    def getStageInfo(self, stage: int) -> Stage | None:
        return None if stage == 3 else Stage(stage, 10)


class Terminal:
    """A terminal: what writes to it, and what was written."""

    def __init__(self) -> None:
        self._reader, writer = pty.openpty()
        attributes = termios.tcgetattr(writer)
        attributes[1] &= ~termios.OPOST
        termios.tcsetattr(writer, termios.TCSANOW, attributes)
        self.stream = os.fdopen(writer, "w")

    def written(self) -> str:
        """All of it; closes the terminal."""
        self.stream.close()
        pieces = []
        with contextlib.suppress(OSError):  # EIO: nobody has the other end any more
            while piece := os.read(self._reader, 65536):
                pieces.append(piece)
        os.close(self._reader)
        return b"".join(pieces).decode()


def shown(written: str) -> list[str]:
    """What stands on the line after each write."""
    assert "\n" not in written
    first, *rest = re.split(r"\r(.*?)\x1b\[K", written)
    assert first == ""
    assert rest[1::2] == [""] * len(rest[1::2])
    return rest[::2]


def test_a_terminal_shows_time_step_and_tasks_on_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(COLUMNS))
    context: Any = Context()
    now = iter([0.0, *[125.0] * 10_000])
    now = iter([0.0, 0.0])
    monkeypatch.setattr(time, "monotonic", lambda: next(now, 125.0))
    terminal = Terminal()
    with starting("starting Spark", terminal.stream):
        pass
    with Progress(context, terminal.stream).running() as told:
        told.step("checks")
        told.step("a name that is too long for it")
    lines = shown(terminal.written())
    assert lines[:3] == ["starting Spark", "", "2:05 checks: 3 of 20 tasks"]
    assert lines[3] == "2:05 a name that is too long f"[: COLUMNS - 1]
    assert lines[-1] == ""


def test_elsewhere_it_is_a_line_at_times_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    context: Any = Context()
    file = io.StringIO()
    with starting("starting Spark", file), Progress(context, file).running() as told:
        told.step("checks")
    assert file.getvalue() == ""
    monkeypatch.setattr(progress, "PLAIN_SECONDS", 0.001)
    with Progress(context, file).running() as told:
        told.step("checks")
        while file.getvalue().count("checks") < 2:
            assert file.closed is False
    assert re.fullmatch(r"(0:0\d [a-z]*: 3 of 20 tasks\n)+", file.getvalue())
