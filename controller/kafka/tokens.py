"""How callers of Kafka's protocol show the bearer tokens that others send over HTTP: as the password of PLAIN."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final, NamedTuple

from pidkeeper.service.access import Access, Principal
from pidkeeper.service.authentication import Authenticator
from pidkeeper.service.kafka.mechanisms import MAX_MESSAGE_BYTES, PLAIN, Proven, RefusedError, read_plain
from pidkeeper.service.settings import MAX_SECRET_BYTES

MAX_PLAIN_BYTES: Final = MAX_MESSAGE_BYTES + MAX_SECRET_BYTES
"""Of a message of PLAIN: a token may be as long as it may be over HTTP."""


class Token(NamedTuple):
    """By what a client is known. No text of it, lest it comes to stand in a log."""

    content: bytes

    def __repr__(self) -> str:
        return "Token"


class TokenMechanism:
    """What a listener offers, and an exchange, which has no state: `service.kafka.mechanisms`. As over HTTP, a token
    may come without TLS where `security` allows that.
    """

    def __init__(self, authenticator: Authenticator) -> None:
        self._authenticator = authenticator

    def offered(self, *, encrypted: bool) -> tuple[str, ...]:
        """PLAIN alone."""
        return (PLAIN,)

    def begin(self, _: str) -> TokenMechanism:
        """One message has all."""
        return self

    def step(self, message: bytes) -> Proven:
        """Whose token it is; the name beside it says nothing. Raises RefusedError."""
        _, password = read_plain(message, MAX_PLAIN_BYTES)
        token = Token(password.encode())
        return Proven(self._broker(token), token)

    def stands(self, credential: Hashable) -> bool:
        """Whether the token would still let a broker in."""
        try:
            return isinstance(credential, Token) and bool(self._broker(credential))
        except RefusedError:
            return False

    def _broker(self, token: Token) -> Principal:
        principal = self._authenticator.bearer(token.content)
        if principal is None:
            raise RefusedError("nobody has the token that it sent as a password")
        if Access.BROKER not in principal.roles:
            raise RefusedError(f"{principal.name} has not the role {Access.BROKER.value}")
        return principal
