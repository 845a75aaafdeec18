"""The values that the producer state is made of, and the answers it gives. Pure: no clock, no I/O.

Times are milliseconds since 1970, offsets are those of the partition's log. Sequences count records, not batches, and
wrap to 0 after MAX_SEQUENCE, also within a batch (`DefaultRecordBatch.incrementSequence` in Kafka).
"""

from __future__ import annotations

import enum
from typing import Final, TypeAlias

import msgspec

from pidkeeper.protocol.ids import MAX_PRODUCER_ID

MAX_SEQUENCE: Final = 2**31 - 1
MAX_PRODUCER_EPOCH: Final = 2**15 - 1
MAX_COORDINATOR_EPOCH: Final = 2**31 - 1
MAX_OFFSET: Final = 2**63 - 2
"""The offset behind the last record must itself be an int64."""
MAX_TIMESTAMP: Final = 2**63 - 1

NO_SEQUENCE: Final = -1
"""Of a batch that a coordinator writes, and the last sequence of a producer that has no batch in its epoch."""
NO_COORDINATOR_EPOCH: Final = -1
NO_TIMESTAMP: Final = -1

BATCHES_TO_RETAIN: Final = 5
"""Kafka's `NUM_BATCHES_TO_RETAIN`: the most batches that an idempotent producer may have in flight."""


def sequence_after(sequence: int, records: int) -> int:
    """The sequence that lies `records` records behind `sequence`. NO_SEQUENCE and MAX_SEQUENCE are followed by 0."""
    return (sequence + records) % (MAX_SEQUENCE + 1)


class AppendOrigin(enum.Enum):
    """Who appends, and so what is checked (`AppendOrigin` in Kafka)."""

    CLIENT = "client"
    """A producer: everything is checked."""
    COORDINATOR = "coordinator"
    """A group or transaction coordinator: its batches have no sequences, the rest is checked."""
    REPLICATION = "replication"
    """The leader of the partition, or the own log at a replay: it was checked there, nothing is checked here."""


class DataBatch(msgspec.Struct, frozen=True):
    """A batch of records of one producer. Raises ValueError for numbers that no batch can have.

    Fields: `first_sequence` and `last_sequence`, both included, or both NO_SEQUENCE; `first_offset` and `last_offset`,
    both included; `timestamp`, ms, from which the expiry is counted: Kafka takes the highest of the records, a log
    that does not trust its clients' clocks gives the time of the append.
    """

    producer_id: int
    producer_epoch: int
    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int
    timestamp: int
    transactional: bool = False

    def __post_init__(self) -> None:
        check_range("producer id", self.producer_id, 0, MAX_PRODUCER_ID)
        check_range("producer epoch", self.producer_epoch, 0, MAX_PRODUCER_EPOCH)
        check_range("first offset", self.first_offset, 0, MAX_OFFSET)
        check_range("last offset", self.last_offset, self.first_offset, MAX_OFFSET)
        check_range("timestamp", self.timestamp, NO_TIMESTAMP, MAX_TIMESTAMP)
        if self.first_sequence == NO_SEQUENCE and self.last_sequence == NO_SEQUENCE:
            return
        check_range("first sequence", self.first_sequence, 0, MAX_SEQUENCE)
        steps = self.last_offset - self.first_offset
        if steps > MAX_SEQUENCE or self.last_sequence != sequence_after(self.first_sequence, steps):
            raise ValueError(
                f"{steps + 1} records from sequence {self.first_sequence} on do not end at {self.last_sequence}: "
                "the offsets and the sequences of a batch must count the same records"
            )


class EndTxnMarker(msgspec.Struct, frozen=True):
    """How a transaction ended, and the epoch of the coordinator that says so. Raises ValueError for a bad epoch."""

    committed: bool
    coordinator_epoch: int

    def __post_init__(self) -> None:
        check_range("coordinator epoch", self.coordinator_epoch, 0, MAX_COORDINATOR_EPOCH)


