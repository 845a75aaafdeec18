"""Complaints about connections: each source gets a line now and then, and none fills the log."""

from __future__ import annotations

import pytest

from pidkeeper.service.complaints import MAX_SOURCES, QUIET_SECONDS, Complaints


class Told:
    """Complaints by the test's own clock, and the lines that they made."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        self.now = 0.0
        self.complaints = Complaints(lambda: self.now)
        self._caplog = caplog

    def about(self, host: str, complaint: str = "garbage") -> list[str]:
        """Complain; the lines that this made."""
        self._caplog.clear()
        self.complaints.about(host, complaint)
        return self._caplog.messages


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> Told:
    return Told(caplog)


def test_a_line_says_what_and_from_where(told: Told) -> None:
    assert told.about("192.0.2.7") == ["garbage (a connection from 192.0.2.7)"]


def test_a_source_that_goes_on_is_told_of_now_and_then_with_how_often(told: Told) -> None:
    told.about("192.0.2.7")
    for _ in range(500):
        assert told.about("192.0.2.7") == []
    told.now += QUIET_SECONDS
    assert told.about("192.0.2.7", "more garbage") == [
        "more garbage (a connection from 192.0.2.7, 500 more from there since the last such line)"
    ]
    told.now += QUIET_SECONDS
    assert told.about("192.0.2.7") == ["garbage (a connection from 192.0.2.7)"]


def test_one_source_does_not_hide_another(told: Told) -> None:
    told.about("192.0.2.7")
    assert told.about("192.0.2.7") == []
    assert len(told.about("192.0.2.8")) == 1


def test_sources_are_remembered_up_to_a_bound_and_the_quietest_is_forgotten(told: Told) -> None:
    for number in range(MAX_SOURCES):
        told.now += 0.001
        told.about(f"192.0.2.{number}")
    told.about("198.51.100.1")
    assert len(told.complaints._told) == MAX_SOURCES
    assert told.about("192.0.2.1") == []
    assert len(told.about("192.0.2.0")) == 1
