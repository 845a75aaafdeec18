"""How the transactions of copiers ended, out of what Kafka's TransactionManager logs. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import Final

import msgspec

_TRANSITION: Final = re.compile(r"Transition from state (\w+) to (?:error state )?(\w+)(?: (?:\w+\.)*(\w+))?")
_OPEN: Final = {"IN_TRANSACTION", "COMMITTING_TRANSACTION"}
_ERRORS: Final = {"ABORTABLE_ERROR", "FATAL_ERROR"}


class Endings(msgspec.Struct, frozen=True):
    """`chosen`: aborted by the copier's own choice, a third of all by chance; `refused`: given up, by the exception;
    `left`: neither, for the copier was killed, or is in it."""

    committed: int
    chosen: int
    refused: dict[str, int]
    left: int


def endings(printed: Iterable[str]) -> Endings:
    """Of all transactions of several copiers, from what each of them printed."""
    begun = committed = chosen = 0
    refused: Counter[str] = Counter()
    for text in printed:
        for before, after, cause in _TRANSITION.findall(text):
            if after == "IN_TRANSACTION":
                begun += 1
            elif (before, after) == ("COMMITTING_TRANSACTION", "READY"):
                committed += 1
            elif (before, after) == ("IN_TRANSACTION", "ABORTING_TRANSACTION"):
                chosen += 1
            elif before in _OPEN and after in _ERRORS:
                refused[cause] += 1
    return Endings(committed, chosen, dict(refused), begun - committed - chosen - refused.total())
