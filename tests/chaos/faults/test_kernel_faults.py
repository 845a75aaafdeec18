"""Processes run short of memory, and packets are lost: what the kernel does to them is seen, and is undone."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from tests.chaos.faults.memory import KINDS, MemoryPressure, memory_groups, why_no_groups
from tests.chaos.faults.packets import nft
from tests.chaos.looking import until
from tests.chaos.own_network import OUTER, command_within, is_own, network, why_no_network
from tests.chaos.plan import Target
from tests.chaos.small_stage import fault_of, kind_of, ready, small_cluster, stage_of
from tests.chaos.stage import ChaosCluster, Stage
from tests.support.checking_client import CheckingClient
from tests.support.cluster import WAIT_SECONDS


async def test_a_process_runs_short_of_memory_and_goes_on(tmp_path: Path) -> None:
    with memory_groups() as groups, small_cluster(tmp_path, launcher=groups) as cluster:
        stage = stage_of(cluster)
        if (reason := why_no_groups(stage)) is not None:
            pytest.skip(reason)
        with CheckingClient(cluster) as client:
            for target in (Target.LEADER, Target.AGENT):
                fault = fault_of(stage, kind_of(KINDS, "memory_pressure"), target)
                assert isinstance(fault, MemoryPressure)
                await fault.begin()
                assert await until(partial(_waits_for_memory, fault), WAIT_SECONDS)
                await asyncio.to_thread(client.more)
                await fault.end()
                assert await fault.bites() > 0
                await ready(stage)
                await asyncio.to_thread(client.more)
        client.check()


def test_processes_without_groups_run_short_of_nothing(tmp_path: Path) -> None:
    assert "no control groups" in str(why_no_groups(Stage(ChaosCluster(tmp_path))))


def test_no_rule_of_the_machines_own_network_is_touched() -> None:
    assert not is_own()
    with pytest.raises(PermissionError, match="own network"):
        nft("list", "tables")


def test_a_variable_alone_makes_no_network_ones_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(OUTER, network())
    assert not is_own(), "this is the one from which it says it was entered"
    monkeypatch.setenv(OUTER, "net:[1]")
    if len(socket.if_nameindex()) > 1:
        assert not is_own(), "other devices than the loopback are the machine's"


def test_the_network_that_one_came_from_is_not_ones_own() -> None:
    if (reason := why_no_network()) is not None:
        pytest.skip(reason)
    program = f"import os; os.environ[{OUTER!r}] = network(); print(is_own())"
    program = f"from tests.chaos.own_network import is_own, network; print(is_own()); {program}"
    within = command_within([sys.executable, "-c", program])
    done = subprocess.run(within, capture_output=True, text=True, timeout=30, check=False)
    assert done.stdout.split() == ["True", "False"], done.stderr


def test_packets_are_lost_in_a_network_of_its_own(tmp_path: Path) -> None:
    if (reason := why_no_network()) is not None:
        pytest.skip(reason)
    trial = [sys.executable, "-m", "tests.chaos.faults.lost_packets_trial", str(tmp_path)]
    done = subprocess.run(command_within(trial), capture_output=True, text=True, timeout=100, check=False)
    if done.stdout.startswith("skipped: "):
        pytest.skip(done.stdout.removeprefix("skipped: ").strip())
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 0


def test_the_runner_begins_anew_in_a_network_of_its_own() -> None:
    if (reason := why_no_network()) is not None:
        pytest.skip(reason)
    program = "from tests.chaos.own_network import enter, is_own; print(enter(), is_own())"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=False)
    assert done.stdout == "None True\n", done.stderr


def _waits_for_memory(fault: MemoryPressure) -> bool:
    return fault.shortages() > 0
