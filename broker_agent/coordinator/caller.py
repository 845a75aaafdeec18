"""Whoever sends a request, as far as it concerns the answer. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from pidkeeper.service.exchange import never

MayUse = Callable[[str], bool]
"""Whether a caller may use a transactional id."""


def anything(_: str) -> bool:
    """Of a caller whom no rule keeps from anything."""
    return True


class Caller(NamedTuple):
    """`has_hung_up`: whether it has closed its connection, so that nobody waits for the answer."""

    may_use: MayUse = anything
    has_hung_up: Callable[[], bool] = never


ANYBODY: Final = Caller()
"""One that may use anything, and stays."""
