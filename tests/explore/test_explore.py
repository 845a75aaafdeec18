"""The explorer itself: it comes to an end, misses nothing for the sake of symmetry, and finds what is planted."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from pidkeeper.controller.answers import release
from pidkeeper.controller.node.decider import Decider
from pidkeeper.controller.node.proposals import Outcomes, Proposal, Proposals
from pidkeeper.controller.raft.core import RaftCore, Role
from pidkeeper.controller.raft.elections import Voter
from pidkeeper.controller.raft.hard_state import HardStateKeeper
from pidkeeper.controller.raft.log import RaftLog
from pidkeeper.controller.raft.messages import Message, PreVote, RequestVote
from pidkeeper.controller.raft.outbox import Outbox
from pidkeeper.protocol.records import Record
from tests.explore import table
from tests.explore.agent import Agent
from tests.explore.cluster import Cluster, State
from tests.explore.member import Outcome
from tests.explore.prelude import prelude
from tests.explore.scope import Scope
from tests.explore.search import Finding, Search, resumed
from tests.explore.story import Storyteller, told_plainly

TINY = Scope(name="tiny", terms=1, timeouts=2)
MOST_LEVELS = 200


def searched(scope: Scope) -> Search:
    """The search of all of `scope`, or to its first finding."""
    search = Search(scope)
    for _ in range(MOST_LEVELS):
        if search.exhausted or search.finding is not None:
            return search
        search.deepen()
    raise AssertionError(f"{scope.name} does not come to an end")


def found(scope: Scope) -> Finding:
    """What is wrong in `scope`."""
    finding = searched(scope).finding
    assert finding is not None, f"nothing was found in {scope}"
    return finding


def reachable(cluster: Cluster, *, by_shape: bool, first: State | None = None) -> set[State]:
    """All states of a scope, or all behind one of them. `by_shape`: those that differ in names alone are one."""
    seen = {cluster.first() if first is None else first}
    frontier = list(seen)
    while frontier:
        state = frontier.pop()
        for _, _, after in cluster.after(state):
            named = cluster.canonical(after)[0] if by_shape else after
            if named not in seen:
                seen.add(named)
                frontier.append(named)
    return seen


def test_a_scope_is_exhausted() -> None:
    search = searched(TINY)
    assert search.finding is None
    assert any(facts.leads for facts in search.cluster.automaton.facts)
    assert search.states > 1_000


@pytest.mark.parametrize(
    "scope",
    [
        Scope(name="least", terms=1, timeouts=1),
        # Configurations name members, too, in entries and in snapshots.
        Scope(name="a change", terms=1, timeouts=1, changes=1),
        Scope(name="a change in a snapshot", voters=2, spares=1, terms=1, timeouts=1, changes=1, snapshots=1),
        Scope(name="two agents", voters=2, terms=1, timeouts=1, asks=2, agents=2),
    ],
    ids=lambda scope: scope.name,
)
def test_what_differs_in_names_alone_is_looked_at_once_and_nothing_is_missed(scope: Scope) -> None:
    cluster = Cluster(scope)
    apart, together = reachable(cluster, by_shape=False), reachable(cluster, by_shape=True)
    assert len(together) < 0.6 * len(apart)
    assert {cluster.canonical(state)[0] for state in apart} == {cluster.canonical(state)[0] for state in together}


def test_a_search_goes_on_where_it_was_kept(tmp_path: Path) -> None:
    path, search = tmp_path / "checkpoint", Search(TINY)
    assert resumed(path) is None
    for _ in range(8):
        search.deepen()
    search.save(path)
    again = resumed(path)
    assert again is not None
    while not again.exhausted:
        again.deepen()
    whole = searched(TINY)
    assert (again.states, again.moves, again.depth) == (whole.states, whole.moves, whole.depth)


def test_answers_that_were_forgotten_are_found_again(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = searched(TINY)
    monkeypatch.setattr(table, "MOST_KEPT", 10)
    again = searched(TINY)
    assert (again.states, again.moves, again.depth) == (whole.states, whole.moves, whole.depth)


def test_votes_that_leave_before_they_are_durable_elect_two_leaders(monkeypatch: pytest.MonkeyPatch) -> None:
    def at_once(outbox: Outbox, message: Message, index: int = 0) -> None:
        outbox.send(message)

    monkeypatch.setattr(Outbox, "send_when_durable", at_once)
    scope = Scope(name="hasty votes", terms=1, timeouts=2, crashes=1)
    search = searched(scope)
    assert search.finding is not None
    assert search.finding.what == "election safety: two members lead term 1"
    story = Storyteller(scope, search.cluster.automaton).tell(search.finding)
    assert "both lead term 1" in story.splitlines()[-1], story


def test_a_rule_that_a_pre_vote_breaks_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise AssertionError("this rule is broken")

    monkeypatch.setattr(Voter, "answer_pre_vote", broken)
    assert found(TINY).what == "this rule is broken"


def test_a_vote_for_a_log_that_lacks_entries_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RaftLog, "is_up_to_date", lambda *_: True)
    scope = Scope(name="any log", terms=2, timeouts=2)
    assert "leader completeness" in found(scope).what


def test_a_member_that_forgets_that_it_has_forgotten_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    begin = HardStateKeeper.__init__

    def believing(self: HardStateKeeper, *given: object) -> None:
        begin(self, *given)  # type: ignore[arg-type]
        self.recovering, self.recovery = False, 0

    monkeypatch.setattr(HardStateKeeper, "__init__", believing)
    assert found(Scope(name="no recovery", terms=2, timeouts=2, losses=1)).what


def test_members_that_are_left_alone_come_to_serve() -> None:
    search = searched(Scope(name="left alone", terms=1, timeouts=2, crashes=1, tears=1, calm=1))
    assert search.finding is None
    assert search.left_alone > 500


def test_a_quorum_that_stands_still_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever recovers gives no vote: harmless with one of three, until two have torn tails."""
    agrees = Voter._agrees

    def unless_recovering(self: Voter, message: PreVote | RequestVote, *, free: bool) -> tuple[bool, bool]:
        granted, consents = agrees(self, message, free=free)
        return granted and not self._hard.recovering, consents and not self._hard.recovering

    monkeypatch.setattr(Voter, "_agrees", unless_recovering)
    assert searched(Scope(name="one torn", terms=1, timeouts=1, tears=1, calm=1)).finding is None
    scope = Scope(name="two torn", terms=1, timeouts=1, tears=2, calm=1)
    search = searched(scope)
    assert search.finding is not None
    assert search.finding.what == "nobody comes to serve, though everybody is up"
    story = Storyteller(scope, search.cluster.automaton).tell(search.finding)
    assert story.count("> restart") == story.count(" torn") == 2


