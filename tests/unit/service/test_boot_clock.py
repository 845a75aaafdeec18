"""The clock that goes on in a suspended machine: of Linux, CLOCK_BOOTTIME."""

from __future__ import annotations

import sys
import time

import pytest

from pidkeeper.service.boot_clock import boot_seconds


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no CLOCK_BOOTTIME")
def test_time_is_that_since_the_boot_with_what_was_slept_through() -> None:
    before = time.clock_gettime(time.CLOCK_BOOTTIME)
    assert before <= boot_seconds() <= time.clock_gettime(time.CLOCK_BOOTTIME)
