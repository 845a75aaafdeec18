"""What a listener offers to clients that show who they are by SASL (RFC 4422): the port, and what PLAIN sends. Pure."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Final, NamedTuple, Protocol

from pidkeeper.service.access import Principal

PLAIN: Final = "PLAIN"

MAX_MESSAGE_BYTES: Final = 1024
"""Of a client. The longest of real ones has 300: two nonces and a proof. Preparing a name of that length (RFC 4013)
takes 2 ms."""


class RefusedError(Exception):
    """Why a client is not who it says it is. For the log: the client is told none of it."""


class Challenge(NamedTuple):
    """The server's message, after which the client sends another one."""

    message: bytes


class Proven(NamedTuple):
    """Who it is, with the server's last message. `credential`: by what that is known."""

    principal: Principal
    credential: Hashable
    message: bytes = b""


class PasswordCheck(NamedTuple):
    """A password that somebody sent. `matches` takes milliseconds, so it is for a thread. `proven`: who it is if it
    does; None if there is nobody of that name."""

    matches: Callable[[], bool]
    proven: Proven | None


class Exchange(Protocol):
    """That of one client."""

    def step(self, message: bytes) -> Challenge | Proven | PasswordCheck:
        """What follows on the next message. Raises RefusedError."""
        ...


class Mechanisms(Protocol):
    """What a listener offers."""

    def offered(self, *, encrypted: bool) -> tuple[str, ...]:
        """Their names, the strongest first. `encrypted`: whether the connection is."""
        ...

    def begin(self, mechanism: str) -> Exchange:
        """An exchange by a mechanism that is offered."""
        ...

    def stands(self, credential: Hashable) -> bool:
        """Whether who has proven to have it would still be let in."""
        ...


def text_of(message: bytes, limit: int = MAX_MESSAGE_BYTES) -> str:
    """A message of a client. Raises ValueError."""
    if len(message) > limit:
        raise ValueError(f"a message of {len(message)} bytes")
    return message.decode()


def read_plain(message: bytes, limit: int = MAX_MESSAGE_BYTES) -> tuple[str, str]:
    """Name and password of a message of PLAIN (RFC 4616), which has all. Raises RefusedError."""
    try:
        acting_for, name, password = text_of(message, limit).split("\0")
    except ValueError as error:
        raise RefusedError(f"no message of PLAIN: {error}") from error
    if acting_for not in {"", name}:
        raise RefusedError(f"{name!r} wants to act for {acting_for!r}")
    return name, password
