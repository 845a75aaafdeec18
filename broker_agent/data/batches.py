"""What one partition of a Produce request may hold: one record batch that a producer may write. Pure.

As Kafka's LogValidator and ProduceRequest.validateRecords have it, for magic 2 and CreateTime alone.
"""

from __future__ import annotations

from typing import Final

import msgspec

from pidkeeper.broker_agent.data.codes import (
    INVALID_TIMESTAMP,
    MESSAGE_TOO_LARGE,
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
)
from pidkeeper.broker_agent.kafka.wire.data.frames import Buffer
from pidkeeper.broker_agent.kafka.wire.data.record_batch import (
    INVALID_RECORD,
    BatchError,
    BatchHeader,
    TimestampType,
    check_crc,
    read_batch_header,
)
from pidkeeper.protocol.log_messages import OfferedBatch

NOT_IDEMPOTENT: Final = (-1, -1, -1)


class NewBatch(msgspec.Struct, frozen=True, gc=False):
    """A batch that wants to join a log: its bytes, and what its header tells.

    `joining_id`: the transactional id whose transaction its partition joins with it, None if it has to have before.
    """

    log: int
    data: bytes
    header: BatchHeader
    joining_id: str | None = None

    def offered(self, position: int) -> OfferedBatch:
        """As the quorum is told of it, at `position` of its object."""
        header = self.header
        producer = (header.producer_id, header.producer_epoch, header.base_sequence)
        return OfferedBatch(
            self.log,
            header.records_count,
            position,
            len(self.data),
            # aiokafka writes a sequence of 0 where it has no producer id.
            *(producer if header.producer_id >= 0 else NOT_IDEMPOTENT),
            header.max_timestamp,
            header.is_transactional,
        )


def checked_batch(
    records: Buffer | None, log: int, *, max_bytes: int, transactional: bool, joining_id: str | None = None
) -> NewBatch:
    """The one batch that `records` is, for `log`. `transactional`: whether the request has a transactional id.
    `joining_id`: as of NewBatch, if the batch is a transaction's.

    Raises BatchError with Kafka's code for what may not be appended. The bytes of a view are copied: it would keep more
    in memory.
    """
    if not records:
        raise BatchError(INVALID_RECORD, "there is no record batch, and exactly one is taken")
    header = read_batch_header(records)
    if (size := header.size) < len(records):
        raise BatchError(INVALID_RECORD, f"exactly one record batch is taken, and another begins at {size}")
    if size > max_bytes:
        raise BatchError(MESSAGE_TOO_LARGE, f"the batch has {size} bytes, and at most {max_bytes} are taken")
    check_crc(records, header)
    if not header.is_plain:
        _check_kind(header, transactional=transactional)
    _check_producer(header)
    joins = joining_id is not None and header.is_transactional
    return NewBatch(log, bytes(records), header, joining_id if joins else None)


def _check_kind(header: BatchHeader, *, transactional: bool) -> None:
    if header.is_control:
        raise BatchError(INVALID_RECORD, "clients may not write control batches")
    if header.timestamp_type is not TimestampType.CREATE_TIME:
        raise BatchError(INVALID_TIMESTAMP, "a producer may not set the timestamp type LogAppendTime")
    if header.is_transactional and not transactional:
        raise BatchError(
            TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "a transactional batch came in a request without transactional id"
        )


def _check_producer(header: BatchHeader) -> None:
    if header.producer_id < 0:
        # As Kafka, which looks at epoch and sequence only beside a producer id.
        if header.is_transactional:
            raise BatchError(INVALID_RECORD, "a transactional batch has no producer id")
    elif header.producer_epoch < 0 or header.base_sequence < 0:
        raise BatchError(
            INVALID_RECORD,
            f"a batch of producer id {header.producer_id} has epoch {header.producer_epoch} and sequence "
            f"{header.base_sequence}",
        )
