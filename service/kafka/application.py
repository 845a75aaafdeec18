"""What a listener of Kafka's protocol needs from whatever answers its clients."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from pidkeeper.service.access import Principal
from pidkeeper.service.kafka.wire.versions import Versions


class Application(Protocol):
    """Answers the clients of a listener. Callers and calls are its own, and nothing to the listener."""

    @property
    def served(self) -> Mapping[int, Versions]:
        """The versions of each API, as ApiVersions lists them."""
        ...

    @property
    def respond(self) -> Callable[[bytes, Any], tuple[Any, int]]:
        """Answers the complete frames at the front of some bytes of a caller: the response bytes, and how many bytes
        were used. In place of bytes comes a call if the first frame has to wait for something; nothing behind it is
        answered before it is. Raises WireError for a first frame that is malformed."""
        ...

    def caller(self, principal: Principal, host: str, has_hung_up: Callable[[], bool]) -> Any:
        """Who asks. `has_hung_up`: whether it has closed its connection."""
        ...

    def answer_soon(self, call: Any, done: Callable[[bytes | None], None]) -> bool:
        """As `answer`, for a call that can be answered without a task of its own; whether this is one. `done` gets the
        response frame, in a later turn of the event loop."""
        ...

    async def answer(self, call: Any) -> bytes:
        """The whole response frame to a call, length field included."""
        ...
