"""The proof: every ID that anybody received, held against every other one and against the allocation history."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterable, Mapping

import msgspec

from pidkeeper.protocol.messages import AllocatedBlock


class Verdict(msgspec.Struct, frozen=True):
    """`producer_ids`: IDs received by clients; `duplicates`: how often an ID was received again; `strays`: IDs outside
    the blocks of the agent that gave them out; `overlaps`: blocks of the history that overlap the one before."""

    producer_ids: int
    duplicates: int
    strays: int
    overlaps: int
    blocks: int
    highest: int


def judge(claimed: Mapping[int | None, Iterable[Iterable[int]]], history: list[AllocatedBlock]) -> Verdict:
    """Check all IDs, by the broker that gave them out, against the history in order of ID.

    None stands for any broker: a client library goes to whichever agent it likes of those that it was told of.
    """
    firsts = [block.first for block in history]
    seen = bytearray(history[-1].last + 1 if history else 0)
    count = duplicates = strays = 0
    highest = -1
    for broker_id, batches in claimed.items():
        for batch in batches:
            for producer_id in batch:
                count += 1
                highest = max(highest, producer_id)
                position = bisect.bisect_right(firsts, producer_id) - 1
                block = history[position] if position >= 0 else None
                if block is None or producer_id > block.last or broker_id not in {None, block.broker_id}:
                    strays += 1
                elif seen[producer_id]:
                    duplicates += 1
                else:
                    seen[producer_id] = 1
    overlaps = sum(later.first <= earlier.last for earlier, later in itertools.pairwise(history))
    return Verdict(count, duplicates, strays, overlaps, len(history), highest)


def quantile(values: list[float], share: float) -> float:
    """The value below which `share` of the values lie; 0 for none."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))] if values else 0.0
