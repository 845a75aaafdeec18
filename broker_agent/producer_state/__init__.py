"""The partition's side of Kafka's idempotent producer: which batches it holds, and which one may come next.

Pure: no clock, file, socket or event loop. Times come in as milliseconds since 1970.
"""

from pidkeeper.broker_agent.producer_state.batches import (
    Answer,
    AppendOrigin,
    Batch,
    BatchMetadata,
    CompletedTransaction,
    ControlBatch,
    DataBatch,
    Duplicate,
    EndTxnMarker,
    New,
    ProducerStateEntry,
    RefusalCode,
    Refused,
    VerificationEntry,
)
from pidkeeper.broker_agent.producer_state.manager import ProducerStateManager, Reloaded
from pidkeeper.broker_agent.producer_state.snapshot import ProducerSnapshotError

__all__ = [
    "Answer",
    "AppendOrigin",
    "Batch",
    "BatchMetadata",
    "CompletedTransaction",
    "ControlBatch",
    "DataBatch",
    "Duplicate",
    "EndTxnMarker",
    "New",
    "ProducerSnapshotError",
    "ProducerStateEntry",
    "ProducerStateManager",
    "RefusalCode",
    "Refused",
    "Reloaded",
    "VerificationEntry",
]
