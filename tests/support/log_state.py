"""A state machine with partition logs, what is asked of it, and batches of decisions that all members replay."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

from pidkeeper.controller.state import requests
from pidkeeper.controller.state.decide import decide, most_bytes, most_records
from pidkeeper.controller.state.draft import Draft
from pidkeeper.controller.state.logs.partition_log import PartitionLog
from pidkeeper.controller.state.machine import StateMachine
from pidkeeper.protocol.errors import ErrorCode, RequestError
from pidkeeper.protocol.founding import FoundingRecord
from pidkeeper.protocol.ids import DEFAULT_BLOCK_SIZE
from pidkeeper.protocol.log_messages import JoiningBatch, OfferedBatch
from pidkeeper.protocol.logs import BrokerStoreRecord, ObjectId
from pidkeeper.protocol.metadata_version import LATEST
from pidkeeper.protocol.records import (
    FeatureLevelRecord,
    ProducerIdFloorRecord,
    Record,
    RegisterBrokerRecord,
    decode_batch,
    encode_batch,
)
from pidkeeper.protocol.transactions import TopicPartitions

FOUNDING = uuid.UUID(int=1)
STORE = uuid.UUID(int=2)
NOW = 1_700_000_000_000
FIRST_OWN = 1000
EPOCHS = {1: 3, 2: 5}
"""Of the registered brokers, by their ids."""


def make() -> StateMachine:
    """Brokers 1 and 2 are registered with the cluster's store, and the IDs below FIRST_OWN are allocated."""
    machine = StateMachine("c")
    records: list[Record] = [
        FeatureLevelRecord(LATEST),
        FoundingRecord(FOUNDING, DEFAULT_BLOCK_SIZE, False, 0),
        ProducerIdFloorRecord(FIRST_OWN, 0),
    ]
    for broker_id, epoch in EPOCHS.items():
        records += [
            RegisterBrokerRecord(broker_id, epoch, f"incarnation-{broker_id}"),
            BrokerStoreRecord(broker_id, epoch, STORE),
        ]
    machine.replay(records)
    return machine


def topic(name: str, partitions: int = 1, number: int | None = None) -> requests.CreateTopic:
    """Create a topic; its id is made of `number`, or of its name."""
    topic_id = uuid.uuid5(FOUNDING, name) if number is None else uuid.UUID(int=number)
    return requests.CreateTopic(topic_id, name, partitions, -1, -1, None, False)


def drop(name: str) -> requests.DeleteTopic:
    """Delete a topic."""
    return requests.DeleteTopic(name, None, None)


def data(
    log: int = 0,
    producer: tuple[int, int] = (-1, -1),
    sequence: int = -1,
    *,
    records: int = 1,
    transactional: bool = False,
    time: int = NOW,
    size: int = 10,
) -> OfferedBatch:
    """A batch; `commit` gives it its position."""
    return OfferedBatch(log, records, 0, size, *producer, sequence, time, transactional)


def commit(number: int, *batches: OfferedBatch, broker: int = 1, joining: str = "") -> requests.CommitObject:
    """Commit an object in which these batches lie one behind another; all join a transaction of `joining`, if given."""
    placed, position = [], 0
    for one in batches:
        placed.append(OfferedBatch(one.log, one.records, position, *_rest(one)))
        position += one.size
    joined = tuple(JoiningBatch(at, joining) for at in range(len(placed))) if joining else ()
    return requests.CommitObject(ObjectId(broker, EPOCHS[broker], number), FOUNDING, position, tuple(placed), joined)


def _rest(one: OfferedBatch) -> tuple[int, int, int, int, int, bool]:
    return one.size, one.producer_id, one.producer_epoch, one.base_sequence, one.max_timestamp, one.transactional


def init(name: str, producer: tuple[int, int] = (-1, -1)) -> requests.InitProducerId:
    """A new instance of a transactional id, or the one with that pair."""
    return requests.InitProducerId(1, EPOCHS[1], name, 60_000, *producer, -1, may_take_block=True)


def join(name: str, producer: tuple[int, int], topic_name: str, *partitions: int) -> requests.AddPartitionsToTxn:
    """Partitions of a topic join a transaction."""
    return requests.AddPartitionsToTxn(1, EPOCHS[1], name, *producer, (TopicPartitions(topic_name, partitions),))


def end(name: str, producer: tuple[int, int], *, committed: bool = True) -> requests.EndTxn:
    """A producer ends its transaction."""
    return requests.EndTxn(1, EPOCHS[1], name, *producer, committed)


def silent(machine: StateMachine, until: int = NOW) -> requests.ExpireProducers:
    """Forget who wrote nothing since."""
    known = machine.logs.silent_longest(10**6)
    return requests.ExpireProducers(
        tuple((*place, one.timestamp_ms) for place, one in known if one.timestamp_ms <= until)
    )


def decided(draft: Draft, asked: Sequence[requests.Request]) -> list[Any]:
    """The answers, and the codes of refusals, which change nothing."""
    answers: list[Any] = []
    for request in asked:
        before, room = list(draft.records), most_bytes(draft, request)
        try:
            answer = decide(draft, request)
        except RequestError as error:
            assert draft.records == before, f"{request} was refused and changed something"
            answer = error.code
        added = draft.records[len(before) :]
        assert len(added) <= most_records(request)
        assert not added or len(encode_batch(added)) <= room, f"{request} takes more than {room} bytes"
        answers.append(answer)
    return answers


def batch(machine: StateMachine, *asked: requests.Request, now: int = NOW) -> list[Any]:
    """Decide these in one batch, and replay it as all members do; the answers, and the codes of refusals."""
    draft = Draft(machine, now)
    answers = decided(draft, asked)
    if draft.records:
        machine.replay(decode_batch(encode_batch(draft.records)))
    return answers


def one(machine: StateMachine, request: requests.Request, now: int = NOW) -> Any:
    """The answer to a single request in a batch of its own."""
    (answer,) = batch(machine, request, now=now)
    return answer


def outcomes(machine: StateMachine, request: requests.CommitObject, now: int = NOW) -> list[int]:
    """Of a commit that is granted."""
    answer = one(machine, request, now)
    assert not isinstance(answer, ErrorCode), answer
    found: list[int] = answer.outcomes
    return found


def log_of(machine: StateMachine, number: int) -> PartitionLog:
    """A log that there is."""
    log = machine.logs.log(number)
    assert log is not None
    return log
