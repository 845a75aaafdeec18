"""Explores one scope in the tree that it is started in until something is wrong.

`python -m tests.explore.hunt SECONDS SCOPE`, the scope as JSON, prints one line of JSON, a `Hunt`.
"""

from __future__ import annotations

import sys
import time

import msgspec

from tests.explore.scope import Scope
from tests.explore.search import Search


class Hunt(msgspec.Struct, frozen=True):
    """`found`: what is wrong; None if nothing was, in all of the scope if it was `exhausted`."""

    found: str | None
    states: int
    exhausted: bool


def hunt(scope: Scope, seconds: float) -> Hunt:
    """Look at `scope` for as long; a depth that was begun is looked at to its end."""
    search, end = Search(scope), time.monotonic() + seconds
    while not search.exhausted and search.finding is None and time.monotonic() < end:
        search.deepen()
    return Hunt(None if search.finding is None else search.finding.what, search.states, search.exhausted)


if __name__ == "__main__":
    print(msgspec.json.encode(hunt(msgspec.json.decode(sys.argv[2], type=Scope), float(sys.argv[1]))).decode())
