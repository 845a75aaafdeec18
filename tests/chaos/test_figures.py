"""Figures and picture of a run."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree as ET

from tests.chaos.course import Happened
from tests.chaos.figures import Served, Tally, leader_gaps, quantile, recoveries, tallies
from tests.chaos.plan import Planned, Target
from tests.chaos.timeline import Elected, draw


def happened(
    kind: str, began: float, ended: float, *, target: Target = Target.LEADER, alone: bool = True, bites: int | None = 1
) -> Happened:
    planned = Planned(kind, target, 0.0, ended - began, 1, 0.5, alone)
    victims = () if bites is None else ("controller-1",)
    return Happened(planned, victims, began, ended, ended + 1, bites)


SERVED = Served([0.0, 1.0, 1.1, 1.2, 4.2, 4.3, 9.0])


def test_a_gap_is_the_longest_time_without_a_block_that_touches_the_fault() -> None:
    assert SERVED.longest_gap(1.15, 1.3) == 3.0
    assert SERVED.longest_gap(1.02, 1.15) < 1.0
    # Begun before the fault, and ended after it.
    assert SERVED.longest_gap(2.0, 3.0) == 3.0
    assert SERVED.longest_gap(4.25, 5.0) == 9.0 - 4.3
    assert Served([]).longest_gap(0, 1) == 0.0


def test_service_is_back_with_the_first_block_after_the_last_fault_of_an_act() -> None:
    acts = [happened("kill", 1.0, 2.0), happened("pause", 5.0, 6.0)]
    assert recoveries(acts, SERVED) == [4.2 - 2.0, 3.0]
    two_in_one = [
        Happened(one.planned, one.victims, one.began, one.ended, 8.0, 1)
        for one in (happened("kill", 1.0, 2.0), happened("pause", 1.0, 4.25))
    ]
    assert recoveries(two_in_one, SERVED) == [4.3 - 4.25]


def test_a_service_that_does_not_come_back_is_no_fast_recovery() -> None:
    assert recoveries([happened("kill", 8.0, 9.5)], SERVED) == [float("inf")]


def test_gaps_are_those_of_leaders_that_were_struck_alone_and_felt_it() -> None:
    acts = [
        happened("kill", 1.15, 1.3),
        happened("kill", 1.15, 1.3, alone=False),
        happened("kill", 1.15, 1.3, target=Target.FOLLOWER),
        happened("kill", 1.15, 1.3, bites=0),
        happened("kill", 1.15, 1.3, bites=None),
    ]
    assert leader_gaps(acts, SERVED) == {"kill": [3.0]}


def test_faults_that_did_not_bite_and_those_that_struck_nobody_are_told_apart() -> None:
    acts = [happened("kill", 0, 1), happened("kill", 2, 3, bites=0), happened("kill", 4, 5, bites=None)]
    assert tallies(acts) == {"kill": Tally(injected=2, missed=1, bitten=1)}


def test_quantiles_are_values_that_were_there() -> None:
    assert [quantile([3, 1, 2], share) for share in (0, 0.5, 0.99, 1.0)] == [1, 2, 3, 3]
    assert quantile([], 0.5) == 0.0


def test_the_timeline_names_victims_faults_and_leaders(tmp_path: Path) -> None:
    path = tmp_path / "build" / "timeline.svg"
    draw(
        path, [happened("kill", 1.0, 2.0), happened("pause", 3.0, 4.0)], SERVED, [Elected(1.5, 7, "controller-2")], 0.0
    )
    words = {element.text for element in ET.parse(path).iter() if element.text}
    assert {"controller-1", "kill", "pause", "no block given", "a leader elected", "2"} <= words


def test_a_run_in_which_nothing_happened_has_a_timeline_too(tmp_path: Path) -> None:
    draw(tmp_path / "empty.svg", [], Served([]), [], 0.0)
    assert ET.parse(tmp_path / "empty.svg").getroot().tag.endswith("svg")
