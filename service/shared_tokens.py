"""The files of tokens that callers share: one a line, of which hashes are kept, and read again when they change."""

from __future__ import annotations

from collections.abc import Sequence

from pidkeeper.service.refreshing import Refreshed
from pidkeeper.service.settings import SettingsError, read_secrets
from pidkeeper.service.token_hashes import SharedTokens, digest_of


def shared_tokens(token_file: str | None, operator_token_file: str | None) -> Refreshed[SharedTokens]:
    """Those in these files. Raises SettingsError."""

    def read() -> SharedTokens:
        common, operators = (
            None if path is None else read_secrets(path, key)
            for path, key in ((token_file, "token_file"), (operator_token_file, "operator_token_file"))
        )
        return hashed(common, operators)

    return Refreshed("token_file or operator_token_file", [token_file, operator_token_file], read)


def hashed(common: Sequence[str] | None = None, operators: Sequence[str] | None = None) -> SharedTokens:
    """Of tokens what is kept. Raises SettingsError if one is of both kinds."""
    found = SharedTokens(*(_digests(tokens) for tokens in (common, operators)))
    if found.common is not None and found.operators is not None and found.common & found.operators:
        raise SettingsError("operator_token_file: it holds the token of all callers; give operators one of their own")
    return found


def _digests(tokens: Sequence[str] | None) -> frozenset[bytes] | None:
    return None if tokens is None else frozenset(digest_of(token.encode()) for token in tokens)
