"""Decisions about a consumer group through every state of small scopes, and what is planted is found there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from pidkeeper.controller.state import decide, group_decisions, offset_decisions, requests
from pidkeeper.controller.state.draft import Draft
from pidkeeper.controller.state.groups.group import Group, TopicRows
from pidkeeper.protocol.groups import NO_VERSION
from tests.explore.groups_state import GROUP, GroupScope
from tests.explore.run_groups import explore

ONE = GroupScope(name="one generation", coordinators=1, generations=1)
ZOMBIE = GroupScope(name="a zombie", coordinators=1, aborted=0)
COORDINATORS = GroupScope(name="two coordinators", generations=1, aborted=0)
STATIC = GroupScope(name="a static member", coordinators=1, generations=1, parts=True, replaced=1, aborted=0)
INPUTS = GroupScope(name="two inputs", coordinators=1, members=1, inputs=2, generations=1, committed=2)
PLAIN = GroupScope(name="a plain commit", coordinators=1, members=1, generations=1, aborted=0, plain=1)


@pytest.mark.parametrize("scope", [ONE, STATIC, INPUTS, PLAIN], ids=lambda scope: scope.name)
def test_a_scope_is_exhausted_and_nothing_is_wrong(scope: GroupScope) -> None:
    explored = explore(scope)
    assert explored.wrong == []
    assert explored.states > 20


def _decides(patch: pytest.MonkeyPatch, kind: type[Any], change: Callable[[Draft, Any], Any]) -> None:
    """The quorum decides what `change` makes of a request."""
    deciders: dict[Any, Any] = decide._DECIDERS
    shipped = deciders[kind]
    patch.setitem(deciders, kind, lambda draft, request: shipped(draft, change(draft, request)))


def _unfenced(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(offset_decisions, "_check_member", lambda *_: None)


def _no_swap(patch: pytest.MonkeyPatch) -> None:
    """Once, or there would be no end of it."""

    def newest(draft: Draft, request: requests.CommitGroup) -> requests.CommitGroup:
        group = draft.groups.get(GROUP)
        first = group is not None and group.record is not None and group.record.after == NO_VERSION
        return replace(request, after=group.version) if group is not None and first else request

    _decides(patch, requests.CommitGroup, newest)


def _anybodys(patch: pytest.MonkeyPatch) -> None:
    shipped = group_decisions._is_repeated
    patch.setattr(
        group_decisions,
        "_is_repeated",
        lambda known, wanted: shipped(
            replace(known, broker_id=wanted.broker_id, broker_epoch=wanted.broker_epoch), wanted
        ),
    )


def _unstable(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Group, "is_pending", lambda *_: False)


def _same_epoch(patch: pytest.MonkeyPatch) -> None:
    _decides(patch, requests.EndTxn, lambda _, request: replace(request, new_epoch=False))


def _last_ended(patch: pytest.MonkeyPatch) -> None:
    shipped = TopicRows.settle

    def settle(rows: TopicRows, partition: int, producer_id: int, *, committed: bool) -> None:
        if committed:
            rows.forget(partition)
        shipped(rows, partition, producer_id, committed=committed)

    patch.setattr(TopicRows, "settle", settle)


@pytest.mark.parametrize(
    ("plant", "scope", "what"),
    [
        (_unfenced, ZOMBIE, "m0 of generation 1 moves an offset"),
        (_unfenced, STATIC, "of generation 1 moves an offset"),
        (_no_swap, COORDINATORS, "several agents assign in one generation"),
        (_anybodys, COORDINATORS, "several agents assign in one generation"),
        (_unstable, ZOMBIE, "is told -1"),
        (_same_epoch, INPUTS, "input 1 is in 1 committed transactions, the group is at 1"),
        (_last_ended, PLAIN, "and the latest that was committed is"),
    ],
    ids=["no fence", "no member", "no swap", "anybody's", "unstable", "the same epoch", "whoever ends last"],
)
def test_what_is_planted_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], scope: GroupScope, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    wrong = explore(scope).wrong
    assert wrong
    assert what in wrong[-1], wrong
