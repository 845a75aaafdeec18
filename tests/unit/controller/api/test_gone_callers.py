"""A broker that has closed its connection made another attempt since: the old one is not submitted behind it."""

from __future__ import annotations

from typing import Any, Final

import msgspec
import pytest
from multidict import CIMultiDict
from yarl import URL

from pidkeeper.controller.api.app import build_app
from pidkeeper.controller.api.limits import ApiLimits
from pidkeeper.service.exchange import HttpRequest
from tests.support.memory_member import MemoryMember
from tests.support.sharing import sharing

_BROKER: Final = {"broker_id": 5, "broker_epoch": 1}
_PRODUCER: Final = {**_BROKER, "transactional_id": "t", "producer_id": 0, "producer_epoch": 0}
_INIT: Final = {"transaction_timeout_ms": 1000, "producer_id": -1, "producer_epoch": -1, "candidate": -1}

CALLS: Final[dict[str, Any]] = {
    "/v1/producer-ids/allocate": _BROKER,
    "/v1/producer-ids/allocate?blocks=4": _BROKER,
    "/v1/brokers/5/register": {"incarnation_id": "a"},
    "/v1/brokers/5/heartbeat": {"broker_epoch": 1},
    "/v1/brokers/5/unregister": {"broker_epoch": 1},
    "/v1/transactions/init-producer-id": {**_PRODUCER, **_INIT},
    "/v1/transactions/add-partitions": {**_PRODUCER, "topics": [{"topic": "orders", "partitions": [0]}]},
    "/v1/transactions/end": {**_PRODUCER, "committed": True},
}


async def outcome(member: MemoryMember, path: str, *, gone: bool) -> tuple[str, int]:
    """The code that is answered, and how many requests were submitted to the core."""
    app = build_app(member, limits=ApiLimits(), shared=sharing(None, None))
    headers, body = CIMultiDict({"Content-Type": "application/json"}), msgspec.json.encode(CALLS[path])
    answer = await app.dispatch(HttpRequest("POST", URL(path), headers, body, has_hung_up=lambda: gone))
    return msgspec.json.decode(answer.body).get("code", ""), len(member.submitted)


@pytest.mark.parametrize("path", CALLS)
async def test_what_a_gone_caller_asked_is_not_submitted(path: str) -> None:
    assert await outcome(MemoryMember(), path, gone=True) == ("REQUEST_TIMED_OUT", 0)
    assert (await outcome(MemoryMember(), path, gone=False))[1] > 0
