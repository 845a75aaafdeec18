"""The records of the replicated log and their encoding (KIP-730, "Public Interfaces").

A log entry holds a batch of records, encoded as one msgpack array of `[type, version, fields]` triples. The log holds
outcomes, never requests: replaying a record needs no decision. Records are numbered through the log by offset, the
leader-change record included.

Type numbers and the order of fields are on disk: add a version, never change one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Final

import msgspec

from protocol.ids import MAX_BROKER_ID, MAX_PRODUCER_ID, ProducerIdBlock

MAX_BATCH_RECORDS: Final = 4096
"""Records in one log entry. The leader never gathers more; a larger array is refused before memory is taken."""

MAX_INCARNATION_LENGTH: Final = 64
"""Characters in an incarnation id: a UUID takes 36."""

BrokerId = Annotated[int, msgspec.Meta(ge=0, le=MAX_BROKER_ID)]
Offset = Annotated[int, msgspec.Meta(ge=0)]
ProducerId = Annotated[int, msgspec.Meta(ge=0, le=MAX_PRODUCER_ID)]
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


Record = (
    LeaderChangeRecord
    | AllocateProducerIdsRecord
    | RegisterBrokerRecord
    | UnregisterBrokerRecord
    | BrokerRegistrationChangeRecord
    | ProducerIdFloorRecord
)

_RECORD_CLASSES: Final[tuple[type[Any], ...]] = (
    LeaderChangeRecord,
    AllocateProducerIdsRecord,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
    BrokerRegistrationChangeRecord,
    ProducerIdFloorRecord,
)
_DECODERS: Final = {(cls.TYPE, cls.VERSION): msgspec.msgpack.Decoder(cls) for cls in _RECORD_CLASSES}
_NAMES: Final = {cls.TYPE: cls.__name__ for cls in _RECORD_CLASSES}
_BATCH_DECODER: Final = msgspec.msgpack.Decoder(
    Annotated[list[tuple[int, int, msgspec.Raw]], msgspec.Meta(min_length=1, max_length=MAX_BATCH_RECORDS)]
)
_ENCODER: Final = msgspec.msgpack.Encoder()


def encode_batch(records: Sequence[Record]) -> bytes:
    """Encode 1 to MAX_BATCH_RECORDS records as the payload of one log entry. Raises RecordError outside of that."""
    if not 1 <= len(records) <= MAX_BATCH_RECORDS:
        raise RecordError(f"a batch holds 1 to {MAX_BATCH_RECORDS} records, not {len(records)}")
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
    return [_decode_record(*triple) for triple in triples]


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
