"""One exchange of HTTP as values: what a request is, and what its answer is, whatever carries them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Protocol

import msgspec
from yarl import URL

from pidkeeper.service.access import Principal

Body = bytes | Callable[[], Awaitable[bytes]]


def never() -> bool:
    """Of a caller that does not hang up."""
    return False


class HttpRequest(msgspec.Struct, frozen=True):
    """`url` is the target in origin form. `headers` are looked up without regard to case.

    `body` is there as a whole, or a call that waits for it and raises RequestError if it does not come. `certified`:
    whom the certificate of the connection names; None if it showed none. `has_hung_up`: whether the caller has closed
    the connection.
    """

    method: str
    url: URL
    headers: Mapping[str, str]
    body: Body = b""
    certified: Principal | None = None
    has_hung_up: Callable[[], bool] = never


class Told(Protocol):
    """What goes on being told after the head of an answer, part by part."""

    def parts(self, cut: Callable[[], None]) -> AsyncIterator[bytes]:
        """The parts, as they come. `cut` ends the connection at once: called if the caller falls too far behind."""
        ...

    def close(self) -> None:
        """Nobody listens any more."""
        ...


class HttpResponse(msgspec.Struct, frozen=True):
    """`close`: the connection ends with this answer, since the stream of its requests is out of step.

    `told`: follows the body, which ends only with it, and with the connection. `denied`: why it is refused to a caller
    who has not shown that it may ask; None in all other answers.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes
    close: bool = False
    told: Told | None = None
    denied: str | None = None
