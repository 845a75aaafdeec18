"""Orders that a page of somebody else has a browser give, in the name of whoever sits before it."""

from __future__ import annotations

from collections.abc import Mapping

from pidkeeper.protocol.errors import ErrorCode
from pidkeeper.service.problems import HttpError, quoted


def refuse_foreign_page(headers: Mapping[str, str]) -> None:
    """Raise HttpError (403) for an order from a page of another origin.

    A browser shows its certificate to any page that asks, and says with every order which page that is (RFC 6454,
    section 7). Whoever is no browser sends neither header.
    """
    origin = headers.get("Origin")
    if origin is None or headers.get("Sec-Fetch-Site") == "same-origin":
        return
    if origin.partition("://")[2] != headers.get("Host"):
        detail = f"a page of {quoted(origin)} may give no orders here"
        raise HttpError(403, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, detail)
