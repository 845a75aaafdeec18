"""`/openapi.json`: an OpenAPI 3.1 document made from the route table and the models that the handlers use."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from http import HTTPStatus
from typing import Any, Final

import msgspec

from pidkeeper.protocol.errors import ErrorCode
from pidkeeper.protocol.messages import Problem
from pidkeeper.service.access import Access
from pidkeeper.service.authentication import BEARER, CERTIFICATE
from pidkeeper.service.content import JSON, MSGPACK
from pidkeeper.service.problems import PROBLEM_TYPE
from pidkeeper.service.routes import COMMON_ERRORS, Route, TextRoute

_REFERENCE: Final = "#/components/schemas/{name}"
_PATH_PARAMETER: Final = re.compile(r"\{(\w+)\}")

_BODY_STATUSES: Final = {
    408: "INVALID_REQUEST: the body did not arrive in time",
    413: "MESSAGE_TOO_LARGE: the body is larger than the limit",
    415: "INVALID_REQUEST: the body is neither JSON nor msgpack",
}

_SCHEMES: Final = {BEARER: {"type": "http", "scheme": "bearer"}, CERTIFICATE: {"type": "mutualTLS"}}
_UNNAMED: Final = "CLUSTER_AUTHORIZATION_FAILED: nothing says who is calling"
_NOT_PERMITTED: Final = "CLUSTER_AUTHORIZATION_FAILED: the caller has not the role that this takes"


class Description(msgspec.Struct, frozen=True):
    """What the document is of."""

    title: str
    text: str


def build_document(
    description: Description,
    routes: Sequence[Route[Any]],
    texts: Sequence[TextRoute],
    version: str,
    ways: Sequence[str],
) -> dict[str, Any]:
    """The document for the given routes. `ways`: those of `Authenticator.ways`, for all that is not public."""
    models = [model for route in routes for model in (route.request, route.response) if model is not None]
    _, components = msgspec.json.schema_components([*dict.fromkeys(models), Problem], ref_template=_REFERENCE)
    paths: dict[str, dict[str, Any]] = defaultdict(dict)
    for route in routes:
        paths[route.path][route.method.lower()] = _operation(route, _wanted(route.access, ways))
    for text in texts:
        paths[text.path]["get"] = _text_operation(text, _wanted(text.access, ways))
    document: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {"title": description.title, "version": version, "description": description.text},
        "paths": dict(paths),
        "components": {"schemas": components},
    }
    if ways:
        document["components"]["securitySchemes"] = {way: _SCHEMES[way] for way in ways}
    return document


def _wanted(access: Access, ways: Sequence[str]) -> Sequence[str]:
    return () if access is Access.PUBLIC else ways


def _operation(route: Route[Any], ways: Sequence[str]) -> dict[str, Any]:
    responses: dict[str, Any] = {
        "200": {"description": ErrorCode.NONE.meaning, "content": _content(route.response)},
        **_error_responses(route, ways),
    }
    operation: dict[str, Any] = {
        "operationId": route.name,
        "summary": route.summary,
        "parameters": [*_parameters(route.path_model, "path"), *_parameters(route.query_model, "query")],
        "responses": dict(sorted(responses.items())),
    }
    if route.request is not None:
        operation["requestBody"] = {"required": True, "content": _content(route.request)}
    if ways:
        operation["security"] = [{way: []} for way in ways]
    return operation


def _error_responses(route: Route[Any], ways: Sequence[str]) -> dict[str, Any]:
    meanings: dict[int, list[str]] = defaultdict(list)
    for code in dict.fromkeys((*COMMON_ERRORS, *route.errors)):
        meanings[code.http_status].append(f"{code.name}: {code.meaning}")
    if route.request is not None:
        for status, meaning in _BODY_STATUSES.items():
            meanings[status].append(meaning)
    if ways:
        meanings[401].append(_UNNAMED)
        meanings[403].append(_NOT_PERMITTED)
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


def _text_operation(text: TextRoute, ways: Sequence[str]) -> dict[str, Any]:
    path_names = _PATH_PARAMETER.findall(text.path)
    schema = {"type": "object"} if text.content_type == JSON else {"type": "string"}
    responses = {
        str(status): {"description": meaning, "content": {text.content_type: {"schema": schema}}}
        for status, meaning in text.answers.items()
    }
    if "404" in responses:
        responses["404"] = _problem(text.answers[404], 404)
    if ways:
        responses |= {"401": _problem(_UNNAMED, 401), "403": _problem(_NOT_PERMITTED, 403)}
    operation: dict[str, Any] = {
        "operationId": text.name,
        "summary": text.summary,
        "parameters": [
            *({"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in path_names),
            *(_text_parameter(name, meaning) for name, meaning in text.query.items()),
        ],
        "responses": responses,
    }
    if ways:
        operation["security"] = [{way: []} for way in ways]
    return operation


def _text_parameter(name: str, meaning: str) -> dict[str, Any]:
    return {"name": name, "in": "query", "description": meaning, "allowEmptyValue": True, "schema": {"type": "string"}}
