"""Bearer tokens of many callers in one file, which has their hashes alone, and is read again when it changes.

A line is `NAME ROLES sha256:HASH`. ROLES are names of `certified.KINDS` but for controllers, by comma; `broker:7` is a
broker for that id alone. A token is 32 random bytes, so no slow hash is needed: nobody finds it by trying.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from pidkeeper.service.access import Access, Principal
from pidkeeper.service.certified import KINDS
from pidkeeper.service.listed_lines import read_lines
from pidkeeper.service.refreshing import Refreshed
from pidkeeper.service.settings import SettingsError
from pidkeeper.service.token_hashes import digest_of

NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")
_ROLE: Final = re.compile(r"(operator|viewer|producer|broker)|broker:(0|[1-9][0-9]{0,9})")
_HASH: Final = re.compile(r"sha256:([0-9a-f]{64})")


class ListedToken(NamedTuple):
    """A line of the file. `digest`: SHA-256 of the token."""

    name: str
    roles: tuple[str, ...]
    digest: bytes

    @property
    def line(self) -> str:
        """As it stands in the file."""
        return f"{self.name} {','.join(self.roles)} sha256:{self.digest.hex()}"

    @property
    def principal(self) -> Principal:
        """Whoever brings the token."""
        kinds = [role.partition(":") for role in self.roles]
        roles = frozenset[Access]().union(*(KINDS[kind] for kind, _, _ in kinds))
        unbound = any(kind == "operator" or (kind == "broker" and not of) for kind, _, of in kinds)
        return Principal(self.name, roles, None if unbound else frozenset(int(of) for _, _, of in kinds if of))


class TokenList:
    """The tokens of a file. Raises SettingsError if it cannot be used."""

    def __init__(self, path: str) -> None:
        self._read = Refreshed(
            f"the file of tokens {path}",
            [path],
            lambda: {token.digest: token.principal for token in read_tokens(path)},
        )

    def find(self, token: bytes) -> Principal | None:
        """Whose token it is. What is compared is its hash, so how long that takes tells nothing of a token.

        For one that is unknown the file is looked at again: an agent whose token is newer than what was read here would
        take the refusal for the last word, and end.
        """
        digest = digest_of(token)
        if digest not in self._read.value:
            self.refresh()
        return self._read.value.get(digest)

    def refresh(self) -> None:
        """Read the file if it has changed."""
        self._read.refresh()


def read_tokens(path: str) -> list[ListedToken]:
    """Those in a file. Raises SettingsError that names the line."""
    found = read_lines(path, "tokens_file", _parsed)
    if len({token.digest for token in found}) < len(found):
        raise SettingsError(f"tokens_file: {path} has a token twice")
    return found


def _parsed(text: str, where: str) -> ListedToken:
    words = text.partition("#")[0].split()
    name, roles, digest = (*words, "", "", "")[:3]
    if len(words) != len(ListedToken._fields):
        raise SettingsError(f"{where}: it must be NAME ROLES sha256:HASH; `pidkeeper tokens create` writes one")
    if NAME.fullmatch(name) is None:
        raise SettingsError(f"{where}: a name has letters, digits and ._- alone, 64 at most")
    for role in roles.split(","):
        if not is_role(role):
            raise SettingsError(
                f"{where}: {role!r} is no role; there are operator, viewer, producer, broker, broker:ID"
            )
    if (found := _HASH.fullmatch(digest)) is None:
        raise SettingsError(f"{where}: what follows the roles must be sha256: and 64 hexadecimal digits")
    return ListedToken(name, tuple(roles.split(",")), bytes.fromhex(found[1]))


def is_role(text: str) -> bool:
    """Whether a token may have it."""
    return _ROLE.fullmatch(text) is not None
