"""A state at its limits in real members: 200,000 transactional ids, and all the partitions that may be kept.

`python -m tests.soak.at_the_limits` fills a quorum of three over HTTP until it refuses more, of ids and of partitions.
It ends and begins all these transactions once more, so that a snapshot of it all is taken, kills all members and times
their restart. It prints what each member took at most and writes build/soak-limits.json. The exit code is 1 if a bound
is passed.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import aiohttp
import msgspec

from pidkeeper.cli.local_cluster import Controller, LocalCluster
from pidkeeper.controller.state.transactions import MAX_PARTITION_BYTES, MAX_TRANSACTIONAL_IDS
from tests.soak.members import MIB, beyond, conclude, log_bytes, peak_bytes, restart
from tests.support.cluster import metrics, register, running_cluster

REPORT: Final = Path("build/soak-limits.json")
CALLERS: Final = 64
FAT_CALLERS: Final = 5
"""Of the calls with so many partitions that each takes a leader a MiB for a moment; the other soak has as many."""

PARTITIONS: Final = 9_000
"""What one call may bring, as its body has 64 KiB at most."""

ATTEMPTS: Final = 100
AGAIN: Final = {421, 503, 504}
"""Another member leads, or nobody just now. Each of the calls may be repeated."""

BROKER: Final = 50
NAME: Final = "transactional-id-{:019}"
"""36 characters."""

MAX_MEMORY_BYTES: Final = (50 + 65 + 3 * MAX_PARTITION_BYTES // MIB) * MIB
"""Resident, of one member, by docs/operations.md: the log may take as much as partitions, and so may a snapshot."""

MAX_LOG_BYTES: Final = 128 * MIB

_FAST: Final = {"per_second": 1_000_000.0, "burst": 1_000_000}
OPTIONS: Final[dict[str, Any]] = {
    "limits": {
        f"{whose}_{what}": _FAST for whose in ("broker", "cluster") for what in ("transactional_inits", "transactions")
    }
}


class Report(msgspec.Struct):
    """Of the member that took most; bytes and seconds. Memory: the most that it was until the restart, and since."""

    ids: int = 0
    transactions: int = 0
    fill_seconds: float = 0.0
    memory_bytes: int = 0
    log_bytes: int = 0
    snapshots: int = 0
    restart_seconds: float = 0.0
    restarted_memory_bytes: int = 0

    def broken(self) -> list[str]:
        """The bounds that were passed."""
        found = beyond("memory of a member", self.memory_bytes, MAX_MEMORY_BYTES)
        found += beyond("memory of a member since its restart", self.restarted_memory_bytes, MAX_MEMORY_BYTES)
        found += beyond("log of a member", self.log_bytes, MAX_LOG_BYTES)
        if not self.snapshots:
            found.append("no snapshot was taken")
        return found


class _Broker:
    """The one whose producers fill the state: it asks whoever leads, many requests at a time."""

    def __init__(self, leader: Controller) -> None:
        self._leader = leader.http
        self._epoch = register(leader, BROKER, "limits").json()["broker_epoch"]
        self._pairs: dict[str, tuple[int, int]] = {}

    async def init(self, session: aiohttp.ClientSession, name: str) -> int:
        """InitProducerId; the HTTP status."""
        body = {"transaction_timeout_ms": 900_000, "candidate": -1}
        status, answer = await self._ask(session, "init-producer-id", name, body)
        if status == 200:
            self._pairs[name] = answer["producer_id"], answer["producer_epoch"]
        return status

    async def add(self, session: aiohttp.ClientSession, name: str) -> int:
        """AddPartitionsToTxn with as many as fit; the HTTP status."""
        producer_id, producer_epoch = self._pairs[name]
        topics = [{"topic": "t", "partitions": list(range(PARTITIONS))}]
        body = {"producer_id": producer_id, "producer_epoch": producer_epoch, "topics": topics}
        return (await self._ask(session, "add-partitions", name, body))[0]

    async def renew(self, session: aiohttp.ClientSession, name: str) -> int:
        """EndTxn, and a transaction of the same partitions: the state stays, and the log grows; the HTTP status."""
        producer_id, producer_epoch = self._pairs[name]
        body = {"producer_id": producer_id, "producer_epoch": producer_epoch, "committed": False}
        status, _ = await self._ask(session, "end", name, body)
        return await self.add(session, name) if status == 200 else status

    async def _ask(self, session: aiohttp.ClientSession, call: str, name: str, more: dict[str, Any]) -> tuple[int, Any]:
        body = {"broker_id": BROKER, "broker_epoch": self._epoch, "transactional_id": name, **more}
        for _ in range(ATTEMPTS):
            async with session.post(f"{self._leader}/v1/transactions/{call}", json=body) as response:
                answer = await response.json()
            if response.status not in AGAIN:
                break
            self._leader = answer.get("leader") or self._leader
            await asyncio.sleep(0.1)
        assert response.status in {200, 429}, answer
        return response.status, answer


async def _fill(step: Callable[[aiohttp.ClientSession, str], Any], most: int, callers: int) -> int:
    """Take this step for one name after the other until it is refused, `most` at most; how often it was taken."""
    names: Iterator[str] = map(NAME.format, range(most))
    taken = itertools.count()

    async def call(session: aiohttp.ClientSession) -> None:
        for name in names:
            if await step(session, name) != 200:
                return
            next(taken)

    timeout = aiohttp.ClientTimeout(total=60)
    async with aiohttp.ClientSession(timeout=timeout) as session, asyncio.TaskGroup() as group:
        for _ in range(callers):
            group.create_task(call(session))
    return next(taken)


def at_the_limits(directory: Path, show: Callable[[str], None], *, ids: int = MAX_TRANSACTIONAL_IDS) -> Report:
    """Fill a quorum in `directory` with `ids` transactional ids, and with partitions until they are refused.

    Raises AssertionError if a member ends, or refuses anything else.
    """
    report = Report()
    with running_cluster(directory, controller_options=OPTIONS) as cluster:
        leader, begun = cluster.leader(), time.monotonic()
        broker = _Broker(leader)
        report.ids = asyncio.run(_fill(broker.init, ids + CALLERS, CALLERS))
        show(f"{report.ids} transactional ids after {time.monotonic() - begun:.0f} s")
        report.transactions = asyncio.run(_fill(broker.add, report.ids, FAT_CALLERS))
        report.fill_seconds = time.monotonic() - begun
        show(f"{report.transactions} transactions of {PARTITIONS} partitions after {report.fill_seconds:.0f} s")
        renewed = asyncio.run(_fill(broker.renew, report.transactions, FAT_CALLERS))
        show(f"{renewed} of them ended and begun again after {time.monotonic() - begun:.0f} s")
        _look(cluster, report)
        report.restart_seconds = restart(cluster)
        report.restarted_memory_bytes = max(map(peak_bytes, cluster.layout.controllers))
    return report


def _look(cluster: LocalCluster, report: Report) -> None:
    members = cluster.layout.controllers
    report.memory_bytes = max(map(peak_bytes, members))
    report.log_bytes = max(map(log_bytes, members))
    report.snapshots = int(min(metrics(one)["pidkeeper_raft_snapshots_taken_total"] for one in members))


def main(arguments: list[str]) -> int:
    """Run from the command line; the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--ids", type=int, default=MAX_TRANSACTIONAL_IDS)
    ids: int = parser.parse_args(arguments).ids
    with tempfile.TemporaryDirectory(prefix="pidkeeper-soak-") as directory:
        report = at_the_limits(Path(directory), lambda line: print(line, flush=True), ids=ids)
    return conclude(report, REPORT)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
