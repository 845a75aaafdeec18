"""Rules that no input reaches while the code is right: the guards themselves, called the wrong way."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pidkeeper.controller.raft.core import InvariantViolation, RaftCore
from pidkeeper.controller.raft.messages import Entry
from pidkeeper.controller.raft.outbox import Write
from tests.support.raft_network import make_candidate, make_core, make_leader


def second_vote(core: RaftCore) -> None:
    make_candidate(core)
    assert core._ballot is not None
    core._ballot.count(core.node_id, True, 0)


def commit_of_an_earlier_term(core: RaftCore) -> None:
    make_leader(core)
    assert core.leadership is not None
    core.leadership._commitment.commit_to(1)


@pytest.mark.parametrize(
    ("rule", "wrong"),
    [
        ("R1", lambda core: core._hard.advance_term(0)),
        ("R2", lambda core: (core._hard.vote_for(2), core._hard.vote_for(3))),
        ("R6", lambda core: core.log.append(Entry(1, 1, b""))),
        ("R7", commit_of_an_earlier_term),
        ("R10", second_vote),
        ("R11", lambda core: core._outbox.release(Write(1, 0, False, []))),
    ],
)
def test_a_broken_rule_is_named(rule: str, wrong: Callable[[RaftCore], object]) -> None:
    core = make_core(1, terms=[1])
    with pytest.raises(InvariantViolation, match=f"^{rule}: ") as error:
        wrong(core)
    assert error.value.rule == rule
