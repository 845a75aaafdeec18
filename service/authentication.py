"""From a request to the principal that sent it. Certificates and files of roles have their place here."""

from __future__ import annotations

import hmac
from typing import Final

from pidkeeper.protocol.errors import ErrorCode
from pidkeeper.service.access import EVERY_ROLE, Access, Principal
from pidkeeper.service.exchange import HttpRequest
from pidkeeper.service.problems import HttpError

OPEN: Final = Principal("anonymous", EVERY_ROLE)
"""Everybody, where no token is configured."""

TOKEN_HOLDER: Final = Principal("token", EVERY_ROLE)
"""Whoever has the one token."""


class Authenticator:
    """Checks the bearer token (RFC 6750) in constant time; with None everybody may do everything.

    Raises ValueError for an empty token.
    """

    def __init__(self, token: str | None) -> None:
        if token is not None and not token:
            raise ValueError("the API token is empty; write one into the token file, or configure none")
        self._expected = None if token is None else token.encode()

    @property
    def secured(self) -> bool:
        """Whether callers have to prove who they are."""
        return self._expected is not None

    def authenticate(self, request: HttpRequest) -> Principal:
        """Who sent the request. Raises HttpError (401) without a valid token."""
        if self._expected is None:
            return OPEN
        scheme, _, given = request.headers.get("Authorization", "").partition(" ")
        matches = hmac.compare_digest(given.strip().encode("utf-8", "surrogateescape"), self._expected)
        if scheme.lower() != "bearer" or not matches:
            detail = "a valid bearer token is required: Authorization: Bearer <token>"
            headers = {"WWW-Authenticate": 'Bearer realm="pidkeeper"'}
            raise HttpError(401, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, detail, headers=headers)
        return TOKEN_HOLDER


def not_permitted(principal: Principal, access: Access) -> HttpError:
    """The refusal of a caller who lacks the role that a route wants."""
    detail = f"{principal.name} may not do this: it needs the role {access.value}"
    return HttpError(403, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, detail)
