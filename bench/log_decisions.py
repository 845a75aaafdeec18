"""What the decision about an object of batches and its replay cost: one process, no disk, no network.

The same is done as by a leader: decide on a draft, encode the entry, decode it, replay it.
"""

from __future__ import annotations

import time
import uuid
from typing import Final

import msgspec

from pidkeeper.controller.state import requests
from pidkeeper.controller.state.decide import decide
from pidkeeper.controller.state.draft import Draft
from pidkeeper.controller.state.machine import StateMachine
from pidkeeper.protocol.founding import FoundingRecord
from pidkeeper.protocol.ids import DEFAULT_BLOCK_SIZE
from pidkeeper.protocol.log_messages import CommitObjectResponse, OfferedBatch
from pidkeeper.protocol.logs import BrokerStoreRecord, ObjectId, TopicRecord
from pidkeeper.protocol.metadata_version import LATEST
from pidkeeper.protocol.records import (
    FeatureLevelRecord,
    ProducerIdFloorRecord,
    Record,
    RegisterBrokerRecord,
    decode_batch,
    encode_batch,
)

BROKER: Final = 1
EPOCH: Final = 3
"""The offset of its registration, behind three records."""

FOUNDING: Final = uuid.UUID(int=1)
STORE: Final = uuid.UUID(int=2)
TOPIC: Final = uuid.UUID(int=3)
NOW_MS: Final = 1_700_000_000_000
BATCH_BYTES: Final = 200


class DecisionCost(msgspec.Struct, frozen=True):
    """Microseconds of the processor a batch: of the decision, of encoding and decoding the entry, of the replay."""

    decide_us: float
    codec_us: float
    replay_us: float


def founded_machine(partitions: int, producers: int) -> StateMachine:
    """A state machine with one topic, and with IDs below `producers` handed out."""
    machine = StateMachine("bench")
    records: list[Record] = [
        FeatureLevelRecord(LATEST),
        FoundingRecord(FOUNDING, DEFAULT_BLOCK_SIZE, False, 0),
        ProducerIdFloorRecord(producers, 0),
        RegisterBrokerRecord(BROKER, EPOCH, "bench"),
        BrokerStoreRecord(BROKER, EPOCH, STORE),
        TopicRecord(TOPIC, "bench", partitions, 0, -1, -1, NOW_MS),
    ]
    machine.replay(records)
    return machine


def commit_request(number: int, batches: int, producers: int) -> requests.CommitObject:
    """Object `number`: one batch of each of `batches` producers in turn, each with the sequence that comes next.

    `producers` is a multiple of `batches`: so each object is of one group of them, and a group comes around again.
    """
    groups = producers // batches
    first, sequence = number % groups * batches, number // groups
    offered = tuple(
        OfferedBatch(first + at, 1, at * BATCH_BYTES, BATCH_BYTES, first + at, 0, sequence, NOW_MS, False)
        for at in range(batches)
    )
    return requests.CommitObject(ObjectId(BROKER, EPOCH, number), FOUNDING, batches * BATCH_BYTES, offered)


def measure(objects: int, batches: int, producers: int) -> DecisionCost:
    """Of `objects` with so many `batches` each. Raises ValueError unless `producers` is a multiple of `batches`.

    Raises RuntimeError if a batch is refused: then something else would be measured.
    """
    if producers % batches:
        raise ValueError(f"{producers} producers do not come around in objects of {batches} batches")
    machine = founded_machine(producers, producers)
    asked = [commit_request(number, batches, producers) for number in range(objects)]
    spent = [0.0, 0.0, 0.0]
    for request in asked:
        begun = time.process_time()
        draft = Draft(machine, NOW_MS)
        answer = decide(draft, request)
        decided = time.process_time()
        records = decode_batch(encode_batch(draft.records))
        coded = time.process_time()
        machine.replay(records)
        spent = [spent[0] + decided - begun, spent[1] + coded - decided, spent[2] + time.process_time() - coded]
        assert isinstance(answer, CommitObjectResponse)
        if min(answer.outcomes) < 0:
            raise RuntimeError(f"object {request.object.number} was refused: {answer.outcomes}")
    return DecisionCost(*(seconds / (objects * batches) * 1e6 for seconds in spent))
