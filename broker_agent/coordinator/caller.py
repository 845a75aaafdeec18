"""Whoever sends a request, as far as it concerns the answer. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from pidkeeper.service.exchange import never

MayUse = Callable[[str], bool]
"""Whether a caller may use a transactional id."""

May = Callable[[str, str], bool]
"""Whether a caller may do what an operation of `security.acls` is to the topic or the group of a name."""


def anything(_: str) -> bool:
    """Of a caller whom no rule keeps from anything."""
    return True


def everything(_: str, __: str) -> bool:
    """Likewise, of topics and groups."""
    return True


class FetchMeter(Protocol):
    """What a caller may fetch (KIP-13, KIP-219)."""

    def fetch_room(self) -> int | None:
        """Bytes of records that it may get at once; 0 if it has to wait before it gets any, None for any number."""
        ...

    def fetched(self, size: int) -> bool:
        """Whether it may get so many, which count from now on. The last answer may go beyond the room."""
        ...


class Caller(NamedTuple):
    """`has_hung_up`: whether it has closed its connection, so that nobody waits for the answer. `meter`: counts what it
    fetches, if that is counted. `host`: its address, for people."""

    may_use: MayUse = anything
    has_hung_up: Callable[[], bool] = never
    may: May = everything
    meter: FetchMeter | None = None
    host: str = ""


ANYBODY: Final = Caller()
"""One that may use anything, and stays."""
