"""Which build this process is of."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version


def build_version() -> str:
    """The version of the installed distribution; "unknown" when run from a source tree."""
    try:
        return version("pidkeeper")
    except PackageNotFoundError:
        return "unknown"
