"""Record batches one after another, taken apart by the product's own reader of headers."""

from __future__ import annotations

from pidkeeper.broker_agent.kafka.wire.data.frames import Buffer
from pidkeeper.broker_agent.kafka.wire.data.record_batch import BatchHeader, read_batch_header


def split_batches(buffer: Buffer) -> list[BatchHeader]:
    """The headers of the batches that `buffer` is made of, to its last byte; none for an empty one.

    Raises BatchError. CRCs are not checked.
    """
    headers: list[BatchHeader] = []
    position = 0
    while position < len(buffer):
        headers.append(read_batch_header(buffer, position))
        position = headers[-1].end
    return headers
