"""Who claims IDs of agents all the time, and writes down what he was told."""

from __future__ import annotations

import abc
import http.client
import json
import ssl
import threading
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Final, Self

PERIOD_SECONDS: Final = 0.01
ANSWER_SECONDS: Final = 5.0


def connect(address: str, context: ssl.SSLContext | None) -> http.client.HTTPConnection:
    """A connection to the HTTP port of a pod, over TLS if there is a context."""
    if context is None:
        return http.client.HTTPConnection(address, 8080, timeout=ANSWER_SECONDS)
    return http.client.HTTPSConnection(address, 8080, timeout=ANSWER_SECONDS, context=context)


def claim(connection: http.client.HTTPConnection) -> tuple[int, bytes]:
    """Ask for one ID; status and body of the answer. Raises OSError or HTTPException."""
    connection.request("POST", "/v1/init-producer-id", "{}", {"Content-Type": "application/json"})
    answer = connection.getresponse()
    return answer.status, answer.read()


def quorum(address: str, context: ssl.SSLContext | None = None) -> Any:
    """The quorum as a controller describes it. Raises OSError or HTTPException."""
    connection = connect(address, context)
    try:
        connection.request("GET", "/v1/quorum")
        return json.loads(connection.getresponse().read())
    finally:
        connection.close()


class Callers(abc.ABC):
    """Threads that claim IDs from begin to end. `ids`: what was given; `failed`: what went wrong."""

    def __init__(self, count: int) -> None:
        self.ids: list[int] = []
        self.failed: list[str] = []
        self._end = threading.Event()
        self._threads = [threading.Thread(target=self._claim, args=(one,), daemon=True) for one in range(count)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._end.set()
        for thread in self._threads:
            thread.join()

    @abc.abstractmethod
    def _claim(self, number: int) -> None:
        """What the caller with this number does until `_end` is set."""


class Claims(Callers):
    """Claims one ID after the other of each address, over connections that stay."""

    def __init__(self, addresses: Sequence[str], context: ssl.SSLContext | None) -> None:
        super().__init__(len(addresses))
        self._addresses = addresses
        self._context = context

    def _claim(self, number: int) -> None:
        address = self._addresses[number]
        connection = connect(address, self._context)
        while not self._end.is_set():
            try:
                status, body = claim(connection)
                if status == 200:
                    self.ids.append(json.loads(body)["producer_id"])
                else:
                    self.failed.append(f"{address}: {status} {body[:200]!r}")
            except (OSError, http.client.HTTPException) as error:
                self.failed.append(f"{datetime.now(UTC):%H:%M:%S} {address}: {error!r}")
                connection.close()
            time.sleep(PERIOD_SECONDS)
