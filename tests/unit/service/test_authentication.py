"""Who a caller is by the token that it brings, with and without a token of the operators."""

from __future__ import annotations

import pytest
from yarl import URL

from pidkeeper.service.access import EVERY_ROLE, Access
from pidkeeper.service.authentication import OPERATOR, Authenticator
from pidkeeper.service.exchange import HttpRequest
from pidkeeper.service.problems import HttpError
from tests.support.sharing import sharing

COMMON, OPERATORS = "correct horse", "battery staple"


def caller(authenticator: Authenticator, header: str | None) -> tuple[str, frozenset[Access]]:
    """Name and roles of who sends `header`. Raises HttpError."""
    headers = {} if header is None else {"Authorization": header}
    principal = authenticator.authenticate(HttpRequest("GET", URL("/"), headers))
    return principal.name, principal.roles


def test_without_tokens_everybody_has_every_role_but_that_to_override() -> None:
    authenticator = Authenticator()
    for header in (None, "Bearer anything", "nonsense"):
        assert caller(authenticator, header) == ("anonymous", EVERY_ROLE)
    assert authenticator.ways == ()
    assert Access.OVERRIDE not in EVERY_ROLE


def test_the_only_token_is_good_for_everything_but_to_override() -> None:
    assert caller(Authenticator(sharing(COMMON)), f"Bearer {COMMON}") == ("token", EVERY_ROLE)


@pytest.mark.parametrize(("common", "header"), [(COMMON, f"Bearer {COMMON}"), (None, None)])
def test_beside_the_operators_token_nobody_else_is_an_operator(common: str | None, header: str | None) -> None:
    authenticator = Authenticator(sharing(common, OPERATORS))
    name, roles = caller(authenticator, header)
    assert name == ("anonymous" if common is None else "token")
    assert roles == EVERY_ROLE - {Access.OPERATOR}
    assert caller(authenticator, f"bearer {OPERATORS}") == ("operator", OPERATOR.roles)
    assert {Access.OPERATOR, Access.OVERRIDE, Access.BROKER} <= OPERATOR.roles
    assert authenticator.ways == ("bearer",)


@pytest.mark.parametrize("header", [None, "Bearer wrong", f"Basic {OPERATORS}", OPERATORS, "Bearer", "Bearer \u00e9"])
def test_a_wrong_token_is_none(header: str | None) -> None:
    with pytest.raises(HttpError) as refused:
        caller(Authenticator(sharing(COMMON, OPERATORS)), header)
    assert refused.value.status == 401
    # Where none is needed, agents may bring the token that controllers will ask for soon.
    assert caller(Authenticator(sharing(None, OPERATORS)), header) == ("anonymous", EVERY_ROLE - {Access.OPERATOR})
