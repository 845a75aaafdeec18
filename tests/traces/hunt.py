"""Follows seeds in the tree that it is started in until one takes a step that the specification does not allow.

`python -m tests.traces.hunt FIRST COUNT STEPS` prints one line of JSON, a `Hunt`.
"""

from __future__ import annotations

import sys

import msgspec

from tests.traces.follow import follow


class Hunt(msgspec.Struct, frozen=True):
    """`refused`: the first such step; None if there was none in all the `tried` seeds."""

    refused: str | None
    tried: int


def hunt(first: int, count: int, steps: int) -> Hunt:
    """Follow `count` seeds from `first` on, at most `steps` of each."""
    for seed in range(first, first + count):
        refused = follow(seed, steps).refused
        if refused is not None:
            return Hunt(refused.splitlines()[-1].strip(), seed - first + 1)
    return Hunt(None, count)


if __name__ == "__main__":
    print(msgspec.json.encode(hunt(*map(int, sys.argv[1:4]))).decode())
