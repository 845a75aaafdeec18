"""Record batches as they come out of the log, and their replay."""

from __future__ import annotations

import uuid
from typing import Final

import msgspec
from msgspec.structs import replace

from pidkeeper.controller.state.machine import StateMachine, UnsupportedMetadataVersion
from pidkeeper.controller.state.migration import TRANSITIONS
from pidkeeper.protocol.founding import EvidenceDismissedRecord, EvidenceRecord, FoundingRecord, SuccessionRecord
from pidkeeper.protocol.metadata_version import ADDED_PARTITIONS, MIGRATION, SUCCESSION, TRANSACTIONAL_BLOCKS
from pidkeeper.protocol.migration import MigrationPhase, MigrationRecord, ZooKeeperBlockRecord
from pidkeeper.protocol.records import (
    AllocateProducerIdsRecord,
    BrokerRegistrationChangeRecord,
    FeatureLevelRecord,
    LeaderChangeRecord,
    ProducerIdFloorRecord,
    QuorumMember,
    Record,
    RecordError,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
    VotersRecord,
    decode_batch,
    encode_batch,
    read_voters,
)
from pidkeeper.protocol.transactions import (
    AddPartitionsRecord,
    ForgetTransactionRecord,
    TopicPartitions,
    TransactionalBlockRecord,
    TransactionRecord,
)
from tests.fuzz.mutator import Parts
from tests.fuzz.target import Target, Violation

RECORDS: Final[tuple[Record, ...]] = (
    LeaderChangeRecord(1),
    RegisterBrokerRecord(7, 2, "incarnation"),
    AllocateProducerIdsRecord(3, 1, 999, 0, 1000, 1_700_000_000_000),
    AllocateProducerIdsRecord(7, 2, 999, 0, 1000, -1),
    BrokerRegistrationChangeRecord(3, 1, True),
    UnregisterBrokerRecord(3, 1),
    ProducerIdFloorRecord(2**63 - 1, 2**63 - 1),
)

MIGRATED: Final[tuple[Record, ...]] = (
    FeatureLevelRecord(MIGRATION),
    *[
        MigrationRecord(phase, "pidkeeper/cluster-a/0", at - 1, 1_700_000_000_000)
        for at, phase in enumerate(
            (
                MigrationPhase.BRIDGE,
                MigrationPhase.IMPORT,
                MigrationPhase.DUAL_WRITE,
                MigrationPhase.FINALIZING,
                MigrationPhase.ROLLING_BACK,
                MigrationPhase.ROLLED_BACK,
            )
        )
    ],
    ZooKeeperBlockRecord(1000, -1, 2**31 - 1, 1_700_000_000_000),
    AllocateProducerIdsRecord(3, 1, 1999, 1000, 1000, 0),
)
"""A migration and its way back, which a state replays as it is."""

_BEGUN: Final = TransactionRecord("tx", 7, 0, -1, -1, 60_000, 0, 1_700_000_000_000)
_UNDER_WAY: Final = (TopicPartitions("t", (0, 1, 300)), TopicPartitions("u", (2**31 - 1,)))
TRANSACTED: Final[tuple[Record, ...]] = (
    FeatureLevelRecord(ADDED_PARTITIONS),
    AllocateProducerIdsRecord(3, 1, 999, 0, 1000, 0),
    _BEGUN,
    AddPartitionsRecord("tx", 7, 0, _UNDER_WAY[:1], 1),
    AddPartitionsRecord("tx", 7, 0, (TopicPartitions("t", (2,)), _UNDER_WAY[1]), -1),
    replace(_BEGUN, status=2, partitions=_UNDER_WAY, start_ms=1),
    replace(_BEGUN, status=4),
    replace(_BEGUN, producer_epoch=1, last_producer_id=7, last_producer_epoch=0),
    TransactionRecord("x" * 249, 8, 0, -1, -1, 1, 0, 2**63 - 1),
    ForgetTransactionRecord("tx"),
)
"""A transaction and the end of its id, which a state replays as it is."""

OWN: Final[tuple[Record, ...]] = (
    FeatureLevelRecord(TRANSACTIONAL_BLOCKS),
    TransactionalBlockRecord(0, 1, 1_700_000_000_000),
    TransactionRecord("tx", 0, 0, -1, -1, 60_000, 0, 1),
    TransactionalBlockRecord(2, 2**40, -1),
    TransactionRecord("ty", 1, 0, -1, -1, 60_000, 0, 1),
    ForgetTransactionRecord("tx"),
    TransactionRecord("tx", 2, 0, -1, -1, 60_000, 0, 1),
)
"""Producer IDs from the quorum's own blocks, which a state replays as it is."""

