"""Plain HTTP calls, and raw bytes where a well-behaved client would not send them."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

CALL_SECONDS: Final = 30.0
"""Longer than the controller lets a request wait (10 s): a call ends with an answer or with a dead member."""


class Answer(NamedTuple):
    """Status, headers (names in lower case) and body of one answer."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        """The decoded body."""
        return json.loads(self.body)


def address_of(base_url: str) -> tuple[str, int]:
    """Host and port of `http://host:port` or `host:port`."""
    parts = urlsplit(base_url if "//" in base_url else f"//{base_url}")
    assert parts.hostname is not None and parts.port is not None, f"no host and port in {base_url}"
    return parts.hostname, parts.port


def call(
    base_url: str,
    method: str,
    path: str,
    body: Any = None,
    *,
    token: str | None = None,
    timeout: float = CALL_SECONDS,
    context: ssl.SSLContext | None = None,
    traceparent: str | None = None,
    source: str | None = None,
) -> Answer:
    """One request; `body` is sent as JSON unless it is bytes already. `context`: over TLS, to an https:// address.
    `source`: the address to come from.

    Raises OSError or HTTPException.
    """
    sent = {"Content-Type": "application/json"} | ({} if token is None else {"Authorization": f"Bearer {token}"})
    if traceparent is not None:
        sent["traceparent"] = traceparent
    from_address = None if source is None else (source, 0)
    if base_url.startswith("https://"):
        connection: http.client.HTTPConnection = http.client.HTTPSConnection(
            *address_of(base_url), timeout=timeout, context=context, source_address=from_address
        )
    else:
        connection = http.client.HTTPConnection(*address_of(base_url), timeout=timeout, source_address=from_address)
    try:
        payload = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        connection.request(method, path, payload, sent)
        response = connection.getresponse()
        headers = {name.lower(): value for name, value in response.getheaders()}
        return Answer(response.status, headers, response.read())
    finally:
        connection.close()


def exchange(address: str, data: bytes, *, end: bool = False, wanted: int = 2**31) -> bytes:
    """Send `data` over a new connection and return what comes back until the other side closes it.

    `end`: say that nothing more follows, as a client does that dies. `wanted`: return after that many bytes already.
    Raises TimeoutError if the connection stays open and silent.
    """
    received = b""
    with socket.create_connection(address_of(address), timeout=CALL_SECONDS) as connection:
        try:
            connection.sendall(data)
            if end:
                connection.shutdown(socket.SHUT_WR)
            while len(received) < wanted and (chunk := connection.recv(65_536)):
                received += chunk
        except ConnectionError:
            # Closed with a reset: what was sent was not even read.
            return received
    return received
