"""Which producer IDs are still free: one integer, the next ID (KIP-730, "Controller").

The state keeps the *next* ID, never "the last block": copying a block where the next ID was meant is how Kafka once
handed out IDs twice (KAFKA-15552).
"""

from __future__ import annotations

from pidkeeper.protocol.errors import ErrorCode, RequestError
from pidkeeper.protocol.founding import SuccessionRecord
from pidkeeper.protocol.ids import MAX_FLOOR_JUMP, MAX_PRODUCER_ID, OWN
from pidkeeper.protocol.migration import ZooKeeperBlockRecord
from pidkeeper.protocol.records import AllocateProducerIdsRecord, ProducerIdFloorRecord
from pidkeeper.protocol.transactions import TransactionalBlockRecord
from pidkeeper.snapshots.image import LastBlock


class ProducerIdsState:
    """The next producer ID, and the latest block for snapshots."""

    __slots__ = ("last_block", "next_producer_id")

    def __init__(self, next_producer_id: int = 0, last_block: LastBlock | None = None) -> None:
        self.next_producer_id = next_producer_id
        self.last_block = last_block

    def replay_allocation(self, record: AllocateProducerIdsRecord, offset: int) -> None:
        """Take the record's block out of the free IDs. A block that does not start at the next ID stops the process."""
        first, last = record.producer_id_start, record.producer_id_start + record.length - 1
        assert first == self.next_producer_id, (
            f"S1: offset {offset} allocates from {first}, but the next producer ID is {self.next_producer_id}"
        )
        assert last == record.producer_id_end < MAX_PRODUCER_ID, (
            f"S2: offset {offset} ends at {record.producer_id_end}, but its block ends at {last}"
        )
        self.next_producer_id = last + 1
        self.last_block = LastBlock(
            first, record.length, record.broker_id, record.broker_epoch, offset, record.timestamp_ms
        )

    def replay_own_block(self, record: TransactionalBlockRecord, offset: int) -> None:
        """As `replay_allocation`, of a block that the quorum takes for its transactional producers."""
        first, last = record.producer_id_start, record.producer_id_end
        assert first == self.next_producer_id, (
            f"S1: offset {offset} takes a block from {first}, but the next producer ID is {self.next_producer_id}"
        )
        assert first <= last < MAX_PRODUCER_ID, f"S2: offset {offset} takes a block that ends at {last}"
        self.next_producer_id = last + 1
        self.last_block = LastBlock(first, last - first + 1, OWN, OWN, offset, record.timestamp_ms)

    def replay_jump(self, record: ProducerIdFloorRecord | ZooKeeperBlockRecord, offset: int) -> None:
        """Jump ahead, over IDs that nobody gets or that ZooKeeper's brokers have; nothing else leaves a gap."""
        assert record.next_producer_id > self.next_producer_id, (
            f"S3: offset {offset} lowers the next producer ID from {self.next_producer_id} to {record.next_producer_id}"
        )
        self.next_producer_id = record.next_producer_id

    def replay_succession(self, record: SuccessionRecord) -> None:
        """Go to the floor above all that the predecessor handed out; a quorum that is there already goes nowhere."""
        self.next_producer_id = max(self.next_producer_id, record.floor)


def check_block_left(next_producer_id: int, block_size: int) -> None:
    """Raise PRODUCER_IDS_EXHAUSTED unless a whole block fits below 2^63-1. There is no remainder block, as in Kafka."""
    if next_producer_id > MAX_PRODUCER_ID - block_size:
        raise RequestError(
            ErrorCode.PRODUCER_IDS_EXHAUSTED,
            f"the next producer ID is {next_producer_id}: no block of {block_size} is left below {MAX_PRODUCER_ID}",
        )


def check_floor(next_producer_id: int, at_least: int, block_size: int, *, forced: bool) -> None:
    """Raise INVALID_REQUEST for a floor that would leave no block at all, or that is far above without `forced`."""
    if at_least <= next_producer_id:
        return
    if at_least > MAX_PRODUCER_ID - block_size:
        raise RequestError(
            ErrorCode.INVALID_REQUEST,
            f"a floor of {at_least} would leave no block of {block_size} below {MAX_PRODUCER_ID}: nothing was changed",
        )
    if at_least - next_producer_id > MAX_FLOOR_JUMP and not forced:
        raise RequestError(
            ErrorCode.INVALID_REQUEST,
            f"from {next_producer_id} to {at_least} would skip more than {MAX_FLOOR_JUMP} IDs for ever: nothing was "
            "changed; if that is what you mean, force it, with the operators' token where a quorum is asked",
        )