FOUNDED: Final[tuple[Record, ...]] = (
    FeatureLevelRecord(SUCCESSION),
    FoundingRecord(uuid.UUID(int=1), 1000, False, 1_700_000_000_000),
    TransactionalBlockRecord(0, 1, 0),
    EvidenceRecord(7, uuid.UUID(int=9), 2**40, -1),
    EvidenceDismissedRecord(7, 2),
    SuccessionRecord(uuid.UUID(int=2), uuid.UUID(int=1), 5000, 3),
    ProducerIdFloorRecord(2**50, 4),
    SuccessionRecord(uuid.UUID(int=2**128 - 1), uuid.UUID(int=2), 0, 5),
)
"""A founding, what a broker said, and two quorums that took its place, which a state replays as it is."""

VOTERS: Final = (
    VotersRecord((QuorumMember(1, None, "", "", True),)),
    VotersRecord(
        (
            QuorumMember(1, "directory-1", "127.0.0.1:9093", "http://127.0.0.1:8080", True),
            QuorumMember(2, None, "[::1]:9093", "http://[::1]:8080", False),
        )
    ),
    VotersRecord(tuple(QuorumMember(2**31 - 9 + at, "d" * 64, "p" * 264, "h" * 512, at % 2 == 0) for at in range(9))),
)
"""The smallest configuration, one with a learner, and one at the limits of its fields."""


class RecordTarget(Target):
    """`decode_batch` and `read_voters`, and replay by a state in which broker 3 is registered.

    Replay may stop by assertion. The consensus core must find exactly those configurations that the state replays.
    """

    name = "records"
    refusals = (RecordError, AssertionError, UnsupportedMetadataVersion)
    steps = 500
    steps_per_byte = 40

    def __init__(self) -> None:
        triples = [_triple(record) for record in RECORDS]
        self.corpus: list[Parts] = [
            *[(triple,) for triple in triples],
            *[(triples[at - 1], triples[at]) for at in range(len(triples))],
            tuple(triples),
            *[tuple(_triple(record) for record in MIGRATED[:count]) for count in range(1, len(MIGRATED) + 1)],
            *[tuple(_triple(record) for record in TRANSACTED[:count]) for count in range(1, len(TRANSACTED) + 1)],
            *[tuple(_triple(record) for record in OWN[:count]) for count in range(1, len(OWN) + 1)],
            *[tuple(_triple(record) for record in FOUNDED[:count]) for count in range(1, len(FOUNDED) + 1)],
            *[(_triple(record),) for record in VOTERS * 3],
            # The same value in more bytes than it needs: the type number, then the array around it.
            (b"\x93\xcc\x07\x00" + msgspec.msgpack.encode(VOTERS[0]),),
            (b"\xdc\x00\x03\x07\x00" + msgspec.msgpack.encode(VOTERS[0]),),
        ]

    def assemble(self, parts: Parts) -> bytes:
        """An array of encoded records."""
        head = bytes((0x90 | len(parts),)) if len(parts) < 16 else b"\xdc" + len(parts).to_bytes(2, "big")
        return head + b"".join(parts)

    def feed(self, data: bytes) -> None:
        found = read_voters(data)
        records = decode_batch(data)
        if ([] if found is None else [found]) != [record for record in records if isinstance(record, VotersRecord)]:
            raise Violation(f"the core finds {found} in {records}")
        if decode_batch(encode_batch(records)) != records:
            raise Violation(f"{records} changed when encoded again")
        machine = StateMachine("cluster-a")
        machine.replay((LeaderChangeRecord(1), RegisterBrokerRecord(3, 1, "one")))
        for record in records:
            _replay(machine, record)


def _triple(record: Record) -> bytes:
    return msgspec.msgpack.encode((record.TYPE, record.VERSION, record))


def _replay(machine: StateMachine, record: Record) -> None:
    before = machine.image(0, 0)
    try:
        machine.replay((record,))
    except AssertionError:
        if machine.image(0, 0) != before:
            raise Violation(f"{record} was refused and changed the state") from None
        raise
    if machine.voters != (record if isinstance(record, VotersRecord) else before.voters):
        raise Violation(f"{record} leaves the voters {machine.voters}")
    if machine.migration.record is not before.migration:
        phase = MigrationPhase.NONE if before.migration is None else before.migration.phase
        if machine.migration.record is not record or machine.migration.phase not in TRANSITIONS[phase]:
            raise Violation(f"{record} takes the migration from {before.migration} to {machine.migration.record}")
    if machine.producer_ids.next_producer_id < before.next_producer_id:
        raise Violation(f"{record} lowers the next producer ID")
