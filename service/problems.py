"""Refusals as RFC 9457 problem documents that carry Kafka's error name and code."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from pidkeeper.protocol.errors import ErrorCode, RequestError
from pidkeeper.protocol.messages import Problem
from pidkeeper.service.exchange import HttpResponse

PROBLEM_TYPE: Final = "application/problem+json"
SERVER_NAME: Final = "pidkeeper"

MAX_QUOTED_CHARACTERS: Final = 64
"""Characters of the caller's text that an error message repeats."""

Leader = Callable[[], tuple[int, str] | None]
"""Node id and base URL of the leader that a refused caller may turn to, or None while there is none."""

DENIED: Final = (401, 403)
"""The statuses of answers to whoever has not shown that it may ask."""

_ENCODER: Final = msgspec.json.Encoder()


class HttpError(RequestError):
    """A refusal with a status of HTTP's own in place of its row's, such as 405, and the headers that go along."""

    def __init__(
        self,
        status: int,
        code: ErrorCode,
        detail: str,
        *,
        headers: Mapping[str, str] | None = None,
        close: bool = False,
    ) -> None:
        super().__init__(code, detail)
        self.status = status
        self.headers = dict(headers or {})
        self.close = close


def quoted(text: str) -> str:
    """The caller's text for an error message, escaped and cut."""
    return repr(text if len(text) <= MAX_QUOTED_CHARACTERS else text[:MAX_QUOTED_CHARACTERS] + "...")


def problem_type(code: ErrorCode) -> str:
    """The stable URI that names the kind of problem."""
    return f"urn:pidkeeper:problem:{code.name.lower().replace('_', '-')}"


def problem_document(error: RequestError, leader: tuple[int, str] | None) -> Problem:
    """The document for one refusal. `leader` (node id, base URL) is named if the caller has to turn to it."""
    code = error.code
    named = leader if code is ErrorCode.NOT_CONTROLLER else None
    return Problem(
        type=problem_type(code),
        title=code.meaning,
        status=error.status if isinstance(error, HttpError) else code.http_status,
        detail=error.detail,
        code=code.name,
        error_code=code.kafka_code,
        retryable=code.retriable,
        leader=named[1] if named else None,
        leader_id=named[0] if named else None,
        throttle_time_ms=error.throttle_time_ms,
    )


def problem_response(error: RequestError, leader: tuple[int, str] | None) -> HttpResponse:
    """The HTTP answer for one refusal, with Retry-After (whole seconds, rounded up) if it says how long to wait."""
    problem = problem_document(error, leader)
    headers = {"Content-Type": PROBLEM_TYPE, "Server": SERVER_NAME}
    if error.throttle_time_ms > 0:
        headers["Retry-After"] = str(-(-error.throttle_time_ms // 1000))
    if isinstance(error, HttpError):
        headers.update(error.headers)
    close = isinstance(error, HttpError) and error.close
    denied = problem.detail if problem.status in DENIED else None
    return HttpResponse(problem.status, headers, _ENCODER.encode(problem), close, denied=denied)
