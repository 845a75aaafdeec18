"""Configuration: a TOML file, overridden by the environment, checked against one msgspec Struct.

A key that does not exist is an error that names it and the keys that do.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

T = TypeVar("T", bound=msgspec.Struct)

_PORT: Final = re.compile("[0-9]{1,5}")
_UNKNOWN_FIELD: Final = re.compile(r"unknown field `(?P<key>[^`]*)`(?: - at `\$\.?(?P<where>[^`]*)`)?")


class SettingsError(ValueError):
    """The configuration cannot be used; the message says which key or file, and what to do."""


def load_settings(shape: type[T], path: Path | None, environment: Mapping[str, str], prefix: str) -> T:
    """Read `path` (if any), override by variables `<prefix><KEY>` and `<prefix><TABLE>__<KEY>`, and check.

    Raises SettingsError.
    """
    values: dict[str, Any] = {} if path is None else _read(path)
    for name, value in environment.items():
        if name.startswith(prefix):
            _place(values, name.removeprefix(prefix).lower().split("__"), value, name)
    try:
        return msgspec.convert(values, shape, strict=False)
    except msgspec.ValidationError as error:
        raise SettingsError(f"{path or 'environment'}: {_explain(error, shape)}") from error


def require_assertions() -> None:
    """Raise SettingsError under `python -O`: the invariants are assertions, and safety rests on them."""
    if not __debug__:
        raise SettingsError("pidkeeper does not run with assertions switched off: unset PYTHONOPTIMIZE and drop -O")


def parse_address(address: str, key: str) -> tuple[str, int]:
    """`host:port` (or `[v6]:port`) as a pair. Raises SettingsError that names `key`."""
    host, colon, port = address.rpartition(":")
    if not colon or not host or _PORT.fullmatch(port) is None or int(port) > 65535:
        raise SettingsError(f"{key}: {address!r} is not host:port with a port up to 65535")
    return host.strip("[]"), int(port)


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
