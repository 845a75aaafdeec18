"""Plans of faults."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.chaos.plan import Draw, Planned, Target, draw_plan

KILL = Draw("kill", (Target.LEADER, Target.FOLLOWER, Target.AGENT), (0.5, 2.0), True, False, 200)
PAUSE = Draw("pause", (Target.LEADER,), (1.0, 30.0), True, False, 100)
ROLL = Draw("rolling restart", (Target.CLUSTER,), (20.0, 60.0), True, False, 20)
WIPE = Draw("wiped disk", (Target.CONTROLLER,), (0.5, 1.0), True, True, 20)
SLOW = Draw("latency", (Target.CONTROLLER, Target.AGENT), (1.0, 5.0), False, False, 100)
ALL = (KILL, PAUSE, ROLL, WIPE, SLOW)


def all_faults(plan: list[tuple[Planned, ...]]) -> list[Planned]:
    return [planned for act in plan for planned in act]


def test_the_same_seed_gives_the_same_plan_and_another_seed_another_one() -> None:
    assert draw_plan(7, ALL, 50) == draw_plan(7, ALL, 50) != draw_plan(8, ALL, 50)


def test_a_shorter_plan_is_the_beginning_of_a_longer_one() -> None:
    assert draw_plan(7, ALL, 50) == draw_plan(7, ALL, 90)[:50]


@pytest.mark.parametrize("seed", range(5))
def test_kinds_come_as_often_as_they_are_wanted(seed: int) -> None:
    counts = Counter(planned.kind for planned in all_faults(draw_plan(seed, (KILL, PAUSE, WIPE), 400)))
    assert 1.8 < counts["kill"] / counts["pause"] < 2.2
    assert 8 < counts["kill"] / counts["wiped disk"] < 12


@pytest.mark.parametrize("seed", range(5))
def test_while_a_disk_is_lost_or_members_have_their_turns_nobody_else_is_down(seed: int) -> None:
    kinds = {kind.name: kind for kind in ALL}
    plan = draw_plan(seed, ALL, 400)
    assert {"rolling restart", "wiped disk"} < {planned.kind for planned in all_faults(plan) if not planned.alone}
    for act in plan:
        down = [kinds[planned.kind] for planned in act if kinds[planned.kind].takes_down]
        assert len(down) == 1 or not any(kind.needs_the_others for kind in down)


def test_a_third_of_the_acts_have_one_fault_alone_and_the_others_several_that_overlap() -> None:
    plan = draw_plan(3, ALL, 200)
    alone = [act for act in plan if act[0].alone]
    assert len(alone) == 66
    assert all(len(act) == 1 for act in alone)
    together = [act for act in plan if not act[0].alone]
    assert max(len(act) for act in together) > 2
    assert all([planned.begin for planned in act] == sorted(planned.begin for planned in act) for act in together)


def test_most_faults_that_are_measured_strike_a_leader() -> None:
    targets = Counter(planned.target for planned in all_faults(draw_plan(7, (KILL,), 1_000)) if planned.alone)
    assert 0.68 < targets[Target.LEADER] / targets.total() < 0.78
    assert {*targets} == {*KILL.targets}


def test_faults_last_as_long_and_strike_whom_their_kind_says() -> None:
    kinds = {kind.name: kind for kind in ALL}
    for planned in all_faults(draw_plan(11, ALL, 200)):
        kind = kinds[planned.kind]
        assert kind.seconds[0] <= planned.seconds <= kind.seconds[1]
        assert planned.target in kind.targets


def test_most_faults_are_short_and_some_last() -> None:
    seconds = sorted(planned.seconds for planned in all_faults(draw_plan(5, (PAUSE,), 200)))
    assert seconds[len(seconds) // 2] < 8
    assert seconds[-1] > 25


def test_without_any_kind_of_fault_there_is_no_plan() -> None:
    with pytest.raises(ValueError, match="nothing to plan"):
        draw_plan(1, (), 10)
