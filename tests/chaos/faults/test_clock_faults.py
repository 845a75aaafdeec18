"""Clocks of real processes jump by years: nothing changes but the time that they tell, unless certificates expire."""

from __future__ import annotations

import asyncio
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pidkeeper.cli.local_cluster import Member
from tests.chaos.faults.clocks import (
    KINDS,
    LEAP,
    TOLERANCE,
    ClockJump,
    Clocks,
    faketime,
    forget_the_dead,
    why_no_clocks,
)
from tests.chaos.looking import clock_offset, sample, until
from tests.chaos.plan import Target
from tests.chaos.small_stage import fault_of, kind_of, small_cluster, stage_of, victim
from tests.chaos.stage import ChaosCluster, Stage, preloaded
from tests.support.cluster import WAIT_SECONDS, allocate, register

WAITS = """
import asyncio, queue, select, threading, time
def measured(wait):
    begin = time.monotonic()
    wait()
    return time.monotonic() - begin
def empty():
    try:
        queue.Queue().get(timeout=0.3)
    except queue.Empty:
        pass
held = threading.Lock()
held.acquire()
ready = threading.Condition()
def notified():
    with ready:
        ready.wait(0.3)
def slept():
    asyncio.run(asyncio.sleep(0.3))
waits = [lambda: select.epoll().poll(0.3), lambda: held.acquire(timeout=0.3), notified, empty, slept]
print(time.time(), flush=True)
for wait in waits * 2:
    print(measured(wait), flush=True)
print(time.time(), flush=True)
"""
"""What a member waits with, each for 0.3 s."""


TURNS = """
import asyncio, time
async def turns():
    for _ in range(1000):
        await asyncio.to_thread(int)
asyncio.run(turns())
print(time.process_time())
"""
"""Two threads in turn, as a member's event loop and its disk; prints the seconds of CPU."""

DEARER = 4.0
"""With the library's own way of waiting it is ten times as dear, and members on a busy machine find no leader."""

ATTEMPTS = 5
"""A busy machine may take the lead from somebody, but not every time that a clock leaps."""


def clocks_in(directory: Path) -> Clocks:
    library = faketime()
    if library is None:
        pytest.skip("libfaketime is not here: tools/fetch-faketime brings it by apt")
    return Clocks(library, directory)


def clock_fault(stage: Stage, name: str, target: Target, **planned: Any) -> ClockJump:
    fault = fault_of(stage, kind_of(KINDS, name), target, **planned)
    assert isinstance(fault, ClockJump)
    return fault


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ChaosCluster]:
    directory = tmp_path_factory.mktemp("clocks")
    with small_cluster(directory, clocks_in(directory / "clocks")) as cluster:
        yield cluster
    forget_the_dead()


def test_what_waits_by_the_monotonic_clock_waits_as_long_while_the_wall_clock_leaps(tmp_path: Path) -> None:
    clocks = clocks_in(tmp_path)
    command = [*preloaded("waiter", (clocks,)), "FAKETIME_NO_CACHE=1", sys.executable, "-c", WAITS]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            began = float(process.stdout.readline())
            told = []
            for offset in (LEAP, -LEAP, 0.0, 300.0, -LEAP, LEAP, 0.0, -300.0, 0.0, LEAP):
                clocks.shift("waiter", offset)
                told.append(float(process.stdout.readline()))
            ended = float(process.stdout.readline())
        finally:
            # It may wait for ten years.
            process.kill()
    assert all(0.29 < seconds < 30.0 for seconds in told), told
    assert abs(ended - began - LEAP) < 60.0


def test_threads_that_take_turns_cost_no_more_under_another_clock(tmp_path: Path) -> None:
    program = [sys.executable, "-c", TURNS]
    commands = program, [*preloaded("turns", (clocks_in(tmp_path),)), *program]
    bare, preloading = (float(subprocess.check_output(command)) for command in commands)
    assert preloading < bare * DEARER


@pytest.mark.parametrize("pick", [0, 1], ids=["ahead", "back"])
async def test_a_leader_whose_clock_leaps_ten_years_leads_on_and_serves(cluster: ChaosCluster, pick: int) -> None:
    for attempt in range(ATTEMPTS):
        if await leads_on_through_a_leap(cluster, pick, f"clocks-{pick}-{attempt}"):
            return
    pytest.fail("each leap of the wall clock cost the lead")


