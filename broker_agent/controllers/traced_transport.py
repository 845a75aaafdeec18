"""A transport whose requests are client spans, where they belong to a trace that is recorded."""

from __future__ import annotations

from typing import Final

from yarl import URL

from pidkeeper.broker_agent.controllers.transport import Transport
from pidkeeper.service.tracing import Tracer

REFUSED: Final = 400
"""The first status of HTTP that is a failure to whoever has asked."""


class TracedTransport:
    """Carries by `transport`. Each attempt is a span, but for what is asked outside of any trace, as in heartbeats."""

    def __init__(self, transport: Transport, tracer: Tracer) -> None:
        self._transport = transport
        self._tracer = tracer

    async def exchange(
        self, method: str, base_url: str, path: str, body: bytes | None, timeout_seconds: float
    ) -> tuple[int, bytes]:
        """As `Transport.exchange`."""
        if self._tracer.recorded() is None:
            return await self._transport.exchange(method, base_url, path, body, timeout_seconds)
        with self._tracer.client_span(method, _attributes(method, base_url, path)) as span:
            status, content = await self._transport.exchange(method, base_url, path, body, timeout_seconds)
            span.set("http.response.status_code", status)
            if status >= REFUSED:
                span.fail(str(status))
            return status, content


def _attributes(method: str, base_url: str, path: str) -> dict[str, str | int]:
    # A base URL may have a user and a password in it.
    url = URL(base_url + path).with_user(None)
    return {
        "http.request.method": method,
        "url.full": str(url),
        "server.address": url.host or "",
        "server.port": url.port or 0,
    }
