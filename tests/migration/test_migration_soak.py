"""The soak with ten fixed seeds, which hit every kind of kill point and destination. `python -m tests.migration.soak`
runs any number of others."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.migration.plan import ORDERS, plan_of, points_of
from tests.migration.soak import Ensembles, run_seed
from tests.support.zookeeper import why_unavailable

SEEDS = [1628, 1612, 861, 251, 5532, 3711, 5106, 912, 2055, 4671]


@pytest.fixture(scope="module")
def ensembles(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ensembles]:
    if (why := why_unavailable()) is not None:
        pytest.skip(why)
    started = Ensembles(tmp_path_factory.mktemp("soak"))
    yield started
    started.close()


def test_the_seeds_hit_every_point_and_destination() -> None:
    plans = [plan_of(seed) for seed in SEEDS]
    hit = {(fault.target, plan.points[fault.point]) for plan in plans for fault in plan.faults}
    everywhere = {point for destination in ORDERS for point in points_of(destination)}
    assert {point for target, point in hit if target == "controller"} == everywhere
    assert len({point for target, point in hit if target == "zookeeper"}) >= len(everywhere) - 3
    assert {plan.destination for plan in plans} == set(ORDERS)
    assert {plan.servers for plan in plans} == {1, 3}
    assert any(plan.orphan for plan in plans) and any(plan.exact and not plan.orphan for plan in plans)
    assert {(fault.target, fault.paused) for plan in plans for fault in plan.faults} == {
        (target, paused) for target in ("controller", "zookeeper") for paused in (False, True)
    }


@pytest.mark.parametrize("seed", SEEDS)
def test_blocks_of_both_worlds_never_overlap(seed: int, ensembles: Ensembles, tmp_path: Path) -> None:
    result = run_seed(seed, ensembles, tmp_path, failures=tmp_path / "failures")
    assert result.phase in {"finalized", "rolled_back"} and result.old_blocks and result.controller_blocks
