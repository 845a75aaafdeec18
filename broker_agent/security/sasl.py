"""The server's side of SASL: who a client is, by PLAIN (RFC 4616) or SCRAM (RFC 5802, RFC 7677).

Whether a name exists is not told: the exchange of an unknown one takes the same steps, and as long.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Hashable
from typing import Final

from scramp import ScramException, ScramMechanism

from pidkeeper.broker_agent.security.user_list import DEFAULT_ITERATIONS, MECHANISMS, User, UserList, Verifier
from pidkeeper.service.access import Access, Principal
from pidkeeper.service.kafka.mechanisms import (
    PLAIN,
    Challenge,
    PasswordCheck,
    Proven,
    RefusedError,
    read_plain,
    text_of,
)

_PRODUCER: Final = frozenset({Access.PRODUCER})


class Sasl:
    """What a listener offers to users of a list: `service.kafka.mechanisms.Mechanisms`."""

    def __init__(self, users: UserList) -> None:
        self.users: Final = users
        self._secret = secrets.token_bytes(32)

    def offered(self, *, encrypted: bool) -> tuple[str, ...]:
        """The mechanisms. PLAIN sends the password itself, so it wants TLS."""
        return (*reversed(MECHANISMS), PLAIN) if encrypted else tuple(reversed(MECHANISMS))

    def begin(self, mechanism: str) -> Plain | Scram:
        """An exchange by a mechanism that is offered."""
        return Plain(self) if mechanism == PLAIN else Scram(self, mechanism)

    def stands(self, credential: Hashable) -> bool:
        """Whether a user is there still, with the same password."""
        return isinstance(credential, User) and self.users.has(credential)

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
        name, password = read_plain(message)
        user = self._sasl.users.find(name, *MECHANISMS)
        verifier = self._sasl.verifier(user, name, next(iter(MECHANISMS)))

        def matches() -> bool:
            try:
                return verifier.matches(password) and user is not None
            except ScramException:
                return False

        return PasswordCheck(matches, None if user is None else _proven(user))


class Scram:
    """One exchange by a mechanism of SCRAM: the client's first message, and its final one."""

    def __init__(self, sasl: Sasl, mechanism: str) -> None:
        self._sasl = sasl
        self._mechanism = mechanism
        self._claimed: User | None = None
        self._begun = False
        self._server = ScramMechanism(mechanism).make_server(self._look_up)

    def step(self, message: bytes) -> Challenge | Proven:
        """The server's answer to the next message. Raises RefusedError."""
        try:
            text = text_of(message)
            if not self._begun:
                self._begun = True
                self._server.set_client_first(text)
                return Challenge(str(self._server.get_server_first()).encode())
            self._server.set_client_final(text)
        except (ScramException, ValueError) as error:
            who = "nobody that is known" if self._claimed is None else self._claimed.name
            raise RefusedError(f"{who}: {error}") from error
        assert self._claimed is not None, "nobody has the keys of the verifier that stands for a user who is not there"
        return _proven(self._claimed, str(self._server.get_server_final()).encode())

    def _look_up(self, name: str) -> tuple[bytes, bytes, bytes, int]:
        self._claimed = self._sasl.users.find(name, self._mechanism)
        verifier = self._sasl.verifier(self._claimed, name, self._mechanism)
        return verifier.salt, verifier.stored_key, verifier.server_key, verifier.iterations


def _proven(user: User, message: bytes = b"") -> Proven:
    return Proven(Principal(user.name, _PRODUCER), user, message)
