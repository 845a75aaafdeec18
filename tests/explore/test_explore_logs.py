"""Decisions about a partition log through every state of small scopes, and what is planted is found there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pidkeeper.controller.state import commit_decisions, decide, requests, segment_decisions
from pidkeeper.controller.state.draft import Draft
from pidkeeper.controller.state.logs import producers
from pidkeeper.controller.state.logs.partition_log import PartitionLog
from tests.explore.logs_state import LogScope
from tests.explore.run_logs import explore


class _Anything(int):
    """Equal to every number of parts."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, int)

    __hash__ = int.__hash__


ANYTHING = _Anything()

DUPLICATES = LogScope(name="duplicates", objects=2)
ZOMBIES = LogScope(name="zombies", agents=1, objects=2, registrations=1)
TRANSACTION = LogScope(name="a transaction", agents=1, objects=2, transactions=1)
ROLLERS = LogScope(name="rollers", agents=1, objects=1, segments=2, pairs=True)
ROLLED = LogScope(name="a rolled transaction", agents=1, objects=1, segments=1, transactions=1)


@pytest.mark.parametrize("scope", [DUPLICATES, ZOMBIES, TRANSACTION, ROLLERS, ROLLED], ids=lambda scope: scope.name)
def test_a_scope_is_exhausted_and_nothing_is_wrong(scope: LogScope) -> None:
    explored = explore(scope)
    assert explored.wrong == []
    assert explored.states > 20


def _duplicates(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(producers, "find_duplicate", lambda *_: None)
    patch.setattr(producers, "refusal", lambda *_: None)


def _outside(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(commit_decisions, "has_joined", lambda *_: True)


def _takes_no_number(patch: pytest.MonkeyPatch) -> None:
    deciders: dict[Any, Any] = decide._DECIDERS
    commit = deciders[requests.CommitObject]

    def without_number(draft: Draft, request: Any) -> Any:
        answer = commit(draft, request)
        if not answer.referenced:
            draft.records.clear()
        return answer

    patch.setitem(deciders, requests.CommitObject, without_number)


def _swap(patch: pytest.MonkeyPatch) -> None:
    """Neither the decision nor the replay compares what is swapped."""
    patch.setattr(segment_decisions, "_fits", lambda *_: True)
    patch.setattr(PartitionLog, "covered", lambda log, base, end: ANYTHING)


def _beyond(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PartitionLog, "last_stable", property(lambda log: log.end))


def _living(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("pidkeeper.controller.node.segment_views._is_dead", lambda *_: True)


@pytest.mark.parametrize(
    ("plant", "scope", "what"),
    [
        (_duplicates, DUPLICATES, "sequence 0 of 5 is behind 0"),
        (_outside, TRANSACTION, "which nobody has begun"),
        (_takes_no_number, TRANSACTION, "and now with (0,)"),
        (_swap, ROLLERS, "the segments of log 0 end at"),
        (_beyond, ROLLED, "the last stable offset is"),
        (_living, DUPLICATES, "which somebody has deleted"),
    ],
    ids=["no duplicates", "outside", "no number", "no swap", "beyond the last stable offset", "living epochs"],
)
def test_what_is_planted_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], scope: LogScope, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    wrong = explore(scope).wrong
    assert wrong
    assert what in wrong[-1], wrong
