"""Bugs in consumer groups: who may commit, what transactions hold, which of two coordinators goes on, who is told what.

Histories of the data plane are asked for most of them (`tests/histories`), in the simulator's place.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace as changed

from tests.mutants.edits import delete, insert_before, replace
from tests.mutants.planted import Planted

AGENT: Final = "broker_agent/groups"
STATE: Final = "controller/state"
API: Final = "controller/api"
NODE: Final = "controller/node"
FENCED: Final = "only members of the newest generation commit offsets"
ONCE: Final = "each input record has just one output record, read committed"
SETTLED: Final = "the record that ends a transaction settles what it holds"
ONE_GOES_ON: Final = "of two coordinators that go on from one generation one does"
COMMITTED: Final = "what a member is told of its generation is committed"

_BUGS: Final = (
    Planted(
        "offsets-of-any-generation",
        FENCED,
        "KIP-447: before it nothing but a transactional id for each partition fenced a zombie",
        (delete(STATE, "commit_offsets", "_check_committer(draft.groups.get(_), request)"),),
    ),
    Planted(
        "generation-not-compared",
        FENCED,
        "KIP-447: a zombie that is a member again, but of another generation",
        (replace(STATE, "offset_decisions._check_member", "request.generation != generation", "False"),),
    ),
    Planted(
        "require-stable-ignored",
        ONCE,
        "KIP-447: the next owner of a partition goes on where a transaction under way has begun",
        (
            replace(
                NODE,
                "group_views.fetch_offsets",
                "request.require_stable and group is not None and group.is_pending(topic, partition)",
                "False",
            ),
        ),
    ),
    Planted(
        "aborted-offsets-stay-pending",
        SETTLED,
        "pending offsets that are left behind: none of their partitions is stable again",
        (
            insert_before(
                STATE, "GroupsState.end_transaction", "held = defaultdict(list)", "if not committed:\n    return"
            ),
            replace(STATE, "StateMachine._transact", "self.groups.held_by(before.producer_id)", "0"),
        ),
    ),
    Planted(
        "aborted-offsets-committed",
        SETTLED,
        "KIP-98: an abort undoes the offsets, or input is left out",
        (
            replace(
                STATE,
                "TopicRows.settle",
                "committed and (known is None or known.record_offset < kept.record_offset)",
                "known is None or known.record_offset < kept.record_offset",
            ),
        ),
    ),
    Planted(
        "pending-offset-beats-a-newer-commit",
        SETTLED,
        "`OffsetMetadataManager.replayEndTransactionMarker` compares the offsets of the records",
        (replace(STATE, "TopicRows.settle", "known.record_offset < kept.record_offset", "True"),),
    ),
    Planted(
        "group-committed-without-a-comparison",
        ONE_GOES_ON,
        "two coordinators of one group, each with its own idea of it",
        (
            replace(STATE, "commit_group", "request.after != _", "False"),
            delete(STATE, "GroupsState._advance", "assert record.after == group.version, _"),
        ),
    ),
    Planted(
        "overtaken-coordinator-goes-on",
        ONE_GOES_ON,
        "an answer that nobody looks at",
        (
            replace(
                AGENT, "Coordinator._taken", "answer.taken and answer.group is not None", "answer.group is not None"
            ),
        ),
    ),
    Planted(
        "joined-before-it-is-committed",
        COMMITTED,
        "answered, and the coordinator dies before the record is written",
        (
            replace(
                AGENT,
                "ClassicGroup._complete",
                "self._propose(self.generation + 1, self._begin)",
                "self._propose(self.generation + 1, lambda at: None)\nself._begin(now)",
            ),
        ),
    ),
    Planted(
        "silent-members-never-removed",
        "no member waits longer than a rebalance takes",
        "a session that nobody ends: its partitions are read by nobody",
        (replace(AGENT, "ClassicGroup._refresh", "now + member.session_ms", "now + 60 * member.session_ms"),),
    ),
    Planted(
        "offsets-of-a-deposed-leader",
        ONCE,
        "a member that does not know yet that it leads no more",
        (delete(API, "GroupOperations.fetch_offsets", "await self._gate.confirm()"),),
    ),
    Planted(
        "offsets-of-a-deleted-topic-kept",
        "a topic that is created anew has no offsets",
        "offsets by name, where the topic is another one",
        (delete(STATE, "StateMachine._serve", "if topic is not None: ..."),),
    ),
)

_UNSEEN: Final = "no history comes there"
_TESTS: Final = "tests/unit/controller/state/groups"

_DIRECTED: Final = (
    Planted(
        "offsets-outside-of-the-transaction",
        "offsets belong to a transaction that ends",
        "Tansu: AddOffsetsToTxn answers without a look, and nothing looks later",
        (replace(STATE, "check_joined", "not has_joined(record, topic, partition)", "False"),),
        (f"{_TESTS}/test_offset_decisions.py",),
        _UNSEEN,
    ),
    Planted(
        "group-deleted-under-a-transaction",
        "what a transaction holds is settled by its end",
        "an emptiness check that looks at members alone",
        (replace(STATE, "delete_group", "group.members or group.pending", "group.members"),),
        (f"{_TESTS}/test_group_decisions.py",),
        _UNSEEN,
    ),
    Planted(
        "snapshot-shares-what-changes",
        "a snapshot is of its moment",
        "a copy of references whose objects go on changing",
        (delete(STATE, "GroupsState.captured", "self._owner += 1"),),
        (f"{_TESTS}/test_groups_snapshot.py",),
        _UNSEEN,
    ),
)

GROUP_BUGS: Final = (*(changed(bug, histories=True) for bug in _BUGS), *_DIRECTED)
