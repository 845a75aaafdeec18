"""`/livez` and `/readyz` in the text form that Kubernetes and etcd use: one `[+]name ok` line for each check."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from pidkeeper.protocol.errors import ErrorCode, RequestError
from pidkeeper.service.exchange import HttpRequest, HttpResponse
from pidkeeper.service.health_check import HealthCheck
from pidkeeper.service.problems import SERVER_NAME, problem_response, quoted
from pidkeeper.service.routes import TextRoute

Checks = Callable[[], Sequence[HealthCheck]]

UNAVAILABLE: Final = 503

_HEADERS: Final = {"Content-Type": "text/plain; charset=utf-8", "Cache-Control": "no-store", "Server": SERVER_NAME}

_ALL_ANSWERS: Final = {200: "every check holds", 503: "a check does not hold; one line each"}
_ONE_ANSWERS: Final = {200: "the check holds", 503: "it does not hold", 404: "no check of that name"}
_QUERY: Final = {"verbose": "list every check", "exclude": "leave out the check of this name; may be repeated"}


class Draining:
    """Whether this server has been told to stop; its own readiness check, so that probes see it first."""

    def __init__(self) -> None:
        self.active = False

    def check(self) -> HealthCheck:
        """The check named `shutdown`."""
        return HealthCheck("shutdown", not self.active, "the server is shutting down" if self.active else "")


def report(name: str, checks: Sequence[HealthCheck], excluded: Sequence[str], *, verbose: bool) -> tuple[int, str]:
    """Status and text of the probe `name`: `ok`, or a line for each check if asked for or if one fails."""
    failed = any(not check.ok and check.counts and check.name not in excluded for check in checks)
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
    if check.ok:
        return f"[+]{check.name} ok"
    return f"[-]{check.name} failed{'' if check.counts else ', which does not count'}: {check.detail}"


class Probe:
    """One probe: all its checks, or one of them by name."""

    def __init__(self, name: str, checks: Checks) -> None:
        self._name = name
        self._checks = checks

    def routes(self, question: str, about: str) -> tuple[TextRoute, TextRoute]:
        """Its routes. `question` is what it answers; `about` names what a single check is of."""
        return (
            TextRoute(
                path=f"/{self._name}",
                name=self._name,
                summary=question,
                handler=self.all_checks,
                answers=_ALL_ANSWERS,
                query=_QUERY,
            ),
            TextRoute(
                path=f"/{self._name}/{{check}}",
                name=f"{self._name}_check",
                summary=f"One check of {about}.",
                handler=self.one_check,
                answers=_ONE_ANSWERS,
            ),
        )

    def all_checks(self, request: HttpRequest, _: Mapping[str, str]) -> HttpResponse:
        """`/livez?verbose&exclude=NAME`: 200 if every check holds that is not excluded, else 503."""
        query = request.url.query
        excluded = query.getall("exclude", [])
        return _text(*report(self._name, self._checks(), excluded, verbose="verbose" in query))

    def one_check(self, request: HttpRequest, path_texts: Mapping[str, str]) -> HttpResponse:
        """`/livez/NAME`: 200 if that check holds, 503 if not, 404 if there is none of that name."""
        wanted = path_texts["check"]
        checks = self._checks()
        for check in checks:
            if check.name == wanted:
                alone = msgspec.structs.replace(check, counts=True)
                return _text(*report(self._name, [alone], (), verbose="verbose" in request.url.query))
        names = ", ".join(check.name for check in checks)
        detail = f"{self._name} has no check {quoted(wanted)}; it has {names}"
        return problem_response(RequestError(ErrorCode.RESOURCE_NOT_FOUND, detail), None)


def _text(status: int, text: str) -> HttpResponse:
    return HttpResponse(status, _HEADERS, text.encode())
