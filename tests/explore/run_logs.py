"""`python -m tests.explore.run_logs [SCOPE ...]`: decisions about a partition log through every state of the scopes.

Prints a table and writes build/explore-logs.json. Exit code 1 if anything is wrong; its course is printed.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from tests.explore.logs_moves import LogMoves
from tests.explore.logs_promises import check
from tests.explore.logs_state import LogScope, beginning
from tests.explore.worlds import Explored, exhaust, main

REPORT: Final = Path("build/explore-logs.json")

SCOPES: Final = (
    LogScope(name="duplicates", objects=3, pairs=True),
    LogScope(name="zombies", objects=2, registrations=1, pairs=True),
    LogScope(name="transactions", agents=1, objects=3, transactions=2),
    LogScope(name="rollers", objects=2, segments=2),
    LogScope(name="starts", objects=2, segments=1, start=2),
    LogScope(name="rolled-transactions", agents=1, objects=2, segments=1, transactions=2),
)
"""What `make explore` exhausts."""


def explore(scope: LogScope) -> Explored:
    """All states of a scope, or those up to the first that is wrong."""
    return exhaust(scope, beginning(scope), LogMoves(scope).of, check)


if __name__ == "__main__":
    sys.exit(main(__doc__, {scope.name: scope for scope in SCOPES}, explore, REPORT))
