"""Bugs in the decisions about transactional ids, in the leader's duties, and in what becomes of candidates."""

from __future__ import annotations

from typing import Final

from tests.mutants.planted import Edit, Planted, one

TRANSITIONS: Final = "controller/state/transitions.py"
DECISIONS: Final = "controller/state/transaction_decisions.py"
DUTIES: Final = "controller/node/transaction_duties.py"
CANDIDATES: Final = "broker_agent/candidates.py"
_STATE: Final = "tests/unit/controller/state/"
_NODE: Final = "tests/unit/controller/node/"

_ROTATION: Final = "    if before.producer_epoch >= MAX_EPOCH:\n"

TRANSACTIONS: Final = (
    Planted(
        "last-pair-not-in-the-record",
        "a retry of a bump gives the pair of the first attempt",
        "KAFKA-20310 and KAFKA-20357: the pair before the newest one was in memory alone",
        one(
            TRANSITIONS,
            "before.producer_epoch + 1, *supplied, timeout_ms",
            "before.producer_epoch + 1, *NO_PAIR, timeout_ms",
        ),
    ),
    Planted(
        "last-pair-not-in-the-snapshot",
        "a retry of a bump gives the pair of the first attempt",
        "KAFKA-20357: lost when the state is loaded anew",
        (
            Edit(
                "controller/state/machine.py",
                "            transactions=self.transactions.all(),\n",
                "            transactions=[\n"
                "                structs.replace(record, last_producer_id=-1, last_producer_epoch=-1)\n"
                "                for record in self.transactions.all()\n"
                "            ],\n",
            ),
            Edit(
                "controller/state/machine.py",
                "from pidkeeper.controller.state.brokers import",
                "from msgspec import structs\n\nfrom pidkeeper.controller.state.brokers import",
            ),
        ),
        (_STATE + "test_machine.py", _STATE + "test_transactions.py"),
    ),
    Planted(
        "zombie-aborts-the-live-producer",
        "only the newest pair, or none, aborts a transaction",
        "Kafka: in Ongoing the supplied epoch is ignored, so a zombie fences its successor",
        (
            Edit(
                TRANSITIONS,
                "    if supplied not in {NO_PAIR, current, last}:\n",
                "    if before.status != _S.ONGOING and supplied not in {NO_PAIR, current, last}:\n",
            ),
            Edit(
                TRANSITIONS,
                "        if supplied not in {NO_PAIR, current}:\n",
                "        if supplied[0] not in {-1, current[0]}:\n",
            ),
        ),
    ),
    Planted(
        "new-instance-gets-the-old-epoch",
        "no pair goes to two instances",
        "KIP-98: InitProducerId bumps the epoch to fence zombies",
        one(
            TRANSITIONS,
            "before.producer_id, before.producer_epoch + 1, *supplied,",
            "before.producer_id, before.producer_epoch + (supplied != NO_PAIR), *supplied,",
        ),
    ),
    Planted(
        "last-pair-compared-by-epoch-alone",
        "a pair that nobody was given is fenced",
        "Kafka: last ID and last epoch are compared each for itself, so (new ID, 32766) passes as a retry",
        (
            Edit(
                TRANSITIONS,
                "    if supplied not in {NO_PAIR, current, last}:\n",
                "    if supplied not in {NO_PAIR, current} and supplied[1] != last[1]:\n",
            ),
            Edit(
                TRANSITIONS,
                "    retried = supplied == last != NO_PAIR\n",
                "    retried = supplied != NO_PAIR and supplied[1] == last[1]\n",
            ),
        ),
    ),
    Planted(
        "new-id-one-epoch-too-late",
        "an epoch is left to fence whoever holds the last one",
        "Kafka's isEpochExhausted: 32766, not 32767",
        one(TRANSITIONS, _ROTATION, "    if before.producer_epoch > MAX_EPOCH:\n"),
    ),
    Planted(
        "bump-after-the-last-fence-overflows",
        "no epoch leaves an int16",
        "KAFKA-19367 and KAFKA-19976: InitProducerId bumped twice at 32766",
        one(TRANSITIONS, _ROTATION, "    if before.producer_epoch == MAX_EPOCH:\n"),
    ),
    Planted(
        "forgotten-id-comes-back-with-its-old-producer-id",
        "no pair goes to two instances",
        "KAFKA-18019: A idle, B took over, the id expired, A goes on",
        one(
            TRANSITIONS,
            "return TransactionRecord(transactional_id, _new(candidate), 0,",
            "return TransactionRecord(transactional_id, supplied[0] if supplied[0] >= 0 else _new(candidate), 0,",
        ),
        (_STATE + "test_transitions.py",),
    ),
    Planted(
        "candidate-of-an-unknown-outcome-reused",
        "no ID goes to two transactional ids",
        "KAFKA-15552's class: an ID that may have been given out counted as free",
        one(
            CANDIDATES,
            "        elif certain and len(self._kept) < MAX_KEPT:\n",
            "        elif len(self._kept) < MAX_KEPT:\n",
        ),
        ("tests/unit/broker_agent/test_candidates.py",),
    ),
    Planted(
        "candidate-stays-in-the-pool",
        "no ID goes to two transactional ids",
        "KAFKA-20031's class: an ID at the edge handed out twice",
        one(CANDIDATES, "self._kept.popleft() if self._kept", "self._kept[0] if self._kept"),
        ("tests/unit/broker_agent/test_candidates.py",),
    ),
    Planted(
        "candidate-not-looked-up",
        "no ID goes to two transactional ids",
        "Kafka trusts whoever made the ID",
        one(DECISIONS, "if (user := draft.user_of(producer_id)) is not None:", "if (user := None) is not None:"),
        (_STATE + "test_transaction_decisions.py",),
        unseen="it takes an agent that offers an ID twice",
    ),
    Planted(
        "completion-of-another-epochs-transaction",
        "a transaction is completed by its own markers alone",
        "KAFKA-19999: markers of one epoch meet the transaction of the next",
        one(
            TRANSITIONS,
            " or (before.producer_id, before.producer_epoch) != producer or before.status not in PREPARED:",
            " or before.status not in PREPARED:",
        ),
        (_STATE + "test_transitions.py",),
    ),
    Planted(
        "markers-of-an-older-term-complete",
        "a transaction is completed only when its markers were written in this term",
        "KAFKA-9144's class: a coordinator acts on what it began under an earlier epoch",
        one(
            DUTIES,
            "        if term == self._term:\n            self._ask(",
            "        if term <= self._term:\n            self._ask(",
        ),
        (_NODE + "test_transaction_duties.py",),
    ),
    Planted(
        "timeout-without-fencing",
        "whose transaction was aborted by the timeout is fenced",
        "KIP-98: the coordinator bumps the epoch when it aborts a transaction in time",
        one(
            TRANSITIONS,
            "    return _fence(before, last=NO_PAIR, now_ms=now_ms)\n",
            "    return replace(before, status=_S.PREPARE_ABORT, update_ms=now_ms)\n",
        ),
    ),
    Planted(
        "commit-granted-for-an-abort",
        "an acknowledged outcome is never another one",
        "KIP-98: a repeated EndTxn is granted for the same outcome alone",
        one(
            TRANSITIONS,
            "    if record.status == PREPARED[prepared]:\n",
            "    if record.status in {_S.COMPLETE_COMMIT, _S.COMPLETE_ABORT}:\n",
        ),
    ),
    Planted(
        "deposed-leader-speaks-of-transactional-ids",
        "two instances are never both unfenced",
        "Raft paper, section 8: a leader may have been deposed without knowing it",
        one("controller/state/decide.py", "return type(request) in transaction_decisions.DECIDERS", "return False"),
        (_NODE + "test_decider.py",),
    ),
)
