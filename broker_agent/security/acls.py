"""Rules of who may use which transactional id, topic and group, in one file that is read again when it changes.

A line is `allow|deny PRINCIPAL RESOURCE PATTERN`, with quotes around what has spaces, as in a shell. A principal is a
name as the log has it, or `*` for everybody. A pattern that ends in `*` is of all names that begin so. As in Kafka,
what is denied is denied, whatever is allowed besides, and what no rule allows is not allowed; and who may read, write
or delete a topic or a group may describe it. `topic` and `group` stand for all that can be done to one.
"""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from pidkeeper.broker_agent.security.fingerprints import fingerprint_of
from pidkeeper.broker_agent.security.resources import DESCRIBES, PARTS, RESOURCES, TRANSACTIONAL_ID
from pidkeeper.service.listed_lines import read_lines
from pidkeeper.service.refreshing import Refreshed
from pidkeeper.service.settings import SettingsError

ALLOW: Final = "allow"
DENY: Final = "deny"
EVERYBODY: Final = "*"

_NONE: Final[frozenset[str]] = frozenset()


class Acl(NamedTuple):
    """A line of the file."""

    effect: str
    principal: str
    resource: str
    pattern: str

    @property
    def line(self) -> str:
        """As it stands in the file."""
        return shlex.join(self)

    def matches(self, resource: str, name: str) -> bool:
        """Whether it is about this one."""
        if not self._is_of(resource):
            return False
        return name.startswith(self.pattern[:-1]) if self.pattern.endswith("*") else name == self.pattern

    def _is_of(self, resource: str) -> bool:
        if resource == self.resource or resource in PARTS.get(self.resource, _NONE):
            return True
        return self.effect == ALLOW and self.resource in DESCRIBES.get(resource, _NONE)


class _Rules(NamedTuple):
    """What was read of a file."""

    by_principal: Mapping[str, Sequence[Acl]]
    fingerprint: str

    @classmethod
    def of(cls, acls: Sequence[Acl]) -> _Rules:
        return cls(_by_principal(acls), fingerprint_of(acl.line for acl in acls))


class AclList:
    """The rules of a file. Raises SettingsError if it cannot be used."""

    def __init__(self, path: str) -> None:
        self._read = Refreshed(f"the file of rules {path}", [path], lambda: _Rules.of(read_acls(path)))

    def may_use(self, principal: str) -> Callable[[str], bool]:
        """What is asked of somebody's transactional ids. It goes by the rules as they are when it is asked.

        Before a refusal the file is looked at again: a client takes that for the last word, and its rule may be newer
        than what was read here.
        """

        may = self.may(principal)
        return lambda name: may(TRANSACTIONAL_ID, name)

    def may(self, principal: str) -> Callable[[str, str], bool]:
        """What is asked of somebody: of which of RESOURCES, and of which name. See `may_use`."""

        def may(resource: str, name: str) -> bool:
            if not self._allows(principal, resource, name):
                self.refresh()
            return self._allows(principal, resource, name)

        return may

    @property
    def fingerprint(self) -> str:
        """Of the rules in force."""
        return self._read.value.fingerprint

    def refresh(self) -> None:
        """Read the file if it has changed."""
        self._read.refresh()

    def _allows(self, principal: str, resource: str, name: str) -> bool:
        return decide(self._read.value.by_principal, principal, resource, name)


def allows(acls: Sequence[Acl], principal: str, resource: str, name: str) -> bool:
    """What rules come to."""
    return decide(_by_principal(acls), principal, resource, name)


def decide(acls: Mapping[str, Sequence[Acl]], principal: str, resource: str, name: str) -> bool:
    """The same, of rules by their principal."""
    about = [acl for who in {principal, EVERYBODY} for acl in acls.get(who, ()) if acl.matches(resource, name)]
    return bool(about) and all(acl.effect == ALLOW for acl in about)


def read_acls(path: str) -> list[Acl]:
    """Those in a file. Raises SettingsError that names the line."""
    return read_lines(path, "acls_file", _parsed)


def _by_principal(acls: Sequence[Acl]) -> Mapping[str, Sequence[Acl]]:
    found = defaultdict[str, list[Acl]](list)
    for acl in acls:
        found[acl.principal].append(acl)
    return dict(found)


def _parsed(text: str, where: str) -> Acl:
    try:
        words = shlex.split(text, comments=True)
    except ValueError as error:
        raise SettingsError(f"{where}: {error}") from error
    if len(words) != len(Acl._fields) or not all(words):
        raise SettingsError(f"{where}: it must be allow|deny PRINCIPAL RESOURCE PATTERN")
    acl = Acl(*words)
    if acl.effect not in {ALLOW, DENY}:
        raise SettingsError(f"{where}: a rule begins with allow or deny, not with {acl.effect!r}")
    if acl.resource not in RESOURCES:
        raise SettingsError(f"{where}: {acl.resource!r} is no resource; there is {', '.join(RESOURCES)}")
    return acl
