"""A whole quorum loses its power at once while it allocates, and goes on above everything that it had acknowledged."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from pidkeeper.controller.node.settings import Timing
from pidkeeper.protocol.errors import RequestError
from tests.crash.loop_disk import KernelFiles, LoopDisk
from tests.support.loopback_cluster import LoopbackCluster, history

VOTERS: Final = 3
MEGABYTES: Final = 16
CLIENTS: Final = 4
MAX_LOAD_SECONDS: Final = 0.1
ROUND_SECONDS: Final = 60.0
TIMING: Final = Timing(tick_ms=5, heartbeat_ms=20, election_timeout_ms=100, link_lost_ms=15)
"""Short, so that most of the time there is something to lose."""

SNAPSHOT_ENTRIES: Final = 40
SEGMENT_BYTES: Final = 16 * 1024


class ClusterResult(msgspec.Struct):
    """`acknowledged`: blocks whose owner was checked for after each cut behind them."""

    cuts: int = 0
    acknowledged: int = 0
    seconds: float = 0.0
    violations: list[str] = []


def cut_cluster(directory: Path, cuts: int, seed: int, *, deadline: float | None = None) -> ClusterResult:
    """Cut a quorum of VOTERS `cuts` times, or until `deadline` (monotonic seconds), or a promise is broken.

    Every member has a file system of its own.
    """
    result = ClusterResult()
    started = time.monotonic()
    rng = random.Random(seed)
    acknowledged: set[int] = set()
    logging.disable(logging.CRITICAL)  # every cut is an error to the members
    try:
        with contextlib.ExitStack() as stack:
            disks = [
                stack.enter_context(LoopDisk(directory, f"member-{node_id}", MEGABYTES))
                for node_id in range(1, VOTERS + 1)
            ]
            while result.cuts < cuts and not result.violations and (deadline is None or time.monotonic() < deadline):
                asyncio.run(_round(directory, disks, rng, acknowledged, result))
                for disk in disks:
                    disk.unmount()
                    disk.mount()
                result.cuts += 1
            asyncio.run(_round(directory, disks, rng, acknowledged, result, cut=False))
    finally:
        logging.disable(logging.NOTSET)
    result.acknowledged = len(acknowledged)
    result.seconds = time.monotonic() - started
    return result


async def _round(
    directory: Path,
    disks: Sequence[LoopDisk],
    rng: random.Random,
    acknowledged: set[int],
    result: ClusterResult,
    *,
    cut: bool = True,
) -> None:
    """Start all members, check what they know, load them, cut their power."""
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda loop, context: None)
    cluster = LoopbackCluster(
        directory, voters=VOTERS, timing=TIMING, snapshot_entries=SNAPSHOT_ENTRIES, segment_bytes=SEGMENT_BYTES
    )
    files = [KernelFiles(disk) for disk in disks]
    try:
        async with asyncio.timeout(ROUND_SECONDS):
            for node_id, one in enumerate(files, 1):
                await cluster.start(node_id, files=one)
            epoch = await cluster.register()
            await _check(cluster, epoch, acknowledged, result)
            if cut:
                await _load_and_cut(cluster, disks, epoch, rng, acknowledged)
    except Exception as error:  # noqa: BLE001 - whatever stops the quorum from serving is a finding
        result.violations.append(f"after {result.cuts} cuts: {type(error).__name__}: {error}")
    finally:
        await cluster.close()
        for one in files:
            one.forget_processes()


async def _check(cluster: LoopbackCluster, epoch: int, acknowledged: set[int], result: ClusterResult) -> None:
    await cluster.settle()
    # A member that took a snapshot over from the leader has a hole in its history; not all of them have the same.
    known = {block.first for member in cluster.members.values() for block in await history(member, 1000)}
    if missing := acknowledged - known:
        result.violations.append(f"after {result.cuts} cuts the blocks from {sorted(missing)[:5]} have no owner")
    (first,) = await cluster.allocate(epoch)
    if acknowledged and first <= max(acknowledged):
        result.violations.append(f"after {result.cuts} cuts {first} is handed out, {max(acknowledged)} was before")
    acknowledged.add(first)


async def _load_and_cut(
    cluster: LoopbackCluster, disks: Sequence[LoopDisk], epoch: int, rng: random.Random, acknowledged: set[int]
) -> None:
    clients = [asyncio.create_task(_allocate_on(cluster, epoch, acknowledged)) for _ in range(CLIENTS)]
    await asyncio.sleep(rng.random() * MAX_LOAD_SECONDS)
    for disk in disks:
        disk.cut()
    for client in clients:
        client.cancel()
    for outcome in await asyncio.gather(*clients, return_exceptions=True):
        if isinstance(outcome, Exception) and not isinstance(outcome, RequestError | TimeoutError):
            raise outcome


async def _allocate_on(cluster: LoopbackCluster, epoch: int, acknowledged: set[int]) -> None:
    while True:
        acknowledged.update(await cluster.allocate(epoch))
