"""The records of partition logs that have as many rows as one wants, as a leader would have committed them."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from typing import Final

from pidkeeper.protocol.logs import BatchCoordinates, BrokerStoreRecord, ObjectId, ObjectRecord, TopicRecord
from pidkeeper.protocol.records import ProducerIdFloorRecord, Record, RegisterBrokerRecord

BROKER: Final = 1
STORE: Final = uuid.UUID(int=2)
OBJECT_BATCHES: Final = 500
BATCH_BYTES: Final = 200


def logs_written(
    next_offset: int, first_id: int, producers: int, partitions: int, rows_each: int
) -> Iterator[list[Record]]:
    """The records, entry by entry, of a topic to which each of `producers` wrote `rows_each` batches.

    `next_offset`: of the first record. `first_id`: the first of their ids, which nobody was given yet.
    """
    # The leader forgets who has not written for a day.
    now_ms = int(time.time() * 1000)
    given: list[Record] = [ProducerIdFloorRecord(first_id + producers, now_ms)] if producers else []
    epoch = next_offset + len(given)
    yield [
        *given,
        RegisterBrokerRecord(BROKER, epoch, str(uuid.UUID(int=BROKER))),
        BrokerStoreRecord(BROKER, epoch, STORE),
        TopicRecord(uuid.UUID(int=3), "grown", partitions, 0, -1, -1, now_ms),
    ]
    ends = [0] * partitions
    for number, start in enumerate(range(0, producers * rows_each, OBJECT_BATCHES)):
        batches = []
        for row in range(start, min(start + OBJECT_BATCHES, producers * rows_each)):
            sequence, producer = divmod(row, producers)
            log = producer % partitions
            place = ((row - start) * BATCH_BYTES, BATCH_BYTES)
            batches.append(BatchCoordinates(log, ends[log], 1, *place, first_id + producer, 0, sequence, now_ms, False))
            ends[log] += 1
        outcomes = tuple(batch.base_offset for batch in batches)
        size = len(batches) * BATCH_BYTES
        yield [ObjectRecord(ObjectId(BROKER, epoch, number), size, outcomes, tuple(batches), now_ms)]
