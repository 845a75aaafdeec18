"""`python -m tests.explore.run_groups [SCOPE ...]`: decisions about a consumer group through every state of the scopes.

Prints a table and writes build/explore-groups.json. Exit code 1 if anything is wrong; its course is printed.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from tests.explore.groups_moves import GroupMoves
from tests.explore.groups_promises import check
from tests.explore.groups_state import GroupScope, beginning
from tests.explore.worlds import Explored, exhaust, main

REPORT: Final = Path("build/explore-groups.json")

SCOPES: Final = (
    GroupScope(name="a-zombie", coordinators=1),
    GroupScope(name="two-coordinators", aborted=0),
    GroupScope(name="two-inputs", coordinators=1, members=1, inputs=2, generations=1, committed=2, offsets=3),
    GroupScope(name="static-members", coordinators=1, generations=1, parts=True, replaced=1),
    GroupScope(name="plain-commits", coordinators=1, generations=1, plain=1),
)
"""What `make explore` exhausts."""


def explore(scope: GroupScope) -> Explored:
    """All states of a scope, or those up to the first that is wrong."""
    return exhaust(scope, beginning(scope), GroupMoves(scope).of, check)


if __name__ == "__main__":
    sys.exit(main(__doc__, {scope.name: scope for scope in SCOPES}, explore, REPORT))
