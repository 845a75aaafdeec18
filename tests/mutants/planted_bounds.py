"""Bugs in what keeps the ID space, the table of transactional ids and the disk within their bounds; and over-reactions:
bounds that are met where there is room."""

from __future__ import annotations

from typing import Final

from tests.mutants.edits import delete, replace
from tests.mutants.planted import Planted

AGENT: Final = "broker_agent"
API: Final = "controller/api"
NODE: Final = "controller/node"
STATE: Final = "controller/state"
_NOT_BURNT: Final = "one call does not burn the ID space"
_NOT_REFUSED: Final = "a lawful floor is accepted"
_END: Final = "the ID space ends with an error"

FLOOR_BUGS: Final = (
    Planted(
        "floor-decided-without-a-look",
        _NOT_BURNT,
        "a check at the door alone, passed before the state changed",
        (delete(STATE, "raise_floor", "check_floor(_, _, _, forced=_)"),),
    ),
    Planted(
        "force-counts-for-nothing",
        _NOT_REFUSED,
        "a bound without a way out",
        (replace(STATE, "check_floor", "not forced", "True"),),
    ),
    Planted(
        "force-lost-on-its-way",
        _NOT_REFUSED,
        "a field that is read, checked and not handed on",
        (replace(API, "Operations.raise_floor", "RaiseFloor(_1, forced=_)", "RaiseFloor(_1)"),),
    ),
    Planted(
        "floor-refused-at-the-bound",
        _NOT_REFUSED,
        "a bound that is off by one",
        (
            replace(
                STATE,
                "check_floor",
                "at_least - next_producer_id > MAX_FLOOR_JUMP",
                "at_least - next_producer_id >= MAX_FLOOR_JUMP",
            ),
        ),
    ),
    Planted(
        "high-floors-refused-altogether",
        _NOT_REFUSED,
        "a bound below the one that is meant",
        (replace(STATE, "check_floor", "at_least > MAX_PRODUCER_ID - block_size", "at_least > MAX_PRODUCER_ID // 2"),),
    ),
    Planted(
        "exhausted-and-come-again",
        _END,
        "14 for ever: every client library comes again",
        (replace(AGENT, "BlockReserve.refusal", "_ if self.exhausted else _1", "_1"),),
    ),
    Planted(
        "any-failure-taken-for-the-end",
        _END,
        "an error that no client survives, while a leader is elected",
        (replace(AGENT, "Prefetcher._handle_failures", "any(_.code is _ for _ in _)", "True"),),
    ),
    Planted(
        "last-tenth-untold",
        "health tells of a bound in time",
        "told when nothing can be done any more",
        (replace(NODE, "shortages", "bound - used <= _", "used >= bound"),),
    ),
    Planted(
        "last-tenth-told-at-once",
        "health tells of what is so",
        "an alarm that always rings",
        (replace(NODE, "shortages", "bound - used <= _", "True"),),
    ),
)

BOUND_BUGS: Final = FLOOR_BUGS