# What begins later than with the first step.


def test_a_scope_that_begins_later_is_a_part_of_the_whole() -> None:
    later = Scope(name="later", voters=1, spares=1, terms=1, timeouts=1, changes=3, begins="joined")
    cluster = Cluster(msgspec.structs.replace(later, begins=""))
    whole = reachable(cluster, by_shape=True)
    cluster.scope = later
    *_, (_, first) = prelude(cluster)
    members = [cluster.automaton.facts[member] for member in first[:-2]]
    assert sum(one.leads for one in members) == 1
    assert len({one.log for one in members}) == len({one.voters for one in members}) == 1, "all know of the learner"
    part = reachable(cluster, by_shape=True, first=first)
    assert part < whole
    assert 100 < searched(later).states == len(part)


def test_a_course_that_begins_later_is_told_from_the_first_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RaftLog, "is_up_to_date", lambda *_: True)
    scope = Scope(name="later", voters=3, terms=2, timeouts=2, proposals=1, begins="led")
    search = searched(scope)
    assert search.finding is not None
    assert search.finding.what == "leader completeness: the leader of term 2 lacks 2@1, committed in 1"
    story = Storyteller(scope, search.cluster.automaton).tell(search.finding)
    assert "[voters 1 2 3]" in story, "the leader of term 1 has named them"
    assert story.count("becomes leader in term") == 2


