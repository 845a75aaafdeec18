"""What one batch may do, given what is known of its producer (`ProducerAppendInfo` in Kafka). Functions only."""

from __future__ import annotations

from pidkeeper.broker_agent.producer_state.batches import (
    BATCHES_TO_RETAIN,
    NO_COORDINATOR_EPOCH,
    AppendOrigin,
    BatchMetadata,
    ControlBatch,
    DataBatch,
    Duplicate,
    EndTxnMarker,
    ProducerStateEntry,
    RefusalCode,
    Refused,
    sequence_after,
)


def find_duplicate(entry: ProducerStateEntry | None, batch: DataBatch) -> Duplicate | None:
    """The retained batch of the same epoch with exactly the same sequences; a part of one is no duplicate."""
    if entry is None or entry.producer_epoch != batch.producer_epoch:
        return None
    for known in entry.batches:
        if known.first_sequence == batch.first_sequence and known.last_sequence == batch.last_sequence:
            return Duplicate(known.first_offset, known.last_offset, known.timestamp)
    return None


def refuse_data(
    entry: ProducerStateEntry | None,
    batch: DataBatch,
    origin: AppendOrigin,
    transaction_version: int,
    lowest_sequence: int | None,
) -> Refused | None:
    """Why the batch must not be written, or None. `lowest_sequence` is that of the verification, if there is one."""
    if origin is AppendOrigin.REPLICATION:
        return None
    if entry is not None and batch.producer_epoch < entry.producer_epoch:
        return _old_epoch(batch, entry)
    if origin is AppendOrigin.CLIENT:
        refused = _refuse_sequence(entry, batch, transaction_version, lowest_sequence)
        if refused is not None:
            return refused
    if entry is not None and entry.txn_first_offset is not None and not batch.transactional:
        return Refused(
            RefusalCode.INVALID_TXN_STATE,
            f"producer {batch.producer_id} has a transaction open since offset {entry.txn_first_offset}: "
            "end it before writing outside of it",
        )
    return None


def _refuse_sequence(
    entry: ProducerStateEntry | None, batch: DataBatch, transaction_version: int, lowest_sequence: int | None
) -> Refused | None:
    first = batch.first_sequence
    if lowest_sequence is not None and first > lowest_sequence:
        return _out_of_order(batch, f"sequence {lowest_sequence} is still to come")
    if entry is None:
        # Before transaction version 2 a producer without state may be one whose state was lost: any sequence will do.
        if transaction_version >= 2 and batch.transactional and first != 0:
            return _out_of_order(batch, "nothing is known of it, so 0 is expected")
    elif batch.producer_epoch > entry.producer_epoch:
        if first != 0:
            return _out_of_order(batch, f"0 is expected after epoch {entry.producer_epoch}")
    elif first != sequence_after(entry.last_sequence, 1):
        return _out_of_order(batch, f"{sequence_after(entry.last_sequence, 1)} is expected")
    return None


def refuse_marker(
    entry: ProducerStateEntry | None,
    batch: ControlBatch,
    marker: EndTxnMarker,
    origin: AppendOrigin,
    transaction_version: int,
) -> Refused | None:
    """Why the marker must not be written, or None.

    With transaction version 2 the coordinator raises the epoch before it ends a transaction, so a marker that does not
    do so is a late one (KIP-890); with no transaction open it repeats one already written and does no harm.
    """
    if origin is AppendOrigin.REPLICATION or entry is None:
        return None
    late = transaction_version >= 2 and entry.txn_first_offset is not None
    if batch.producer_epoch < entry.producer_epoch + late:
        return _old_epoch(batch, entry)
    if marker.coordinator_epoch < entry.coordinator_epoch:
        return Refused(
            RefusalCode.TRANSACTION_COORDINATOR_FENCED,
            f"coordinator epoch {marker.coordinator_epoch} is older than {entry.coordinator_epoch}, the last one that "
            f"ended a transaction of producer {batch.producer_id}",
        )
    return None


def after_data(entry: ProducerStateEntry | None, batch: DataBatch) -> ProducerStateEntry:
    """The producer's state behind the batch. Another epoch, also an older one from the leader, starts afresh."""
    known = entry.batches if entry is not None and entry.producer_epoch == batch.producer_epoch else ()
    added = BatchMetadata(batch.first_sequence, batch.last_sequence, batch.last_offset, batch.timestamp)
    txn_first_offset = None if entry is None else entry.txn_first_offset
    if txn_first_offset is None and batch.transactional:
        txn_first_offset = batch.first_offset
    return ProducerStateEntry(
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        coordinator_epoch=NO_COORDINATOR_EPOCH if entry is None else entry.coordinator_epoch,
        last_timestamp=batch.timestamp,
        txn_first_offset=txn_first_offset,
        batches=(*known[-(BATCHES_TO_RETAIN - 1) :], added),
    )


def after_marker(entry: ProducerStateEntry | None, batch: ControlBatch, marker: EndTxnMarker) -> ProducerStateEntry:
    """The producer's state behind the marker: no transaction, and its batches only if the epoch is still theirs."""
    return ProducerStateEntry(
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        coordinator_epoch=marker.coordinator_epoch,
        last_timestamp=batch.timestamp,
        txn_first_offset=None,
        batches=entry.batches if entry is not None and entry.producer_epoch == batch.producer_epoch else (),
    )


def _old_epoch(batch: DataBatch | ControlBatch, entry: ProducerStateEntry) -> Refused:
    return Refused(
        RefusalCode.INVALID_PRODUCER_EPOCH,
        f"epoch {batch.producer_epoch} of producer {batch.producer_id} is fenced by {entry.producer_epoch}",
    )


def _out_of_order(batch: DataBatch, why: str) -> Refused:
    return Refused(
        RefusalCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        f"sequence {batch.first_sequence} of producer {batch.producer_id} in epoch {batch.producer_epoch}: {why}",
    )
