"""What tells whether two agents have the same users and the same rules, and tells nothing else of them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Final, Protocol

DIGITS: Final = 12
"""Of a fingerprint, in hexadecimal: 48 bits, which a sample of Prometheus holds as they are."""

NO_FILE: Final = "0" * DIGITS


class Listed(Protocol):
    """What was read of a file."""

    @property
    def fingerprint(self) -> str: ...


def fingerprint_of(lines: Iterable[str]) -> str:
    """Of the entries of a file, whatever their order, comments and spaces.

    Nobody gets back from it to a line: of a file's SHA-256 it is the begin.
    """
    return hashlib.sha256("\n".join(sorted(set(lines))).encode()).hexdigest()[:DIGITS]


class Fingerprints:
    """Of the files that an agent goes by, as they were last read; NO_FILE where it has none."""

    def __init__(self, users: Listed | None = None, acls: Listed | None = None, quotas: Listed | None = None) -> None:
        self._users = users
        self._acls = acls
        self._quotas = quotas

    @property
    def users(self) -> str:
        """That of `users_file`."""
        return _of(self._users)

    @property
    def acls(self) -> str:
        """That of `acls_file`."""
        return _of(self._acls)

    @property
    def quotas(self) -> str:
        """That of `quotas_file`."""
        return _of(self._quotas)


def _of(listed: Listed | None) -> str:
    return NO_FILE if listed is None else listed.fingerprint
