"""`/livez` and `/readyz` in the text form that Kubernetes and etcd use: one `[+]name ok` line for each check."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from aiohttp import web

from pidkeeper.controller.api.content import quoted
from pidkeeper.controller.api.problems import SERVER_NAME, problem_response
from pidkeeper.controller.node.health_check import HealthCheck
from pidkeeper.protocol.errors import ErrorCode, RequestError

Checks = Callable[[], Sequence[HealthCheck]]

UNAVAILABLE: Final = 503


class Draining:
    """Whether this server has been told to stop; its own readiness check, so that probes see it first."""

    def __init__(self) -> None:
        self.active = False

    def check(self) -> HealthCheck:
        """The check named `shutdown`."""
        return HealthCheck("shutdown", not self.active, "the server is shutting down" if self.active else "")


def report(name: str, checks: Sequence[HealthCheck], excluded: Sequence[str], *, verbose: bool) -> tuple[int, str]:
    """Status and text of the probe `name`: `ok`, or a line for each check if asked for or if one fails."""
    failed = any(not check.ok and check.name not in excluded for check in checks)
    if not failed and not verbose:
        return 200, "ok\n"
    lines = [_line(check, check.name in excluded) for check in checks]
    known = {check.name for check in checks}
    lines += [f"warn: no check is named {quoted(name)}" for name in excluded if name not in known]
    lines.append(f"{name} check {'failed' if failed else 'passed'}")
    return UNAVAILABLE if failed else 200, "\n".join(lines) + "\n"


def _line(check: HealthCheck, excluded: bool) -> str:
    if excluded:
        return f"[+]{check.name} excluded: ok"
    return f"[+]{check.name} ok" if check.ok else f"[-]{check.name} failed: {check.detail}"


class Probe:
    """The handlers of one probe: all its checks, or one of them by name."""

    def __init__(self, name: str, checks: Checks) -> None:
        self._name = name
        self._checks = checks

    async def all_checks(self, request: web.Request) -> web.Response:
        """`/livez?verbose&exclude=NAME`: 200 if every check holds that is not excluded, else 503."""
        excluded = request.query.getall("exclude", [])
        return _text(*report(self._name, self._checks(), excluded, verbose="verbose" in request.query))

    async def one_check(self, request: web.Request) -> web.Response:
        """`/livez/NAME`: 200 if that check holds, 503 if not, 404 if there is none of that name."""
        wanted = request.match_info["check"]
        checks = self._checks()
        for check in checks:
            if check.name == wanted:
                return _text(*report(self._name, [check], (), verbose="verbose" in request.query))
        names = ", ".join(check.name for check in checks)
        detail = f"{self._name} has no check {quoted(wanted)}; it has {names}"
        return problem_response(RequestError(ErrorCode.RESOURCE_NOT_FOUND, detail), None)


def _text(status: int, text: str) -> web.Response:
    headers = {"Content-Type": "text/plain; charset=utf-8", "Cache-Control": "no-store", "Server": SERVER_NAME}
    return web.Response(body=text.encode(), status=status, headers=headers)
