"""Bugs in decisions, in replay, in the answers that rest on them, and in the state that snapshots carry."""

from __future__ import annotations

from typing import Final

from tests.mutants.planted import Edit, Planted, one

MACHINE: Final = "controller/state/machine.py"
DECISIONS: Final = "controller/state/id_decisions.py"
DRAFT: Final = "controller/state/draft.py"
PRODUCER_IDS: Final = "controller/state/producer_ids.py"
DECIDER: Final = "controller/node/decider.py"
DRIVER: Final = "controller/node/driver.py"
KEEPER: Final = "controller/node/snapshot_keeper.py"
LEDGER: Final = "controller/node/ledger.py"
CORE: Final = "controller/raft/core.py"
_STATE: Final = "tests/unit/controller/state/"
_DECIDER: Final = "tests/unit/controller/node/test_decider.py"

_UNSETTLED: Final = Edit(DRIVER, "return self.core.applied == self.core.last_index", "return True")

STATE: Final = (
    Planted(
        "snapshot-carries-the-current-block",
        "no ID twice",
        "KAFKA-15552: the current block where the next one was meant",
        one(
            MACHINE,
            "            next_producer_id=self.producer_ids.next_producer_id,\n",
            "            next_producer_id=0\n            if self.producer_ids.last_block is None\n"
            "            else self.producer_ids.last_block.first,\n",
        ),
    ),
    Planted(
        "restore-forgets-a-raised-floor",
        "no ID twice",
        "Redpanda #9555: the counter restarts below what was used",
        one(
            MACHINE,
            "        self.producer_ids = ProducerIdsState(image.next_producer_id, image.last_block)\n",
            "        known = 0 if image.last_block is None else image.last_block.first + image.last_block.length\n"
            "        self.producer_ids = ProducerIdsState(known, image.last_block)\n",
        ),
        (_STATE + "test_machine.py",),
    ),
    Planted(
        "restore-starts-the-counter-anew",
        "no ID twice",
        "Redpanda #15054: the counter restarts after a cluster restore",
        one(
            MACHINE,
            "        self.producer_ids = ProducerIdsState(image.next_producer_id, image.last_block)\n",
            "        self.producer_ids = ProducerIdsState(0, image.last_block)\n",
        ),
    ),
    Planted(
        "snapshot-offset-is-inclusive",
        "broker epochs are unique",
        "KAFKA-14618: inclusive and exclusive offsets confused",
        one(
            MACHINE,
            "            next_offset=self.next_offset,\n",
            "            next_offset=max(0, self.next_offset - 1),\n",
        ),
    ),
    Planted(
        "snapshot-index-behind-its-state",
        "every entry is applied once",
        "etcd #13766: apply index and state were not saved together",
        one(
            KEEPER,
            "        image = self._machine.image(entry.index, entry.term)\n",
            "        index = entry.index - 1\n"
            "        image = self._machine.image(index, self._core.term_at(index) or entry.term)\n",
        ),
    ),
    Planted(
        "snapshot-lacks-the-registrations",
        "members hold the same state",
        "KAFKA-13357: a record missing from the snapshot",
        one(MACHINE, "            brokers=self.brokers.all(),\n", "            brokers=[],\n"),
    ),
    Planted(
        "served-from-unapplied-state",
        "a leader decides on everything before it",
        "raftos 0.2.6, defect A",
        (
            _UNSETTLED,
            Edit(
                CORE,
                "return self.role is LEADER and self.log.applied >= self._noop_index",
                "return self.role is LEADER",
            ),
        ),
    ),
    Planted(
        "decided-on-an-unsettled-log",
        "a leader decides on everything before it",
        "docs/decisions/0003: entries of the core's own shift the offsets",
        (_UNSETTLED,),
        (_DECIDER, "tests/unit/controller/node/test_driver.py"),
    ),
    Planted(
        "two-batches-in-flight",
        "no two requests see the same next ID",
        "docs/decisions/0003; raftos 0.2.6, defect H",
        (
            _UNSETTLED,
            Edit(
                DECIDER,
                "if self._in_flight is not None or not self._waiting:\n            return\n",
                "if not self._waiting:\n            return\n",
            ),
        ),
        (_DECIDER,),
    ),
    Planted(
        "answered-at-propose",
        "nothing acknowledged is lost",
        "etcd #20418 and every lease-based allocator: a stale leader answers",
        one(
            DECIDER,
            "        self._in_flight = Batch(term, index, draft.records, outcomes)",
            "        self._in_flight = Batch(term, index, draft.records, [])\n        _release(outcomes)",
        ),
    ),
    Planted(
        "answer-keyed-by-index-alone",
        "an answer rests on its own entry",
        "raftos 0.2.6: any apply resolves the one future; dissertation, section 6.2",
        (
            Edit(
                DECIDER, "if entry.index == batch.index and entry.term == batch.term:", "if entry.index == batch.index:"
            ),
            Edit(
                DRIVER,
                "        if self._led_term not in {None, led_term}:\n",
                "        if self._led_term is not None and self.faulted:\n",
            ),
        ),
        (_DECIDER,),
    ),
    Planted(
        "records-of-another-entry-applied",
        "members hold the same state",
        "decoding saved by index alone",
        (
            Edit(DECIDER, "batch.index == entry.index and batch.term == entry.term:", "batch.index == entry.index:"),
            Edit(
                DRIVER,
                "        if self._led_term not in {None, led_term}:\n",
                "        if self._led_term is not None and self.faulted:\n",
            ),
        ),
        (_DECIDER,),
    ),
    Planted(
        "broker-epoch-not-checked",
        "a superseded broker gets no block",
        "KIP-730: STALE_BROKER_EPOCH left out",
        (
            Edit(
                DECISIONS,
                "    draft.check_broker(request.broker_id, request.broker_epoch)\n    size = ",
                "    size = ",
            ),
            Edit(
                MACHINE,
                "assert registration is not None and registration.broker_epoch == record.broker_epoch, (",
                "assert registration is None or registration.broker_epoch >= 0, (",
            ),
        ),
        (_STATE + "test_machine.py",),
    ),
    Planted(
        "broker-epoch-checked-against-applied-state-alone",
        "decisions see the ones before them in their batch",
        "KAFKA-14694's class: checked before, changed since",
        one(DRAFT, "        if broker_id in self._brokers:\n            return self._brokers[broker_id]\n", ""),
        (_STATE + "test_machine.py",),
    ),
    Planted(
        "superseded-incarnation-let-back",
        "two processes with one broker id do not take it from each other for ever",
        "KIP-631: DUPLICATE_BROKER_REGISTRATION left out",
        one(DECISIONS, "if before is not None and request.incarnation_id in before.superseded:", "if False:"),
        (_STATE + "test_machine.py",),
        unseen="two agents then take turns, and each of their blocks is still their own",
    ),
    Planted(
        "floor-lowered",
        "no ID twice",
        "Redpanda #9555; ZooKeeper migration writing an old block",
        (
            Edit(DECISIONS, "raised = request.at_least > draft.next_producer_id", "raised = True"),
            Edit(
                PRODUCER_IDS,
                "assert record.next_producer_id > self.next_producer_id, (",
                "assert record.next_producer_id >= 0, (",
            ),
        ),
        (_STATE + "test_machine.py",),
    ),
    Planted(
        "block-overlaps-by-one",
        "no ID twice",
        "KAFKA-15552's class: the inclusive end taken for the next ID",
        (
            Edit(DECISIONS, "draft.next_producer_id = first + size\n", "draft.next_producer_id = first + size - 1\n"),
            Edit(
                PRODUCER_IDS,
                "        self.next_producer_id = block.next\n",
                "        self.next_producer_id = block.last\n",
            ),
        ),
    ),
    Planted(
        "exhaustion-not-noticed",
        "the ID space ends with an error",
        "KIP-730: next > 2^63-1-1000 is refused",
        one(PRODUCER_IDS, "if next_producer_id > MAX_PRODUCER_ID - block_size:", "if next_producer_id < 0:"),
        (_STATE + "test_producer_ids.py", _STATE + "test_machine.py"),
        unseen="no seed gets near 2^63",
    ),
    Planted(
        "history-loses-the-last-row-of-a-snapshot",
        "every block has an owner on record",
        "KAFKA-13357's class: a record left out where the log is cut",
        one(
            LEDGER,
            "rows = self._recent[: self._position(next_offset)]",
            "rows = self._recent[: max(0, self._position(next_offset) - 1)]",
        ),
    ),
)
