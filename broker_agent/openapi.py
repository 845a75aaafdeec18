"""The OpenAPI description of the agent's HTTP interface, and the models that only it has."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from pidkeeper.broker_agent.coordinator.requests import AddOffsetsToTxn, AddPartitionsToTxn, EndTxn, TransactionStep
from pidkeeper.protocol.messages import InitProducerIdRequest, InitProducerIdResponse, Problem, TransactionResponse

JSON: Final = "application/json"
MSGPACK: Final = "application/msgpack"
PROBLEM: Final = "application/problem+json"

STEPS: Final[dict[str, type[TransactionStep]]] = {
    "/v1/transactions/add-partitions": AddPartitionsToTxn,
    "/v1/transactions/add-offsets": AddOffsetsToTxn,
    "/v1/transactions/end": EndTxn,
}
"""The calls that take a step of a transaction, by path."""

_SUMMARIES: Final[dict[type, str]] = {
    AddPartitionsToTxn: "Add partitions to a transaction, which begins with the first",
    AddOffsetsToTxn: "Add the offsets of a consumer group to a transaction",
    EndTxn: "Commit or abort a transaction",
}


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


def openapi_document() -> dict[str, Any]:
    """The OpenAPI 3.1 description, made from the same models as the handlers."""
    models = (InitProducerIdRequest, InitProducerIdResponse, AgentStatus, Health, Problem, TransactionResponse)
    schemas, components = msgspec.json.schema_components(
        models + tuple(STEPS.values()), ref_template="#/components/schemas/{name}"
    )
    request, response, status, health, problem, done, *steps = schemas
    refusals = {
        "400": _answer("malformed; nothing was claimed and nothing changed", problem, PROBLEM),
        "409": _answer("refused by what is known of the transactional id", problem, PROBLEM),
        "413": _answer("the body or the transaction is too large", problem, PROBLEM),
        "503": _answer("no answer right now; ask again", problem, PROBLEM),
    }
    init = _post(
        "initProducerId", "Claim a producer ID, or the pair of a transactional id", request, response, refusals
    )
    ready = {"200": _answer("ready", health), "503": _answer("not ready, with the reasons", health)}
    text = {"200": {"description": "Prometheus text", "content": {"text/plain": {"schema": {"type": "string"}}}}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "pidkeeper broker agent", "version": "1"},
        "paths": {
            "/v1/init-producer-id": init,
            **_step_paths(steps, done, refusals),
            "/v1/status": {"get": _get("status", "What the agent holds", {"200": _answer("the status", status)})},
            "/livez": {"get": _get("livez", "Whether the process serves", {"200": _answer("it does", health)})},
            "/readyz": {"get": _get("readyz", "Whether claims will succeed", ready)},
            "/metrics": {"get": _get("metrics", "Metrics", text)},
        },
        "components": {"schemas": components},
    }


def _answer(description: str, schema: dict[str, Any], content_type: str = JSON) -> dict[str, Any]:
    return {"description": description, "content": {content_type: {"schema": schema}}}


def _post(
    operation_id: str, summary: str, request: dict[str, Any], response: dict[str, Any], refusals: dict[str, Any]
) -> dict[str, Any]:
    """A call that takes and gives JSON or msgpack: the answer comes in the form of the request."""
    success = {"description": "it was done", "content": {kind: {"schema": response} for kind in (JSON, MSGPACK)}}
    return {
        "post": {
            "operationId": operation_id,
            "summary": summary,
            "requestBody": {"required": True, "content": {kind: {"schema": request} for kind in (JSON, MSGPACK)}},
            "responses": {"200": success, **refusals},
        }
    }


def _step_paths(
    steps: list[dict[str, Any]], done: dict[str, Any], refusals: dict[str, Any]
) -> dict[str, dict[str, Any]]:
    paths = {}
    for (path, kind), schema in zip(STEPS.items(), steps, strict=True):
        operation_id = kind.__name__[0].lower() + kind.__name__[1:]
        paths[path] = _post(operation_id, _SUMMARIES[kind], schema, done, refusals)
    return paths


def _get(operation_id: str, summary: str, responses: dict[str, Any]) -> dict[str, Any]:
    return {"operationId": operation_id, "summary": summary, "responses": responses}
