"""From a request to the principal that sent it: by its bearer token, or by the certificate of its connection."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pidkeeper.protocol.errors import ErrorCode
from pidkeeper.service.access import EVERY_ROLE, WITHOUT_OPERATOR, Access, Principal
from pidkeeper.service.exchange import HttpRequest
from pidkeeper.service.problems import HttpError
from pidkeeper.service.token_hashes import SharedTokens, Sharing, digest_of

_ANYBODY: Final = "anonymous"
_TOKEN_HOLDER: Final = "token"  # noqa: S105 - the name of a principal

BEARER: Final = "bearer"
CERTIFICATE: Final = "certificate"

OPERATOR: Final = Principal("operator", EVERY_ROLE | {Access.OVERRIDE})
"""Whoever has the operators' token."""


class Authenticator:
    """Looks for the bearer token (RFC 6750), and without one takes whom the certificate names.

    `shared`: tokens of all callers, and of operators. `listed`: tokens of many, each with roles of its own. With tokens
    of operators or a list, nobody else is an operator, but for certificates that say so. `closed`: whether everybody
    must have a name; without it, and without a common token or a list, all are let in. `anybody`: who a caller is that
    shows nothing; None where something is needed.
    """

    def __init__(
        self,
        shared: Sharing | None = None,
        *,
        listed: Callable[[bytes], Principal | None] | None = None,
        closed: bool = False,
    ) -> None:
        known = SharedTokens() if shared is None else shared.value
        self._shared = shared
        roles = EVERY_ROLE if known.operators is None and listed is None else WITHOUT_OPERATOR
        self.closed: Final = closed
        self._listed = listed
        self._holder = Principal(_TOKEN_HOLDER, roles)
        self.anybody: Final = (
            Principal(_ANYBODY, roles) if known.common is None and listed is None and not closed else None
        )
        self._takes_tokens = known != SharedTokens() or listed is not None

    @property
    def ways(self) -> tuple[str, ...]:
        """How a caller proves who it is, BEARER or CERTIFICATE; none where nobody has to."""
        tokens = (BEARER,) if self._takes_tokens else ()
        return (*tokens, CERTIFICATE) if self.closed else tokens

    def authenticate(self, request: HttpRequest) -> Principal:
        """Who sent the request. Raises HttpError (401) if nothing says so and it takes that.

        Where nothing is needed, an unknown token makes nobody worse off, and a certificate neither: callers may bring
        theirs before they are asked for.
        """
        if self._takes_tokens:
            scheme, _, given = request.headers.get("Authorization", "").partition(" ")
            if scheme.lower() == "bearer":
                found = self.bearer(given.strip().encode("utf-8", "surrogateescape"))
                if found is not None:
                    return found
        certified = request.certified
        if self.anybody is not None:
            return self.anybody if certified is None else _more(certified, self.anybody)
        if certified is not None:
            return certified
        what = "a bearer token or a client certificate" if self.closed else "a valid bearer token"
        detail = f"{what} is required: Authorization: Bearer <token>"
        headers = {"WWW-Authenticate": 'Bearer realm="pidkeeper"'}
        raise HttpError(401, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, detail, headers=headers)

    def bearer(self, token: bytes) -> Principal | None:
        """Whose token it is. As in `TokenList.find`, files are looked at again for one that is unknown."""
        digest = digest_of(token)
        if (found := self._sharing(digest)) is not None:
            return found
        if self._listed is not None and (found := self._listed(token)) is not None:
            return found
        if self._shared is not None:
            self._shared.refresh()
        return self._sharing(digest)

    def _sharing(self, digest: bytes) -> Principal | None:
        common, operators = SharedTokens() if self._shared is None else self._shared.value
        if common is not None and digest in common:
            return self._holder
        return OPERATOR if operators is not None and digest in operators else None


def _more(certified: Principal, anybody: Principal) -> Principal:
    return Principal(certified.name, certified.roles | anybody.roles)


def not_permitted(principal: Principal, access: Access, whose: str = "") -> HttpError:
    """The refusal of a caller who lacks the role that a call wants; `whose` says who has it."""
    detail = f"{principal.name} may not do this: it needs the role {access.value}" + (whose and f", {whose}")
    return HttpError(403, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, detail)


def check_broker(principal: Principal, broker_id: int) -> None:
    """Raise HttpError (403) if the caller is a broker, and not this one."""
    if not principal.may_act_for(broker_id):
        detail = f"{principal.name} may not act for broker {broker_id}"
        raise HttpError(403, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, detail)
