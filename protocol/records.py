"""The records of the replicated log and their encoding (KIP-730, "Public Interfaces").

A log entry holds a batch of records, encoded as one msgpack array of `[type, version, fields]` triples. The log holds
outcomes, never requests: replaying a record needs no decision. Records are numbered through the log by offset, the
leader-change record included.

Type numbers and the order of fields are on disk: add a version, never change one.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Final

import msgspec

from pidkeeper.protocol.founding import EvidenceDismissedRecord, EvidenceRecord, FoundingRecord, SuccessionRecord
from pidkeeper.protocol.groups import GroupRecord, OffsetsRecord, RemoveGroupRecord, RemoveOffsetsRecord
from pidkeeper.protocol.ids import MAX_BROKER_ID, MAX_PRODUCER_ID, ProducerIdBlock
from pidkeeper.protocol.logs import (
    BrokerStoreRecord,
    ObjectRecord,
    ObjectsDeletedRecord,
    ProducersExpiredRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from pidkeeper.protocol.metadata_version import (
    ADDED_PARTITIONS,
    BASE,
    FOUNDING,
    GROUPS,
    MEMBERSHIP,
    MIGRATION,
    PARTITION_LOGS,
    SEGMENTS,
    SUCCESSION,
    TRANSACTIONAL_BLOCKS,
    TRANSACTIONS,
    MetadataVersion,
)
from pidkeeper.protocol.migration import MigrationRecord, ZooKeeperBlockRecord
from pidkeeper.protocol.segments import CollectionReleasedRecord, LogStartsRecord, SegmentRecord
from pidkeeper.protocol.transactions import (
    AddPartitionsRecord,
    ForgetTransactionRecord,
    TransactionalBlockRecord,
    TransactionRecord,
)

MAX_BATCH_RECORDS: Final = 4096
"""Records in one log entry. The leader never gathers more; a larger array is refused before memory is taken."""

MAX_INCARNATION_LENGTH: Final = 64
"""Characters in an incarnation id: a UUID takes 36."""

MAX_MEMBERS: Final = 9
"""Members of a quorum, learners included: seven voters survive three failures, and two more may be moving in."""

MAX_PEER_LENGTH: Final = 264
"""Characters in a peer address: a DNS name takes at most 253, a port 5."""

MAX_URL_LENGTH: Final = 512
"""Characters in a base URL: a DNS name, a scheme, a port and a path prefix."""

BrokerId = Annotated[int, msgspec.Meta(ge=0, le=MAX_BROKER_ID)]
Offset = Annotated[int, msgspec.Meta(ge=0)]
ProducerId = Annotated[int, msgspec.Meta(ge=0, le=MAX_PRODUCER_ID)]
MemberId = Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]
DirectoryId = Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
PeerAddress = Annotated[str, msgspec.Meta(max_length=MAX_PEER_LENGTH)]
BaseUrl = Annotated[str, msgspec.Meta(max_length=MAX_URL_LENGTH)]
IncarnationId = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_INCARNATION_LENGTH)]


class RecordError(ValueError):
    """A batch of records cannot be decoded: malformed, or of a type or version that this build does not know."""


class LeaderChangeRecord(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The no-op that a new leader commits before it serves anything (Raft, section 8). Field: `leader_id`."""

    TYPE: ClassVar[int] = 1
    VERSION: ClassVar[int] = 0
    leader_id: Annotated[int, msgspec.Meta(ge=0)]


