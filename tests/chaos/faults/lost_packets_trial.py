"""Run by its test in a network of its own: a leader loses packets, and how many it lost is printed."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from tests.chaos.faults.packets import KINDS, nft, why_no_packets
from tests.chaos.plan import Target
from tests.chaos.small_stage import fault_of, kind_of, ready, small_cluster, stage_of
from tests.support.checking_client import CheckingClient


async def _try(directory: Path) -> int | str:
    with small_cluster(directory) as cluster:
        stage = stage_of(cluster)
        if (reason := why_no_packets(stage)) is not None:
            return f"skipped: {reason}"
        fault = fault_of(stage, kind_of(KINDS, "lost_packets"), Target.LEADER, strength=0.3)
        with CheckingClient(cluster) as client:
            await fault.begin()
            for _ in range(3):
                await asyncio.to_thread(client.more)
            await fault.end()
            assert not nft("list", "tables"), "a rule was left"
            await ready(stage)
            await asyncio.to_thread(client.more)
        client.check()
        return await fault.bites()


if __name__ == "__main__":
    print(asyncio.run(_try(Path(sys.argv[1]))))
