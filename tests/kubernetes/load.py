"""Who claims IDs of the agents' Service all the time: of one of its ready pods, and if that is gone of another."""

from __future__ import annotations

import http.client
import json
import threading
import time
from types import TracebackType
from typing import Final, Self

from tests.kubernetes.service_names import ServiceNames
from tests.pods.load import PERIOD_SECONDS, claim, connect

CALLERS: Final = 4
ATTEMPTS: Final = 3
"""Of one claim, each at another pod: one that ended may still be named for a moment."""


class ServiceClaims:
    """`ids`: what was given. `failed`: claims that no pod answered, or that one refused."""

    def __init__(self, names: ServiceNames, service: str) -> None:
        self._names = names
        self._service = service
        self.ids: list[int] = []
        self.failed: list[str] = []
        self._end = threading.Event()
        self._threads = [threading.Thread(target=self._claim, args=(n,), daemon=True) for n in range(CALLERS)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._end.set()
        for thread in self._threads:
            thread.join()

    def _claim(self, number: int) -> None:
        connection: http.client.HTTPConnection | None = None
        while not self._end.is_set():
            tried: list[str] = []
            while len(tried) < ATTEMPTS:
                if connection is None:
                    ready = self._names.ready(self._service)
                    if not ready:
                        tried.append("nobody is ready")
                        time.sleep(PERIOD_SECONDS)
                        continue
                    connection = connect(ready[(number + len(tried)) % len(ready)], None)
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
                break
            else:
                self.failed.append("; ".join(tried))
            time.sleep(PERIOD_SECONDS)
