"""Bugs in what the quorum decides of consumer groups and their offsets."""

from __future__ import annotations

from typing import Final

from tests.mutants.edits import delete, replace
from tests.mutants.planted import Planted

STATE: Final = "controller/state"
_UNSEEN: Final = "the simulator has no consumer groups"
_DECISIONS: Final = ("tests/unit/controller/state/groups/test_offset_decisions.py",)
_GROUPS: Final = ("tests/unit/controller/state/groups/test_group_decisions.py",)
_SNAPSHOTS: Final = ("tests/unit/controller/state/groups/test_groups_snapshot.py",)

GROUP_BUGS: Final = (
    Planted(
        "pending-offset-beats-a-newer-one",
        "a consumer goes on where it last said",
        "the end of a transaction brings back an offset that was passed since",
        (replace(STATE, "TopicRows.settle", "known.record_offset < kept.record_offset", "True"),),
        _DECISIONS,
        _UNSEEN,
    ),
    Planted(
        "aborted-offsets-committed",
        "what an aborted transaction read is read again",
        "a marker whose outcome is not looked at",
        (replace(STATE, "TopicRows.settle", "committed and (_1)", "_1"),),
        _DECISIONS,
        _UNSEEN,
    ),
    Planted(
        "generation-not-compared",
        "who is of no current generation commits nothing",
        "KIP-447: before it a zombie consumer's producer went on",
        (replace(STATE, "_check_member", "request.generation != generation", "False"),),
        _DECISIONS,
        _UNSEEN,
    ),
    Planted(
        "offsets-outside-of-the-transaction",
        "offsets belong to a transaction that ends",
        "Tansu: AddOffsetsToTxn answers without a look, and nothing looks later",
        (replace(STATE, "check_joined", "not has_joined(record, topic, partition)", "False"),),
        _DECISIONS,
        _UNSEEN,
    ),
    Planted(
        "offsets-outlive-their-topic",
        "a topic that is created anew is read from its beginning",
        "names that are given again, kept without what was behind them",
        (delete(STATE, "StateMachine._serve", "self.groups.drop_topic(topic.name)"),),
        _DECISIONS,
        _UNSEEN,
    ),
    Planted(
        "two-coordinators-go-on",
        "one coordinator at a time goes on with a group",
        "a compare-and-swap without the comparison",
        (replace(STATE, "commit_group", "request.after != (NO_VERSION if group is None else group.version)", "False"),),
        _GROUPS,
        _UNSEEN,
    ),
    Planted(
        "group-deleted-under-a-transaction",
        "what a transaction holds is settled by its end",
        "an emptiness check that looks at members alone",
        (replace(STATE, "delete_group", "group.members or group.pending", "group.members"),),
        _GROUPS,
        _UNSEEN,
    ),
    Planted(
        "snapshot-shares-what-changes",
        "a snapshot is of its moment",
        "a copy of references whose objects go on changing",
        (delete(STATE, "GroupsState.captured", "self._owner += 1"),),
        _SNAPSHOTS,
        _UNSEEN,
    ),
)
