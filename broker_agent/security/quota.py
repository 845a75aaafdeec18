"""What one principal may use. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Final

import msgspec

UNLIMITED: Final = "unlimited"


class Quota(msgspec.Struct, frozen=True):
    """What one principal may use, in bytes and requests a second; None is unlimited."""

    principal: str
    produce_bytes_per_second: int | None = None
    fetch_bytes_per_second: int | None = None
    requests_per_second: int | None = None

    @property
    def line(self) -> str:
        """As it stands in the file."""
        limits = [f"{name}={value}" for name, value in self.limits.items()]
        return shlex.join([self.principal, *(limits or [UNLIMITED])])

    @property
    def limits(self) -> Mapping[str, int]:
        """Those that there are, by their name."""
        found = {name: getattr(self, name) for name in QUOTAS}
        return {name: value for name, value in found.items() if value is not None}


QUOTAS: Final = Quota.__struct_fields__[1:]
"""Their names."""
