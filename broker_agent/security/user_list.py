"""The users of SASL in one file, which has their SCRAM verifiers alone, and is read again when it changes.

A line is `NAME VERIFIER`; a user has one for each mechanism of SCRAM. A verifier is written as PostgreSQL writes it:
`SCRAM-SHA-256$ITERATIONS:SALT$STORED_KEY:SERVER_KEY`, in base64 (RFC 5802, section 3). Nobody can log in with what
stands there, but who reads it can try passwords out.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from scramp import ScramMechanism

from pidkeeper.broker_agent.security.fingerprints import fingerprint_of
from pidkeeper.service.listed_lines import read_lines
from pidkeeper.service.refreshing import Refreshed
from pidkeeper.service.settings import SettingsError
from pidkeeper.service.token_list import NAME

MECHANISMS: Final = {"SCRAM-SHA-256": 32, "SCRAM-SHA-512": 64}
"""Those of SCRAM that Kafka has (KIP-84), with the bytes of their hash."""

MIN_ITERATIONS: Final = 4096
MAX_ITERATIONS: Final = 16_384
"""As in Kafka: clients in Java refuse what lies outside."""

DEFAULT_ITERATIONS: Final = 8192

MIN_SALT_BYTES: Final = 12
"""What the library that speaks SCRAM asks for; Kafka writes more."""

_VERIFIER: Final = re.compile(r"(SCRAM-SHA-(?:256|512))\$([0-9]{1,5}):([^:$]+)\$([^:$]+):([^:$]+)")


class Verifier(NamedTuple):
    """What the server keeps of a password (RFC 5802, section 3)."""

    mechanism: str
    iterations: int
    salt: bytes
    stored_key: bytes
    server_key: bytes

    def matches(self, password: str) -> bool:
        """Whether it is of this password. Takes some milliseconds, by intent. Raises ScramException for no password."""
        own = make_verifier(password, self.mechanism, self.iterations, self.salt)
        return hmac.compare_digest(own.stored_key, self.stored_key)


class User(NamedTuple):
    """A line of the file."""

    name: str
    verifier: Verifier

    @property
    def line(self) -> str:
        """As it stands in the file."""
        mechanism, iterations, *parts = self.verifier
        salt, stored, server = (base64.b64encode(part).decode() for part in parts)
        return f"{self.name} {mechanism}${iterations}:{salt}${stored}:{server}"


class _Users(NamedTuple):
    """What was read of a file. `by_name`: and by mechanism."""

    by_name: Mapping[tuple[str, str], User]
    fingerprint: str

    @classmethod
    def of(cls, users: list[User]) -> _Users:
        return cls(_by_name(users), fingerprint_of(user.line for user in users))


class UserList:
    """The users of a file. Raises SettingsError if it cannot be used."""

    def __init__(self, path: str) -> None:
        self._read = Refreshed(f"the file of users {path}", [path], lambda: _Users.of(read_users(path)))

    def find(self, name: str, *mechanisms: str) -> User | None:
        """A user, by a verifier of one of the mechanisms.

        The file is looked at again: a client whose password is newer than what was read here would take the refusal
        for the last word.
        """
        self.refresh()
        users = (self._read.value.by_name.get((name, mechanism)) for mechanism in mechanisms)
        return next((user for user in users if user is not None), None)

    def has(self, user: User) -> bool:
        """Whether a user is there still, with the same password."""
        return self._read.value.by_name.get((user.name, user.verifier.mechanism)) == user

    @property
    def fingerprint(self) -> str:
        """Of the users and their verifiers in force."""
        return self._read.value.fingerprint

    def refresh(self) -> None:
        """Read the file if it has changed."""
        self._read.refresh()


def make_verifier(password: str, mechanism: str, iterations: int, salt: bytes | None = None) -> Verifier:
    """That of a password, with a new salt unless one is given. Raises ScramException for what can be no password."""
    made = ScramMechanism(mechanism).make_auth_info(password, iteration_count=iterations, salt=salt)
    used_salt, stored_key, server_key, count = made
    return Verifier(mechanism, count, used_salt, stored_key, server_key)


def read_users(path: str) -> list[User]:
    """Those in a file. Raises SettingsError that names the line."""
    found = read_lines(path, "users_file", _parsed)
    if len(_by_name(found)) < len(found):
        raise SettingsError(f"users_file: {path} has a user twice with the same mechanism")
    return found


def _by_name(users: list[User]) -> dict[tuple[str, str], User]:
    return {(user.name, user.verifier.mechanism): user for user in users}


def _parsed(text: str, where: str) -> User:
    name, _, rest = text.partition("#")[0].partition(" ")
    if NAME.fullmatch(name) is None:
        raise SettingsError(f"{where}: a name has letters, digits and ._- alone, 64 at most")
    if (found := _VERIFIER.fullmatch(rest.strip())) is None:
        raise SettingsError(f"{where}: it must be NAME and a verifier; `pidkeeper users create` writes one")
    mechanism, iterations = found[1], int(found[2])
    if not MIN_ITERATIONS <= iterations <= MAX_ITERATIONS:
        raise SettingsError(f"{where}: {iterations} iterations, {MIN_ITERATIONS} to {MAX_ITERATIONS} are allowed")
    try:
        salt, stored_key, server_key = (base64.b64decode(part, validate=True) for part in found.groups()[2:])
    except binascii.Error as error:
        raise SettingsError(f"{where}: salt and keys must be in base64") from error
    if len(salt) < MIN_SALT_BYTES or {len(stored_key), len(server_key)} != {MECHANISMS[mechanism]}:
        raise SettingsError(f"{where}: salt or keys have not the length that {mechanism} wants")
    return User(name, Verifier(mechanism, iterations, salt, stored_key, server_key))
