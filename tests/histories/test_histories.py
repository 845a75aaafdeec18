"""A slice of `make histories`: known ones, fresh ones, that all mechanisms and faults show, and that a bug does."""

from __future__ import annotations

import gc
import secrets
from collections import Counter
from unittest.mock import patch

import pytest

from pidkeeper.controller.state.logs.state import LogsState
from tests.histories.history import Outcome, run_history
from tests.histories.plan import LINK_FAULTS, MEMBER_FAULTS, POINTS
from tests.histories.run import Totals

KNOWN = range(1, 27)
FRESH = 4
MECHANISMS = {
    "answers to transactions",
    "epochs given by ends",
    "late ends fenced",
    "objects collected",
    "orphans swept",
    "producer IDs used up",
    "producers forgotten",
    "reads from segments",
    "reads from tails",
    "restores",
    "rolls overtaken",
    "starts by retention",
    "starts on demand",
    "tails rolled",
    "topics created",
    "topics deleted",
    "transactions ended",
}
OF_GROUPS = {
    "generations",
    "generations lost to another",
    "inputs done once",
    "members fenced",
    "offsets aborted",
    "offsets overtaken",
    "offsets settled",
    "stale offsets refused",
}
RARE_OF_GROUPS = {"generations lost to another", "stale offsets refused"}
MEMBERS_FAULTS = {
    "agent_hears_of_itself_alone",
    "group_answer_lost",
    "member_killed",
    "member_left",
    "member_paused",
    "member_replaced_while_paused",
}
WITH_GROUPS = 5
WITHOUT_GROUPS = 3


def run_good(seeds: range) -> list[Outcome]:
    """The outcomes, none of which has a violation."""
    gc.freeze()
    try:
        outcomes = [run_history(seed) for seed in seeds]
    finally:
        gc.unfreeze()
    found = [f"seed {one.seed}: {one.violation}" for one in outcomes if one.violation is not None]
    replay = "python -m tests.histories.run --seed SEED --trace FILE"
    assert not found, f"of {len(outcomes)} histories, to be seen with `{replay}`:\n" + "\n".join(found)
    return outcomes


def test_no_promise_is_broken_in_known_histories_and_all_that_may_happen_does() -> None:
    outcomes = run_good(KNOWN)
    shown: Counter[str] = Counter()
    for one in outcomes:
        shown.update(one.mechanisms.keys())
    assert (MECHANISMS | OF_GROUPS) - RARE_OF_GROUPS <= shown.keys() <= MECHANISMS | OF_GROUPS
    assert min(shown[name] for name in MECHANISMS - {"restores"}) >= len(KNOWN) / 5, shown
    faults = {kind for one in outcomes for kind in one.faults}
    wanted = {f"agent_died_at_{point}" for point in POINTS} | MEMBER_FAULTS.keys() | LINK_FAULTS.keys()
    assert len(wanted & faults) > 0.7 * len(wanted), wanted - faults
    assert faults >= MEMBERS_FAULTS | {"transaction_comes_late"}


def test_no_promise_is_broken_in_fresh_histories() -> None:
    first = secrets.randbelow(2**40)
    run_good(range(first, first + FRESH))


@pytest.mark.parametrize("seed", [WITHOUT_GROUPS, WITH_GROUPS])
def test_a_history_takes_the_same_course_again(seed: int) -> None:
    lines: list[str] = []
    again: list[str] = []
    first = run_history(seed, trace=lines.append)
    assert run_history(seed, trace=again.append) == first
    assert again == lines
    assert ("generations" in first.mechanisms) is (seed == WITH_GROUPS)


@pytest.mark.parametrize("seed", [WITHOUT_GROUPS, WITH_GROUPS])
def test_a_history_leaves_nothing_behind(seed: int) -> None:
    run_history(seed)
    gc.collect()
    assert not [one for one in gc.get_objects() if type(one).__name__ == "LogHistory"]


def test_a_bug_is_found() -> None:
    with patch.object(LogsState, "collects", lambda state, founding_id: True):
        assert any(run_history(seed).violation for seed in KNOWN)


def test_totals_count_histories_and_what_happened_in_them() -> None:
    totals = Totals(7)
    totals.add(Outcome(7, 1, 3_600_000_000, 10, 4, Counter(kill=2), Counter({"tails rolled": 3}), None), 0.5)
    totals.add(Outcome(8, 1, 0, 10, 4, Counter(), Counter({"tails rolled": 1}), "offsets: x"), 0.3)
    report = totals.finish()
    assert (report.histories, report.segments_rolled, report.simulated_hours) == (2, 4, 1.0)
    assert (report.faults_by_kind["kill"].share, report.faults_by_kind["kill"].total) == (0.5, 2)
    assert report.mechanisms["tails rolled"].share == 1.0
    assert report.violations == ["seed 8: offsets: x"]
    assert report.cpu_seconds_each == pytest.approx(0.4)
