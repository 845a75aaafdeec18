"""From a request to its answer without a socket."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from multidict import CIMultiDict
from yarl import URL

from pidkeeper.protocol.errors import ErrorCode
from pidkeeper.service.access import Access, Principal
from pidkeeper.service.app import App
from pidkeeper.service.authentication import Authenticator
from pidkeeper.service.content import MAX_BODY_BYTES
from pidkeeper.service.exchange import HttpRequest, HttpResponse
from pidkeeper.service.problems import HttpError
from tests.support.sharing import sharing
from tests.unit.service.conftest import Arithmetic, build

JSON = {"Content-Type": "application/json"}
PACKED = {"Content-Type": "application/msgpack"}


def request(method: str, target: str, headers: dict[str, str] | None = None, body: Any = b"") -> HttpRequest:
    return HttpRequest(method, URL(target, encoded=True), CIMultiDict(headers or {}), body)


def document(answer: HttpResponse) -> dict[str, Any]:
    value: dict[str, Any] = msgspec.json.decode(answer.body)
    return value


async def test_a_call_has_its_values_from_path_query_and_body(app: App, arithmetic: Arithmetic) -> None:
    answer = await app.dispatch(request("GET", "/divide/17?divisor=5"))
    assert (answer.status, answer.body) == (200, b'{"quotient":3}')
    assert dict(answer.headers) == {"Content-Type": "application/json", "Server": "pidkeeper"}
    answer = await app.dispatch(request("POST", "/greet", JSON, b'{"name":"you"}'))
    assert answer.body == b'{"name":"hello you"}'
    assert arithmetic.callers == ["anonymous", "anonymous"]


async def test_a_body_that_is_under_way_is_awaited(app: App) -> None:
    async def arriving() -> bytes:
        return b'{"name":"late"}'

    async def stalled() -> bytes:
        raise HttpError(408, ErrorCode.INVALID_REQUEST, "too slow", close=True)

    assert (await app.dispatch(request("POST", "/greet", JSON, arriving))).status == 200
    answer = await app.dispatch(request("POST", "/greet", JSON, stalled))
    assert (answer.status, answer.close) == (408, True)


async def test_a_body_is_not_awaited_for_what_is_refused_anyway(arithmetic: Arithmetic) -> None:
    async def never() -> bytes:
        raise AssertionError("nobody may read this")

    app = build(arithmetic, Authenticator(sharing("secret")))
    for method, target, status in (("POST", "/nowhere", 404), ("PUT", "/greet", 405), ("GET", "/divide/1", 401)):
        assert (await app.dispatch(request(method, target, JSON, never))).status == status


async def test_a_body_at_hand_is_bounded_too(app: App) -> None:
    answer = await app.dispatch(request("POST", "/greet", JSON, b" " * (MAX_BODY_BYTES + 1)))
    assert (answer.status, answer.close, document(answer)["code"]) == (413, True, "MESSAGE_TOO_LARGE")


async def test_refusals_name_the_leader_where_that_helps(app: App) -> None:
    answer = await app.dispatch(request("GET", "/divide/1?divisor=-1"))
    assert (answer.status, document(answer)["leader"]) == (421, "http://two")
    answer = await app.dispatch(request("GET", "/divide/x"))
    assert (answer.status, "leader" in document(answer)) == (400, False)


async def test_a_fault_is_reported_and_answered_without_its_details(app: App) -> None:
    reported: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
    answer = await app.dispatch(request("GET", "/divide/1?divisor=0"))
    assert (answer.status, document(answer)["code"]) == (500, "UNKNOWN_SERVER_ERROR")
    (report,) = reported
    assert (report["message"], type(report["exception"])) == ("divide failed", ZeroDivisionError)
    assert b"division" not in answer.body


async def test_a_wrong_method_names_the_right_ones(app: App) -> None:
    answer = await app.dispatch(request("POST", "/livez"))
    assert (answer.status, answer.headers["Allow"]) == (405, "GET, HEAD")


async def test_calls_need_the_token_and_public_ones_do_not(arithmetic: Arithmetic) -> None:
    app = build(arithmetic, Authenticator(sharing("secret")))
    refused = await app.dispatch(request("GET", "/divide/1"))
    assert (refused.status, "WWW-Authenticate" in refused.headers) == (401, True)
    assert arithmetic.callers == []
    assert (await app.dispatch(request("GET", "/divide/1", {"authorization": "Bearer secret"}))).status == 200
    assert (await app.dispatch(request("POST", "/greet", JSON, b'{"name":"you"}'))).status == 200
    assert arithmetic.callers == ["token", "anonymous"]


async def test_a_caller_without_the_role_is_refused(arithmetic: Arithmetic, monkeypatch: pytest.MonkeyPatch) -> None:
    for roles, status in (({Access.BROKER, Access.OPERATOR}, 403), ({Access.VIEWER}, 200)):
        principal = Principal("agent-7", frozenset(roles))
        monkeypatch.setattr(Authenticator, "authenticate", lambda self, _, principal=principal: principal)
        answer = await build(arithmetic, Authenticator(sharing("secret"))).dispatch(request("GET", "/divide/1"))
        assert answer.status == status
        if status == 403:
            assert document(answer)["code"] == "CLUSTER_AUTHORIZATION_FAILED"
            assert document(answer)["detail"] == "agent-7 may not do this: it needs the role viewer"
    assert arithmetic.callers == ["agent-7"]


async def test_the_form_of_an_answer(arithmetic: Arithmetic) -> None:
    packed = msgspec.msgpack.encode({"name": "you"})
    for in_kind, accept, packed_answer in (
        (False, None, False),
        (False, "*/*", False),
        (False, "application/msgpack", True),
        (True, None, True),
        (True, "*/*", True),
        (True, "application/json", False),
    ):
        headers = PACKED if accept is None else {**PACKED, "Accept": accept}
        answer = await build(arithmetic, Authenticator(), in_kind=in_kind).dispatch(
            request("POST", "/greet", headers, packed)
        )
        decode = msgspec.msgpack.decode if packed_answer else msgspec.json.decode
        assert decode(answer.body) == {"name": "hello you"}


async def test_the_document_has_a_lock_on_what_is_not_public(arithmetic: Arithmetic) -> None:
    app = build(arithmetic, Authenticator(sharing("x")))
    paths = document(await app.dispatch(request("GET", "/openapi.json")))["paths"]
    assert "security" in paths["/divide/{number}"]["get"]
    assert "security" not in paths["/greet"]["post"]
    parameters = [(one["name"], one["in"]) for one in paths["/divide/{number}"]["get"]["parameters"]]
    assert parameters == [("number", "path"), ("divisor", "query")]


async def test_outcomes_are_counted_by_route(app: App) -> None:
    for target in ("/divide/1", "/divide/x", "/nowhere"):
        await app.dispatch(request("GET", target))
    text = (await app.dispatch(request("GET", "/metrics"))).body.decode()
    for route, outcome in (("divide", "success"), ("divide", "INVALID_REQUEST"), ("unknown", "RESOURCE_NOT_FOUND")):
        assert f'pidkeeper_api_requests_total{{outcome="{outcome}",route="{route}"}} 1.0' in text
