"""Who claims IDs of the agents' Service all the time: of one of its ready pods, and if that is gone of another."""

from __future__ import annotations

import http.client
import json
import time
from typing import Final

from tests.kubernetes.service_names import ServiceNames
from tests.pods.load import PERIOD_SECONDS, Callers, claim, connect

CALLERS: Final = 4
ATTEMPTS: Final = 3
"""Of one claim, each at another pod: one that ended may still be named for a moment."""


class ServiceClaims(Callers):
    """`failed`: claims that no pod answered, or that one refused."""

    def __init__(self, names: ServiceNames, service: str) -> None:
        super().__init__(CALLERS)
        self._names = names
        self._service = service

    def _claim(self, number: int) -> None:
        connection: http.client.HTTPConnection | None = None
        while not self._end.is_set():
            connection = self._claim_one(number, connection)
            time.sleep(PERIOD_SECONDS)

    def _claim_one(
        self, number: int, connection: http.client.HTTPConnection | None
    ) -> http.client.HTTPConnection | None:
        """Claim one ID; returns the connection to go on with, if any is good."""
        tried: list[str] = []
        while len(tried) < ATTEMPTS:
            if connection is None and (connection := self._connect(number + len(tried))) is None:
                tried.append("nobody is ready")
                time.sleep(PERIOD_SECONDS)
                continue
            try:
                status, body = claim(connection)
            except (OSError, http.client.HTTPException) as error:
                tried.append(f"{connection.host}: {error!r}")
                connection.close()
                connection = None
                continue
            if status == 200:
                self.ids.append(json.loads(body)["producer_id"])
            else:
                self.failed.append(f"{connection.host}: {status} {body[:200]!r}")
            return connection
        self.failed.append("; ".join(tried))
        return None

    def _connect(self, turn: int) -> http.client.HTTPConnection | None:
        ready = self._names.ready(self._service)
        return connect(ready[turn % len(ready)], None) if ready else None
