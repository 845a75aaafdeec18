"""What must hold of ZooKeeper and the quorum together, looked at from outside with a parser of its own.

- no claim covers a floor that must be refused;
- no two blocks overlap, whether the quorum committed them or an old broker's write was acknowledged;
- nothing is handed out in a claiming phase that was not claimed, by a write whose acknowledgement the leader had;
- the end of the znode's block never falls, but where the migration is rolled back;
- whoever rolls back sets the znode to exactly the next free ID: no gap stays that no committed block, floor, block of
  an old broker, or claim of which the znode has the end alone explains;
- nothing is handed back to ZooKeeper while a broker's evidence is open, nor below a floor;
- what ends a pausing phase was done before; behind FINALIZED nothing is ever written to the znode;
- while a broker is registered in ZooKeeper, the end begins only if an operator forced it, and then it is not refused.
"""

from __future__ import annotations

import bisect
import functools
import json
from typing import TYPE_CHECKING, Final

from pidkeeper.controller.migration.zookeeper import BROKERS_PATH, Znode
from pidkeeper.protocol.errors import RequestError
from pidkeeper.protocol.founding import EvidenceDismissedRecord, EvidenceRecord
from pidkeeper.protocol.ids import DEFAULT_BLOCK_SIZE, MAX_FLOOR_JUMP, MAX_PRODUCER_ID
from pidkeeper.protocol.messages import RaiseFloorResponse
from pidkeeper.protocol.migration import CLAIMING, PAUSED, MigrationPhase, MigrationRecord, ZooKeeperBlockRecord
from pidkeeper.protocol.records import AllocateProducerIdsRecord, ProducerIdFloorRecord, Record
from pidkeeper.protocol.transactions import TransactionalBlockRecord
from tests.simulation.history import Operation
from tests.simulation.world import Violation, World
from tests.simulation.zookeeper import Write, ZooKeeper

if TYPE_CHECKING:
    from tests.simulation.process import Process

_CONTROLLER: Final = -1

_MOST_BLOCKS: Final = 4096 * DEFAULT_BLOCK_SIZE
"""IDs in the blocks of one claim: more than any is made for."""


class Block:
    """A block in the znode."""

    __slots__ = ("claimed_by", "first", "last")

    def __init__(self, data: bytes) -> None:
        fields = json.loads(data)
        self.first, self.last = int(fields["block_start"]), int(fields["block_end"])
        self.claimed_by = fields.get("claimed_by") if fields["broker"] == _CONTROLLER else None

    @property
    def sealed(self) -> bool:
        """Whether it leaves nothing to anybody."""
        return self.last == MAX_PRODUCER_ID


@functools.lru_cache(maxsize=1024)
def _block(data: bytes) -> Block:
    """The block in `data`. The same few are looked at with every proposal."""
    return Block(data)


def end_of(data: bytes | None) -> int:
    """The ID after the znode's block."""
    return 0 if data is None else _block(data).last + 1


LONGEST_ZNODE_BLOCK: Final = 2**31 - 1
"""Kafka's brokers read its length as an int."""


def is_whole(block: Block) -> bool:
    """Whether the znode has all of a claim. Of a longer one it has the end alone."""
    return block.last - block.first + 1 < LONGEST_ZNODE_BLOCK


HANDING_BACK: Final = {MigrationPhase.ROLLING_BACK, MigrationPhase.ROLLED_BACK}


