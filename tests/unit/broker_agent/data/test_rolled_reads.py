"""Random histories: what is read of segments is what was read of tails, from every offset and in both levels."""

from __future__ import annotations

import asyncio
import random

import pytest

from pidkeeper.broker_agent.kafka.wire.data.isolation import IsolationLevel
from tests.support.roll_rig import BOTH_LEVELS, RollRig

NAMES = ("a", "b", "c")


async def seen(rig: RollRig, part_bytes: int) -> dict[tuple[IsolationLevel, int], list[bytes]]:
    """By level and offset, what consumers see from there on: all of it from the start, else the next batches."""
    log = rig.leader.machine.logs.log(0)
    assert log is not None
    return {
        (level, offset): await rig.everything(level, part_bytes, start=offset, most=4 if offset else 1000)
        for level in BOTH_LEVELS
        for offset in range(log.end + 1)
    }


async def happen(rig: RollRig, rng: random.Random, steps: int) -> None:
    """Write and end at random."""
    for _ in range(steps):
        name = rng.choice((None, *NAMES))
        if name is not None and rng.random() < 0.35:
            rig.end(name, committed=rng.random() < 0.4)
        else:
            await rig.write((b"v" * rng.choice((1, 700, 5000)),) * rng.randint(1, 3), name)


@pytest.mark.parametrize("seed", range(3))
async def test_a_history_reads_the_same_from_segments(seed: int) -> None:
    rng = random.Random(seed)
    rig = RollRig(segment_bytes=rng.choice((1, 4000, 20_000, 8 << 20)), index_bytes=rng.choice((0, 2500, 1 << 20)))
    await happen(rig, rng, 20)
    for _ in range(2):
        part_bytes = rng.choice((1, 3000, 1 << 20))
        before = await seen(rig, part_bytes)
        await rig.roller.roll_due()
        assert await seen(rig, part_bytes) == before
        assert await seen(rig, rng.choice((1, 9000))) == before
        await happen(rig, rng, 8)
    for name in NAMES:
        rig.end(name, committed=False)
    before = await seen(rig, 1 << 20)
    rig.leader.segment_bytes = 8 << 20
    async with asyncio.timeout(20):
        await rig.roller.roll_due()
    log = rig.leader.machine.logs.log(0)
    assert log is not None and rig.kept_segments()[-1].end_offset == log.end
    assert await seen(rig, 1) == before
    assert rig.counters.rolls >= 1
    await rig.stop()
