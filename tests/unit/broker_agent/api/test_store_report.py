"""The report on the store as a client sees it, and who may have it."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest
from openapi_schema_validator import OAS31Validator

from pidkeeper.broker_agent.agent import Agent
from pidkeeper.broker_agent.api.app import build_app
from pidkeeper.broker_agent.api.routes import ROUTES
from pidkeeper.broker_agent.controllers.aiohttp_transport import AiohttpTransport
from pidkeeper.broker_agent.controllers.client import ControllerClient
from pidkeeper.broker_agent.data.room import DataRoom
from pidkeeper.broker_agent.data.settings import DataSettings
from pidkeeper.broker_agent.data.store.port import StoreUnavailableError
from pidkeeper.broker_agent.data.store_report import StoreReport
from pidkeeper.protocol.errors import ErrorCode, RequestError
from pidkeeper.service.access import Access
from pidkeeper.service.kafka.listener import KafkaListener
from tests.support.data_parts import raising
from tests.support.served_app import served
from tests.support.store_rig import StoreRig
from tests.support.whole_agent import make_agent


@pytest.fixture
def agent() -> Agent:
    return make_agent(ControllerClient(("http://c:1",), AiohttpTransport(), random.Random()))


@pytest.fixture
async def rig() -> StoreRig:
    made = StoreRig()
    await made.agent().put()
    return made


def room_of(rig: StoreRig, agent: Agent) -> DataRoom:
    settings = DataSettings(store="unused")
    agent.session.broker_epoch = agent.session.store_epoch = 5
    return DataRoom(settings, rig.store, rig.leader, agent.session, agent.directory, random.Random(1))


async def away(*_: Any) -> None:
    raise StoreUnavailableError("the disk is away")


async def test_the_report_is_as_the_document_says(rig: StoreRig, agent: Agent) -> None:
    async with served(build_app(agent, KafkaListener(Access.PRODUCER), room=room_of(rig, agent))) as http:
        answer = await http.get("/v1/store/report")
        body = await answer.read()
        assert answer.status == 200
        found = msgspec.json.decode(body, type=StoreReport)
        assert (found.complete, found.unnamed[0].living.objects) == (True, 1)
        document = await (await http.get("/openapi.json")).json()
        schema = document["paths"]["/v1/store/report"]["get"]["responses"]["200"]["content"]["application/json"]
        OAS31Validator({**schema["schema"], "components": document["components"]}).validate(msgspec.json.decode(body))


async def test_what_hinders_it_is_told(rig: StoreRig, agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    async with served(build_app(agent, KafkaListener(Access.PRODUCER))) as http:
        answer = await http.get("/v1/store/report")
        assert (answer.status, "has no store" in await answer.text()) == (404, True)
    async with served(build_app(agent, KafkaListener(Access.PRODUCER), room=room_of(rig, agent))) as http:
        rig.leader.fault("kept_objects", raising(RequestError(ErrorCode.REQUEST_TIMED_OUT)))
        assert (await http.get("/v1/store/report")).status == 504
        monkeypatch.setattr(rig.store, "list", away)
        answer = await http.get("/v1/store/report")
        assert (answer.status, "the disk is away" in await answer.text()) == (503, True)


def test_it_is_for_operators_alone() -> None:
    (route,) = [route for route in ROUTES if route.name == "report_store"]
    assert route.access is Access.OPERATOR
