"""Where an entry stands in the replicated log: its term and its index (Raft, section 5.3)."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

MAX_NUMBER: Final = 2**63 - 1
"""Highest term or index, as of offsets: the one after it still fits into the 64 bits of the formats."""

Term = Annotated[int, msgspec.Meta(ge=0, le=MAX_NUMBER)]
Index = Annotated[int, msgspec.Meta(ge=0, le=MAX_NUMBER)]
