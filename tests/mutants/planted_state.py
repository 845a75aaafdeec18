"""Bugs in decisions, in replay, in the answers that rest on them, and in the state that snapshots carry."""

from __future__ import annotations

from typing import Final

from tests.mutants.edits import delete, insert_after, replace
from tests.mutants.planted import Planted

NODE: Final = "controller/node"
RAFT: Final = "controller/raft"
STATE: Final = "controller/state"
_STATE: Final = "tests/unit/controller/state/"
_DECIDER: Final = "tests/unit/controller/node/test_decider.py"


_UNSETTLED: Final = replace(NODE, "Proposals.settled", "return _", "return True")
_STAYS: Final = replace(
    NODE, "Leadership.observe", "self._led_term not in _", "self._led_term is not None and self.closed"
)
"""With a leader that was deposed still believed to lead, which would refuse what is in its log."""

STATE_BUGS: Final = (
    Planted(
        "floor-leaves-nothing",
        "one call does not burn the ID space",
        "a floor at the end of the space, accepted from anybody",
        (replace(STATE, "check_floor", "at_least > MAX_PRODUCER_ID - block_size", "False"),),
        (_STATE + "test_machine.py",),
    ),
    Planted(
        "floor-far-above-without-force",
        "one call does not burn the ID space",
        "a slip of a digit, accepted",
        (replace(STATE, "check_floor", "at_least - next_producer_id > MAX_FLOOR_JUMP", "False"),),
        (_STATE + "test_machine.py",),
    ),
    Planted(
        "snapshot-carries-the-current-block",
        "no ID twice",
        "KAFKA-15552: the current block where the next one was meant",
        (
            replace(
                STATE,
                "capture",
                "self.producer_ids.next_producer_id",
                "0 if self.producer_ids.last_block is None else self.producer_ids.last_block.first",
            ),
        ),
    ),
    Planted(
        "restore-forgets-a-raised-floor",
        "no ID twice",
        "Redpanda #9555: the counter restarts below what was used",
        (
            replace(
                STATE,
                "StateMachine.restore",
                "self.producer_ids = ProducerIdsState(_, _1)",
                "known = 0 if _1 is None else _1.first + _1.length\nself.producer_ids = ProducerIdsState(known, _1)",
            ),
        ),
        (_STATE + "test_machine.py",),
    ),
    Planted(
        "restore-starts-the-counter-anew",
        "no ID twice",
        "Redpanda #15054: the counter restarts after a cluster restore",
        (replace(STATE, "StateMachine.restore", "ProducerIdsState(_, _1)", "ProducerIdsState(0, _1)"),),
    ),
    Planted(
        "snapshot-offset-is-inclusive",
        "broker epochs are unique",
        "KAFKA-14618: inclusive and exclusive offsets confused",
        (replace(STATE, "capture", "self.next_offset", "max(0, self.next_offset - 1)", occurrence=1),),
    ),
    Planted(
        "snapshot-index-behind-its-state",
        "every entry is applied once",
        "etcd #13766: apply index and state were not saved together",
        (
            replace(
                NODE,
                "SnapshotKeeper.applied",
                "_1 = self._machine.capture(_2.index, _2.term)",
                "index = _2.index - 1\n_1 = self._machine.capture(index, self._core.term_at(index) or _2.term)",
            ),
        ),
    ),
    Planted(
        "snapshot-lacks-the-registrations",
        "members hold the same state",
        "KAFKA-13357: a record missing from the snapshot",
        (replace(STATE, "capture", "self.brokers.all()", "[]"),),
    ),
    Planted(
        "served-from-unapplied-state",
        "a leader decides on everything before it",
        "raftos 0.2.6, defect A",
        (
            _UNSETTLED,
            replace(RAFT, "serving", "self.leadership is not None and _", "self.leadership is not None"),
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
            replace(NODE, "_busy", "return _", "return False"),
        ),
        (_DECIDER,),
    ),
    Planted(
        "answered-at-propose",
        "nothing acknowledged is lost",
        "etcd #20418 and every lease-based allocator: a stale leader answers",
        (insert_after(NODE, "Decider.decide", "self._in_flight = _", "_release_all(batch.outcomes)"),),
    ),
    Planted(
        "answer-keyed-by-index-alone",
        "an answer rests on its own entry",
        "raftos 0.2.6: any apply resolves the one future; dissertation, section 6.2",
        (
            replace(NODE, "Proposals.applied", "same = (_1.term, _1.index) == _", "same = _1.index == entry.index"),
            _STAYS,
        ),
        (_DECIDER,),
    ),
    Planted(
        "records-of-another-entry-applied",
        "members hold the same state",
        "decoding saved by index alone",
        (
            replace(NODE, "records_of", "_1 if _.term == _.term else None", "_1"),
            _STAYS,
        ),
        (_DECIDER,),
    ),
    Planted(
        "broker-epoch-not-checked",
        "a superseded broker gets no block",
        "KIP-730: STALE_BROKER_EPOCH left out",
        (
            delete(STATE, "allocate_producer_ids", "_.check_broker(...)"),
            replace(
                STATE,
                "StateMachine._hand_out",
                "_1 is not None and _1.broker_epoch == _",
                "_1 is None or _1.broker_epoch >= 0",
            ),
        ),
        (_STATE + "test_machine.py",),
    ),
    Planted(
        "broker-epoch-checked-against-applied-state-alone",
        "decisions see the ones before them in their batch",
        "KAFKA-14694's class: checked before, changed since",
        (delete(STATE, "broker", "if _ in self._brokers:"),),
        (_STATE + "test_machine.py",),
    ),
    Planted(
        "superseded-incarnation-let-back",
        "two processes with one broker id do not take it from each other for ever",
        "KIP-631: DUPLICATE_BROKER_REGISTRATION left out",
        (replace(STATE, "register_broker", "_ is not None and _ in _.superseded", "False"),),
        (_STATE + "test_machine.py",),
        unseen="two agents then take turns, and each of their blocks is still their own",
    ),
    Planted(
        "floor-lowered",
        "no ID twice",
        "Redpanda #9555; ZooKeeper migration writing an old block",
        (
            replace(STATE, "raise_floor", "_1 = _.at_least > _.next_producer_id", "_1 = True"),
            replace(
                STATE,
                "replay_jump",
                "_1.next_producer_id > self.next_producer_id",
                "_1.next_producer_id >= 0",
            ),
        ),
        (_STATE + "test_machine.py",),
    ),
    Planted(
        "block-overlaps-by-one",
        "no ID twice",
        "KAFKA-15552's class: the inclusive end taken for the next ID",
        (
            replace(STATE, "allocate_producer_ids", "_1.next_producer_id = _2", "_1.next_producer_id = _2 - 1"),
            replace(STATE, "replay_allocation", "last + 1", "last"),
        ),
    ),
    Planted(
        "exhaustion-not-noticed",
        "the ID space ends with an error",
        "KIP-730: next > 2^63-1-1000 is refused",
        (replace(STATE, "check_block_left", "_1 > MAX_PRODUCER_ID - _", "_1 < 0"),),
        (_STATE + "test_producer_ids.py", _STATE + "test_machine.py"),
    ),
    Planted(
        "history-loses-the-last-row-of-a-snapshot",
        "every block has an owner on record",
        "KAFKA-13357's class: a record left out where the log is cut",
        (replace(NODE, "archive", "self._position(_1)", "max(0, self._position(_1) - 1)"),),
    ),
)
