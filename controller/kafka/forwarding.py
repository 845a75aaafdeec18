"""Calls of the HTTP interface that come in frames of Kafka's protocol."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import msgspec
from multidict import CIMultiDict
from yarl import URL

from pidkeeper.controller.kafka.broker_apis import KafkaCaller
from pidkeeper.protocol.errors import ErrorCode, RequestError
from pidkeeper.protocol.messages import Problem
from pidkeeper.service.content import JSON
from pidkeeper.service.exchange import HttpRequest, HttpResponse
from pidkeeper.service.kafka.wire.own_call import OwnAnswer, OwnCall
from pidkeeper.service.problems import problem_response, quoted

Dispatch = Callable[[HttpRequest], Awaitable[HttpResponse]]

_HEADERS: Final = CIMultiDict({"Content-Type": JSON})
_ELSEWHERE: Final = ErrorCode.NOT_CONTROLLER.http_status


class Forwarding:
    """Has calls answered by what serves HTTP. `leader()`: who leads, as kafka://host:port, as far as it is known."""

    def __init__(self, dispatch: Dispatch, leader: Callable[[], str | None]) -> None:
        self._dispatch = dispatch
        self._leader = leader

    async def __call__(self, call: OwnCall, caller: KafkaCaller) -> tuple[OwnAnswer, str | None]:
        """The answer, and why it is refused to a caller who may not ask. Who is known by the connection is known by it
        here too.
        """
        url = _relative(call.path)
        if url is None:
            return _refused(f"{quoted(call.path)} is no path"), None
        request = HttpRequest(call.method, url, _HEADERS, call.body, caller.principal, caller.has_hung_up)
        answer = await self._dispatch(request)
        if answer.told is not None:
            answer.told.close()
            return _refused("what goes on being told is told over HTTP alone"), None
        body = self._with_leader(answer.body) if answer.status == _ELSEWHERE else answer.body
        return OwnAnswer(answer.status, body), answer.denied

    def _with_leader(self, body: bytes) -> bytes:
        """The same problem, which names the leader as this caller can reach it."""
        problem = msgspec.json.decode(body, type=Problem)
        return msgspec.json.encode(msgspec.structs.replace(problem, leader=self._leader()))


def _relative(path: str) -> URL | None:
    try:
        url = URL(path)
    except ValueError:
        return None
    return url if path.startswith("/") and not url.absolute else None


def _refused(why: str) -> OwnAnswer:
    answer = problem_response(RequestError(ErrorCode.INVALID_REQUEST, why), None)
    return OwnAnswer(answer.status, answer.body)
