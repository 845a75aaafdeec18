"""`test.service` of kafka-python's tests, which its source distribution leaves out: no server is started."""

from __future__ import annotations

from typing import Final


class ExternalService:
    """A broker that runs already, at `host` and `port`."""

    def __init__(self, host: str, port: int) -> None:
        self.host: Final = host
        self.port: Final = port


class SpawnedService:
    """Never started here."""