class MigrationMonitor:
    """Watches the znode and the committed records. Raises Violation in the event in which a promise was broken.

    `phases`: the committed phases, each with the time when it was first applied.
    """

    def __init__(self, world: World, zookeeper: ZooKeeper) -> None:
        self.world = world
        self.zookeeper = zookeeper
        self.phases: list[tuple[int, MigrationPhase]] = [(0, MigrationPhase.NONE)]
        self.name: str | None = None
        self.blocks_of_brokers: list[tuple[int, int]] = []
        """(asked at, first ID) of every acknowledged block."""
        self.floors: set[int] = set()
        """Committed while ZooKeeper counted."""
        self._starts: list[int] = []
        self._owned: dict[int, tuple[int, str]] = {}
        self._claims: list[tuple[int, int]] = []
        self._quorum_next = 0
        """Behind everything that the quorum handed out or skipped on demand."""
        self._skipped = 0
        """Below it, a rollback could not tell what a claim had replaced."""
        self._log_next = 0
        """As the log says, with what it took over from ZooKeeper."""
        self.brokers_next = end_of(zookeeper.znode.data)
        """Behind everything that was written for others than this quorum."""
        self.forced = 0
        """The highest floor that an operator asked for by force."""
        self._brokers_next_at = {0: self.brokers_next}
        self._pausing: MigrationRecord | None = None
        self._paused_at = 0
        """`_quorum_next` then: a floor that a rollback waits for may be committed while its write is under way."""
        self._set_back_version = -1
        self._set_back_to = 0
        self._evidence: dict[int, int] = {}
        """What brokers say that they hold and nobody has dismissed, by broker."""
        self._finalizing: list[tuple[Process, int, bool]] = []
        """Orders under way: at which member, since when, and whether forced."""
        if zookeeper.znode.data is not None:
            first = _block(zookeeper.znode.data).first
            self._own(first, self.brokers_next - 1, "somebody before")

    @property
    def phase(self) -> MigrationPhase:
        """The newest committed one."""
        return self.phases[-1][1]

    @property
    def finalized(self) -> bool:
        """Whether the migration is over for good."""
        return self.phase is MigrationPhase.FINALIZED

    # The znode.

    def written(self, wanted: Write, before: Znode, after: Znode) -> None:
        """ZooKeeper took a write."""
        if self.finalized:
            raise Violation("written-after-finalized", f"{wanted} replaces {before}")
        if end_of(after.data) < end_of(before.data) and wanted.kind != "set_back":
            raise Violation("block-end-lowered", f"{wanted} replaces {before}")
        if wanted.node is None:
            self.brokers_next = max(self.brokers_next, end_of(after.data))
        elif wanted.kind == "set_back":
            self._check_set_back(wanted, before)
        elif wanted.kind == "seal":
            self._check_seal(wanted)
        elif wanted.kind == "start":
            if after.data != before.data:
                raise Violation("changed-before-start", f"{wanted} replaces {before}")
        else:
            self._check_claim(wanted, before)
        self._brokers_next_at[after.version] = self.brokers_next

    def _check_claim(self, wanted: Write, before: Znode) -> None:
        if wanted.data is None or wanted.kind != "claim":
            raise Violation("strange-write", f"{wanted}")
        block = _block(wanted.data)
        if block.first < self.brokers_next or block.sealed or block.claimed_by != self.name:
            raise Violation("claim", f"{wanted} by {self.name}, but others have what is below {self.brokers_next}")
        self._check_size(wanted, block)
        self._claims.append((block.first if is_whole(block) else end_of(before.data), block.last))

    def _check_size(self, wanted: Write, block: Block) -> None:
        """What ZooKeeper has taken cannot be taken back, so a claim covers nothing that would be refused."""
        claimed = self._claims[-1][1] if self._claims else 0
        most = max(self._log_next + MAX_FLOOR_JUMP, self.forced, self.brokers_next, claimed) + _MOST_BLOCKS
        if block.last >= most:
            raise Violation("ids-burnt", f"{wanted}: the log is at {self._log_next}, {self.forced} was forced")

    def _check_set_back(self, wanted: Write, before: Znode) -> None:
        self._skipped = max(self._skipped, self._unknown_below(before))
        others = max(self.brokers_next, self._skipped)
        self._set_back_to = end_of(wanted.data)
        if self._set_back_to not in {max(self._quorum_next, others), max(self._paused_at, others)}:
            facts = f"{wanted} replaces {before}: next is {self._set_back_to}"
            raise Violation("set-back", f"{facts}, not the highest of {self._quorum_next} and {others}")
        self._set_back_version = before.version

    def _unknown_below(self, znode: Znode) -> int:
        """Where a claim of this quorum starts of which the znode has the end alone: what it replaced, nobody can tell.

        It was made for a floor that was not committed.
        """
        block = None if znode.data is None else _block(znode.data)
        return 0 if block is None or block.claimed_by != self.name or is_whole(block) else block.first

    def _check_seal(self, wanted: Write) -> None:
        block = None if wanted.data is None else _block(wanted.data)
        if block is None or not block.sealed or block.claimed_by != self.name:
            raise Violation("seal", f"{wanted} is no seal of {self.name}")
        if self._log_next < self.brokers_next:
            raise Violation("sealed-too-early", f"{wanted}: others have {self.brokers_next - 1}, not in the log")

    def given(self, broker_id: int, first: int, last: int, asked: int) -> None:
        """An old broker has the acknowledgement of its block."""
        self._own(first, last, f"old broker {broker_id}")
        self.blocks_of_brokers.append((asked, first))

    def exhausted(self, data: bytes) -> None:
        """An old broker finds nothing left, and stops."""
        near_the_end = self.forced >= MAX_PRODUCER_ID - MAX_FLOOR_JUMP
        if not (_block(data).sealed or near_the_end):
            raise Violation("exhausted", f"an old broker stops at {data!r}")

    # The log.

    def proposed(self, process: Process, records: list[Record]) -> None:
        """A leader proposes: whatever it hands out is covered by what was answered to it."""
        phase = process.storage.machine.migration.phase
        for record in records:
            if isinstance(record, MigrationRecord):
                if phase is MigrationPhase.DUAL_WRITE and record.phase is MigrationPhase.FINALIZING:
                    self._check_vacant(process)
                phase = record.phase
            elif isinstance(record, AllocateProducerIdsRecord | TransactionalBlockRecord) and phase in CLAIMING:
                first, last = record.producer_id_start, record.producer_id_end
                claims = [block for block in map(_block, process.seen_of_znode()) if block.claimed_by == self.name]
                # Where a claim begins of which the znode has the end alone is known when it is committed.
                if not any((block.first <= first or not is_whole(block)) and last <= block.last for block in claims):
                    raise Violation("proposed-unclaimed", f"member {process.node_id} proposes {record} in {phase.name}")

    def finalize_ordered(self, process: Process, forced: bool) -> None:
        """An operator orders a member to finalise."""
        self._finalizing.append((process, self.world.now, forced))

    def finalize_answered(self, process: Process, asked: int, forced: bool, refusal: RequestError | None) -> None:
        """The member answers that order."""
        self._finalizing.remove((process, asked, forced))
        if refusal is None or BROKERS_PATH not in refusal.detail:
            return
        if forced:
            raise Violation("refused-by-force", f"member {process.node_id}, forced to finalise, refuses: {refusal}")
        self.world.fault("finalize_refused_over_brokers")

    def _check_vacant(self, process: Process) -> None:
        orders = [(asked, forced) for member, asked, forced in self._finalizing if member is process]
        if not any(forced or self.zookeeper.vacant_since(asked) for asked, forced in orders):
            brokers = self.zookeeper.brokers()
            raise Violation("finalized-over-brokers", f"member {process.node_id} finalises over {brokers} for {orders}")

    def committed(self, records: list[Record]) -> None:
        """The next entry was applied for the first time."""
        for record in records:
            if isinstance(record, AllocateProducerIdsRecord | TransactionalBlockRecord):
                self._allocated(record)
            elif isinstance(record, ProducerIdFloorRecord):
                self._quorum_next = self._log_next = record.next_producer_id
                if self.phase in CLAIMING:
                    self.floors.add(record.next_producer_id)
            elif isinstance(record, ZooKeeperBlockRecord):
                self._log_next = record.next_producer_id
            elif isinstance(record, EvidenceRecord):
                self._evidence[record.broker_id] = record.highest_producer_id
            elif isinstance(record, EvidenceDismissedRecord):
                del self._evidence[record.broker_id]
            elif isinstance(record, MigrationRecord):
                self._entered(record)

    def _allocated(self, record: AllocateProducerIdsRecord | TransactionalBlockRecord) -> None:
        first, last = record.producer_id_start, record.producer_id_end
        if self.phase in PAUSED or self.phase is MigrationPhase.NONE:
            raise Violation("allocated-in-a-pause", f"{record} is committed in {self.phase.name}")
        if self.phase in CLAIMING and not any(low <= first and last <= high for low, high in self._claims):
            raise Violation("unclaimed", f"{record} is committed in {self.phase.name}, and was never claimed")
        self._own(first, last, f"the quorum's broker {record.broker_id}")
        self._quorum_next = self._log_next = last + 1

    def _entered(self, record: MigrationRecord) -> None:
        phase = record.phase
        self.name = record.claimed_by
        if record.znode_version >= 0 and self._log_next < self._brokers_next_at[record.znode_version]:
            others = self._brokers_next_at[record.znode_version] - 1
            raise Violation("not-taken-over", f"{record}: the log is at {self._log_next}, others have {others}")
        if phase is MigrationPhase.DUAL_WRITE and record.znode_version < 0:
            raise Violation("not-taken-over", f"{record} rests on no look at the znode")
        if phase in HANDING_BACK and (held := max(self._evidence.values(), default=-1)) >= self._log_next:
            raise Violation("rolled-back-over-evidence", f"{record}, but {held} is held and {self._log_next} is next")
        if phase in PAUSED:
            self._pausing, self._paused_at = record, self._quorum_next
        elif phase is MigrationPhase.FINALIZED:
            block = None if self.zookeeper.znode.data is None else _block(self.zookeeper.znode.data)
            if block is None or not block.sealed or block.claimed_by != self.name:
                raise Violation("finalized-unsealed", f"the znode is {self.zookeeper.znode}")
        elif phase is MigrationPhase.ROLLED_BACK:
            assert self._pausing is not None, "ROLLED_BACK came without ROLLING_BACK"
            if self._pausing.znode_version < 0 or self._set_back_version != self._pausing.znode_version:
                facts = f"{self._pausing} was last, version {self._set_back_version} was set back"
                raise Violation("rolled-back-unset", facts)
            if self._set_back_to < self._quorum_next:
                facts = f"ZooKeeper was set back to {self._set_back_to}, the quorum is at {self._quorum_next}"
                raise Violation("rolled-back-below", facts)
        self.phases.append((self.world.now, phase))

    # Everything together.

    def _own(self, first: int, last: int, owner: str) -> None:
        position = bisect.bisect_right(self._starts, last)
        if position:
            start = self._starts[position - 1]
            end, other = self._owned[start]
            if end >= first:
                raise Violation("two-owners", f"{first} to {last} of {owner}, {start} to {end} of {other}")
        self._starts.insert(position, first)
        self._owned[first] = (last, owner)

    def check_phase(self, asked: int, answered: int, phase: MigrationPhase) -> None:
        """An answer to an order names a phase that was in force meanwhile."""
        entered = [time for time, _ in self.phases]
        since = max(0, bisect.bisect_left(entered, asked) - 1)
        found = self.phases[since : bisect.bisect_right(entered, answered)]
        if phase not in {one for _, one in found}:
            raise Violation("phase-answer", f"{phase.name} is answered, in force were {found}")

    def check_floors(self, operations: list[Operation]) -> None:
        """Old brokers keep above the floors that were acknowledged while ZooKeeper counted."""
        acknowledged = sorted(
            (operation.returned, operation.answer.next_producer_id)
            for operation in operations
            if operation.returned is not None
            and isinstance(operation.answer, RaiseFloorResponse)
            and operation.answer.raised
            and operation.answer.next_producer_id in self.floors
        )
        floor, position = 0, 0
        for asked, first in sorted(self.blocks_of_brokers):
            while position < len(acknowledged) and acknowledged[position][0] < asked:
                floor = max(floor, acknowledged[position][1])
                position += 1
            if first < floor:
                raise Violation("below-the-floor", f"an old broker is given {first} at {asked}, below {floor}")
