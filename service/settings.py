"""Configuration: a TOML file, overridden by the environment, checked against one msgspec Struct.

A key that does not exist is an error that names it and the keys that do.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from pidkeeper.protocol.addresses import AddressError, HostPort

T = TypeVar("T", bound=msgspec.Struct)

_UNKNOWN_FIELD: Final = re.compile(r"unknown field `(?P<key>[^`]*)`(?: - at `\$\.?(?P<where>[^`]*)`)?")


MAX_SECRET_BYTES: Final = 4096
"""Longest secret: HTTP servers take header lines of 8 KiB."""


MAX_SECRETS: Final = 4
"""Secrets in one file: the old and the new one while they are rotated, and some that were left."""


class SettingsError(ValueError):
    """The configuration cannot be used; the message says which key or file, and what to do."""


def load_settings(
    shape: type[T], path: Path | None, environment: Mapping[str, str], prefix: str, *, lists: tuple[str, ...] = ()
) -> T:
    """Read `path` (if any), override by variables `<prefix><KEY>` and `<prefix><TABLE>__<KEY>`, and check.

    `lists`: keys whose variables have commas between their items. Raises SettingsError.
    """
    values: dict[str, Any] = {} if path is None else _read(path)
    for name, value in environment.items():
        if name.startswith(prefix):
            _place(values, name.removeprefix(prefix).lower().split("__"), value, name)
    for key in lists:
        if isinstance(text := values.get(key), str):
            values[key] = [item.strip() for item in text.split(",") if item.strip()]
    try:
        return msgspec.convert(values, shape, strict=False)
    except msgspec.ValidationError as error:
        raise SettingsError(f"{path or 'environment'}: {_explain(error, shape)}") from error


def require_assertions() -> None:
    """Raise SettingsError under `python -O`: the invariants are assertions, and safety rests on them."""
    if not __debug__:
        raise SettingsError("pidkeeper does not run with assertions switched off: unset PYTHONOPTIMIZE and drop -O")


def parse_address(text: str, key: str) -> HostPort:
    """`host:port`, port 0 included. Raises SettingsError that names `key`."""
    try:
        return HostPort.parse(text, key)
    except AddressError as error:
        raise SettingsError(str(error)) from error


def parse_optional_address(text: str | None, key: str) -> HostPort | None:
    """As `parse_address`; None stays None."""
    return None if text is None else parse_address(text, key)


def read_secret(path: str, key: str, *, least: int = 1) -> str:
    """A secret: the one line of a file. Raises SettingsError that names `key` and never shows the secret."""
    secrets = _read_lines(path, key)
    if len(secrets) != 1 or not _is_fit(secrets[0], least):
        raise SettingsError(f"{key}: {path} must hold one line of {least} to {MAX_SECRET_BYTES} ASCII characters")
    return secrets[0]


def read_secrets(path: str, key: str, *, least: int = 1) -> tuple[str, ...]:
    """Secrets, one a line, MAX_SECRETS at most. Raises SettingsError that names `key` and never shows a secret."""
    secrets = _read_lines(path, key)
    if not 1 <= len(secrets) <= MAX_SECRETS or not all(_is_fit(secret, least) for secret in secrets):
        limits = f"{least} to {MAX_SECRET_BYTES} ASCII characters"
        raise SettingsError(f"{key}: {path} must hold 1 to {MAX_SECRETS} lines of {limits} each")
    return secrets


def _is_fit(secret: str, least: int) -> bool:
    return least <= len(secret) <= MAX_SECRET_BYTES and secret.isprintable()


def _read_lines(path: str, key: str) -> tuple[str, ...]:
    """The lines that are not blank, of a file that is not longer than secrets can be."""
    try:
        with Path(path).open("rb") as file:
            text = file.read(MAX_SECRETS * (MAX_SECRET_BYTES + 2) + 1).decode("ascii")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{key}: cannot read {path}: {type(error).__name__}") from None
    # By line feeds alone: a control character within a secret is refused, and does not make two of it.
    return tuple(line.strip() for line in text.split("\n") if line.strip())


def _read(path: Path) -> dict[str, Any]:
    try:
        values: dict[str, Any] = msgspec.toml.decode(path.read_bytes())
    except OSError as error:
        raise SettingsError(f"{path}: cannot be read: {error.strerror}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path}: is not TOML: {error}") from error
    return values


def _place(values: dict[str, Any], keys: list[str], value: str, name: str) -> None:
    *tables, last = keys
    for table in tables:
        values = values.setdefault(table, {})
        if not isinstance(values, dict):
            raise SettingsError(f"{name}: {table} is not a table")
    values[last] = value


def _explain(error: msgspec.ValidationError, shape: type[msgspec.Struct]) -> str:
    unknown = _UNKNOWN_FIELD.search(str(error))
    if unknown is None:
        return str(error)
    where = f" in [{unknown['where']}]" if unknown["where"] else ""
    known = "" if where else f"; known keys: {', '.join(shape.__struct_fields__)}"
    return f"there is no key {unknown['key']!r}{where}{known}"