class AllocateProducerIdsRecord(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A block was given to a broker.

    The first three fields are KIP-730's; `producer_id_end` is inclusive. The last three are for audits only:
    `producer_id_start`, `length` in IDs, `timestamp_ms` of the leader's wall clock since the epoch.
    """

    TYPE: ClassVar[int] = 2
    VERSION: ClassVar[int] = 0
    broker_id: BrokerId
    broker_epoch: Offset
    producer_id_end: ProducerId
    producer_id_start: ProducerId
    length: Annotated[int, msgspec.Meta(ge=1)]
    timestamp_ms: int

    @property
    def block(self) -> ProducerIdBlock:
        """The block as a value. Raises ValueError if the fields do not make one."""
        return ProducerIdBlock(self.producer_id_start, self.length)


class RegisterBrokerRecord(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A broker incarnation registered; `broker_epoch` is this record's own offset, from which older ones are stale."""

    TYPE: ClassVar[int] = 3
    VERSION: ClassVar[int] = 0
    broker_id: BrokerId
    broker_epoch: Offset
    incarnation_id: IncarnationId


class UnregisterBrokerRecord(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A broker's registration ended."""

    TYPE: ClassVar[int] = 4
    VERSION: ClassVar[int] = 0
    broker_id: BrokerId
    broker_epoch: Offset


class BrokerRegistrationChangeRecord(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A registered broker was fenced (its heartbeats stopped) or unfenced (they came back)."""

    TYPE: ClassVar[int] = 5
    VERSION: ClassVar[int] = 0
    broker_id: BrokerId
    broker_epoch: Offset
    fenced: bool


class ProducerIdFloorRecord(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """An operator raised the next producer ID to `next_producer_id`; the IDs in between are never handed out."""

    TYPE: ClassVar[int] = 6
    VERSION: ClassVar[int] = 0
    next_producer_id: ProducerId
    timestamp_ms: int


class QuorumMember(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """One member of the quorum (KIP-853: a replica is its id and its directory's uuid).

    `directory_id`: null where nobody named it. `peer`: host:port of its peer links. `http`: the base URL of its HTTP
    interface. `voting`: false for a learner, which replicates and counts in no majority.
    """

    id: MemberId
    directory_id: DirectoryId | None
    peer: PeerAddress
    http: BaseUrl
    voting: bool


class BrokerEndpointRecord(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Where Kafka clients reach a registered broker; `kafka` is host:port."""

    TYPE: ClassVar[int] = 11
    VERSION: ClassVar[int] = 0
    broker_id: BrokerId
    broker_epoch: Offset
    kafka: PeerAddress


class FeatureLevelRecord(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """From this record on the log may hold what `metadata_version` brings (KIP-584, "FeatureLevelRecord")."""

    TYPE: ClassVar[int] = 8
    VERSION: ClassVar[int] = 0
    metadata_version: MetadataVersion


class VotersRecord(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The members of the quorum from this record on (Raft dissertation, section 4.1); `members` ascend by id.

    It takes effect when it is appended, not when it is committed. So it stands alone in its entry, where the consensus
    core finds it by the entry's first bytes. Raises ValueError without a voter, or if an id stands there twice.
    """

    TYPE: ClassVar[int] = 7
    VERSION: ClassVar[int] = 0
    members: Annotated[tuple[QuorumMember, ...], msgspec.Meta(min_length=1, max_length=MAX_MEMBERS)]

    def __post_init__(self) -> None:
        ids = [member.id for member in self.members]
        if any(one >= other for one, other in itertools.pairwise(ids)):
            raise ValueError(f"members {ids} do not ascend by id")
        if not any(member.voting for member in self.members):
            raise ValueError(f"none of the members {ids} votes")


Record = (
    LeaderChangeRecord
    | AllocateProducerIdsRecord
    | RegisterBrokerRecord
    | UnregisterBrokerRecord
    | BrokerRegistrationChangeRecord
    | ProducerIdFloorRecord
    | VotersRecord
    | FeatureLevelRecord
    | TransactionRecord
    | ForgetTransactionRecord
    | BrokerEndpointRecord
    | MigrationRecord
    | ZooKeeperBlockRecord
    | AddPartitionsRecord
    | TransactionalBlockRecord
    | FoundingRecord
    | EvidenceRecord
    | EvidenceDismissedRecord
    | SuccessionRecord
    | BrokerStoreRecord
    | TopicRecord
    | RemoveTopicRecord
    | ObjectRecord
    | ProducersExpiredRecord
    | ObjectsDeletedRecord
    | SegmentRecord
    | LogStartsRecord
    | CollectionReleasedRecord
    | GroupRecord
    | RemoveGroupRecord
    | OffsetsRecord
    | RemoveOffsetsRecord
)

_RECORD_CLASSES: Final[tuple[type[Any], ...]] = (
    LeaderChangeRecord,
    AllocateProducerIdsRecord,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
    BrokerRegistrationChangeRecord,
    ProducerIdFloorRecord,
    VotersRecord,
    FeatureLevelRecord,
    TransactionRecord,
    ForgetTransactionRecord,
    BrokerEndpointRecord,
    MigrationRecord,
    ZooKeeperBlockRecord,
    AddPartitionsRecord,
    TransactionalBlockRecord,
    FoundingRecord,
    EvidenceRecord,
    EvidenceDismissedRecord,
    SuccessionRecord,
    BrokerStoreRecord,
    TopicRecord,
    RemoveTopicRecord,
    ObjectRecord,
    ProducersExpiredRecord,
    ObjectsDeletedRecord,
    SegmentRecord,
    LogStartsRecord,
    CollectionReleasedRecord,
    GroupRecord,
    RemoveGroupRecord,
    OffsetsRecord,
    RemoveOffsetsRecord,
)
_DECODERS: Final = {(cls.TYPE, cls.VERSION): msgspec.msgpack.Decoder(cls) for cls in _RECORD_CLASSES}
_NAMES: Final = {cls.TYPE: cls.__name__ for cls in _RECORD_CLASSES}
_BATCH_DECODER: Final = msgspec.msgpack.Decoder(
    Annotated[list[tuple[int, int, msgspec.Raw]], msgspec.Meta(min_length=1, max_length=MAX_BATCH_RECORDS)]
)
_ENCODER: Final = msgspec.msgpack.Encoder()
_NEEDED: Final[dict[type[Any], int]] = {
    VotersRecord: MEMBERSHIP,
    TransactionRecord: TRANSACTIONS,
    ForgetTransactionRecord: TRANSACTIONS,
    BrokerEndpointRecord: TRANSACTIONS,
    MigrationRecord: MIGRATION,
    ZooKeeperBlockRecord: MIGRATION,
    AddPartitionsRecord: ADDED_PARTITIONS,
    TransactionalBlockRecord: TRANSACTIONAL_BLOCKS,
    FoundingRecord: FOUNDING,
    EvidenceRecord: FOUNDING,
    EvidenceDismissedRecord: FOUNDING,
    SuccessionRecord: SUCCESSION,
    BrokerStoreRecord: PARTITION_LOGS,
    TopicRecord: PARTITION_LOGS,
    RemoveTopicRecord: PARTITION_LOGS,
    ObjectRecord: PARTITION_LOGS,
    ProducersExpiredRecord: PARTITION_LOGS,
    ObjectsDeletedRecord: PARTITION_LOGS,
    SegmentRecord: SEGMENTS,
    LogStartsRecord: SEGMENTS,
    CollectionReleasedRecord: SEGMENTS,
    GroupRecord: GROUPS,
    RemoveGroupRecord: GROUPS,
    OffsetsRecord: GROUPS,
    RemoveOffsetsRecord: GROUPS,
}
_VOTERS_PREFIX: Final = bytes([0x91, 0x93, VotersRecord.TYPE])
"""A msgpack array of one item, which is an array of three, which starts with the type."""

_LEADER_CHANGE_PREFIX: Final = bytes([0x91, 0x93, LeaderChangeRecord.TYPE])
"""As above."""


def needed_version(record: Record) -> int:
    """The oldest metadata version whose logs may hold `record`."""
    return _NEEDED.get(type(record), BASE)


def encode_batch(records: Sequence[Record]) -> bytes:
    """Encode 1 to MAX_BATCH_RECORDS records as the payload of one log entry. Raises RecordError outside of that."""
    if not 1 <= len(records) <= MAX_BATCH_RECORDS:
        raise RecordError(f"a batch holds 1 to {MAX_BATCH_RECORDS} records, not {len(records)}")
    _check_alone(records)
    return _ENCODER.encode([(record.TYPE, record.VERSION, record) for record in records])


def decode_batch(payload: bytes) -> list[Record]:
    """Decode the payload of one log entry.

    Raises RecordError when it is malformed, and by name when a record's type or version is unknown: a member that
    cannot replay a record must stop rather than skip it.
    """
    try:
        triples = _BATCH_DECODER.decode(payload)
    except (msgspec.DecodeError, RecursionError) as error:
        raise RecordError(f"malformed record batch: {error}") from error
    records = [_decode_record(*triple) for triple in triples]
    _check_alone(records)
    if isinstance(records[0], VotersRecord) and not payload.startswith(_VOTERS_PREFIX):
        # The consensus core would pass over it, and count by other voters than the next snapshot says.
        raise RecordError("malformed record batch: a VotersRecord in another encoding than the shortest")
    return records


def read_voters(payload: bytes) -> VotersRecord | None:
    """The configuration in the payload of one log entry, or None if it is of another kind. Raises RecordError.

    Called for every entry of the log, so another kind is told by the first three bytes.
    """
    if not payload.startswith(_VOTERS_PREFIX):
        return None
    (record,) = decode_batch(payload)
    assert isinstance(record, VotersRecord), f"{record} has the type number of a VotersRecord"
    return record


def read_leader(payload: bytes) -> int | None:
    """The leader whose first entry has this payload, or None if it is of another kind. Raises RecordError."""
    if not payload.startswith(_LEADER_CHANGE_PREFIX):
        return None
    (record,) = decode_batch(payload)
    assert isinstance(record, LeaderChangeRecord), f"{record} has the type number of a LeaderChangeRecord"
    return record.leader_id


def _check_alone(records: Sequence[Record]) -> None:
    if len(records) > 1 and VotersRecord in map(type, records):
        raise RecordError(f"a VotersRecord stands alone in its batch, not among {len(records)} records")


def _decode_record(record_type: int, version: int, fields: msgspec.Raw) -> Record:
    decoder = _DECODERS.get((record_type, version))
    if decoder is None:
        if (name := _NAMES.get(record_type)) is None:
            raise RecordError(f"unknown record type {record_type} (version {version}): upgrade this member")
        raise RecordError(f"unknown version {version} of {name}: upgrade this member")
    try:
        record: Record = decoder.decode(fields)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RecordError(f"malformed {_NAMES[record_type]} version {version}: {error}") from error
    return record
