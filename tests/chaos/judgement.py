"""What the journal of a run tells beyond the checks: when blocks were given, and which claims failed that must not."""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Sequence
from typing import Final

from tests.chaos.course import Happened
from tests.chaos.figures import Served
from tests.chaos.load.crew import ALLOCATOR
from tests.chaos.load.journal import Entry, Outcome
from tests.chaos.load.kinds import ALLOCATE, CHANGE, CLAIM

NANOSECONDS: Final = 1e9


def served(entries: Iterable[Entry]) -> Served:
    """When the steady allocator was given a block."""
    return Served(
        sorted(
            entry.returned / NANOSECONDS
            for entry in entries
            if entry.actor == ALLOCATOR
            and entry.kind == ALLOCATE
            and entry.outcome is Outcome.OK
            and entry.returned is not None
        )
    )


def failed_claims(entries: Iterable[Entry], happened: Iterable[Happened]) -> list[Entry]:
    """Claims that failed while one fault alone was under way, which was not of the agent that was asked."""
    alone = sorted((one.began, one.whole, one.victims) for one in happened if one.planned.alone and one.victims)
    return [entry for entry in entries if entry.kind == CLAIM and _is_inexcusable(entry, alone)]


def _is_inexcusable(entry: Entry, alone: Sequence[tuple[float, float, tuple[str, ...]]]) -> bool:
    begun = entry.arguments["since"] / NANOSECONDS
    ended = (entry.returned or entry.invoked) / NANOSECONDS
    position = bisect.bisect_right(alone, begun, key=lambda one: one[0]) - 1
    if position < 0:
        return False
    _, whole, victims = alone[position]
    return ended <= whole and f"agent-{entry.arguments['agent']}" not in victims


def voter_changes(entries: Iterable[Entry]) -> int:
    """How often an operator made a voter of somebody, or made somebody one no more."""
    return sum(
        entry.kind == CHANGE and entry.arguments["what"] in {"add", "remove"} and entry.outcome is Outcome.OK
        for entry in entries
    )
