"""From a request to the principal that sent it. Certificates and files of roles have their place here."""

from __future__ import annotations

import hmac
from typing import Final

from pidkeeper.protocol.errors import ErrorCode
from pidkeeper.service.access import EVERY_ROLE, WITHOUT_OPERATOR, Access, Principal
from pidkeeper.service.exchange import HttpRequest
from pidkeeper.service.problems import HttpError

_ANYBODY: Final = "anonymous"
_TOKEN_HOLDER: Final = "token"  # noqa: S105 - the name of a principal

OPERATOR: Final = Principal("operator", EVERY_ROLE | {Access.OVERRIDE})
"""Whoever has the operators' token."""


class Authenticator:
    """Checks the bearer token (RFC 6750) in constant time.

    `token`: that of all callers; None leaves everybody in. `operator_token`: what operators bring in its place; with
    one, nobody else is an operator. Raises ValueError for an empty token, or if both are the same.
    """

    def __init__(self, token: str | None, operator_token: str | None = None) -> None:
        if "" in {token, operator_token}:
            raise ValueError("the API token is empty; write one into the token file, or configure none")
        if token is not None and token == operator_token:
            raise ValueError("the operators' token is the one of all callers: give operators one of their own")
        roles = EVERY_ROLE if operator_token is None else WITHOUT_OPERATOR
        # Whoever brings no token; None where one is needed for everything.
        self._anybody = Principal(_ANYBODY, roles) if token is None else None
        self._known: tuple[tuple[bytes, Principal], ...] = ()
        if token is not None:
            self._known += ((token.encode(), Principal(_TOKEN_HOLDER, roles)),)
        if operator_token is not None:
            self._known += ((operator_token.encode(), OPERATOR),)

    @property
    def secured(self) -> bool:
        """Whether any caller has to prove who it is."""
        return bool(self._known)

    def authenticate(self, request: HttpRequest) -> Principal:
        """Who sent the request. Raises HttpError (401) if it takes a token that was not brought.

        Where none is needed, an unknown one makes nobody worse off: callers may bring theirs before it is asked for.
        """
        if self._known:
            scheme, _, given = request.headers.get("Authorization", "").partition(" ")
            secret = given.strip().encode("utf-8", "surrogateescape")
            for expected, principal in self._known:
                if scheme.lower() == "bearer" and hmac.compare_digest(secret, expected):
                    return principal
        if self._anybody is not None:
            return self._anybody
        detail = "a valid bearer token is required: Authorization: Bearer <token>"
        headers = {"WWW-Authenticate": 'Bearer realm="pidkeeper"'}
        raise HttpError(401, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, detail, headers=headers)


def not_permitted(principal: Principal, access: Access, whose: str = "") -> HttpError:
    """The refusal of a caller who lacks the role that a call wants; `whose` says who has it."""
    detail = f"{principal.name} may not do this: it needs the role {access.value}" + (whose and f", {whose}")
    return HttpError(403, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, detail)
