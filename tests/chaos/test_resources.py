"""What processes take is sampled by life and judged by bars: a planted leak fails them, and honest work does not."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos.looking import until
from tests.chaos.resources import BARS, MIB, Life, Sample, Sampler, judge, members_of
from tests.chaos.small_stage import small_cluster, stage_of
from tests.support.cluster import WAIT_SECONDS

WORKER = """
import os, sys, threading, time
leaks = sys.argv[1:]
kept = []
turn = 0
while True:
    turn += 1
    block, file = bytearray(1 << 18), os.open(os.devnull, os.O_RDONLY)
    thread = threading.Thread(target=threading.Event().wait, args=(None if "threads" in leaks else 0.001,), daemon=True)
    thread.start()
    if "memory" in leaks:
        kept.append(block)
    if "files" not in leaks:
        os.close(file)
    if "threads" not in leaks:
        thread.join()
    print(turn, flush=True)
    time.sleep(0.02)
"""
"""Takes memory, a file and a thread at every turn, and gives back what it is not told to leak."""

QUANTITIES = ("memory", "files", "threads", "tasks")


def life(values: list[float], *, begin: float = 0.0, pid: int = 1) -> Life:
    """A sample every two seconds, with the same value of each quantity; of memory in MiB."""
    return Life(
        pid,
        [
            Sample(begin + 2.0 * place, int(value * MIB), int(value), int(value), int(value))
            for place, value in enumerate(values)
        ],
    )


def failed(lives: dict[str, list[Life]], **seconds: float) -> set[tuple[str, str]]:
    return {(one.process, one.bar.quantity) for one in judge(lives, BARS, **seconds) if not one.passed}


def read_lines(process: subprocess.Popen[str], count: int) -> None:
    assert process.stdout is not None
    for _ in range(count):
        assert process.stdout.readline(), "it has ended"


@contextlib.contextmanager
def worker(*leaks: str) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen([sys.executable, "-c", WORKER, *leaks], stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


async def test_a_planted_leak_fails_its_bar_and_no_other(tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        processes = {leak: stack.enter_context(worker(leak)) for leak in ("memory", "files", "threads", "nothing")}
        sampler = Sampler(lambda: {name: process.pid for name, process in processes.items()}, period=0.05)
        sampling = asyncio.create_task(sampler.run())
        for process in processes.values():
            await asyncio.to_thread(read_lines, process, 200)
        sampling.cancel()
    assert failed(sampler.lives, warm_up=0.5, shortest=0.5) - {("threads", "memory")} == {
        ("memory", "memory"), ("files", "files"), ("threads", "threads"),
    }  # fmt: skip


async def test_members_are_sampled_and_begin_anew_when_they_are_started_again(tmp_path: Path) -> None:
    with small_cluster(tmp_path) as cluster:
        stage = stage_of(cluster)
        sampler = members_of(cluster)
        sampler._period = 0.05
        sampling = asyncio.create_task(sampler.run())
        (agent,) = cluster.layout.agents
        assert await until(lambda: all(_seen(sampler, name, 5) for name in _names(4)), WAIT_SECONDS)
        before = agent.pid
        await stage.kill(agent)
        await stage.start(agent)
        assert await until(lambda: sampler.lives["agent-1"][-1].pid == agent.pid != before, WAIT_SECONDS)
        assert await until(lambda: _seen(sampler, "agent-1", 1), WAIT_SECONDS)
        sampling.cancel()
    assert [life.pid for life in sampler.lives["agent-1"]] == [before, agent.pid]
    for name in _names(4):
        last = sampler.lives[name][0].samples[-1]
        assert last.memory > 10 * MIB
        assert last.files > 5
        assert last.threads >= 1
        assert last.tasks is not None and last.tasks > 0


def test_a_slow_leak_is_found_among_noise() -> None:
    noisy = [50 + place * 0.06 + (place * 7919 % 13) for place in range(600)]
    assert failed({"a": [life(noisy)]}) == {("a", quantity) for quantity in QUANTITIES}


def test_growth_that_comes_to_little_passes() -> None:
    assert not failed({"a": [life([50 + place * 0.2 for place in range(50)])]}), "seven in 70 seconds"


def test_noise_alone_passes() -> None:
    assert not failed({"a": [life([50 + (place * 7919 % 13) for place in range(600)])]})


def test_spikes_pass() -> None:
    assert not failed({"a": [life([250.0 if place % 10 == 0 else 50.0 for place in range(70)])]})


def test_what_a_process_takes_to_warm_up_passes() -> None:
    assert not failed({"a": [life([min(place * 4.0, 56.0) for place in range(40)])]})


def test_a_leak_that_each_restart_ends_is_found() -> None:
    lives = [life([50 + place * 0.2 for place in range(60)], begin=200.0 * turn, pid=turn) for turn in range(10)]
    assert failed({"a": lives}) == {("a", quantity) for quantity in QUANTITIES}


def test_lives_that_begin_at_other_levels_pass() -> None:
    lives = [life([50.0 + 10 * turn] * 60, begin=200.0 * turn, pid=turn) for turn in range(10)]
    assert not failed({"a": lives})


def test_what_was_too_short_is_not_judged_by_its_growth_but_by_its_height() -> None:
    (memory, *rest) = judge({"a": [life([50.0 + place for place in range(20)])]}, BARS)
    assert {one.growth for one in (memory, *rest)} == {None}
    assert memory.minutes == 0
    assert memory.passed
    assert failed({"a": [life([50.0, 311.0])]}) == {("a", "memory")}


def test_growth_is_judged_by_all_lives_together_and_not_by_too_little_of_them() -> None:
    lives = [life([50 + place * 0.2 for place in range(60)], begin=200.0 * turn, pid=turn) for turn in range(10)]
    minutes = 10 * (118 - 30) / 60
    assert [one.minutes for one in judge({"a": lives})] == [pytest.approx(minutes)] * len(QUANTITIES)
    assert failed({"a": lives}, least_minutes=minutes - 0.1)
    assert not failed({"a": lives}, least_minutes=minutes + 0.1)


def test_a_process_that_tells_no_tasks_is_judged_by_the_rest() -> None:
    silent = life([50 + place * 0.2 for place in range(600)])
    silent.samples = [Sample(one.at, one.memory, one.files, one.threads, None) for one in silent.samples]
    assert failed({"a": [silent]}) == {("a", "memory"), ("a", "files"), ("a", "threads")}


@pytest.mark.parametrize("lives", [[], [Life(1, [])], [life([50.0])]], ids=["none", "empty", "one sample"])
def test_nothing_to_judge_is_said_and_not_passed_off_as_no_growth(lives: list[Life]) -> None:
    assert {(one.growth, one.minutes) for one in judge({"a": lives})} == {(None, 0.0)}


def _names(count: int) -> list[str]:
    return [*(f"controller-{number}" for number in range(1, count)), "agent-1"]


def _seen(sampler: Sampler, name: str, count: int) -> bool:
    lives = sampler.lives.get(name)
    return lives is not None and sum(one.tasks is not None for one in lives[-1].samples) >= count
