"""Rules that no input reaches while the code is right: the guards themselves, called the wrong way."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pidkeeper.controller.raft.core import InvariantViolation, RaftCore
from pidkeeper.controller.raft.member import Write
from pidkeeper.controller.raft.messages import Entry
from tests.support.raft_network import make_candidate, make_core, make_leader


def second_vote(core: RaftCore) -> None:
    make_candidate(core)
    core._count_vote(core.node_id, True, 0)


def commit_of_an_earlier_term(core: RaftCore) -> None:
    make_leader(core)
    core._commit_as_leader(1)


@pytest.mark.parametrize(
    ("rule", "wrong"),
    [
        ("R1", lambda core: core._set_term(0)),
        ("R2", lambda core: (core._set_vote(2), core._set_vote(3))),
        ("R6", lambda core: core.log.append(Entry(1, 1, b""))),
        ("R7", commit_of_an_earlier_term),
        ("R10", second_vote),
        ("R11", lambda core: core._release(Write(1, False, []))),
    ],
)
def test_a_broken_rule_is_named(rule: str, wrong: Callable[[RaftCore], object]) -> None:
    core = make_core(1, terms=[1])
    with pytest.raises(InvariantViolation, match=f"^{rule}: ") as error:
        wrong(core)
    assert error.value.rule == rule
