"""Which records of transactions a consumer wants (KIP-98)."""

from __future__ import annotations

import enum

from pidkeeper.service.kafka.wire.primitives import Reader, WireError


class IsolationLevel(enum.IntEnum):
    """READ_COMMITTED ends at the last stable offset, and leaves out what was aborted."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


def read_isolation_level(reader: Reader) -> IsolationLevel:
    """An INT8. Raises WireError for a level that Kafka does not have."""
    level = reader.int8()
    try:
        return IsolationLevel(level)
    except ValueError:
        raise WireError(f"isolation level {level} is neither 0 nor 1") from None
