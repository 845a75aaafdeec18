"""What is kept of bearer tokens: hashes. Pure."""

from __future__ import annotations

import hashlib
from typing import NamedTuple, Protocol


def digest_of(token: bytes) -> bytes:
    """What is kept of a token. No slow hash is needed: a token is random where its hash is in a file."""
    return hashlib.sha256(token).digest()


class SharedTokens(NamedTuple):
    """Digests of tokens that callers share: one of everybody, and one of operators; several while one is changed.

    None of a kind that is not configured.
    """

    common: frozenset[bytes] | None = None
    operators: frozenset[bytes] | None = None


class Sharing(Protocol):
    """Shared tokens as they are, and a look whether they have changed. `refreshing.Refreshed` is one."""

    value: SharedTokens

    def refresh(self) -> None: ...
