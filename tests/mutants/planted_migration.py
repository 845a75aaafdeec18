"""Bugs in the migration from ZooKeeper: in claims, in the leader's steps, in what is committed about them."""

from __future__ import annotations

from typing import Final

from tests.mutants.planted import Edit, Planted, one

CLAIMS: Final = "controller/migration/claims.py"
STEPS: Final = "controller/migration/steps.py"
ZNODE: Final = "controller/migration/znode.py"
DECISIONS: Final = "controller/state/migration_decisions.py"
DRAFT: Final = "controller/state/draft.py"
MEMBER_SIDE: Final = "controller/migration/member_side.py"
_ANSWERS: Final = "tests/simulation/test_migration_answers.py"
_SAME_BLOCKS: Final = "no block goes to both worlds"

_WRITE: Final = (
    "        self._znode.write(data, before.version, partial(self._written, self._leadership, requests, claimed))\n"
)
_AFTER_A_BROKER: Final = "        return max(quorum_next, block.last + 1)\n    return quorum_next"
_SEAL_FIRST: Final = "            self._advance(phase, phase, znode, block, partial(self._seal, znode))\n"
_SET_BACK_FIRST: Final = (
    "            self._advance(phase, phase, znode, block, partial(self._set_back, znode, block))\n"
)
_FREE: Final = (
    "        free = next_free(block, self._machine.migration.claimed_by, self._machine.producer_ids.next_producer_id)\n"
)