class ControlBatch(msgspec.Struct, frozen=True):
    """A control batch of one record, at `offset`; `marker` None where the cleaner has taken the record out.

    Raises ValueError for numbers that no batch can have.
    """

    producer_id: int
    producer_epoch: int
    offset: int
    timestamp: int
    marker: EndTxnMarker | None

    def __post_init__(self) -> None:
        check_range("producer id", self.producer_id, 0, MAX_PRODUCER_ID)
        check_range("producer epoch", self.producer_epoch, 0, MAX_PRODUCER_EPOCH)
        check_range("offset", self.offset, 0, MAX_OFFSET)
        check_range("timestamp", self.timestamp, NO_TIMESTAMP, MAX_TIMESTAMP)

    @property
    def first_offset(self) -> int:
        return self.offset

    @property
    def last_offset(self) -> int:
        return self.offset


Batch: TypeAlias = DataBatch | ControlBatch


class BatchMetadata(msgspec.Struct, frozen=True):
    """What is retained of a batch, to know it again."""

    first_sequence: int
    last_sequence: int
    last_offset: int
    timestamp: int

    @property
    def first_offset(self) -> int:
        """Offset of the first record. A batch without sequences, which nobody asks for again, counts as one record."""
        return self.last_offset - sequence_after(self.last_sequence, -self.first_sequence)


class ProducerStateEntry(msgspec.Struct, frozen=True):
    """What the partition knows of one producer (`ProducerStateEntry` in Kafka).

    Fields: `txn_first_offset`, where its open transaction starts, None without one; `batches`, the last
    BATCHES_TO_RETAIN of this epoch, oldest first.
    """

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    last_timestamp: int
    txn_first_offset: int | None
    batches: tuple[BatchMetadata, ...]

    @property
    def last_sequence(self) -> int:
        """The last sequence of the epoch, or NO_SEQUENCE when it has no batch yet."""
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    def is_expired(self, now_ms: int, expiration_ms: int) -> bool:
        """Never while a transaction is open: its end has to find it."""
        return self.txn_first_offset is None and now_ms - self.last_timestamp >= expiration_ms


class VerificationEntry(msgspec.Struct, frozen=True):
    """The lowest sequence seen of a producer while its transaction is verified (KIP-890); `timestamp`, ms."""

    producer_epoch: int
    lowest_sequence: int
    timestamp: int


class CompletedTransaction(msgspec.Struct, frozen=True):
    """A transaction from its first record to its marker.

    `last_stable_offset` is the partition's when the marker is written, before replication is thought of: what Kafka
    keeps in the transaction index.
    """

    producer_id: int
    first_offset: int
    last_offset: int
    committed: bool
    last_stable_offset: int


class RefusalCode(enum.IntEnum):
    """Kafka's names and codes (`org.apache.kafka.common.protocol.Errors`) for what is refused here.

    Not among them: 46 DUPLICATE_SEQUENCE_NUMBER, since a duplicate is a success, and 59 UNKNOWN_PRODUCER_ID, which
    Kafka no longer raises (KIP-360: a producer without state is a new one).
    """

    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TXN_STATE = 48
    TRANSACTION_COORDINATOR_FENCED = 52
    THROTTLING_QUOTA_EXCEEDED = 89
    """Kafka has no bound on its producers and never raises it here; its clients ask again."""


class Duplicate(msgspec.Struct, frozen=True):
    """The batch is in the log already, there: a success, and nothing must be written."""

    first_offset: int
    last_offset: int
    timestamp: int


class Refused(msgspec.Struct, frozen=True):
    """The batches must not be written. `detail` says what was wrong."""

    code: RefusalCode
    detail: str


class Completion(msgspec.Struct, frozen=True):
    """The end of a transaction that began at `first_offset`, by the marker at `last_offset`."""

    producer_id: int
    first_offset: int
    last_offset: int
    committed: bool


class New(msgspec.Struct, frozen=True):
    """The batches may be written. Nothing has changed yet: give it to `append` when they are in the log.

    Fields: `replaces`, the entries it was worked out from; `entries`, what they become, where one that is missing has
    to leave for a new producer; `started`, first offset and producer of each new transaction; `completed`;
    `first_offset` and `end_offset` of the run of batches.
    """

    replaces: dict[int, ProducerStateEntry | None]
    entries: dict[int, ProducerStateEntry]
    started: dict[int, int]
    completed: list[Completion]
    first_offset: int
    end_offset: int


Answer: TypeAlias = New | Duplicate | Refused


def check_range(name: str, value: int, low: int, high: int) -> None:
    """Raise ValueError unless `value` lies in `low` to `high`, both included."""
    if not low <= value <= high:
        raise ValueError(f"the {name} must lie in {low} to {high}, not {value}")
