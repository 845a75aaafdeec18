"""Bugs in where the IDs of transactional producers come from: the quorum's own blocks, and how they are filled."""

from __future__ import annotations

from typing import Final

from tests.mutants.edits import delete, insert_before, replace
from tests.mutants.planted import Planted

AGENT: Final = "broker_agent"
NODE: Final = "controller/node"
MIGRATION: Final = "controller/migration"
STATE: Final = "controller/state"
_OWN_IDS: Final = "tests/unit/controller/state/test_own_ids.py"
_DUTY: Final = "tests/unit/controller/node/test_own_ids_duty.py"
_AGENT: Final = "tests/unit/broker_agent/test_transactions.py"


OWN_ID_BUGS: Final = (
    Planted(
        "candidate-believed-for-ever",
        "no ID goes to two producers",
        "until metadata version 6",
        (replace(STATE, "_new_id", "draft.metadata_version >= _", "False"),),
        (_OWN_IDS,),
    ),
    Planted(
        "candidate-believed-for-ever-and-no-assertion-minds",
        "no ID goes to two producers",
        "until metadata version 6",
        (
            replace(STATE, "_new_id", "draft.metadata_version >= _", "False"),
            replace(STATE, "write_transaction", "self.metadata_version >= _ and _1", "False"),
            replace(STATE, "_own_ids_after", "_1 or self.metadata_version < _", "True"),
        ),
        (_OWN_IDS,),
    ),
    Planted(
        "own-id-not-used-up",
        "no ID goes to two transactional ids",
        "KAFKA-20031's class: an ID at the edge handed out twice",
        (replace(STATE, "OwnIds.taken", "OwnIds((*left, *others))", "self"),),
        (_OWN_IDS,),
    ),
    Planted(
        "own-id-not-used-up-within-a-batch",
        "no ID goes to two transactional ids",
        "two requests of one batch that see the same next ID",
        (replace(STATE, "Draft._take_own_id", "self.own_ids.taken(_, _1)", "self.own_ids"),),
        (_OWN_IDS,),
    ),
    Planted(
        "last-id-of-an-own-block-given-twice",
        "no ID goes to two transactional ids",
        "KAFKA-15552's class: an inclusive end",
        (replace(STATE, "OwnIds.taken", "producer_id < first.last", "producer_id <= first.last"),),
        (_OWN_IDS,),
    ),
    Planted(
        "spare-block-used-first",
        "IDs of transactional producers are taken in order",
        "a range forgotten where two were kept",
        (
            replace(STATE, "OwnIds.next_id", "self.ranges[0]", "self.ranges[-1]"),
            replace(STATE, "OwnIds.taken", "first, *others = self.ranges", "*others, first = self.ranges"),
        ),
        (_OWN_IDS,),
    ),
    Planted(
        "own-block-does-not-move-the-next-id",
        "no ID goes to two producers",
        "KAFKA-15552: the current block where the next one was meant",
        (replace(STATE, "replay_own_block", "last + 1", "first"),),
    ),
    Planted(
        "own-block-decided-without-its-claim",
        "no ID goes to the quorum and to ZooKeeper's brokers",
        "KAFKA-15010's class: what ZooKeeper holds is passed over",
        (delete(STATE, "fill_own_ids", "draft.take_claim(_, length=_1)"),),
        (_OWN_IDS, _DUTY),
    ),
    Planted(
        "own-block-brought-along-while-zookeeper-counts",
        "no ID goes to the quorum and to ZooKeeper's brokers",
        "a shortcut for a client that would wait",
        (replace(STATE, "next_own_id", "_1 or self.phase in CLAIMING | PAUSED", "_1"),),
        (_OWN_IDS, _DUTY),
    ),
    Planted(
        "own-block-before-the-migration-began",
        "no ID goes to the quorum and to ZooKeeper's brokers",
        "a quorum that begins at 0 beside brokers that did",
        (replace(MIGRATION, "prepared", "self._not_begun() is None", "True"),),
        (_DUTY,),
    ),
    Planted(
        "migration-begins-beside-own-blocks",
        "no ID goes to the quorum and to ZooKeeper's brokers",
        "a new kind of block that a check overlooks",
        (delete(STATE, "replay_own_block", "self.last_block = _"),),
        (_OWN_IDS,),
        unseen="its operators ask nothing of a quorum before its migration",
    ),
    Planted(
        "own-ids-not-in-the-snapshot",
        "members that have applied the same hold the same",
        "KAFKA-20357's class: lost when the state is loaded anew",
        (replace(STATE, "capture", "self.own_ids.ranges", "()"),),
        (_OWN_IDS,),
    ),
    Planted(
        "spare-block-lost-by-a-restore",
        "members that have applied the same hold the same",
        "a range forgotten where two were kept",
        (replace(STATE, "StateMachine.restore", "OwnIds(image.own_ids)", "OwnIds(image.own_ids[:1])"),),
        (_OWN_IDS,),
    ),
    Planted(
        "block-of-own-ids-restored-whole",
        "no ID goes to two transactional ids",
        "Redpanda #15054's class: the counter restarts after a restore",
        (
            replace(
                STATE,
                "StateMachine.restore",
                "self.own_ids = OwnIds(image.own_ids)",
                "size = self.block_size\n"
                "whole = [type(one)(one.first - one.first % size, one.last) for one in image.own_ids]\n"
                "self.own_ids = OwnIds(tuple(whole))",
            ),
        ),
        (_OWN_IDS,),
    ),
    Planted(
        "refusal-for-want-of-room-takes-an-id",
        "a refusal changes nothing",
        "what is decided before the last check",
        (
            replace(
                STATE,
                "next_own_id",
                "return self.next_producer_id",
                "self.take_own_block()\nreturn self.own_ids.next_id",
            ),
        ),
        (_OWN_IDS,),
        unseen="nobody in it has as many transactional ids as there may be",
    ),
    Planted(
        "who-needs-no-id-is-refused-while-there-is-none",
        "transactions under way go on while ZooKeeper is away",
        "an over-reaction",
        (insert_before(STATE, "init_producer_id", "before = _", "_new_id(draft, request)"),),
        (_OWN_IDS,),
    ),
    Planted(
        "who-needs-an-id-waits-also-where-zookeeper-does-not-count",
        "a block costs nobody a round trip",
        "an over-reaction",
        (replace(STATE, "next_own_id", "self.phase in CLAIMING | PAUSED", "True"),),
        (_OWN_IDS,),
    ),
    Planted(
        "blocks-filled-where-nobody-uses-transactional-ids",
        "who wants IDs alone burns no block",
        "an over-reaction",
        (replace(NODE, "OwnIdsDuty._due", "_1 and in_use and _2", "_1 and _2"),),
        (_DUTY,),
        unseen="a block too many is a gap, and gaps are legal",
    ),
    Planted(
        "failed-fill-tried-again-at-once",
        "a failure is not answered with a storm",
        "a loop without a pause",
        (replace(NODE, "OwnIdsDuty._answered", "0 if refusal is None else RETRY_LOOKS", "0"),),
        (_DUTY,),
        unseen="it costs calls",
    ),
    Planted(
        "fill-of-an-earlier-term-ends-this-terms",
        "one block is asked for at a time",
        "KAFKA-9144's class: what was begun under an earlier epoch",
        (replace(NODE, "OwnIdsDuty._answered", "term != self._term", "False"),),
        (_DUTY,),
        unseen="a block too many is refused where it is decided",
    ),
    Planted(
        "version-taken-back-by-a-late-answer",
        "no ID of an agent is burnt once the quorum takes these IDs itself",
        "an answer of an older build believed",
        (replace(AGENT, "Session._heard", "max(self.metadata_version, _1)", "_1"),),
        (_AGENT,),
        unseen="a candidate too many is a gap, and gaps are legal",
    ),
    Planted(
        "no-candidate-for-a-quorum-of-the-build-before",
        "agents and controllers are upgraded in any order",
        "an over-reaction",
        (replace(AGENT, "Transactions._init_producer_id", "self._session.metadata_version < _ and _1", "False"),),
        (_AGENT,),
        unseen="producers wait until the members are upgraded, and then all goes on",
    ),
    Planted(
        "owners-not-archived",
        "whose an ID was is known after the log is gone",
        "a second history that nobody writes",
        (delete(NODE, "Ledger.archive", "await self._on_thread(self._owners.append, _, _1, _2)"),),
        ("tests/unit/controller/node/test_ledger.py",),
    ),
    Planted(
        "owners-kept-across-an-installed-snapshot",
        "the log of another history explains nothing",
        "a second history that a restart overlooks",
        (delete(NODE, "Ledger.restart", "self._recent_owners.clear()"),),
        ("tests/unit/controller/node/test_ledger.py",),
        unseen="what was applied before the snapshot was committed as well, so it is the same",
    ),
    Planted(
        "owners-of-before-the-version-archived",
        "the history of owners ascends",
        "candidates come in no order",
        (replace(STATE, "owners", "version >= _", "True"),),
        (_OWN_IDS,),
    ),
)
