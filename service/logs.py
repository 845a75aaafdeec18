"""What a service writes to its log: one event a line, as text or as JSON, and no cause more often than can be read.

Every line says who writes it and where it stands, as `member=2 term=5 index=317`; a call may add to that by `extra`,
which has `why` for what became of a leader.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal

from pidkeeper.service.log_writer import LogWriter

LogLevel = Literal["debug", "info", "warning", "error"]
LogFormat = Literal["text", "json"]

MAX_LINES_A_SECOND: Final = 10
"""Of one cause, which is the place in the code that logs. Those behind it are counted, and the next line says so."""

Facts = Callable[[], Mapping[str, Any]]
"""Who writes, and where it stands."""

_OWN: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "color_message"}
"""What every record has; anything else came by `extra`."""


class OftenRepeated(logging.Filter):
    """Lets through MAX_LINES_A_SECOND of each cause. What is critical always passes. `clock()`: seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        # Cause -> the second, lines in it, and lines left out since the last one that passed. As many as there are
        # places that log.
        self._seen: dict[tuple[str, int], tuple[int, int, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether it is logged; it is told what was left out before it."""
        cause, now = (record.pathname, record.lineno), int(self._clock())
        second, lines, left_out = self._seen.get(cause, (now, 0, 0))
        if second != now:
            second, lines = now, 0
        if lines >= MAX_LINES_A_SECOND and record.levelno < logging.CRITICAL:
            self._seen[cause] = second, lines, left_out + 1
            return False
        if left_out:
            record.left_out = left_out
        self._seen[cause] = second, lines + 1, 0
        return True


class EventFormatter(logging.Formatter):
    """Makes the line of a record; `facts` go into each."""

    def __init__(self, form: LogFormat) -> None:
        super().__init__()
        self.facts: Facts = dict
        self._line = _as_json if form == "json" else _as_text

    def format(self, record: logging.LogRecord) -> str:
        """One line, but for a traceback in text."""
        return self._line(record, {**self._known(), **_extra(record)}, self._trace(record))

    def _known(self) -> Mapping[str, Any]:
        try:
            return self.facts()
        except Exception as error:  # noqa: BLE001 - what is to be logged matters more, above all if all is broken
            return {"unknown": repr(error)}

    def _trace(self, record: logging.LogRecord) -> str | None:
        return None if record.exc_info is None else self.formatException(record.exc_info)


def start_logging(level: LogLevel, form: LogFormat) -> None:
    """Have the whole process log to standard error."""
    # Not sys.stderr itself: at its end Python waits for whoever writes to that.
    handler = LogWriter(os.fdopen(sys.stderr.fileno(), "w", encoding="utf-8", errors="backslashreplace", closefd=False))
    handler.setFormatter(EventFormatter(form))
    handler.addFilter(OftenRepeated())
    logging.basicConfig(level=level.upper(), handlers=[handler])


def tell_with_each_line(facts: Facts) -> None:
    """Have these in every line from now on."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler.formatter, EventFormatter):
            handler.formatter.facts = facts


def filter_each_line(line_filter: logging.Filter) -> None:
    """Have every line pass this filter from now on; what it adds to a record is told as what came by `extra`."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler.formatter, EventFormatter):
            handler.addFilter(line_filter)


def _extra(record: logging.LogRecord) -> dict[str, Any]:
    return {name: value for name, value in vars(record).items() if name not in _OWN}


def _as_json(record: logging.LogRecord, fields: Mapping[str, Any], trace: str | None) -> str:
    event = {
        "time": _time(record),
        "level": record.levelname.lower(),
        "logger": record.name,
        "message": record.getMessage(),
        **fields,
    }
    if trace is not None:
        event["exception"] = trace
    return json.dumps(event, default=str)


def _as_text(record: logging.LogRecord, fields: Mapping[str, Any], trace: str | None) -> str:
    words = [_time(record), record.levelname, record.name, _in_one_line(record.getMessage())]
    words += [f"{name}={_in_one_line(str(value))}" for name, value in fields.items()]
    return " ".join(words) + ("" if trace is None else f"\n{trace}")


def _time(record: logging.LogRecord) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z"


def _in_one_line(text: str) -> str:
    """Nobody whose name is logged can begin a line of its own."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text)
