"""The agent's HTTP interface: InitProducerId, health, status, metrics."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec
from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from broker_agent.agent import Agent
from broker_agent.kafka_responder import refusal, refusal_detail
from broker_agent.reserve import NO_ID
from protocol.errors import ErrorCode, RequestError
from protocol.messages import InitProducerIdRequest, InitProducerIdResponse, Problem

MAX_BODY_BYTES: Final = 16 * 1024
"""Largest request body: a lawful one takes under 2 KiB, with every character of a transactional id escaped."""

_PROBLEM_TYPE: Final = "application/problem+json"

_JSON: Final = "application/json"
_MSGPACK: Final = "application/msgpack"

_decode: Final[dict[str, Callable[[bytes], InitProducerIdRequest]]] = {
    _JSON: msgspec.json.Decoder(InitProducerIdRequest).decode,
    _MSGPACK: msgspec.msgpack.Decoder(InitProducerIdRequest).decode,
}
_encoder: Final = msgspec.json.Encoder()
_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Health(msgspec.Struct, frozen=True):
    """Answer of /livez and /readyz; `reasons` says what keeps the agent from being ready."""

    ok: bool
    reasons: list[str]


class AgentStatus(msgspec.Struct, frozen=True):
    """Answer of /v1/status. `leader`: base URL that the next call goes to; `claim_rate`: IDs a second."""

    broker_id: int
    broker_epoch: int | None
    cluster_id: str | None
    incarnation_id: str
    ready: bool
    reasons: list[str]
    fenced: bool
    leader: str
    reserve_ids: int
    reserve_blocks: int
    reserve_target_ids: int
    highest_held: int
    claimed: int
    claim_errors: int
    claim_rate: float
    blocks_received: int


def make_app(agent: Agent, registry: CollectorRegistry) -> web.Application:
    """The application with all routes."""
    api = _Api(agent, registry)
    app = web.Application(middlewares=[_problems], client_max_size=MAX_BODY_BYTES)
    app.router.add_post("/v1/init-producer-id", api.init_producer_id)
    app.router.add_get("/v1/status", api.status)
    app.router.add_get("/livez", api.livez)
    app.router.add_get("/readyz", api.readyz)
    app.router.add_get("/metrics", api.metrics)
    app.router.add_get("/openapi.json", api.openapi)
    return app


class _Api:
    def __init__(self, agent: Agent, registry: CollectorRegistry) -> None:
        self._agent = agent
        self._registry = registry
        self._openapi = msgspec.json.encode(openapi_document())

    async def init_producer_id(self, request: web.Request) -> web.Response:
        content_type = _MSGPACK if request.content_type == _MSGPACK else _JSON
        try:
            wanted = _decode[content_type](await request.read())
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise RequestError(
                ErrorCode.INVALID_REQUEST, f"the body is not an InitProducerIdRequest: {error}"
            ) from None
        if wanted.transactional_id is not None:
            code = refusal(wanted.transactional_id)
            assert code is not None, f"transactional id {wanted.transactional_id!r} was not refused"
            raise RequestError(code, refusal_detail(wanted.transactional_id))
        claimed = self._agent.reserve.claim()
        if claimed == NO_ID:
            raise RequestError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        answer = InitProducerIdResponse(0, claimed, 0)
        if content_type == _MSGPACK:
            return web.Response(body=msgspec.msgpack.encode(answer), content_type=_MSGPACK)
        return _json(answer)

    async def status(self, _: web.Request) -> web.Response:
        agent, reserve = self._agent, self._agent.reserve
        return _json(
            AgentStatus(
                broker_id=agent.broker_id,
                broker_epoch=agent.broker_epoch,
                cluster_id=agent.cluster_id,
                incarnation_id=agent.incarnation_id,
                ready=agent.ready,
                reasons=agent.why_not_ready(),
                fenced=agent.fenced,
                leader=agent.client.leader,
                reserve_ids=reserve.remaining,
                reserve_blocks=reserve.blocks_held,
                reserve_target_ids=agent.policy.target_ids(),
                highest_held=reserve.highest_held,
                claimed=reserve.claimed,
                claim_errors=reserve.failed_claims,
                claim_rate=round(agent.policy.claim_rate, 1),
                blocks_received=agent.blocks_received,
            )
        )

    async def livez(self, _: web.Request) -> web.Response:
        return _json(Health(ok=True, reasons=[]))

    async def readyz(self, _: web.Request) -> web.Response:
        reasons = self._agent.why_not_ready()
        return _json(Health(ok=not reasons, reasons=reasons), status=503 if reasons else 200)

    async def metrics(self, _: web.Request) -> web.Response:
        return web.Response(body=generate_latest(self._registry), headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def openapi(self, _: web.Request) -> web.Response:
        return web.Response(body=self._openapi, content_type="application/json")


def _json(value: msgspec.Struct, *, status: int = 200) -> web.Response:
    return web.Response(body=_encoder.encode(value), status=status, content_type="application/json")


def _problem(code: ErrorCode, detail: str, *, status: int | None = None, throttle_time_ms: int = 0) -> web.Response:
    status = code.http_status if status is None else status
    problem = Problem(
        type="about:blank",
        title=code.meaning,
        status=status,
        detail=detail,
        code=code.name,
        error_code=code.kafka_code,
        retryable=code.retriable,
        throttle_time_ms=throttle_time_ms,
    )
    return web.Response(body=_encoder.encode(problem), status=status, content_type=_PROBLEM_TYPE)


@web.middleware
async def _problems(request: web.Request, handler: _Handler) -> web.StreamResponse:
    """Turn every refusal into a problem document (RFC 9457)."""
    try:
        return await handler(request)
    except RequestError as error:
        return _problem(error.code, error.detail, throttle_time_ms=error.throttle_time_ms)
    except web.HTTPRequestEntityTooLarge:
        return _problem(ErrorCode.MESSAGE_TOO_LARGE, f"the body is larger than {MAX_BODY_BYTES} bytes")
    except web.HTTPNotFound:
        return _problem(ErrorCode.RESOURCE_NOT_FOUND, f"there is no {request.path} here; see /openapi.json")
    except web.HTTPMethodNotAllowed as error:
        allowed = ", ".join(sorted(error.allowed_methods))
        response = _problem(ErrorCode.INVALID_REQUEST, f"{request.path} takes {allowed}", status=error.status)
        response.headers["Allow"] = allowed
        return response
    except web.HTTPException:
        raise
    except Exception as error:  # noqa: BLE001 - the edge of the process: whatever broke, the caller gets a document
        report = {"message": f"{request.method} {request.path} failed", "exception": error}
        asyncio.get_running_loop().call_exception_handler(report)
        return _problem(ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.UNKNOWN_SERVER_ERROR.meaning)


def openapi_document() -> dict[str, Any]:
    """The OpenAPI 3.1 description, made from the same models as the handlers."""
    models = (InitProducerIdRequest, InitProducerIdResponse, AgentStatus, Health, Problem)
    schemas, components = msgspec.json.schema_components(models, ref_template="#/components/schemas/{name}")
    request, response, status, health, problem = schemas
    refusals = {
        "400": _answer("malformed; nothing was claimed", problem, _PROBLEM_TYPE),
        "403": _answer("a transactional id, which is not served here", problem, _PROBLEM_TYPE),
        "413": _answer("the body is too large", problem, _PROBLEM_TYPE),
        "503": _answer("no ID at hand right now; ask again", problem, _PROBLEM_TYPE),
    }
    claimed = {
        "description": "a producer ID that nobody else has, in the form of the request",
        "content": {kind: {"schema": response} for kind in _decode},
    }
    init = {
        "operationId": "initProducerId",
        "summary": "Claim a producer ID",
        "requestBody": {"required": True, "content": {kind: {"schema": request} for kind in _decode}},
        "responses": {"200": claimed, **refusals},
    }
    ready = {"200": _answer("ready", health), "503": _answer("not ready, with the reasons", health)}
    text = {"200": {"description": "Prometheus text", "content": {"text/plain": {"schema": {"type": "string"}}}}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "pidkeeper broker agent", "version": "1"},
        "paths": {
            "/v1/init-producer-id": {"post": init},
            "/v1/status": {"get": _get("status", "What the agent holds", {"200": _answer("the status", status)})},
            "/livez": {"get": _get("livez", "Whether the process serves", {"200": _answer("it does", health)})},
            "/readyz": {"get": _get("readyz", "Whether claims will succeed", ready)},
            "/metrics": {"get": _get("metrics", "Metrics", text)},
        },
        "components": {"schemas": components},
    }


def _answer(description: str, schema: dict[str, Any], content_type: str = "application/json") -> dict[str, Any]:
    return {"description": description, "content": {content_type: {"schema": schema}}}


def _get(operation_id: str, summary: str, responses: dict[str, Any]) -> dict[str, Any]:
    return {"operationId": operation_id, "summary": summary, "responses": responses}
