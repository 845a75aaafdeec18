"""Partitions that may not join a transaction, and what the others are told beside them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from kio.schema.add_partitions_to_txn.v3.response import AddPartitionsToTxnResponse
from kio.serial import entity_reader

from pidkeeper.broker_agent.coordinator.caller import ANYBODY, Caller
from pidkeeper.broker_agent.coordinator.requests import AddPartitionsToTxn, TransactionStep
from pidkeeper.broker_agent.data.joining import Joining
from pidkeeper.broker_agent.data.settings import DataSettings
from pidkeeper.broker_agent.data.topics import Topics
from pidkeeper.broker_agent.kafka.dispatch import TransactionalCall
from pidkeeper.broker_agent.kafka.transaction_responder import TransactionResponder
from pidkeeper.broker_agent.security.resources import TOPIC_WRITE
from pidkeeper.protocol.errors import ErrorCode, RequestError
from pidkeeper.protocol.messages import (
    InitProducerIdRequest,
    InitProducerIdResponse,
    TransactionResponse,
    TransactionTopic,
)
from pidkeeper.service.kafka.wire.headers import RequestHeader
from pidkeeper.service.kafka.wire.versions import ADD_PARTITIONS_TO_TXN
from tests.support.data_parts import StubRegistration, raising
from tests.support.log_leader import LogLeader


class Steps:
    """Takes every step, and notes it."""

    def __init__(self) -> None:
        self.taken: list[TransactionStep] = []

    async def init_producer_id(self, request: InitProducerIdRequest, caller: Caller) -> InitProducerIdResponse:
        raise AssertionError(f"nobody asks for {request}")

    async def step(self, request: TransactionStep, caller: Caller) -> TransactionResponse:
        self.taken.append(request)
        return TransactionResponse(0)


class Asked:
    """A responder for an agent with topics: `t` has two partitions, `u` has one."""

    def __init__(self) -> None:
        settings = DataSettings(store="unused")
        self.leader = LogLeader()
        self.leader.add_topic("t", 2)
        self.leader.add_topic("u", 1)
        self.topics = Topics(settings, self.leader, StubRegistration(self.leader.register()))
        self.steps = Steps()
        self.responder = TransactionResponder(self.steps, Joining(self.topics).refused)

    async def join(self, caller: Caller = ANYBODY, **topics: list[int]) -> dict[str, list[int]]:
        """The code of each partition."""
        request = AddPartitionsToTxn("tx", 7, 0, [TransactionTopic(name, numbers) for name, numbers in topics.items()])
        call = TransactionalCall(RequestHeader(ADD_PARTITIONS_TO_TXN, 3, 9, "client"), request, caller)
        frame = await self.responder.answer(call)
        told: Any = entity_reader(AddPartitionsToTxnResponse)(frame[9:], 0)
        results = told[0].results_by_topic_v3_and_below
        return {
            str(one.name): [part.partition_error_code.value for part in one.results_by_partition] for one in results
        }


@pytest.fixture
async def asked() -> AsyncIterator[Asked]:
    made = Asked()
    yield made
    await made.topics.stop()


async def test_all_join_or_none_does(asked: Asked) -> None:
    assert await asked.join(t=[0, 1], u=[0]) == {"t": [0, 0], "u": [0]}
    assert len(asked.steps.taken) == 1
    assert await asked.join(t=[1, 2, 0], gone=[0], u=[0]) == {"t": [55, 3, 55], "gone": [3], "u": [55]}
    assert len(asked.steps.taken) == 1


async def test_a_topic_that_may_not_be_written_to(asked: Asked) -> None:
    caller = Caller(may=lambda operation, topic: operation == TOPIC_WRITE and topic == "u")
    assert await asked.join(caller, t=[0, 5], u=[0]) == {"t": [29, 29], "u": [55]}
    assert await asked.join(caller, u=[0]) == {"u": [0]}
    assert [one.topics for one in asked.steps.taken] == [[TransactionTopic("u", [0])]]  # type: ignore[union-attr]


async def test_while_nobody_can_tell_they_come_again(asked: Asked) -> None:
    asked.leader.fault("find_topics", raising(RequestError(ErrorCode.REQUEST_TIMED_OUT)))
    assert await asked.join(t=[0]) == {"t": [14]}
    assert await asked.join(t=[0]) == {"t": [0]}