def test_a_scope_that_has_not_what_its_beginning_takes_is_refused() -> None:
    with pytest.raises(ValueError, match="not the timeouts, changes or spares to begin joined"):
        Search(Scope(name="no changes", spares=1, begins="joined"))


def test_what_is_wrong_before_a_scope_begins_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise AssertionError("this rule is broken")

    monkeypatch.setattr(RaftCore, "change_members", broken)
    finding = found(Scope(name="later", spares=1, terms=1, timeouts=1, changes=1, begins="joined"))
    assert finding.what == "this rule is broken"
    assert finding.course[0].event[0] == "stand"
    assert finding.course[-1].event[0] == "change"


def test_a_disk_is_lost_only_where_each_quorum_keeps_a_majority() -> None:
    """A quorum that was cut down to one voter does not survive the loss of that one's disk."""
    search = searched(Scope(name="fewer", terms=1, timeouts=1, changes=2, losses=1, calm=10, begins="led"))
    assert search.finding is None
    assert search.left_alone > 100


# With the replicated state, the leader's side and the agent's reserve.


def test_blocks_are_granted_and_handed_out_once() -> None:
    search = searched(Scope(name="two blocks", terms=1, timeouts=1, asks=2))
    assert search.finding is None
    pasts = search.cluster.pasts.all()
    assert {past.handed for past in pasts} == {(), (0,), (1,), (0, 1)}
    assert (0, 1) in {past.granted for past in pasts}


def test_several_agents_share_blocks_and_forget_them() -> None:
    search = searched(Scope(name="agents", voters=2, terms=1, timeouts=1, asks=3, agents=2, restarts=1))
    assert search.finding is None
    assert (0, 1, 2) in {past.handed for past in search.cluster.pasts.all()}


def test_an_agent_that_takes_the_answer_to_its_former_life_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer comes twice: what was handed out is forgotten in between."""

    def restart(self: Agent) -> Outcome:
        kept = self.asked
        Agent.__init__(self, self.own)
        self.asked = self.waits_for = kept
        return Outcome([], [], False)

    monkeypatch.setattr(Agent, "restart", restart)
    scope = Scope(name="former life", voters=2, terms=1, timeouts=1, asks=1, restarts=1, repeats=1)
    assert found(scope).what == "the ID 0 is given a second time"


def granted_when_proposed(self: Proposals, records: list[Record], outcomes: Outcomes) -> Proposal:
    """A leader that answers before anything is committed."""
    proposal = propose(self, records, outcomes)
    for answer, outcome in outcomes:
        release(answer, outcome)
    proposal.outcomes = ()
    return proposal


propose = Proposals.propose
LEADS = property(lambda core: core.role is Role.LEADER)


def always(_: object) -> bool:
    return True


def never(_: object) -> bool:
    return False


@pytest.mark.parametrize(
    ("bugs", "what"),
    [
        pytest.param(
            [(Proposals, "propose", granted_when_proposed)],
            "the block 0 is given a second time",
            id="answered when proposed",
        ),
        pytest.param(
            [(RaftCore, "serving", LEADS), (Proposals, "settled", always)],
            "allocates from 0, but the next producer ID is 1",
            id="served from unapplied state",
        ),
        pytest.param(
            [(Decider, "_busy", never), (Proposals, "settled", always)],
            "allocates from 0, but the next producer ID is 1",
            id="two batches in flight",
        ),
    ],
)
def test_a_block_that_would_be_given_twice_is_found(
    bugs: list[tuple[type, str, object]], what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for owner, name, wrong in bugs:
        monkeypatch.setattr(owner, name, wrong)
    search = searched(Scope(name="two leaders", voters=2, terms=2, timeouts=2, asks=2, crashes=1))
    assert search.finding is not None
    assert search.finding.what.endswith(what)
    story = told_plainly(search.finding, search.cluster.automaton)
    assert story.startswith(f"{search.finding.what}\n\n1. ")
    assert story.count(" ask ") == 2
