"""Pauses of a thread beside the event loop: when there is one, and what ends it."""

from __future__ import annotations

import threading

import pytest

from pidkeeper.controller.node import pace
from pidkeeper.controller.node.pace import Pace

FOR_EVER = 60.0


def resting(made: Pace) -> threading.Thread:
    """A thread that rests once."""
    thread = threading.Thread(target=made.rest, daemon=True)
    thread.start()
    return thread


def test_who_has_just_begun_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace, "WORK_SECONDS", FOR_EVER)
    monkeypatch.setattr(pace, "REST_SECONDS", FOR_EVER)
    thread = resting(Pace())
    thread.join(10.0)
    assert not thread.is_alive()


def test_who_has_worked_for_a_while_rests_until_it_is_hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace, "WORK_SECONDS", 0.0)
    monkeypatch.setattr(pace, "REST_SECONDS", FOR_EVER)
    made = Pace()
    thread = resting(made)
    thread.join(0.05)
    assert thread.is_alive()
    made.hurry()
    thread.join(10.0)
    assert not thread.is_alive()
    # It was told for good.
    again = resting(made)
    again.join(10.0)
    assert not again.is_alive()
