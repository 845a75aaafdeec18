"""`/openapi.json`: an OpenAPI 3.1 document made from the route table and the models that the handlers use."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from http import HTTPStatus
from typing import Any, Final

import msgspec

from pidkeeper.controller.api.content import JSON, MSGPACK
from pidkeeper.controller.api.problems import PROBLEM_TYPE
from pidkeeper.controller.api.routes import COMMON_ERRORS, Route
from pidkeeper.protocol.errors import ErrorCode
from pidkeeper.protocol.messages import Problem

TEXT: Final = "text/plain"
_REFERENCE: Final = "#/components/schemas/{name}"
_PATH_PARAMETER: Final = re.compile(r"\{(\w+)\}")

_BODY_STATUSES: Final = {
    408: "INVALID_REQUEST: the body did not arrive in time",
    413: "MESSAGE_TOO_LARGE: the body is larger than the limit",
    415: "INVALID_REQUEST: the body is neither JSON nor msgpack",
}


class PlainRoute(msgspec.Struct, frozen=True, kw_only=True):
    """A GET that answers with text of its own: probes, metrics, this document.

    `answers` gives status and meaning; `query` the names and meanings of text parameters. Open to everybody.
    """

    path: str
    name: str
    summary: str
    content_type: str = TEXT
    answers: dict[int, str]
    query: dict[str, str] = {}


_PROBE_ANSWERS: Final = {200: "every check holds", 503: "a check does not hold; one line each"}
_ONE_CHECK_ANSWERS: Final = {200: "the check holds", 503: "it does not hold", 404: "no check of that name"}
_PROBE_QUERY: Final = {"verbose": "list every check", "exclude": "leave out the check of this name; may be repeated"}

PLAIN_ROUTES: Final = (
    PlainRoute(
        path="/livez", name="livez", summary="Is this process alive?", answers=_PROBE_ANSWERS, query=_PROBE_QUERY
    ),
    PlainRoute(path="/livez/{check}", name="livez_check", summary="One check of liveness.", answers=_ONE_CHECK_ANSWERS),
    PlainRoute(
        path="/readyz",
        name="readyz",
        summary="Has this member its place in the quorum?",
        answers=_PROBE_ANSWERS,
        query=_PROBE_QUERY,
    ),
    PlainRoute(
        path="/readyz/{check}", name="readyz_check", summary="One check of readiness.", answers=_ONE_CHECK_ANSWERS
    ),
    PlainRoute(path="/metrics", name="metrics", summary="Samples for Prometheus.", answers={200: "the samples"}),
    PlainRoute(
        path="/openapi.json",
        name="openapi",
        summary="This document.",
        content_type=JSON,
        answers={200: "the document"},
    ),
)


def build_document(routes: Sequence[Route], version: str, *, secured: bool) -> dict[str, Any]:
    """The document for the given calls; `secured` says whether they want a bearer token."""
    models = [model for route in routes for model in (route.request, route.response) if model is not None]
    _, components = msgspec.json.schema_components([*dict.fromkeys(models), Problem], ref_template=_REFERENCE)
    paths: dict[str, dict[str, Any]] = defaultdict(dict)
    for route in routes:
        paths[route.path][route.method.lower()] = _operation(route, secured=secured)
    for plain in PLAIN_ROUTES:
        paths[plain.path]["get"] = _plain_operation(plain)
    document: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {
            "title": "pidkeeper controller",
            "version": version,
            "description": "Hands out blocks of Kafka producer IDs. No ID twice, nothing acknowledged lost.",
        },
        "paths": dict(paths),
        "components": {"schemas": components},
    }
    if secured:
        document["components"]["securitySchemes"] = {"bearer": {"type": "http", "scheme": "bearer"}}
    return document


def _operation(route: Route, *, secured: bool) -> dict[str, Any]:
    responses: dict[str, Any] = {
        "200": {"description": ErrorCode.NONE.meaning, "content": _content(route.response)},
        **_error_responses(route, secured=secured),
    }
    operation: dict[str, Any] = {
        "operationId": route.name,
        "summary": route.summary,
        "parameters": [*_parameters(route.path_model, "path"), *_parameters(route.query_model, "query")],
        "responses": dict(sorted(responses.items())),
    }
    if route.request is not None:
        operation["requestBody"] = {"required": True, "content": _content(route.request)}
    if secured:
        operation["security"] = [{"bearer": []}]
    return operation


def _error_responses(route: Route, *, secured: bool) -> dict[str, Any]:
    meanings: dict[int, list[str]] = defaultdict(list)
    for code in dict.fromkeys((*COMMON_ERRORS, *route.errors)):
        meanings[code.http_status].append(f"{code.name}: {code.meaning}")
    if route.request is not None:
        for status, meaning in _BODY_STATUSES.items():
            meanings[status].append(meaning)
    if secured:
        meanings[401].append("CLUSTER_AUTHORIZATION_FAILED: no valid bearer token")
    return {str(status): _problem("; ".join(lines), status) for status, lines in meanings.items()}


def _problem(description: str, status: int) -> dict[str, Any]:
    response: dict[str, Any] = {"description": description, "content": {PROBLEM_TYPE: {"schema": _reference(Problem)}}}
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        response["headers"] = {"Retry-After": {"description": "seconds to wait", "schema": {"type": "integer"}}}
    return response


def _content(model: type[Any]) -> dict[str, Any]:
    return {media: {"schema": _reference(model)} for media in (JSON, MSGPACK)}


def _reference(model: type[Any]) -> dict[str, str]:
    return {"$ref": _REFERENCE.format(name=model.__name__)}


def _parameters(model: type[Any] | None, place: str) -> Iterable[dict[str, Any]]:
    if model is None:
        return
    schema = msgspec.json.schema(model)["$defs"][model.__name__]
    for name, field in schema["properties"].items():
        yield {"name": name, "in": place, "required": name in schema["required"], "schema": field}


def _plain_operation(plain: PlainRoute) -> dict[str, Any]:
    path_names = _PATH_PARAMETER.findall(plain.path)
    schema = {"type": "object"} if plain.content_type == JSON else {"type": "string"}
    responses = {
        str(status): {"description": meaning, "content": {plain.content_type: {"schema": schema}}}
        for status, meaning in plain.answers.items()
    }
    if "404" in responses:
        responses["404"] = _problem(plain.answers[404], 404)
    return {
        "operationId": plain.name,
        "summary": plain.summary,
        "parameters": [
            *({"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in path_names),
            *(_text_parameter(name, meaning) for name, meaning in plain.query.items()),
        ],
        "responses": responses,
    }


def _text_parameter(name: str, meaning: str) -> dict[str, Any]:
    return {"name": name, "in": "query", "description": meaning, "allowEmptyValue": True, "schema": {"type": "string"}}
