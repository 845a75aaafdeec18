"""One event a line, in text and in JSON, with who writes it; and no cause that fills the log."""

from __future__ import annotations

import json
import logging
import re
import sys
from typing import Any

import pytest

from pidkeeper.service.logs import MAX_LINES_A_SECOND, EventFormatter, LogFormat, OftenRepeated


def record(message: str, *arguments: Any, level: int = logging.INFO, line: int = 7, **extra: Any) -> logging.LogRecord:
    made = logging.LogRecord("pidkeeper.x", level, "x.py", line, message, arguments, None)
    made.created, made.msecs = 1_800_000_000.25, 250.0
    made.__dict__.update(extra)
    return made


def formatted(form: LogFormat, one: logging.LogRecord, **facts: Any) -> str:
    formatter = EventFormatter(form)
    formatter.facts = lambda: facts
    return formatter.format(one)


def test_a_line_of_text_says_when_what_who_and_why() -> None:
    line = formatted("text", record("member %d leads", 2, why="silent"), member=1, term=5)
    assert line == "2027-01-15T08:00:00.250Z INFO pidkeeper.x member 2 leads member=1 term=5 why=silent"


def test_a_line_of_json_has_the_same_as_fields() -> None:
    event = json.loads(formatted("json", record("member %d leads", 2, why="silent"), member=1, term=5))
    assert event == {
        "time": "2027-01-15T08:00:00.250Z",
        "level": "info",
        "logger": "pidkeeper.x",
        "message": "member 2 leads",
        "member": 1,
        "term": 5,
        "why": "silent",
    }


@pytest.mark.parametrize("form", ["text", "json"])
@pytest.mark.parametrize("name", ["a\nCRITICAL root all is lost", "a\rb", "\x1b[2J", "\u2028", "\x00", "\ud800"])
def test_whose_name_is_logged_begins_no_line_of_its_own(form: LogFormat, name: str) -> None:
    line = formatted(form, record("user %s is refused", name, who=name))
    assert line.isprintable()
    assert "is refused" in line


def test_a_traceback_is_a_field_of_json_and_follows_a_line_of_text() -> None:
    try:
        raise ValueError("lost")
    except ValueError:
        failed = record("it failed")
        failed.exc_info = sys.exc_info()
    assert "ValueError: lost" in json.loads(formatted("json", failed))["exception"]
    first, *rest = formatted("text", failed).splitlines()
    assert re.search("it failed$", first)
    assert rest[-1] == "ValueError: lost"


def test_facts_that_cannot_be_had_cost_no_line() -> None:
    formatter = EventFormatter("json")
    formatter.facts = lambda: {"term": 1 // 0}
    assert json.loads(formatter.format(record("still here")))["message"] == "still here"


class Clock:
    seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


def test_a_cause_gets_so_many_lines_a_second_and_the_next_one_tells_how_many_more_there_were() -> None:
    clock = Clock()
    often = OftenRepeated(clock)
    passed = [often.filter(record(f"about {number}")) for number in range(MAX_LINES_A_SECOND + 5)]
    assert passed == [True] * MAX_LINES_A_SECOND + [False] * 5
    assert often.filter(record("another place", line=8))
    assert often.filter(record("the end", level=logging.CRITICAL))
    clock.seconds += 1
    later = record("about the rest")
    assert often.filter(later)
    assert "left_out" not in vars(later), "the critical line told it"
    for _ in range(MAX_LINES_A_SECOND + 2):
        often.filter(record("again"))
    clock.seconds += 5
    later = record("and now")
    assert often.filter(later)
    assert json.loads(formatted("json", later))["left_out"] == 3
    assert "left_out" not in vars(record("after that"))
