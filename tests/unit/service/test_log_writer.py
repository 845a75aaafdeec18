"""The log is written in order, by somebody else, and says what it left out."""

from __future__ import annotations

import io
import logging
import threading
import time

from pidkeeper.service.log_writer import FLUSH_SECONDS, MAX_WAITING, LogWriter
from pidkeeper.service.logs import EventFormatter


class Stalling(io.StringIO):
    """Takes nothing until it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = threading.Event()
        self.goes_on = threading.Event()

    def write(self, text: str) -> int:
        self.asked.set()
        self.goes_on.wait()
        return super().write(text)


def writer(stream: io.StringIO) -> LogWriter:
    made = LogWriter(stream)
    made.setFormatter(EventFormatter("text"))
    return made


def record(number: int, level: int = logging.INFO) -> logging.LogRecord:
    return logging.LogRecord("own", level, "x.py", 1, "line %d", (number,), None)


def test_lines_are_written_in_order() -> None:
    stream = io.StringIO()
    log = writer(stream)
    for number in range(100):
        log.handle(record(number))
    log.flush()
    assert [line.split()[-1] for line in stream.getvalue().splitlines()] == [str(number) for number in range(100)]


def test_what_is_too_much_is_left_out_and_counted() -> None:
    stream = Stalling()
    log = writer(stream)
    log.handle(record(0))
    assert stream.asked.wait(10)
    for number in range(1, MAX_WAITING + 8):
        log.handle(record(number))
    stream.goes_on.set()
    log.flush()
    log.handle(record(-1))
    log.handle(record(-2))
    log.flush()
    lines = stream.getvalue().splitlines()
    assert len(lines) == 1 + MAX_WAITING + 2
    assert [line.partition("line ")[2] for line in lines[-3:]] == [f"{MAX_WAITING}", "-1 unwritten=7", "-2"]


def test_what_is_critical_waits_for_the_log_but_not_for_ever() -> None:
    stream = Stalling()
    log = writer(stream)
    began = time.monotonic()
    log.handle(record(1, logging.CRITICAL))
    assert time.monotonic() - began >= FLUSH_SECONDS
    stream.goes_on.set()
    log.handle(record(2, logging.CRITICAL))
    assert "line 2" in stream.getvalue()


def test_a_log_that_is_closed_harms_nobody() -> None:
    stream = io.StringIO()
    log = writer(stream)
    stream.close()
    log.handle(record(1))
    log.flush()
