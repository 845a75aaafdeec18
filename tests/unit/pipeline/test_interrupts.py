"""Signals are noted, and throw nothing."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Iterator

import pytest

from pidkeeper.pipeline.interrupts import Interrupts


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_noted_and_a_second_one_insists(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    interrupts = Interrupts()
    with interrupts.noted():
        told = [(interrupts.asked, interrupts.insisted)]
        for _ in range(2):
            os.kill(os.getpid(), number)
            told.append((interrupts.asked, interrupts.insisted))
    assert told == [(False, False), (True, False), (True, True)]
    assert signal.getsignal(number) is before


def test_stack_traces_of_calls_that_fail_by_it_are_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger("py4j")
    logger.error("before")
    with Interrupts().noted():
        os.kill(os.getpid(), signal.SIGINT)
    logger.error("after")
    assert caplog.messages == ["before"]
