"""API keys, and what is known of the versions of one API (KIP-482)."""

from __future__ import annotations

from typing import Final

import msgspec

PRODUCE: Final = 0
FETCH: Final = 1
LIST_OFFSETS: Final = 2
METADATA: Final = 3
FIND_COORDINATOR: Final = 10
SASL_HANDSHAKE: Final = 17
API_VERSIONS: Final = 18
CREATE_TOPICS: Final = 19
DELETE_TOPICS: Final = 20
DELETE_RECORDS: Final = 21
INIT_PRODUCER_ID: Final = 22
ADD_PARTITIONS_TO_TXN: Final = 24
ADD_OFFSETS_TO_TXN: Final = 25
END_TXN: Final = 26
DESCRIBE_CONFIGS: Final = 32
SASL_AUTHENTICATE: Final = 36
BROKER_REGISTRATION: Final = 62
BROKER_HEARTBEAT: Final = 63
ALLOCATE_PRODUCER_IDS: Final = 67


class Versions(msgspec.Struct, frozen=True):
    """The lowest and the highest version that is served, and the first with compact types and tagged fields."""

    lowest: int
    highest: int
    first_flexible: int

    def is_flexible(self, version: int) -> bool:
        """Whether `version` uses compact types and tagged fields."""
        return version >= self.first_flexible
