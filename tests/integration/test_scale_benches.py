"""The benchmark's sections about size and scale, as small as they can be: they run, and break no promise."""

from __future__ import annotations

from pathlib import Path

import msgspec

from bench import agents, leader_cost, snapshot_hold
from bench.agents import AgentsBench
from bench.history import HistoryBench, HistoryPlan
from bench.leader_cost import LeaderCostBench
from bench.report import Row
from bench.snapshot_hold import LogRowsHoldBench, SnapshotHoldBench


def check(rows: list[Row], violations: list[str], count: int) -> None:
    assert violations == []
    assert len(rows) == len({row.name for row in rows}) == count
    assert all(row.measured >= 0 for row in rows if "beyond" not in row.name)


def test_history(tmp_path: Path) -> None:
    bench = HistoryBench(tmp_path, HistoryPlan(blocks=3000, lookups=50, logs=(0, 100), repetitions=1))
    rows = bench.measure()
    check(rows, bench.violations, 6)
    archive = next(row for row in rows if row.name == "archive")
    assert archive.met and 48 <= archive.measured < 49


def test_snapshots(tmp_path: Path) -> None:
    plan = msgspec.structs.replace(snapshot_hold.QUICK, transactional_ids=2000, seconds=1.0)
    bench = SnapshotHoldBench(tmp_path, plan)
    check(bench.measure(), bench.violations, 2)
    assert any("snapshots of 2,000 transactional ids" in note for note in bench.notes)


def test_snapshots_of_partition_logs(tmp_path: Path) -> None:
    plan = msgspec.structs.replace(snapshot_hold.QUICK, transactional_ids=2000, seconds=1.0)
    bench = LogRowsHoldBench(tmp_path, plan)
    check(bench.measure(), bench.violations, 2)
    assert any("snapshots of 2,000 rows of partition logs" in note for note in bench.notes)


def test_agents(tmp_path: Path) -> None:
    plan = msgspec.structs.replace(agents.QUICK, agents=10, seconds=3.0)
    bench = AgentsBench(tmp_path, plan, "kafka")
    rows = bench.measure()
    check(rows, bench.violations, 13)
    assert all(row.met for row in rows if row.name.endswith("claims without an ID"))


def test_leader_cost(tmp_path: Path) -> None:
    plan = msgspec.structs.replace(leader_cost.QUICK, seconds=0.5, callers=(1, 4))
    bench = LeaderCostBench(tmp_path, plan)
    rows = bench.measure()
    check(rows, bench.violations, len(rows))
    assert len(rows) in {2, 4}, "with one core, the leader has none of its own"
