"""How long allocation is away when the leader dies, hangs, is told to stop, or its disk hangs.

One caller allocates without pause. In each round the leader gets a signal, or its disk begins to hang, and the time
runs from then to the first block that was asked for after it and given by another member. Then the member is brought
back.
"""

from __future__ import annotations

import asyncio
import math
import random
import signal
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import cycle
from typing import Final

import aiohttp
import msgspec

from bench.cluster import register
from bench.slow_disk import SlowDiskCluster
from pidkeeper.cli.local_cluster import Controller, LocalCluster

ATTEMPT_SECONDS: Final = 0.3
"""Deadline of one attempt, the one that the broker agent uses."""

JITTER_SECONDS: Final = (0.005, 0.020)
"""Pause before an attempt at a member that was not named as the leader."""

ROUND_SECONDS: Final = 15.0
WARM_SECONDS: Final = (0.3, 0.4)
"""Undisturbed allocation before the signal: drawn, so that signals fall anywhere between two heartbeats."""


class FailoverResult(msgspec.Struct, frozen=True):
    """Times from signal to success over all rounds."""

    rounds: int
    median_ms: float
    max_ms: float
    times_ms: list[float]


class _Answer(msgspec.Struct):
    producer_id_start: int


class _Refusal(msgspec.Struct):
    leader: str | None = None


class Caller:
    """Allocates one block after the other from whichever of the `members` (base URLs) leads; keeps every start."""

    def __init__(self, session: aiohttp.ClientSession, members: Sequence[str], body: str, rng: random.Random) -> None:
        self._session = session
        self._body = body.encode()
        self._rng = rng
        self._others: Iterator[str] = cycle(members)
        self._member = next(self._others)
        self._silent: str | None = None
        self.starts: list[int] = []
        self.last_refusal = "none"

    async def allocate(self) -> tuple[str, float]:
        """Retry until a block is given: the member that gave it, and when the successful attempt was sent."""
        while True:
            sent, member = time.perf_counter(), self._member
            leader = await self._attempt(member)
            if leader == member:
                return member, sent
            if leader is not None and leader != self._silent:
                self._member = leader
                continue
            while (following := next(self._others)) in {member, self._silent}:
                continue
            self._member = following
            await asyncio.sleep(self._rng.uniform(*JITTER_SECONDS))

    async def _attempt(self, member: str) -> str | None:
        """`member` after a success, else the leader that it named, if it named another one."""
        try:
            async with self._session.post(f"{member}/v1/producer-ids/allocate", data=self._body) as response:
                content = await response.read()
        except TimeoutError:
            # As the agent does: its followers name a paused leader until they miss it.
            self._silent = member
            return None
        except (aiohttp.ClientError, OSError):
            return None
        self._silent = None if self._silent == member else self._silent
        if response.status == 200:
            self.starts.append(msgspec.json.decode(content, type=_Answer).producer_id_start)
            return member
        self.last_refusal = f"{member}: {content[:500].decode(errors='replace')}"
        leader = msgspec.json.decode(content, type=_Refusal).leader
        return None if leader is None or leader == member else leader.rstrip("/")


async def time_to_success(caller: Caller, leader: str, warm_seconds: float, send_signal: Callable[[], None]) -> float:
    """Seconds from the signal to the first block that was asked for after it and came from another member."""
    signalled: list[float] = []

    def fire() -> None:
        signalled.append(time.perf_counter())
        send_signal()

    handle = asyncio.get_running_loop().call_later(warm_seconds, fire)
    try:
        async with asyncio.timeout(ROUND_SECONDS):
            while True:
                member, sent = await caller.allocate()
                if signalled and sent >= signalled[0] and member != leader:
                    return time.perf_counter() - signalled[0]
    except TimeoutError as error:
        detail = f"no other member gave a block within {ROUND_SECONDS:g} s; last refusal: {caller.last_refusal}"
        raise TimeoutError(detail) from error
    finally:
        handle.cancel()


class FailoverBench:
    """Rounds on a running cluster; `starts` are all blocks that the caller got."""

    def __init__(self, cluster: LocalCluster, rng: random.Random) -> None:
        self._cluster = cluster
        self._rng = rng
        self.starts: list[int] = []

    async def measure(self, number: signal.Signals | None, rounds: int) -> FailoverResult:
        """`rounds` rounds with one signal; or, None, with a disk that hangs, which takes a SlowDiskCluster.

        Raises TimeoutError when no other member serves within ROUND_SECONDS.
        """
        times = [await self._round(number) for _ in range(rounds)]
        return FailoverResult(rounds, statistics.median(times), max(times), times)

    async def _round(self, number: signal.Signals | None) -> float:
        cluster = self._cluster
        leader = await asyncio.to_thread(cluster.leader)
        body = await asyncio.to_thread(register, leader)
        timeout = aiohttp.ClientTimeout(total=ATTEMPT_SECONDS)
        headers = {"Content-Type": "application/json"}
        async with aiohttp.ClientSession(timeout=timeout, headers=headers) as session:
            members = [leader.http, *(one.http for one in cluster.layout.controllers if one is not leader)]
            caller = Caller(session, members, body, self._rng)
            seconds = await time_to_success(
                caller, leader.http, self._rng.uniform(*WARM_SECONDS), lambda: self._strike(leader, number)
            )
        self.starts += caller.starts
        await asyncio.to_thread(self._bring_back, leader, number)
        return seconds * 1000.0

    def _strike(self, member: Controller, number: signal.Signals | None) -> None:
        if number is None:
            assert isinstance(self._cluster, SlowDiskCluster), "the disks of others do as they like"
            self._cluster.slow_down(math.inf, member)
        else:
            self._cluster.signal(member, number)

    def _bring_back(self, member: Controller, number: signal.Signals | None) -> None:
        cluster = self._cluster
        if isinstance(cluster, SlowDiskCluster) and number is None:
            cluster.speed_up(member)
        elif number is signal.SIGSTOP:
            cluster.signal(member, signal.SIGCONT)
        else:
            wait_ended(cluster, member)
            cluster.start(member)
        cluster.wait_ready(*cluster.layout.controllers)


def wait_ended(cluster: LocalCluster, member: Controller) -> None:
    """Wait until the member's process is gone. Raises TimeoutError."""
    deadline = time.monotonic() + ROUND_SECONDS
    while cluster.running(member):
        if time.monotonic() > deadline:
            raise TimeoutError(f"controller {member.id} did not end within {ROUND_SECONDS:g} s of its signal")
        time.sleep(0.01)
