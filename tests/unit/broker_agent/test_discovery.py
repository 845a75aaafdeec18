"""What an agent leaves with the controllers when it looks who lives."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

import pytest

from pidkeeper.broker_agent.session.discovery import Discovery
from pidkeeper.broker_agent.session.session import Session
from pidkeeper.protocol.addresses import HostPort
from pidkeeper.protocol.messages import (
    BrokerDescription,
    BrokersResponse,
    RegisterBrokerRequest,
    RegisterBrokerResponse,
)
from pidkeeper.protocol.metadata_version import LATEST, UNTOLD
from tests.support.waiting import until

STORE = uuid.UUID(int=1)
FOUNDING = uuid.UUID(int=2)
EPOCH = 5


class StubClient:
    """Controllers that know of the store what `told` says. `registered`: the stores of the registrations they got.

    `founding_id`: what they tell of themselves; `knows`: which metadata version they take the agent to know.
    """

    def __init__(self, told: uuid.UUID | None) -> None:
        self.told = told
        self.founding_id: uuid.UUID | None = FOUNDING
        self.knows: int | None = None
        self.looks = 0
        self.registered: list[uuid.UUID | None] = []

    async def brokers(self) -> BrokersResponse:
        self.looks += 1
        broker = BrokerDescription(7, EPOCH, fenced=False, kafka="a:1", store_id=self.told, metadata_version=self.knows)
        return BrokersResponse([broker])

    async def register(self, broker_id: int, request: RegisterBrokerRequest) -> RegisterBrokerResponse:
        self.registered.append(request.store_id)
        self.knows = None if self.knows is None else LATEST
        return RegisterBrokerResponse(EPOCH, "c", LATEST, self.founding_id)


def registered_session(client: Any, epoch: int | None = EPOCH) -> Session:
    session = Session(
        7,
        client,
        incarnation_id="i",
        kafka=HostPort("a", 1),
        heartbeat_seconds=0.01,
        highest_held=lambda: -1,
        highest_known=lambda: -1,
        reserve_ids=lambda: 0,
        let_go=lambda: None,
    )
    session.broker_epoch, session.metadata_version, session.store_id = epoch, LATEST, STORE
    return session


@pytest.mark.parametrize("told", [None, STORE])
async def test_the_store_is_told_until_an_answer_says_so(told: uuid.UUID | None) -> None:
    """Also if the controllers have it: then the answer to an earlier registration was lost."""
    client: Any = StubClient(told)
    session = registered_session(client)
    task = asyncio.create_task(Discovery(session, client, lambda brokers: None, asyncio.Event()).follow_forever())
    try:
        await until(lambda: session.store_epoch == EPOCH, task)
        client.told, looks = STORE, client.looks
        await until(lambda: client.looks > looks + 1, task)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert client.registered == [STORE]


@pytest.mark.parametrize(("knows", "registrations"), [(None, 0), (UNTOLD, 1), (LATEST, 0)])
async def test_a_leader_that_waits_for_agents_is_told_once_what_this_one_knows(
    knows: int | None, registrations: int
) -> None:
    client: Any = StubClient(STORE)
    client.knows = knows
    session = registered_session(client)
    session.store_epoch = EPOCH
    task = asyncio.create_task(Discovery(session, client, lambda brokers: None, asyncio.Event()).follow_forever())
    try:
        await until(lambda: client.looks > 3, task)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert (len(client.registered), session.broker_epoch, session.registrations) == (registrations, EPOCH, 0)


@pytest.mark.parametrize("known", [None, uuid.UUID(int=3)])
async def test_no_object_is_named_before_the_quorum_tells_its_founding_under_the_registration(
    known: uuid.UUID | None,
) -> None:
    """One that hears its brokers after a restore gives epochs again, and `known` may have given them before."""
    client: Any = StubClient(STORE)
    session = registered_session(client, None)
    session.founding_id, client.founding_id = known, None
    await session.register()
    known_then = [session.store_known]
    for told in (None, FOUNDING):
        client.founding_id = told
        await session.advertise()
        known_then.append(session.store_known)
    assert known_then == [False, False, True]
    assert (session.broker_epoch, session.founding_id) == (EPOCH, FOUNDING)
