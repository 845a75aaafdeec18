"""Bugs in the migration from ZooKeeper: in claims, in the leader's steps, in what is committed about them."""

from __future__ import annotations

from typing import Final

from tests.mutants.edits import define_after, delete, insert_before, replace
from tests.mutants.planted import Planted

MIGRATION: Final = "controller/migration"
STATE: Final = "controller/state"
_ANSWERS: Final = "tests/simulation/test_migration_answers.py"
_EVIDENCE: Final = "tests/unit/controller/migration/test_evidence.py"
_ORDERS: Final = "tests/unit/controller/migration/test_orders.py"
_SAME_BLOCKS: Final = "no block goes to both worlds"


MIGRATION_BUGS: Final = (
    Planted(
        "claims-from-the-brokers-last-id",
        _SAME_BLOCKS,
        "KAFKA-15552: the last ID of ZooKeeper's block instead of the one after it",
        (replace(MIGRATION, "next_free", "_1.last + 1", "_1.last"),),
    ),
    Planted(
        "claims-from-the-brokers-first-id",
        _SAME_BLOCKS,
        "KAFKA-15552: the current block where the next one was meant",
        (replace(MIGRATION, "next_free", "_1.last + 1", "_1.first"),),
    ),
    Planted(
        "imports-the-brokers-first-id",
        "all of ZooKeeper's blocks are in the log when dual writing begins",
        "KAFKA-15552: the migration copied the first ID of the current block",
        (replace(MIGRATION, "_advance", "next_free(_1, _, _2)", "max(_2, 0 if _1 is None else _1.first)"),),
    ),
    Planted(
        "import-without-the-next-id",
        "all of ZooKeeper's blocks are in the log when dual writing begins",
        "KAFKA-15552's class: the records of ZooKeeper were left out",
        (replace(STATE, "advance", "_1.zookeeper_next >= 0", "_1.zookeeper_next >= 0 > draft.next_producer_id"),),
    ),
    Planted(
        "import-skipped",
        "all of ZooKeeper's blocks are in the log when dual writing begins",
        "KIP-866: the migration begins before the records of ZooKeeper are copied",
        (
            replace(
                MIGRATION,
                "_go_on",
                "self._advance(_1, MigrationPhase.DUAL_WRITE, ...)",
                "self._finish(_1, MigrationPhase.DUAL_WRITE)",
            ),
        ),
    ),
    Planted(
        "version-read-again-at-the-write",
        _SAME_BLOCKS,
        "KIP-730: the write of a claim is conditional on what was read",
        (
            replace(
                MIGRATION,
                "_claim",
                "self._znode.write(_1, _, _2)",
                "done = _2\n"
                "self._znode.read(\n"
                "    lambda now: done(now) if isinstance(now, Failure) else self._znode.write(_1, now.version, done)\n"
                ")",
            ),
        ),
    ),
    Planted(
        "proposed-before-the-claim-is-acknowledged",
        "no ID is handed out before its claim was acknowledged",
        "KIP-730: the block is handed out once ZooKeeper has taken it",
        (
            replace(
                MIGRATION,
                "_claim",
                "self._znode.write(_1, _2, partial(_, _, _3, _4))",
                "self._hand_over(_3, _4)\nself._known = None\nself._znode.write(_1, _2, lambda _: None)",
            ),
        ),
    ),
    Planted(
        "unknown-outcome-taken-for-success",
        "no ID is handed out before its claim was acknowledged",
        "Zookeeper programmers' guide: after a lost connection nobody knows whether a write happened",
        (
            replace(
                MIGRATION,
                "ClaimQueue._written",
                "self._fail(_1)",
                "if _1.cause is Cause.UNAVAILABLE:\n"
                "    self._known = None\n"
                "    self._hand_over(requests, claimed)\n"
                "else:\n"
                "    self._fail(_1)",
            ),
        ),
    ),
    Planted(
        "conflict-settled-by-equal-content",
        _SAME_BLOCKS,
        "Kafka until 2021: after BADVERSION a znode with the data of the own write passed for the own write",
        (
            replace(
                MIGRATION,
                "ClaimQueue._written",
                "self._known = None\nself._begin(_1)",
                "self._znode.read(partial(self._compared, _1, requests, claimed))",
            ),
            define_after(
                MIGRATION,
                "ClaimQueue._written",
                "def _compared(self, leadership: int, requests: int, claimed: Any, outcome: Any) -> None:\n"
                "    if leadership != self._leadership:\n"
                "        return\n"
                "    block = None if isinstance(outcome, Failure) else parse(outcome.data)\n"
                "    self._known = None\n"
                "    if block is not None and (block.first, block.last + 1) == (claimed.first, claimed.end):\n"
                "        self._hand_over(requests, claimed)\n"
                "    else:\n"
                "        self._begin(leadership)",
            ),
        ),
    ),
    Planted(
        "sealed-without-taking-over-what-was-read",
        "all of ZooKeeper's blocks are in the log when the znode is sealed",
        "KIP-866: the znode is shut before everything in it is in the log",
        (replace(MIGRATION, "_go_on", "self._advance(..., partial(self._seal, _1))", "self._seal(_1)"),),
    ),
    Planted(
        "sealed-unconditionally",
        "all of ZooKeeper's blocks are in the log when the znode is sealed",
        "KIP-730: writes of the znode are conditional",
        (
            replace(
                MIGRATION,
                "_seal",
                "self._write(_1, _, _2)",
                "data = _1\n"
                "self._znode.read(\n"
                "    lambda now: self._write(data, now, _2) if isinstance(now, Znode) else self._stuck('')\n"
                ")",
            ),
        ),
    ),
    Planted(
        "finalized-unsealed",
        "no old broker is given a block once the migration is final",
        "KIP-866: a broker left behind in ZooKeeper's mode goes on by itself",
        (
            replace(
                MIGRATION,
                "_go_on",
                "self._advance(_1, _2, _3, _4, partial(self._seal, _))",
                "finish = partial(self._finish, _1, MigrationPhase.FINALIZED)\nself._advance(_1, _2, _3, _4, finish)",
            ),
        ),
    ),
    Planted(
        "finalized-though-the-outcome-of-the-seal-is-unknown",
        "no old broker is given a block once the migration is final",
        "Zookeeper programmers' guide: after a lost connection nobody knows whether a write happened",
        (
            replace(
                MIGRATION,
                "MigrationSteps._written",
                "isinstance(_1, Znode)",
                "isinstance(_1, Znode) or _1.cause is Cause.UNAVAILABLE",
            ),
        ),
    ),
    Planted(
        "finalized-over-brokers-that-live",
        "no broker is left without IDs unless an operator forces it",
        "KIP-866: the migration begins only when the brokers are ready for it",
        (replace(MIGRATION, "why_not_seal", "not brokers.ids", "brokers"),),
    ),
    Planted(
        "brokers-that-nobody-can-list-taken-for-none",
        "no broker is left without IDs unless an operator forces it",
        "an error that is taken for an empty answer",
        (
            insert_before(
                MIGRATION, "why_not_seal", "if isinstance(_1, Failure):", "if isinstance(_1, Failure):\n    return None"
            ),
        ),
        (_ORDERS,),
    ),
    Planted(
        "force-not-heeded",
        "an operator who forces the end is obeyed",
        "a guard that cannot be overruled is an outage of its own",
        (replace(MIGRATION, "_read_for_seal", "_1 is None and not _", "_1 is None"),),
    ),
    Planted(
        "brokers-not-looked-for-during-the-import",
        "no broker is left without IDs unless an operator forces it",
        "the simulator: an order that was given in IMPORT was decided in DUAL_WRITE, and nobody had looked",
        (replace(MIGRATION, "MigrationOrders.order", "_1 in LOOKING_FIRST", "_1 is MigrationPhase.DUAL_WRITE"),),
        (_ORDERS,),
    ),
    Planted(
        "set-back-without-a-commit-behind-the-read",
        "a rollback takes back no block that was handed out",
        "Raft paper, section 8: a leader may have been deposed without knowing it",
        (
            replace(
                MIGRATION, "_go_on", "self._advance(..., partial(self._set_back, _1, _2))", "self._set_back(_1, _2)"
            ),
        ),
    ),
    Planted(
        "set-back-left-out-where-nothing-changes",
        "no older write lands in ZooKeeper once it was rolled back",
        "HBASE-9360's class: a write from before is still under way",
        (
            insert_before(
                MIGRATION,
                "_set_back",
                "if _1 == 0:",
                "if _1 == (0 if block is None else block.last + 1):\n"
                "    self._finish(MigrationPhase.ROLLING_BACK, MigrationPhase.ROLLED_BACK, _1)\n"
                "    return",
            ),
        ),
    ),
    Planted(
        "set-back-a-block-too-far",
        "a rollback leaves no gap",
        "Kafka: going back to ZooKeeper starts behind the block that was not given out yet, a gap of 1000",
        (
            replace(
                MIGRATION,
                "_set_back",
                "next_free(_1, _2, _3)",
                "next_free(_1, _2, _3) + self._machine.block_size",
            ),
        ),
    ),
    Planted(
        "rolled-back-to-the-claim",
        "a rollback leaves no gap",
        "Kafka: what a dead controller had claimed stays lost",
        (replace(MIGRATION, "_set_back", "next_free(_1, _, _2)", "max(_2, 0 if _1 is None else _1.last + 1)"),),
    ),
    Planted(
        "rolled-back-over-evidence",
        "nobody hands out while a broker holds what was not handed out here",
        "a rollback that ZooKeeper delays: what an agent says meanwhile is not heard",
        (
            replace(MIGRATION, "_kept_back", "return True", "return False"),
            delete(MIGRATION, "_kept_back", "self._stuck(_)"),
            replace(STATE, "advance", "draft.check_handing_out()", "pass"),
        ),
        (_EVIDENCE,),
    ),
    Planted(
        "rolled-back-below-a-floor",
        "ZooKeeper's brokers begin above all that was handed out",
        "the floor is raised after ZooKeeper was set back, and before that is committed",
        (replace(STATE, "advance", "_1 and _2 < _3", "False"),),
        (_EVIDENCE,),
    ),
    Planted(
        "no-floor-during-a-rollback",
        "an operator can settle evidence",
        "a quorum that waits for a floor that it refuses",
        (replace(STATE, "_rollback_waits", "return _", "return False"),),
        (_EVIDENCE,),
    ),
    Planted(
        "claims-of-another-quorum-taken-over",
        _SAME_BLOCKS,
        "a quorum that was made anew under an old cluster id",
        (replace(MIGRATION, "next_free", "_1.claimed_by is None or _", "_1.claimed_by is None"),),
    ),
    Planted(
        "leftover-taken-over-from-a-brokers-block",
        _SAME_BLOCKS,
        "a broker that writes back the keys it read has copied the name",
        (replace(MIGRATION, "_claimant", "_ != CONTROLLER or _1 or _2", "_1 or _2"),),
    ),
    Planted(
        "claim-lowers-the-znode",
        "the znode's end never falls but in a rollback",
        "a deposed leader claims below the blocks of its successor",
        (
            replace(MIGRATION, "_claim", "_1 if _ or _ else _", "_1"),
            delete(MIGRATION, "_claim", "assert _ is None or _, _"),
        ),
    ),
    Planted(
        "claim-outlives-a-rollback",
        _SAME_BLOCKS,
        "a leader that stays over a rollback hands out what was left of its claim",
        (replace(MIGRATION, "_same_phase", "return _", "return True"),),
        (_ANSWERS,),
    ),
    Planted(
        "allocation-in-a-pause",
        "nothing is handed out while the znode is sealed or set back",
        "KIP-866: the controller handed out IDs during the migration of its metadata",
        (
            replace(
                STATE,
                "take_claim",
                "self.phase in PAUSED",
                "self.phase in PAUSED and self.phase is not self.phase",
            ),
            replace(STATE, "check_allocation", "self.phase not in PAUSED", "self.record"),
        ),
    ),
    Planted(
        "claim-outlives-its-phase",
        _SAME_BLOCKS,
        "a rollback has given the rest of the claim back to the brokers of ZooKeeper",
        (
            replace(STATE, "take_claim", "_1 or _.begun_in is not self.migration or _2", "_1 or _2"),
            replace(MIGRATION, "ClaimQueue._begin", "self._begun_in, self._known = _1, None", "self._begun_in = _1"),
        ),
    ),
    Planted(
        "handed-out-unclaimed",
        "nothing is handed out that was not claimed",
        "KIP-730: the block is handed out once ZooKeeper has taken it",
        (
            insert_before(STATE, "take_claim", "if _1 is None or _ or _:", "if _1 is None:\n    return"),
            replace(STATE, "take_claim", "_ is None or _1 or _2", "_1 or _2"),
            replace(MIGRATION, "claim_for", "self.claims.add(_)", "None"),
        ),
    ),
    Planted(
        "deposed-leader-goes-on",
        "a new leadership begins with a new look at the znode",
        "Raft paper, section 8: a leader may have been deposed without knowing it",
        (replace(MIGRATION, "Migration.deposed", "self.claims.deposed()\nself.steps.deposed()", "return"),),
        (_ANSWERS,),
    ),
    Planted(
        "cached-znode-kept-after-a-failure",
        "a claim is written over what was read",
        "Kafka: BADVERSION for ever, as what is cached is never read again",
        (
            delete(MIGRATION, "ClaimQueue._written", "self._known = None"),
            delete(MIGRATION, "_fail", "self._known = None"),
        ),
    ),
    Planted(
        "snapshot-lacks-the-migration",
        "members hold the same state",
        "KAFKA-13357: a record missing from the snapshot",
        (replace(STATE, "capture", "self.migration.record", "None"),),
    ),
    Planted(
        "restore-forgets-the-migration",
        "members hold the same state",
        "KAFKA-13357's class: a section of the snapshot is not read",
        (replace(STATE, "StateMachine.restore", "MigrationState(_)", "MigrationState()"),),
    ),
    Planted(
        "bridge-begun-after-blocks-were-handed-out",
        _SAME_BLOCKS,
        "KIP-866: a cluster that has allocated by itself cannot begin in ZooKeeper",
        (replace(MIGRATION, "claim_for", "isinstance(_, AllocateProducerIds)", "False", occurrence=2),),
    ),
)
