"""No ID goes to two transactional ids, nor to one and to a claim, whatever becomes of the requests."""

from __future__ import annotations

from collections import defaultdict, deque
from itertools import count
from typing import NamedTuple

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from pidkeeper.broker_agent.ids import candidates as module
from pidkeeper.broker_agent.ids.candidates import Candidates
from pidkeeper.broker_agent.ids.reserve import NO_ID, BlockReserve
from pidkeeper.protocol.ids import ProducerIdBlock


def make(ids: int = 1000) -> tuple[Candidates, BlockReserve]:
    reserve = BlockReserve()
    if ids:
        reserve.offer(ProducerIdBlock(100, ids))
    return Candidates(reserve.claim), reserve


@pytest.mark.parametrize("given", [None, 7])
def test_a_candidate_that_was_certainly_not_taken_goes_along_again(given: int | None) -> None:
    candidates, _ = make()
    candidates.settle(candidates.take(), given=given, certain=True)
    assert [candidates.take(), candidates.take()] == [100, 101]


@pytest.mark.parametrize("given", [None, 7])
def test_after_an_unknown_outcome_it_is_never_used_again(given: int | None) -> None:
    candidates, _ = make()
    candidates.settle(candidates.take(), given=given, certain=False)
    assert candidates.take() == 101
    assert (len(candidates), candidates.lost, candidates.taken) == (0, 1, 0)


@pytest.mark.parametrize("certain", [True, False])
def test_one_that_was_taken_is_gone(certain: bool) -> None:
    candidates, _ = make()
    candidates.settle(candidates.take(), given=100, certain=certain)
    assert candidates.take() == 101
    assert (candidates.lost, candidates.taken) == (0, 1)


def test_without_an_id_at_hand_there_is_no_candidate() -> None:
    candidates, reserve = make(ids=0)
    assert candidates.take() == NO_ID
    candidates.settle(NO_ID, given=5, certain=True)
    assert (len(candidates), candidates.lost, candidates.taken) == (0, 0, 0)
    assert reserve.failed_claims == 1


def test_claims_never_take_what_is_kept() -> None:
    candidates, reserve = make(ids=1)
    candidates.settle(candidates.take(), given=None, certain=True)
    assert (len(candidates), reserve.claim()) == (1, NO_ID)


def test_what_is_kept_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_KEPT", 2)
    candidates, _ = make()
    for one in [candidates.take() for _ in range(3)]:
        candidates.settle(one, given=None, certain=True)
    assert (len(candidates), candidates.lost) == (2, 1)


def test_one_that_is_not_under_way_cannot_come_back() -> None:
    candidates, _ = make()
    one = candidates.take()
    candidates.settle(one, given=None, certain=True)
    with pytest.raises(AssertionError, match="A4: candidate 100 comes back"):
        candidates.settle(one, given=None, certain=True)


class Attempt(NamedTuple):
    """One request on its way, and how many IDs its transactional id had had by then.

    `needs_one`: whether it comes when the epochs of the present ID are used up.
    """

    candidate: int
    transactional_id: int
    needs_one: bool
    before: int


class Quorum:
    """Controllers that carry out whatever arrives. Whether another transactional id has the candidate they do not ask:
    the agent alone has to see to that."""

    def __init__(self) -> None:
        self.of: dict[int, list[int]] = defaultdict(list)

    @property
    def used(self) -> list[int]:
        return [one for ids in self.of.values() for one in ids]

    def carry_out(self, attempt: Attempt) -> int | None:
        """The ID that the transactional id has now; None if one was needed and none, or an old one, came along."""
        ids = self.of[attempt.transactional_id]
        if attempt.needs_one or not ids:
            if attempt.candidate == NO_ID or attempt.candidate in ids[-2:]:
                return None
            ids.append(attempt.candidate)
        return ids[-1]


class CandidatesMachine(RuleBasedStateMachine):
    """Requests whose attempts are carried out at once, late or never, and whose answers arrive or do not."""

    def __init__(self) -> None:
        super().__init__()
        self.reserve = BlockReserve()
        self.blocks = count()
        self.candidates = Candidates(self.reserve.claim)
        self.quorum = Quorum()
        self.claimed: list[int] = []
        self.late: deque[Attempt] = deque()

    under_way = Bundle("under_way")

    @rule(length=st.integers(1, 4))
    def block(self, length: int) -> None:
        self.reserve.offer(ProducerIdBlock(10 * next(self.blocks), length))

    @rule()
    def claim(self) -> None:
        if (one := self.reserve.claim()) != NO_ID:
            self.claimed.append(one)

    @rule(target=under_way, transactional_id=st.integers(0, 4), needs_one=st.booleans())
    def begin(self, transactional_id: int, needs_one: bool) -> Attempt:
        return Attempt(self.candidates.take(), transactional_id, needs_one, len(self.quorum.of[transactional_id]))

    @rule(attempt=consumes(under_way))
    def answered_at_the_first_attempt(self, attempt: Attempt) -> None:
        given = self.quorum.carry_out(attempt)
        self.candidates.settle(attempt.candidate, given=given, certain=True)

    @rule(attempt=consumes(under_way))
    def refused_at_the_first_attempt(self, attempt: Attempt) -> None:
        self.candidates.settle(attempt.candidate, given=None, certain=True)

    @rule(attempt=consumes(under_way), first_is_late=st.booleans())
    def answered_at_the_second_attempt(self, attempt: Attempt, first_is_late: bool) -> None:
        if first_is_late:
            self.late.append(attempt)
        given = self.quorum.carry_out(attempt)
        self.candidates.settle(attempt.candidate, given=given, certain=False)

    @rule(attempt=consumes(under_way), fate=st.sampled_from(["carried out", "late", "never arrived"]))
    def not_answered(self, attempt: Attempt, fate: str) -> None:
        if fate == "carried out":
            self.quorum.carry_out(attempt)
        elif fate == "late":
            self.late.append(attempt)
        self.candidates.settle(attempt.candidate, given=None, certain=False)

    @rule()
    def a_late_attempt_arrives(self) -> None:
        if not self.late:
            return
        attempt = self.late.popleft()
        # As late as 65,000 epochs no attempt is: each of two more IDs was used up.
        if len(self.quorum.of[attempt.transactional_id]) - attempt.before <= 2:
            self.quorum.carry_out(attempt)

    @invariant()
    def no_id_is_used_twice(self) -> None:
        used = self.quorum.used + self.claimed
        assert len(set(used)) == len(used), f"repeated in {used}"
        assert NO_ID not in used


CandidatesMachine.TestCase.settings = settings(max_examples=500, stateful_step_count=40, deadline=None)
TestRandomOutcomes = CandidatesMachine.TestCase


def test_what_is_discarded_is_carried_by_no_request_any_more() -> None:
    ids = iter(range(10))
    candidates = Candidates(lambda: next(ids))
    kept, under_way, given = candidates.take(), candidates.take(), candidates.take()
    candidates.settle(kept, given=None, certain=True)
    candidates.discard()
    candidates.settle(under_way, given=None, certain=True)
    candidates.settle(given, given=given, certain=True)
    assert (len(candidates), candidates.lost, candidates.taken) == (0, 2, 1)
    assert candidates.take() == 3
