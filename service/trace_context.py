"""The trace that a request belongs to (W3C Trace Context, section 3.2)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

_TRACEPARENT: Final = re.compile(r"00-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]([0-9a-f])")


def sampled_trace(headers: Mapping[str, str]) -> str | None:
    """The id of the trace, 32 hexadecimal digits; None without one, and of one that nobody records.

    A header that is not exactly of version 00 is as good as none: it comes from the caller, and ends in the metrics.
    """
    if (value := headers.get("traceparent")) is None or (found := _TRACEPARENT.fullmatch(value)) is None:
        return None
    return found[1] if int(found[2], 16) & 1 else None
