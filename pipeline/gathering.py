"""All evidence of an audit: of the quorum, and of Kafka's segments beside what the quorum allocated.

Small inputs are one part, gathered by one process from beginning to end: then nothing is planned and sent but once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec
import numpy as np

from pidkeeper.pipeline.engine.engine import Engine, Named
from pidkeeper.pipeline.engine.local import LocalEngine
from pidkeeper.pipeline.quorum.blocks import runs_of
from pidkeeper.pipeline.quorum.gathering import QuorumPlan
from pidkeeper.pipeline.quorum.gathering import gather as gather_quorum
from pidkeeper.pipeline.segments.gathering import SegmentsPlan
from pidkeeper.pipeline.segments.gathering import gather as gather_segments

SMALL_BYTES: Final = 48 << 20
"""Up to here one task is faster than several that have to be told what to do."""
KNOWN_SHARE: Final = 100
"""So many bytes of known files cost about as much as one that is read."""


class AuditPlan(msgspec.Struct, frozen=True):
    """What is read. bytes: what it costs, as if so many were read for the first time."""

    quorum: QuorumPlan | None
    segments: SegmentsPlan | None
    bytes: int


def cost(bytes_read: int, bytes_known: int) -> int:
    """See `AuditPlan.bytes`."""
    return bytes_read + bytes_known // KNOWN_SHARE


def gather(engine: Engine, plan: AuditPlan) -> Iterator[Named]:
    """Evidence by `quorum.evidence`, `quorum.logs` and `segments.tables`."""
    if plan.bytes <= engine.alone_bytes:
        yield from gather_here(plan)
    elif plan.bytes <= SMALL_BYTES:
        yield from engine.map(gather_here, [plan])
    else:
        yield from _gather(engine, plan)


def gather_here(plan: AuditPlan) -> Iterator[Named]:
    """The same, as a kernel."""
    return _gather(LocalEngine(), plan)


def _gather(engine: Engine, plan: AuditPlan) -> Iterator[Named]:
    runs: list[Any] = []
    if plan.quorum is not None:
        for name, batch in gather_quorum(engine, plan.quorum):
            if name in {"id_runs", "adrift"}:
                runs.append(batch)
            yield name, batch
    if plan.segments is not None:
        first, last = ([batch[name].to_numpy() for batch in runs] for name in ("first_id", "last_id"))
        allocated = runs_of(np.concatenate(first), np.concatenate(last)) if runs else None
        yield from gather_segments(engine, plan.segments, allocated)