async def leads_on_through_a_leap(cluster: ChaosCluster, pick: int, incarnation_id: str) -> bool:
    stage = stage_of(cluster)
    leader = cluster.leader()
    term = sample(cluster, leader, "pidkeeper_raft_term")
    broker_epoch = register(leader, 7, incarnation_id).json()["broker_epoch"]
    fault = clock_fault(stage, "clock_leap", Target.LEADER, pick=pick)
    await fault.begin()
    assert await until(lambda: _is_off(leader, -LEAP if pick else LEAP), WAIT_SECONDS)
    answers = [await asyncio.to_thread(allocate, leader, 7, broker_epoch) for _ in range(20)]
    assert await until(lambda: fault.seen, WAIT_SECONDS)
    await fault.end()
    assert await until(lambda: _is_off(leader, 0.0), WAIT_SECONDS)
    assert await fault.bites() == 1
    return {answer.status for answer in answers} == {200} and sample(cluster, leader, "pidkeeper_raft_term") == term


async def test_an_agents_clock_jumps_and_it_stays_ready(cluster: ChaosCluster) -> None:
    stage = stage_of(cluster)
    fault = clock_fault(stage, "clock_jump", Target.AGENT, strength=1.0)
    await fault.begin()
    assert await until(lambda: _is_off(victim(fault), 45 * 60.0), WAIT_SECONDS)
    assert cluster.ready(victim(fault))
    assert await until(lambda: fault.seen, WAIT_SECONDS)
    await fault.end()
    assert await fault.bites() == 1


async def test_of_two_jumps_of_one_clock_the_second_holds_and_at_its_end_the_first(cluster: ChaosCluster) -> None:
    stage = stage_of(cluster)
    first, second = (clock_fault(stage, "clock_jump", Target.AGENT, strength=strength) for strength in (1.0, 0.5))
    for fault in (first, second):
        await fault.begin()
        assert await until(partial(_is_off, victim(fault), fault.offset), WAIT_SECONDS)
    await second.end()
    assert await until(lambda: _is_off(victim(first), first.offset), WAIT_SECONDS)
    await first.end()
    assert await until(lambda: _is_off(victim(first), 0.0), WAIT_SECONDS)


def test_a_clock_may_be_set_by_several_at_once(tmp_path: Path) -> None:
    clocks = Clocks(tmp_path / "unused.so", tmp_path)

    def shift_and_back(offset: float) -> None:
        for _ in range(100):
            clocks.shift("somebody", offset)
            clocks.shift_back("somebody", offset)

    with ThreadPoolExecutor() as threads:
        list(threads.map(shift_and_back, (60.0, 120.0, 180.0, 240.0)))
    assert (tmp_path / "somebody").read_text() == "+0\n"


async def test_a_jump_of_a_process_that_tells_no_time_did_not_bite(cluster: ChaosCluster) -> None:
    stage = stage_of(cluster)
    fault = clock_fault(stage, "clock_jump", Target.AGENT)
    cluster.signal(victim(fault), signal.SIGSTOP)
    await fault.begin()
    await fault.end()
    cluster.signal(victim(fault), signal.SIGCONT)
    assert await fault.bites() == 0


async def test_a_member_is_started_again_under_a_wrong_clock_and_logs_by_it(cluster: ChaosCluster) -> None:
    stage = stage_of(cluster)
    fault = clock_fault(stage, "clock_leap", Target.FOLLOWER, pick=0)
    follower = victim(fault)
    await fault.begin()
    await stage.kill(follower)
    await stage.start(follower)
    assert await until(lambda: cluster.ready(follower), WAIT_SECONDS)
    await fault.end()
    last = cluster.log_end(follower, 1)
    year = re.match(r"\d{4}", last)
    assert year is not None and int(year[0]) == time.gmtime(time.time() + LEAP).tm_year, last


async def test_what_a_killed_process_left_in_shared_memory_is_removed(cluster: ChaosCluster) -> None:
    stage = stage_of(cluster)
    (agent,) = cluster.layout.agents
    left = f"faketime_shm_{agent.pid}"
    await stage.kill(agent)
    assert left in in_shared_memory()
    await stage.start(agent)
    assert left not in in_shared_memory()


def test_without_the_library_no_clock_can_jump(tmp_path: Path) -> None:
    assert "tools/fetch-faketime" in str(why_no_clocks(Stage(ChaosCluster(tmp_path))))


def in_shared_memory() -> set[str]:
    return {path.name for path in Path("/dev/shm").iterdir()}


def _is_off(member: Member, offset: float) -> bool:
    told = clock_offset(member)
    return told is not None and abs(told - offset) < TOLERANCE
