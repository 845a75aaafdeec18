"""Bugs in the epochs that transactions have of their own (KIP-890).

Histories of the data plane are asked for them (`tests/histories`), in the simulator's place.
"""

from __future__ import annotations

from typing import Final

from tests.mutants.edits import insert_before, replace
from tests.mutants.planted import Planted

STATE: Final = "controller/state"
OWN_EPOCH: Final = "each transaction has an epoch of its own"
OWN_END: Final = "a late EndTxn ends no other transaction"
TOLD_ALIKE: Final = "who asks again for an end is answered alike"

EPOCH_BUGS: Final = (
    Planted(
        "end-leaves-the-epoch",
        OWN_EPOCH,
        "KIP-98: a producer keeps its pair from one transaction to the next",
        (replace(STATE, "end_with_new_epoch", "record.producer_epoch + 1", "record.producer_epoch"),),
        histories=True,
    ),
    Planted(
        "late-end-ends-the-present-transaction",
        OWN_END,
        "KAFKA-14402: an EndTxn that its client gave up on comes after the next transaction has begun",
        (
            insert_before(
                STATE,
                "end_with_new_epoch",
                "if before is not None and producer == _last_pair(before) != NO_PAIR: ...",
                "if before is not None and before.status == _S.ONGOING and producer == _last_pair(before):\n"
                "    producer = (before.producer_id, before.producer_epoch)",
            ),
        ),
        histories=True,
    ),
    Planted(
        "batch-of-the-epoch-before-joins",
        "what comes late of a transaction is in no other",
        "KAFKA-14402: a batch that comes late is in a transaction that nobody ends, or in the next one",
        (
            replace(
                STATE,
                "_refuse_pair",
                "(record.producer_id, record.producer_epoch) != _",
                "record.producer_id != batch.producer_id or record.producer_epoch - batch.producer_epoch not in {0, 1}",
            ),
            replace(STATE, "refusal", "_1 < entry.producer_epoch", "_1 < entry.producer_epoch - 1"),
            replace(
                STATE,
                "_join_transaction",
                "(batch.producer_id, batch.producer_epoch)",
                "(batch.producer_id, draft.transaction(joining_id).producer_epoch)",
            ),
        ),
        histories=True,
    ),
    Planted(
        "retry-of-an-end-bumps-again",
        TOLD_ALIKE,
        "KIP-890: who comes again with the pair before is given the pair that it was given",
        (replace(STATE, "_told_again", "record.producer_epoch <= MAX_EPOCH", "False"),),
        histories=True,
    ),
    Planted(
        "outcome-forgotten-with-the-new-id",
        TOLD_ALIKE,
        "a record that gives an ID leaves its transactional id Empty, which says no outcome",
        (replace(STATE, "end_with_new_epoch", "COMMITTED_EPOCH", "producer[1]"),),
        histories=True,
    ),
)
