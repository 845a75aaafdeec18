"""What is explored, and within which bounds. Everything that a scope allows happens in every order."""

from __future__ import annotations

from typing import Final, Literal

import msgspec


class Scope(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of one exploration; nothing that they name happens more often on any course.

    voters: members of the quorum at first. spares: machines with empty disks that may join it. terms: the highest term.
    timeouts: of elections, of all members together. heartbeats: rounds of them. resignations: of leaders who hear no
    majority. proposals: entries beside the leaders' empty ones. crashes: of all members together; what was written and
    not synced is lost from any write on. tears: crashes of which a write under way leaves a part, so that its member
    cannot tell what it lacks. losses: disks that are replaced by empty ones. repeats: messages that arrive
    once more. capacity: messages on their way from one member to another; one more pushes any of them out. transfers:
    of the leadership. snapshots: taken by any member, who then drops the log behind it. changes: of the quorum, by one
    member each. asks: for blocks, by all agents together; if there are any, the members are whole controllers. agents:
    how many ask. restarts: of agents, who have forgotten everything then.
    blank: all begin with empty disks, so recovering; else with founded ones. pre_votes: those travel as
    all messages do; else they are answered at once, by any set of members, or never. calm: of so many states of all
    members together one is left alone, until somebody serves; 0: of none. begins: when one leads (`led`), or has also
    taken in all spares as learners (`joined`), with the bounds that this leaves (`prelude.py`); else at the first step.
    """

    name: str
    voters: int = 3
    spares: int = 0
    terms: int = 1
    timeouts: int = 1
    heartbeats: int = 0
    resignations: int = 0
    proposals: int = 0
    crashes: int = 0
    tears: int = 0
    losses: int = 0
    repeats: int = 0
    capacity: int = 1
    transfers: int = 0
    snapshots: int = 0
    changes: int = 0
    asks: int = 0
    agents: int = 1
    restarts: int = 0
    blank: bool = False
    pre_votes: bool = False
    calm: int = 0
    begins: Literal["", "led", "joined"] = ""

    @property
    def members(self) -> int:
        """How many members there are, and spares for one."""
        return self.voters + self.spares

    @property
    def places(self) -> int:
        """How many there are of all, with the agents."""
        return self.members + (self.agents if self.asks else 0)


BUDGETS: Final = (
    "timeouts",
    "heartbeats",
    "resignations",
    "proposals",
    "crashes",
    "tears",
    "losses",
    "repeats",
    "transfers",
    "snapshots",
    "changes",
    "asks",
    "restarts",
)
"""The bounds that a course uses up, in the order in which a state keeps what is left of them."""

SCOPES: Final = (
    Scope(name="quick", terms=1, timeouts=2, crashes=1, calm=1),
    Scope(name="five", voters=5, terms=1, timeouts=1, calm=1),
    Scope(name="torn", terms=1, timeouts=2, tears=2, losses=1, calm=10),
    Scope(name="blocks-restart", terms=1, timeouts=2, asks=2, agents=2, restarts=1),
    Scope(name="blocks-snapshot", terms=1, timeouts=1, asks=2, snapshots=1, crashes=1),
    Scope(name="lost-disk", terms=2, timeouts=2, losses=1, calm=10),
    Scope(name="blocks-crash", terms=1, timeouts=2, asks=2, crashes=1),
    Scope(name="lost-disk-proposal", terms=1, timeouts=2, proposals=1, losses=1, calm=10),
    Scope(name="back-crash", spares=1, terms=1, timeouts=1, changes=3, crashes=1, calm=20, begins="joined"),
    Scope(name="handover", terms=2, timeouts=1, transfers=1, proposals=1, calm=10),
    Scope(name="snapshot-crash", terms=1, timeouts=1, proposals=2, snapshots=1, crashes=1, calm=10),
    Scope(name="change-crash", terms=2, timeouts=2, changes=1, crashes=1, calm=10),
    Scope(name="blocks", terms=2, timeouts=2, asks=2),
    Scope(name="crash", terms=2, timeouts=2, proposals=1, crashes=1, calm=10),
    Scope(name="three-entries", terms=2, timeouts=2, proposals=1, losses=1, crashes=1, calm=20, begins="led"),
    Scope(name="two-to-three-and-back", voters=2, spares=1, terms=1, timeouts=1, changes=3, calm=10),
    Scope(name="blocks-agents", terms=2, timeouts=2, asks=2, agents=2),
    Scope(name="lost-disk-crash", terms=2, timeouts=2, losses=1, crashes=1, calm=10),
    Scope(name="blocks-lost-disk", terms=2, timeouts=2, asks=1, losses=1),
    Scope(name="back-lost-disk", spares=1, terms=1, timeouts=1, changes=3, losses=1, calm=20, begins="joined"),
    Scope(name="three-to-four", spares=1, terms=1, timeouts=1, changes=2, calm=10),
)
"""What `make explore` exhausts, the smallest first."""
