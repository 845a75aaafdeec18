"""Whether a topic was copied exactly once. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import zip_longest


def wrong(source: Sequence[str], target: Sequence[str]) -> str | None:
    """What is wrong with the copy `target` of a partition, of which each message is in `source` once; None if nothing.

    A message keeps its partition, so that the two have to be the same.
    """
    if twice := [value for value, times in Counter(target).items() if times > 1]:
        return f"{len(twice)} messages were copied more than once, as {twice[0]}"
    if lost := set(source) - set(target):
        return f"{len(lost)} messages were not copied, as {min(lost)}"
    if strange := set(target) - set(source):
        return f"{len(strange)} messages are of nobody, as {min(strange)}"
    for at, (one, other) in enumerate(zip_longest(source, target)):
        if one != other:
            return f"at {at} is {other} where {one} was to be copied"
    return None
