"""Record batches as Kafka's clients build them, by kafka-python and aiokafka."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Final

from aiokafka.record.default_records import DefaultRecordBatchBuilder as AioBuilder

from pidkeeper.broker_agent.kafka.wire.data.record_batch import Compression, with_base_offset

with warnings.catch_warnings():
    # kafka-python reads its bundled schemas in a way that Python 3.11 deprecates.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.record.default_records import DefaultRecordBatchBuilder as PythonBuilder

BUILDERS: Final = {"aiokafka": AioBuilder, "kafka-python": PythonBuilder}
TIME_MS: Final = 1_700_000_000_000

Record = tuple[bytes | None, bytes | None]
"""Key and value."""


def built(
    base_offset: int,
    *records: Record,
    builder: str = "aiokafka",
    compression: Compression = Compression.NONE,
    producer: tuple[int, int, int] = (-1, -1, -1),
    transactional: bool = False,
    headers: Sequence[tuple[str, bytes | None]] = (),
) -> bytes:
    """A batch at `base_offset` whose records are a millisecond apart from TIME_MS on, all with the same headers."""
    producer_id, epoch, sequence = producer
    made = BUILDERS[builder](
        magic=2,
        compression_type=compression.value,
        is_transactional=transactional,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        batch_size=1 << 20,
    )
    for delta, (key, value) in enumerate(records):
        made.append(delta, timestamp=TIME_MS + delta, key=key, value=value, headers=list(headers))
    return with_base_offset(bytes(made.build()), base_offset)
