"""Tokens that callers share, without their files."""

from __future__ import annotations

from pidkeeper.service.refreshing import Refreshed
from pidkeeper.service.shared_tokens import hashed
from pidkeeper.service.token_hashes import SharedTokens


def sharing(common: str | None = None, operators: str | None = None) -> Refreshed[SharedTokens]:
    """One of each kind, or none."""
    known = [None if token is None else [token] for token in (common, operators)]
    return Refreshed("tokens of a test", [], lambda: hashed(*known))
