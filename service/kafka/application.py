"""What a listener of Kafka's protocol needs from whatever answers its clients."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from pidkeeper.service.access import Principal
from pidkeeper.service.kafka.wire.api_versions import Features
from pidkeeper.service.kafka.wire.versions import Versions

HEAD_BYTES: Final = 6
"""Of a frame: its length and its API key, by which is told how long it may be."""


class Application(Protocol):
    """Answers the clients of a listener. Callers and calls are its own, and nothing to the listener."""

    @property
    def served(self) -> Mapping[int, Versions]:
        """The versions of each API, as ApiVersions lists them."""
        ...

    @property
    def features(self) -> Callable[[], Features | None]:
        """What ApiVersions tells besides, as of now."""
        ...

    @property
    def respond(self) -> Callable[[bytes, Any], tuple[Any, int]]:
        """Answers the complete frames at the front of some bytes of a caller: the response bytes, and how many bytes
        were used. In place of bytes comes a call if the first frame has to wait for something; nothing behind it is
        answered before it is. The call keeps nothing of the bytes but its own frame.

        A call whose attribute `overlaps` is true goes on together with those of its connection behind it that overlap
        as well, MAX_OVERLAPPING at most. They come to `answer_soon` in the order of the requests, their tasks begin in
        it, and they end in any. Everything else waits until they are answered: bytes are held back, and calls begun
        only then. A call without the attribute is alone.

        Raises WireError for a first frame that is malformed, or longer than the application takes: the listener
        gathers whatever is not refused once its first HEAD_BYTES are there."""
        ...

    def caller(
        self, principal: Principal, host: str, has_hung_up: Callable[[], bool], hold: Callable[[float], None]
    ) -> Any:
        """Who asks. `has_hung_up`: whether it has closed its connection. `hold`: have nothing more read from that for
        so many seconds; what is under way goes on, and its answers leave (KIP-219)."""
        ...

    def answer_soon(self, call: Any, done: Callable[[bytes | None], None]) -> bool:
        """As `answer`, for a call that can be answered without a task of its own; whether this is one. `done` gets the
        response frame, or None to close the connection, once and in a later turn of the event loop."""
        ...

    async def answer(self, call: Any) -> bytes:
        """The whole response frame to a call, length field included; no bytes if it wants none, as Produce with acks 0.
        An exception is reported and closes the connection once the calls before it are answered. A call goes on if
        its connection is lost; then the answer is dropped."""
        ...
