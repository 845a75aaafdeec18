"""Bugs in the decisions about transactional ids, in the leader's duties, and in what becomes of candidates."""

from __future__ import annotations

from typing import Final

from tests.mutants.edits import insert_before, replace
from tests.mutants.planted import Planted

AGENT: Final = "broker_agent"
NODE: Final = "controller/node"
STATE: Final = "controller/state"
_STATE: Final = "tests/unit/controller/state/"
_NODE: Final = "tests/unit/controller/node/"


TRANSACTION_BUGS: Final = (
    Planted(
        "last-pair-not-in-the-record",
        "a retry of a bump gives the pair of the first attempt",
        "KAFKA-20310 and KAFKA-20357: the pair before the newest one was in memory alone",
        (
            replace(
                STATE,
                "initialise",
                "_renewed(before, last=supplied, new_id=new_id, now_ms=now_ms)",
                "_renewed(before, last=NO_PAIR, new_id=new_id, now_ms=now_ms)",
            ),
        ),
    ),
    Planted(
        "last-pair-not-in-the-snapshot",
        "a retry of a bump gives the pair of the first attempt",
        "KAFKA-20357: lost when the state is loaded anew",
        (
            replace(
                STATE,
                "capture",
                "transactions()",
                "[\n"
                "    structs.replace(record, last_producer_id=-1, last_producer_epoch=-1)\n"
                "    for record in transactions()\n"
                "]",
            ),
            insert_before(STATE, "capture", "return _", "from msgspec import structs"),
        ),
        (_STATE + "test_machine.py", _STATE + "test_transactions.py"),
    ),
    Planted(
        "zombie-aborts-the-live-producer",
        "only the newest pair, or none, aborts a transaction",
        "Kafka: in Ongoing the supplied epoch is ignored, so a zombie fences its successor",
        (
            replace(
                STATE,
                "initialise",
                "_1 not in {_2, _3, _4}",
                "before.status != _S.ONGOING and _1 not in {_2, _3, _4}",
            ),
            replace(STATE, "initialise", "_1 not in {_, _2}", "_1[0] not in {-1, _2[0]}"),
        ),
    ),
    Planted(
        "new-instance-gets-the-old-epoch",
        "no pair goes to two instances",
        "KIP-98: InitProducerId bumps the epoch to fence zombies",
        (
            replace(
                STATE,
                "_renewed",
                "_1.producer_epoch + 1",
                "_1.producer_epoch + (last != NO_PAIR)",
            ),
        ),
    ),
    Planted(
        "last-pair-compared-by-epoch-alone",
        "a pair that nobody was given is fenced",
        "Kafka: last ID and last epoch are compared each for itself, so (new ID, 32766) passes as a retry",
        (
            replace(STATE, "initialise", "_1 not in {_2, _3, _4}", "_1 not in {_2, _3} and _1[1] != _4[1]"),
            replace(STATE, "initialise", "_1 == _2 != NO_PAIR", "_1 != NO_PAIR and _1[1] == _2[1]"),
        ),
    ),
    Planted(
        "new-id-one-epoch-too-late",
        "an epoch is left to fence whoever holds the last one",
        "Kafka's isEpochExhausted: 32766, not 32767",
        (replace(STATE, "_renewed", "_1.producer_epoch >= MAX_EPOCH", "_1.producer_epoch > MAX_EPOCH"),),
    ),
    Planted(
        "bump-after-the-last-fence-overflows",
        "no epoch leaves an int16",
        "KAFKA-19367 and KAFKA-19976: InitProducerId bumped twice at 32766",
        (replace(STATE, "_renewed", "_1.producer_epoch >= MAX_EPOCH", "_1.producer_epoch == MAX_EPOCH"),),
    ),
    Planted(
        "forgotten-id-comes-back-with-its-old-producer-id",
        "no pair goes to two instances",
        "KAFKA-18019: A idle, B took over, the id expired, A goes on",
        (
            replace(
                STATE,
                "initialise",
                "new_id()",
                "supplied[0] if supplied[0] >= 0 else new_id()",
                occurrence=1,
            ),
        ),
        (_STATE + "test_transitions.py",),
    ),
    Planted(
        "candidate-of-an-unknown-outcome-reused",
        "no ID goes to two transactional ids",
        "KAFKA-15552's class: an ID that may have been given out counted as free",
        (replace(AGENT, "Candidates.settle", "certain and _1 and _2", "_1 and _2"),),
        ("tests/unit/broker_agent/test_candidates.py",),
    ),
    Planted(
        "candidate-stays-in-the-pool",
        "no ID goes to two transactional ids",
        "KAFKA-20031's class: an ID at the edge handed out twice",
        (replace(AGENT, "Candidates.take", "self._kept.popleft()", "self._kept[0]"),),
        ("tests/unit/broker_agent/test_candidates.py",),
    ),
    Planted(
        "candidate-not-looked-up",
        "no ID goes to two transactional ids",
        "Kafka trusts whoever made the ID",
        (replace(STATE, "_checked", "_.user_of(_)", "None"),),
        (_STATE + "test_transaction_decisions.py",),
        unseen="it takes an agent that offers an ID twice",
    ),
    Planted(
        "completion-of-another-epochs-transaction",
        "a transaction is completed by its own markers alone",
        "KAFKA-19999: markers of one epoch meet the transaction of the next",
        (replace(STATE, "complete", "_1 or (_.producer_id, _.producer_epoch) != _ or _2", "_1 or _2"),),
        (_STATE + "test_transitions.py",),
    ),
    Planted(
        "joined-before-forgotten-in-replay",
        "partitions that joined a transaction get its markers",
        "a delta taken for the whole",
        (replace(STATE, "join", "{_.topic: _ for _ in _.partitions} if ongoing else _2", "_2"),),
        (_STATE + "test_transitions.py",),
    ),
    Planted(
        "whole-transaction-logged-for-each-partition",
        "the log grows by what joins",
        "until metadata version 5",
        (replace(STATE, "add_partitions_to_txn", "_1 if draft.metadata_version >= _ else _2", "_2"),),
        (_STATE + "test_transaction_decisions.py",),
        unseen="it costs bytes",
    ),
    Planted(
        "time-of-a-transaction-not-watched",
        "a transaction whose producer is gone is aborted in time",
        "a record of a new type that a duty overlooks",
        (replace(NODE, "TransactionDuties.applied", "type(_1) is AddPartitionsRecord", "False"),),
        (_NODE + "test_leadership.py",),
    ),
    Planted(
        "markers-of-an-older-term-complete",
        "a transaction is completed only when its markers were written in this term",
        "KAFKA-9144's class: a coordinator acts on what it began under an earlier epoch",
        (replace(NODE, "_complete", "_1 == self._term", "_1 <= self._term"),),
        (_NODE + "test_transaction_duties.py",),
    ),
    Planted(
        "timeout-without-fencing",
        "whose transaction was aborted by the timeout is fenced",
        "KIP-98: the coordinator bumps the epoch when it aborts a transaction in time",
        (
            replace(
                STATE,
                "abort",
                "_fence(_1, last=_, now_ms=_2)",
                "replace(_1, status=_S.PREPARE_ABORT, update_ms=_2)",
            ),
        ),
    ),
    Planted(
        "producer-whose-time-was-up-fenced-for-good",
        "a producer whose transaction timed out may go on",
        "Kafka before KIP-588",
        (replace(STATE, "abort", "producer if timed_out else _1", "_1"),),
    ),
    Planted(
        "producer-goes-on-after-an-operators-abort",
        "whom an operator aborts stops",
        "the two aborts taken for one",
        (replace(STATE, "abort", "producer if timed_out else _", "producer"),),
        ("tests/unit/controller/state/test_transitions.py",),
        unseen="the simulator's operators abort no transactions",
    ),
    Planted(
        "commit-granted-for-an-abort",
        "an acknowledged outcome is never another one",
        "KIP-98: a repeated EndTxn is granted for the same outcome alone",
        (
            replace(
                STATE,
                "transitions.end",
                "_1.status == PREPARED[_]",
                "_1.status in {_S.COMPLETE_COMMIT, _S.COMPLETE_ABORT}",
            ),
        ),
    ),
    Planted(
        "ended-at-once-before-all-read-it",
        "no member is sent what it cannot read",
        "a new form of a record that no version guards",
        (replace(STATE, "_write_decided", "draft.metadata_version >= _", "True"),),
        (_STATE + "test_ends_at_once.py",),
    ),
    Planted(
        "next-instance-shares-the-pair-of-the-transaction",
        "whose transaction was ended by another instance is fenced",
        "KIP-98: InitProducerId bumps the epoch to fence zombies",
        (
            replace(
                STATE,
                "_renewed",
                "_1.producer_epoch + 1",
                "_1.producer_epoch + (_1.status != _S.ONGOING)",
            ),
        ),
        (_STATE + "test_ends_at_once.py",),
    ),
    Planted(
        "deposed-leader-speaks-of-transactional-ids",
        "two instances are never both unfenced",
        "Raft paper, section 8: a leader may have been deposed without knowing it",
        (replace(STATE, "must_be_confirmed", "_ in _CONFIRMED", "_ in migration_decisions.DECIDERS"),),
        (_NODE + "test_decider.py",),
    ),
)
