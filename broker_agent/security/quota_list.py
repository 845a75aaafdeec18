"""Quotas of principals, in one file that is read again when it changes (KIP-13, KIP-55).

A line is `PRINCIPAL NAME=VALUE ...`, with quotes around a principal that has spaces, as in a shell, or `PRINCIPAL
unlimited`. A principal is a name as the log has it, or `*` for each one that has no line of its own. What a line does
not name is unlimited: a line says all of its principal, and `*` adds nothing to it.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from typing import Final

from pidkeeper.broker_agent.security.acls import EVERYBODY
from pidkeeper.broker_agent.security.fingerprints import fingerprint_of
from pidkeeper.broker_agent.security.quota import QUOTAS, UNLIMITED, Quota
from pidkeeper.service.listed_lines import read_lines
from pidkeeper.service.refreshing import Refreshed
from pidkeeper.service.settings import SettingsError

MAX_RATE: Final = 1 << 40
"""A terabyte a second, which no agent has to be kept from. A larger number is a mistake of units."""

_DIGITS: Final = 13
"""Of MAX_RATE."""


class _Quotas:
    """What was read of a file. `default`: of everybody else; None is unlimited."""

    def __init__(self, quotas: list[Quota]) -> None:
        by_principal = {quota.principal: quota if quota.limits else None for quota in quotas}
        self.default: Final = by_principal.pop(EVERYBODY, None)
        self.by_principal: Final[Mapping[str, Quota | None]] = by_principal
        self.fingerprint: Final = fingerprint_of(quota.line for quota in quotas)


class QuotaList:
    """The quotas of a file. Raises SettingsError if it cannot be used. `on_change`: called when there are others."""

    def __init__(self, path: str) -> None:
        self.on_change: Callable[[], None] = lambda: None
        self._read = Refreshed(f"the file of quotas {path}", [path], lambda: _Quotas(read_quotas(path)))

    def find(self, principal: str) -> Quota | None:
        """The quota in force of a principal; None if it has none, and may use as much as it can."""
        quotas = self._read.value
        return quotas.by_principal.get(principal, quotas.default)

    @property
    def fingerprint(self) -> str:
        """Of the quotas in force."""
        return self._read.value.fingerprint

    def refresh(self) -> None:
        """Read the file if it has changed."""
        before = self._read.value
        self._read.refresh()
        if self._read.value is not before:
            self.on_change()


def read_quotas(path: str) -> list[Quota]:
    """Those in a file. Raises SettingsError that names the line."""
    seen: dict[str, str] = {}

    def parsed(text: str, where: str) -> Quota:
        quota = _parsed(text, where)
        if (before := seen.setdefault(quota.principal, where)) != where:
            raise SettingsError(f"{where}: {quota.principal!r} has a quota already, at {before}")
        return quota

    return read_lines(path, "quotas_file", parsed)


def _parsed(text: str, where: str) -> Quota:
    try:
        words = shlex.split(text, comments=True)
    except ValueError as error:
        raise SettingsError(f"{where}: {error}") from error
    if len(words) < 2 or not words[0]:
        raise SettingsError(f"{where}: it must be PRINCIPAL NAME=VALUE ..., or PRINCIPAL {UNLIMITED}")
    principal, *limits = words
    found: dict[str, int] = {}
    for limit in limits if limits != [UNLIMITED] else ():
        name, _, value = limit.partition("=")
        if name not in QUOTAS:
            raise SettingsError(f"{where}: {name!r} is no quota; there is {', '.join(QUOTAS)}")
        if name in found:
            raise SettingsError(f"{where}: {name} is there twice")
        found[name] = _rate(value, f"{where}: {name}")
    return Quota(principal, **found)


def _rate(text: str, where: str) -> int:
    # int() takes signs, spaces and underscores, and digits of other scripts as well.
    digits = text.isascii() and text.isdigit() and len(text) <= _DIGITS
    if not digits or not 1 <= int(text) <= MAX_RATE:
        raise SettingsError(f"{where} must be a whole number from 1 to {MAX_RATE}, not {text!r}")
    return int(text)
