"""The files of the console, as routes. They hold no facts, so they are public; whoever wants facts needs a name."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from importlib import resources
from typing import Final

from pidkeeper.service.exchange import HttpRequest, HttpResponse
from pidkeeper.service.problems import SERVER_NAME
from pidkeeper.service.routes import TextHandler, TextRoute

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""The page has everything from the member that serves it, runs no script that stands in a text, and is in no frame."""

_SCRIPTS: Final = (
    "console",
    "views",
    "topics",
    "groups",
    "bounds",
    "words",
    "known",
    "client",
    "history",
    "page",
    "numbers",
    "chart",
)

_FILES: Final = (
    ("/", "index.html", "text/html; charset=utf-8"),
    ("/console/console.css", "console.css", "text/css; charset=utf-8"),
    *((f"/console/{name}.js", f"{name}.js", "text/javascript; charset=utf-8") for name in _SCRIPTS),
    ("/console/icon.svg", "icon.svg", "image/svg+xml"),
)
"""Path, file and media type of each."""


def console_routes() -> list[TextRoute]:
    """A route for each file, which is read once."""
    return [_route(*file) for file in _FILES]


def _route(path: str, name: str, content_type: str) -> TextRoute:
    content = resources.files(__package__).joinpath(name).read_bytes()
    return TextRoute(
        path=path,
        name=f"console_{name.replace('.', '_')}",
        summary=f"The console in the browser: {name}.",
        handler=_handler(content, content_type),
        content_type=content_type.partition(";")[0],
        answers={200: "the file", 304: "the caller has it already"},
    )


def _handler(content: bytes, content_type: str) -> TextHandler:
    tag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
    # Asked for each time, so that no page outlives its member's build; what has not changed is not sent again.
    headers = {
        "Content-Type": content_type,
        "Cache-Control": "no-cache",
        "ETag": tag,
        "Content-Security-Policy": POLICY,
        "X-Content-Type-Options": "nosniff",
        "X-Frame-Options": "DENY",
        "Referrer-Policy": "no-referrer",
        "Cross-Origin-Opener-Policy": "same-origin",
        "Cross-Origin-Resource-Policy": "same-origin",
        "Server": SERVER_NAME,
    }

    def handler(request: HttpRequest, _: Mapping[str, str]) -> HttpResponse:
        known = [one.strip().removeprefix("W/") for one in request.headers.get("If-None-Match", "").split(",")]
        return HttpResponse(304, headers, b"") if tag in known else HttpResponse(200, headers, content)

    return handler
