"""The server's side of SASL: who a client is, by PLAIN (RFC 4616) or SCRAM (RFC 5802, RFC 7677).

Whether a name exists is not told: the exchange of an unknown one takes the same steps, and as long.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Callable
from typing import Final, NamedTuple

from scramp import ScramException, ScramMechanism

from pidkeeper.broker_agent.security.user_list import DEFAULT_ITERATIONS, MECHANISMS, User, UserList, Verifier

PLAIN: Final = "PLAIN"

MAX_MESSAGE_BYTES: Final = 1024
"""Of a client. The longest of real ones has 300: two nonces and a proof. Preparing a name of that length (RFC 4013)
takes 2 ms."""


class RefusedError(Exception):
    """Why a client is not who it says it is. For the log: the client is told none of it."""


class PasswordCheck(NamedTuple):
    """A password that somebody sent. `matches` takes milliseconds, so it is for a thread."""

    matches: Callable[[], bool]
    user: User | None


class Sasl:
    """What a listener offers to users of a list."""

    def __init__(self, users: UserList) -> None:
        self.users: Final = users
        self._secret = secrets.token_bytes(32)

    def offered(self, *, encrypted: bool) -> tuple[str, ...]:
        """The mechanisms. PLAIN sends the password itself, so it wants TLS."""
        return (*reversed(MECHANISMS), PLAIN) if encrypted else tuple(reversed(MECHANISMS))

    def begin(self, mechanism: str) -> Plain | Scram:
        """An exchange by a mechanism that is offered."""
        return Plain(self) if mechanism == PLAIN else Scram(self, mechanism)

    def verifier(self, user: User | None, name: str, mechanism: str) -> Verifier:
        """That of a user. If there is none, one that no password fits, the same whenever the name is asked for."""
        if user is not None:
            return user.verifier
        salt = hmac.digest(self._secret, f"{mechanism} {name}".encode(), hashlib.sha256)
        key = secrets.token_bytes(MECHANISMS[mechanism])
        return Verifier(mechanism, DEFAULT_ITERATIONS, salt, key, key)


class Plain:
    """One exchange by PLAIN: a single message has all."""

    def __init__(self, sasl: Sasl) -> None:
        self._sasl = sasl

    def step(self, message: bytes) -> PasswordCheck:
        """What is to be checked. Raises RefusedError."""
        try:
            acting_for, name, password = _text(message).split("\0")
        except ValueError as error:
            raise RefusedError(f"no message of PLAIN: {error}") from error
        if acting_for not in {"", name}:
            raise RefusedError(f"{name!r} wants to act for {acting_for!r}")
        user = self._sasl.users.find(name, *MECHANISMS)
        verifier = self._sasl.verifier(user, name, next(iter(MECHANISMS)))

        def matches() -> bool:
            try:
                return verifier.matches(password) and user is not None
            except ScramException:
                return False

        return PasswordCheck(matches, user)


class Scram:
    """One exchange by a mechanism of SCRAM: the client's first message, and its final one. `user`: who it is, then."""

    def __init__(self, sasl: Sasl, mechanism: str) -> None:
        self.user: User | None = None
        self._sasl = sasl
        self._mechanism = mechanism
        self._claimed: User | None = None
        self._begun = False
        self._server = ScramMechanism(mechanism).make_server(self._look_up)

    def step(self, message: bytes) -> bytes:
        """The server's answer to the next message. Raises RefusedError."""
        try:
            text = _text(message)
            if not self._begun:
                self._begun = True
                self._server.set_client_first(text)
                return str(self._server.get_server_first()).encode()
            self._server.set_client_final(text)
        except (ScramException, ValueError) as error:
            who = "nobody that is known" if self._claimed is None else self._claimed.name
            raise RefusedError(f"{who}: {error}") from error
        self.user = self._claimed
        return str(self._server.get_server_final()).encode()

    def _look_up(self, name: str) -> tuple[bytes, bytes, bytes, int]:
        self._claimed = self._sasl.users.find(name, self._mechanism)
        verifier = self._sasl.verifier(self._claimed, name, self._mechanism)
        return verifier.salt, verifier.stored_key, verifier.server_key, verifier.iterations


def _text(message: bytes) -> str:
    if len(message) > MAX_MESSAGE_BYTES:
        raise ValueError(f"a message of {len(message)} bytes")
    return message.decode()
