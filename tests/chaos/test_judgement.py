"""What a journal tells beyond the checks, and what of it is a broken promise."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from msgspec.structs import replace
from rich.console import Console

from pidkeeper.cli.failures import CommandError
from tests.chaos.against import FoundCluster
from tests.chaos.copies import Control
from tests.chaos.course import Happened
from tests.chaos.figures import Tally
from tests.chaos.judgement import failed_claims, served, voter_changes
from tests.chaos.load.journal import Entry, Outcome
from tests.chaos.load.kinds import ALLOCATE, CHANGE, CLAIM
from tests.chaos.plan import Planned, Target
from tests.chaos.report import Gap, Report, delays, print_report, promises
from tests.chaos.resources import Bar, Verdict
from tests.chaos.run import MARK, make_anew

SECOND = 1_000_000_000


def entry(actor: str, kind: str, at: float, outcome: Outcome = Outcome.OK, **arguments: object) -> Entry:
    time = int(at * SECOND)
    return Entry(actor, 0, kind, arguments, time, time, outcome, {}, "")


def failed(agent: int, since: float, at: float) -> Entry:
    return entry("wire", CLAIM, at, Outcome.REFUSED, agent=agent, count=1, since=int(since * SECOND))


def fault(victim: str, began: float, whole: float, *, alone: bool = True) -> Happened:
    planned = Planned("kill", Target.LEADER, 0.0, 1.0, 1, 0.5, alone)
    return Happened(planned, (victim,), began, whole - 1, whole, 1)


def test_service_is_what_the_steady_allocator_was_given() -> None:
    told = [
        entry("allocator", ALLOCATE, 2),
        entry("allocator", ALLOCATE, 1),
        entry("allocator", ALLOCATE, 3, Outcome.REFUSED),
        entry("malicious", ALLOCATE, 4),
    ]
    assert served(told).times == [1.0, 2.0]


def test_a_claim_that_fails_during_the_fault_of_another_one_alone_is_a_failure() -> None:
    bad = failed(1, 11, 12)
    assert failed_claims([bad], [fault("controller-1", 10, 20)]) == [bad]


@pytest.mark.parametrize(
    "excused",
    [
        [fault("agent-1", 10, 20)],
        [fault("controller-1", 10, 20, alone=False)],
        [fault("controller-1", 2, 5)],
        [fault("controller-1", 15, 20)],
        [],
    ],
    ids=["of the agent itself", "of several", "over before", "not begun", "none"],
)
def test_other_claims_may_fail(excused: list[Happened]) -> None:
    assert failed_claims([failed(1, 11, 12)], excused) == []


def test_changes_of_voters_are_those_that_were_carried_out() -> None:
    acts = [("add", Outcome.OK), ("remove", Outcome.OK), ("add", Outcome.UNKNOWN), ("transfer", Outcome.OK)]
    assert voter_changes(entry("operator", CHANGE, 1, outcome, what=what) for what, outcome in acts) == 2


GOOD = Report(
    seed=1,
    minutes=3.0,
    faults_by_kind={},
    acts=1,
    ids_checked=10,
    blocks_checked=1,
    duplicates=0,
    lost=0,
    claim_errors=0,
    fatal_client_errors=0,
    fatal_errors=[],
    records_checked=10,
    transactions_checked=1,
    records_lost=0,
    records_doubled=0,
    records_reordered=0,
    transactions_torn=0,
    copies_checked=1,
    copies_lost=0,
    copies_doubled=0,
    copies_reordered=0,
    commits_checked=1,
    commits_refused=0,
    commits_lost=0,
    commits_of_zombies=0,
    recovery_p99_s=0.1,
    leader_gaps={"kill": Gap(3, 0.1, 0.2, 0.2)},
    elections=1,
    voter_changes=0,
    negative_control_flagged=True,
    controls=[Control("a lie", True, ["repeated-id"], 1)],
    resources=[Verdict("agent-1", Bar("memory", 10.0, 1.0, 100.0), 5.0, 4.0, 50.0)],
    broken=[],
    slow=[],
    missing={},
    proxy="Toxiproxy",
    directory="build/chaos",
)


def test_a_run_that_keeps_all_promises_breaks_none() -> None:
    assert (promises(GOOD), delays(GOOD)) == ([], [])


@pytest.mark.parametrize(
    "bad",
    [
        {"duplicates": 1},
        {"lost": 1},
        {"claim_errors": 1},
        {"fatal_client_errors": 1},
        {"records_lost": 1},
        {"records_doubled": 1},
        {"records_reordered": 1},
        {"transactions_torn": 1},
        {"copies_lost": 1},
        {"copies_doubled": 1},
        {"copies_reordered": 1},
        {"commits_lost": 1},
        {"commits_of_zombies": 1},
        {"controls": [Control("a lie", False, [], 0)]},
        {"faults_by_kind": {"kill": Tally(5, 0, 0)}},
        {"resources": [Verdict("agent-1", Bar("memory", 10.0, 1.0, 100.0), 11.0, 4.0, 50.0)]},
        {"resources": [Verdict("agent-1", Bar("memory", 10.0, 1.0, 100.0), None, 0.0, 101.0)]},
    ],
)
def test_each_promise_that_is_broken_is_told(bad: dict[str, object]) -> None:
    assert len(promises(replace(GOOD, **bad))) == 1


@pytest.mark.parametrize("tally", [Tally(4, 0, 0), Tally(5, 0, 1)])
def test_of_few_faults_none_need_be_seen_to_bite_and_of_many_one(tally: Tally) -> None:
    assert promises(replace(GOOD, faults_by_kind={"kill": tally})) == []


def test_times_that_are_too_long_are_told() -> None:
    slow = replace(GOOD, recovery_p99_s=2.1, leader_gaps={"kill": Gap(3, 0.21, 1.0, 1.0)})
    assert len(delays(slow)) == 2


def test_only_the_directory_of_an_earlier_run_is_made_anew(tmp_path: Path) -> None:
    directory = tmp_path / "run"
    make_anew(directory)
    (directory / "journal").mkdir()
    make_anew(directory)
    assert [path.name for path in directory.iterdir()] == [MARK]
    others = tmp_path / "others"
    others.mkdir()
    (others / "thesis").touch()
    with pytest.raises(CommandError, match="not of an earlier run"):
        make_anew(others)
    assert (others / "thesis").exists()


def test_against_what_is_no_cluster_nothing_is_done(tmp_path: Path) -> None:
    (tmp_path / "settings.json").write_text("{}")
    for path in (tmp_path / "settings.json", tmp_path / "cluster.json"):
        with pytest.raises(CommandError, match=r"is no cluster\.json"):
            FoundCluster(path)
    assert [path.name for path in tmp_path.iterdir()] == ["settings.json"]


def test_the_table_says_of_whom_growth_was_not_judged() -> None:
    brief = Verdict("controller-1", Bar("memory", 10.0, 1.0, 100.0), None, 0.5, 50.0)
    console = Console(width=200, file=io.StringIO())
    print_report(replace(GOOD, resources=[*GOOD.resources, brief]), console)
    assert isinstance(console.file, io.StringIO)
    assert "controller-1 lived too briefly" in console.file.getvalue()
