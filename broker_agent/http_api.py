"""The agent's HTTP interface: InitProducerId, transactions, health, status, metrics."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import msgspec
from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from pidkeeper.broker_agent.agent import Agent
from pidkeeper.broker_agent.coordinator.checks import check_init
from pidkeeper.broker_agent.coordinator.requests import TransactionStep
from pidkeeper.broker_agent.coordinator.transactions import Transactions
from pidkeeper.broker_agent.ids.reserve import NO_ID
from pidkeeper.broker_agent.openapi import JSON, MSGPACK, PROBLEM, STEPS, AgentStatus, Health, openapi_document
from pidkeeper.protocol.errors import ErrorCode, RequestError
from pidkeeper.protocol.messages import InitProducerIdRequest, InitProducerIdResponse, Problem, TransactionResponse

MAX_BODY_BYTES: Final = 64 * 1024
"""Largest request body, as the controllers have it: 10,000 partitions for a transaction."""

_encoder: Final = msgspec.json.Encoder()
_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
_Request = TypeVar("_Request")


def make_app(agent: Agent, transactions: Transactions, registry: CollectorRegistry) -> web.Application:
    """The application with all routes."""
    api = _Api(agent, transactions, registry)
    app = web.Application(middlewares=[_problems], client_max_size=MAX_BODY_BYTES)
    app.router.add_post("/v1/init-producer-id", api.init_producer_id)
    for path, kind in STEPS.items():
        app.router.add_post(path, api.step(kind))
    app.router.add_get("/v1/status", api.status)
    app.router.add_get("/livez", api.livez)
    app.router.add_get("/readyz", api.readyz)
    app.router.add_get("/metrics", api.metrics)
    app.router.add_get("/openapi.json", api.openapi)
    return app


class _Api:
    def __init__(self, agent: Agent, transactions: Transactions, registry: CollectorRegistry) -> None:
        self._agent = agent
        self._transactions = transactions
        self._registry = registry
        self._openapi = msgspec.json.encode(openapi_document())

    async def init_producer_id(self, request: web.Request) -> web.Response:
        wanted = await _read(request, InitProducerIdRequest)
        if wanted.transactional_id is not None:
            return _answer(request, await self._transactions.init_producer_id(wanted))
        check_init(wanted)
        claimed = self._agent.reserve.claim()
        if claimed == NO_ID:
            raise RequestError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return _answer(request, InitProducerIdResponse(0, claimed, 0))

    def step(self, kind: type[TransactionStep]) -> _Handler:
        """The handler of one kind of step."""

        async def handle(request: web.Request) -> web.Response:
            await self._transactions.step(await _read(request, kind))
            return _answer(request, TransactionResponse(0))

        return handle

    async def status(self, _: web.Request) -> web.Response:
        agent, session, prefetcher = self._agent, self._agent.session, self._agent.prefetcher
        reserve, policy = prefetcher.reserve, prefetcher.policy
        return _json(
            AgentStatus(
                broker_id=session.broker_id,
                broker_epoch=session.broker_epoch,
                cluster_id=session.cluster_id,
                incarnation_id=session.incarnation_id,
                ready=agent.ready,
                reasons=agent.why_not_ready(),
                fenced=session.fenced,
                leader=agent.client.leader,
                reserve_ids=reserve.remaining,
                reserve_blocks=reserve.blocks_held,
                reserve_target_ids=policy.target_ids(),
                highest_held=reserve.highest_held,
                claimed=reserve.claimed,
                claim_errors=reserve.failed_claims,
                claim_rate=round(policy.claim_rate, 1),
                blocks_received=prefetcher.blocks_received,
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
        return web.Response(body=self._openapi, content_type=JSON)


async def _read(request: web.Request, kind: type[_Request]) -> _Request:
    decode = msgspec.msgpack.decode if request.content_type == MSGPACK else msgspec.json.decode
    try:
        return decode(await request.read(), type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        detail = f"the body is not an {kind.__name__.removesuffix('Request')}Request: {error}"
        raise RequestError(ErrorCode.INVALID_REQUEST, detail) from None


def _answer(request: web.Request, value: msgspec.Struct) -> web.Response:
    """`value` in the form of the request."""
    if request.content_type == MSGPACK:
        return web.Response(body=msgspec.msgpack.encode(value), content_type=MSGPACK)
    return _json(value)


def _json(value: msgspec.Struct, *, status: int = 200) -> web.Response:
    return web.Response(body=_encoder.encode(value), status=status, content_type=JSON)


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
    return web.Response(body=_encoder.encode(problem), status=status, content_type=PROBLEM)


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