MIGRATION: Final = (
    Planted(
        "claims-from-the-brokers-last-id",
        _SAME_BLOCKS,
        "KAFKA-15552: the last ID of ZooKeeper's block instead of the one after it",
        one(ZNODE, _AFTER_A_BROKER, "        return max(quorum_next, block.last)\n    return quorum_next"),
    ),
    Planted(
        "claims-from-the-brokers-first-id",
        _SAME_BLOCKS,
        "KAFKA-15552: the current block where the next one was meant",
        one(ZNODE, _AFTER_A_BROKER, "        return max(quorum_next, block.first)\n    return quorum_next"),
    ),
    Planted(
        "imports-the-brokers-first-id",
        "all of ZooKeeper's blocks are in the log when dual writing begins",
        "KAFKA-15552: the migration copied the first ID of the current block",
        one(
            STEPS,
            _FREE,
            "        free = max(self._machine.producer_ids.next_producer_id, 0 if block is None else block.first)\n",
        ),
    ),
    Planted(
        "import-without-the-next-id",
        "all of ZooKeeper's blocks are in the log when dual writing begins",
        "KAFKA-15552's class: the records of ZooKeeper were left out",
        one(
            DECISIONS,
            "    if request.zookeeper_next >= 0:\n",
            "    if request.zookeeper_next >= 0 > draft.next_producer_id:\n",
        ),
    ),
    Planted(
        "import-skipped",
        "all of ZooKeeper's blocks are in the log when dual writing begins",
        "KIP-866: the migration begins before the records of ZooKeeper are copied",
        one(
            STEPS,
            "            self._advance(phase, MigrationPhase.DUAL_WRITE, znode, block, self._settled)\n",
            "            self._finish(phase, MigrationPhase.DUAL_WRITE)\n",
        ),
    ),
    Planted(
        "version-read-again-at-the-write",
        _SAME_BLOCKS,
        "KIP-730: the write of a claim is conditional on what was read",
        one(
            CLAIMS,
            _WRITE,
            "        done = partial(self._written, self._leadership, requests, claimed)\n"
            "        self._znode.read(\n"
            "            lambda now: done(now) if isinstance(now, Failure) "
            "else self._znode.write(data, now.version, done)\n"
            "        )\n",
        ),
    ),
    Planted(
        "proposed-before-the-claim-is-acknowledged",
        "no ID is handed out before its claim was acknowledged",
        "KIP-730: the block is handed out once ZooKeeper has taken it",
        one(
            CLAIMS,
            _WRITE,
            "        self._hand_over(requests, claimed)\n"
            "        self._known = None\n"
            "        self._znode.write(data, before.version, lambda _: None)\n",
        ),
    ),
    Planted(
        "unknown-outcome-taken-for-success",
        "no ID is handed out before its claim was acknowledged",
        "Zookeeper programmers' guide: after a lost connection nobody knows whether a write happened",
        one(
            CLAIMS,
            "        else:\n            self._fail(outcome)\n\n    def _hand_over",
            "        elif outcome.cause is Cause.UNAVAILABLE:\n"
            "            self._known = None\n"
            "            self._hand_over(requests, claimed)\n"
            "        else:\n            self._fail(outcome)\n\n    def _hand_over",
        ),
    ),
    Planted(
        "conflict-settled-by-equal-content",
        _SAME_BLOCKS,
        "Kafka until 2021: after BADVERSION a znode with the data of the own write passed for the own write",
        (
            Edit(
                CLAIMS,
                "            self._known = None\n            self._begin(leadership)\n        else:\n",
                "            self._znode.read(partial(self._compared, leadership, requests, claimed))\n        else:\n",
            ),
            Edit(
                CLAIMS,
                "    def _hand_over(self,",
                "    def _compared(self, leadership: int, requests: int, claimed: Any, outcome: Any) -> None:\n"
                "        if leadership != self._leadership:\n"
                "            return\n"
                "        block = None if isinstance(outcome, Failure) else parse(outcome.data)\n"
                "        self._known = None\n"
                "        if block is not None and (block.first, block.last + 1) == (claimed.first, claimed.end):\n"
                "            self._hand_over(requests, claimed)\n"
                "        else:\n"
                "            self._begin(leadership)\n\n"
                "    def _hand_over(self,",
            ),
        ),
    ),
    Planted(
        "sealed-without-taking-over-what-was-read",
        "all of ZooKeeper's blocks are in the log when the znode is sealed",
        "KIP-866: the znode is shut before everything in it is in the log",
        one(STEPS, _SEAL_FIRST, "            self._seal(znode)\n"),
    ),
    Planted(
        "sealed-unconditionally",
        "all of ZooKeeper's blocks are in the log when the znode is sealed",
        "KIP-730: writes of the znode are conditional",
        one(
            STEPS,
            "        self._write(encode(seal(name)), znode, then)\n",
            "        data = encode(seal(name))\n"
            "        self._znode.read(\n"
            "            lambda now: self._write(data, now, then) if isinstance(now, Znode) else self._stuck('')\n"
            "        )\n",
        ),
    ),
    Planted(
        "finalized-unsealed",
        "no old broker is given a block once the migration is final",
        "KIP-866: a broker left behind in ZooKeeper's mode goes on by itself",
        one(
            STEPS,
            _SEAL_FIRST,
            "            finish = partial(self._finish, phase, MigrationPhase.FINALIZED)\n"
            "            self._advance(phase, phase, znode, block, finish)\n",
        ),
    ),
    Planted(
        "finalized-though-the-outcome-of-the-seal-is-unknown",
        "no old broker is given a block once the migration is final",
        "Zookeeper programmers' guide: after a lost connection nobody knows whether a write happened",
        one(
            STEPS,
            "        if isinstance(outcome, Znode):\n            then()\n",
            "        if isinstance(outcome, Znode) or outcome.cause is Cause.UNAVAILABLE:\n            then()\n",
        ),
    ),
    Planted(
        "set-back-without-a-commit-behind-the-read",
        "a rollback takes back no block that was handed out",
        "Raft paper, section 8: a leader may have been deposed without knowing it",
        one(STEPS, _SET_BACK_FIRST, "            self._set_back(znode, block)\n"),
    ),
    Planted(
        "set-back-left-out-where-nothing-changes",
        "no older write lands in ZooKeeper once it was rolled back",
        "HBASE-9360's class: a write from before is still under way",
        one(
            STEPS,
            "        data = znode.data\n        if free == 0:\n            data = None\n",
            "        data = znode.data\n"
            "        if free == (0 if block is None else block.last + 1):\n"
            "            self._finish(MigrationPhase.ROLLING_BACK, MigrationPhase.ROLLED_BACK)\n"
            "            return\n"
            "        if free == 0:\n            data = None\n",
        ),
    ),
    Planted(
        "set-back-a-block-too-far",
        "a rollback leaves no gap",
        "Kafka: going back to ZooKeeper starts behind the block that was not given out yet, a gap of 1000",
        one(
            STEPS,
            "        free = next_free(block, name, quorum_next)\n        data",
            "        free = next_free(block, name, quorum_next) + self._machine.block_size\n        data",
        ),
    ),
    Planted(
        "rolled-back-to-the-claim",
        "a rollback leaves no gap",
        "Kafka: what a dead controller had claimed stays lost",
        one(
            STEPS,
            "        free = next_free(block, name, quorum_next)\n        data = znode.data\n",
            "        free = max(quorum_next, 0 if block is None else block.last + 1)\n        data = znode.data\n",
        ),
    ),
    Planted(
        "claims-of-another-quorum-taken-over",
        _SAME_BLOCKS,
        "a quorum that was made anew under an old cluster id",
        one(
            ZNODE,
            "    if block.claimed_by is None or block.claimed_by != claimed_by:\n",
            "    if block.claimed_by is None:\n",
        ),
    ),
    Planted(
        "leftover-taken-over-from-a-brokers-block",
        _SAME_BLOCKS,
        "a broker that writes back the keys it read has copied the name",
        one(
            ZNODE,
            "    if broker_id != CONTROLLER or not isinstance(claimed_by, str) or",
            "    if not isinstance(claimed_by, str) or",
        ),
    ),
    Planted(
        "claim-lowers-the-znode",
        "the znode's end never falls but in a rollback",
        "a deposed leader claims below the blocks of its successor",
        (
            Edit(
                CLAIMS,
                "        held = first if block is None or block.claimed_by != name else max(first, block.last + 1)\n",
                "        held = first\n",
            ),
            Edit(
                CLAIMS,
                "        assert block is None or end - 1 > block.last, "
                'f"a claim up to {end - 1} would lower the znode from {block}"\n',
                "",
            ),
        ),
    ),
    Planted(
        "claim-outlives-a-rollback",
        _SAME_BLOCKS,
        "a leader that stays over a rollback hands out what was left of its claim",
        one(CLAIMS, "        return self._machine.migration.record is self._begun_in\n", "        return True\n"),
        (_ANSWERS,),
    ),
    Planted(
        "allocation-in-a-pause",
        "nothing is handed out while the znode is sealed or set back",
        "KIP-866: the controller handed out IDs during the migration of its metadata",
        (
            Edit(
                DRAFT,
                "        if self.phase in PAUSED:\n",
                "        if self.phase in PAUSED and self.phase is not self.phase:\n",
            ),
            Edit(
                "controller/state/migration.py",
                "        assert self.phase not in PAUSED, ",
                "        assert self.record, ",
            ),
        ),
    ),
    Planted(
        "claim-outlives-its-phase",
        _SAME_BLOCKS,
        "a rollback has given the rest of the claim back to the brokers of ZooKeeper",
        (
            Edit(DRAFT, "claimed.begun_in is not self.migration or ", ""),
            Edit(
                CLAIMS,
                "            self._begun_in, self._known = self._machine.migration.record, None\n",
                "            self._begun_in = self._machine.migration.record\n",
            ),
        ),
    ),
    Planted(
        "handed-out-unclaimed",
        "nothing is handed out that was not claimed",
        "KIP-730: the block is handed out once ZooKeeper has taken it",
        (
            Edit(
                DRAFT,
                "        if claimed is None or claimed.begun_in",
                "        if claimed is None:\n            return\n        if claimed.begun_in",
            ),
            Edit(
                MEMBER_SIDE,
                "            raise not_controller()\n        return self.claims.add(request)\n",
                "            raise not_controller()\n        return None\n",
            ),
        ),
    ),
    Planted(
        "deposed-leader-goes-on",
        "a new leadership begins with a new look at the znode",
        "Raft paper, section 8: a leader may have been deposed without knowing it",
        one(MEMBER_SIDE, "        self.claims.deposed()\n        self.steps.deposed()\n", "        return\n"),
        (_ANSWERS,),
    ),
    Planted(
        "cached-znode-kept-after-a-failure",
        "a claim is written over what was read",
        "Kafka: BADVERSION for ever, as what is cached is never read again",
        (
            Edit(
                CLAIMS,
                "            self._conflicts_in_a_row += 1\n            self._known = None\n",
                "            self._conflicts_in_a_row += 1\n",
            ),
            Edit(
                CLAIMS,
                "        self.trouble = failure.detail\n        self._known = None\n",
                "        self.trouble = failure.detail\n",
            ),
        ),
    ),
    Planted(
        "snapshot-lacks-the-migration",
        "members hold the same state",
        "KAFKA-13357: a record missing from the snapshot",
        one(
            "controller/state/machine.py",
            "            migration=self.migration.record,\n",
            "            migration=None,\n",
        ),
    ),
    Planted(
        "restore-forgets-the-migration",
        "members hold the same state",
        "KAFKA-13357's class: a section of the snapshot is not read",
        one(
            "controller/state/machine.py",
            "        self.migration = MigrationState(image.migration)\n",
            "        self.migration = MigrationState()\n",
        ),
    ),
    Planted(
        "bridge-begun-after-blocks-were-handed-out",
        _SAME_BLOCKS,
        "KIP-866: a cluster that has allocated by itself cannot begin in ZooKeeper",
        one(
            MEMBER_SIDE,
            "            if isinstance(request, AllocateProducerIds) and (reason := self._not_begun()) is not None:\n",
            "            if False and (reason := self._not_begun()) is not None:\n",
        ),
    ),
)
