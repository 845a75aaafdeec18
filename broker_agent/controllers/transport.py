"""The port between the controllers' client and whatever carries its requests."""

from __future__ import annotations

from typing import Protocol


class Transport(Protocol):
    """Carries one request to one member and its answer back."""

    async def exchange(
        self, method: str, base_url: str, path: str, body: bytes | None, timeout_seconds: float
    ) -> tuple[int, bytes]:
        """The status of the answer, and its body.

        Raises TimeoutError if no whole answer came within `timeout_seconds`, any other OSError if the member cannot be
        reached or the connection breaks, and ValueError for an answer that is too large. In each of these cases the
        member may still carry the request out; so it may if the call is cancelled.
        """
