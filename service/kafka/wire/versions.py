"""API keys, and what is known of the versions of one API (KIP-482)."""

from __future__ import annotations

from typing import Final

import msgspec

PRODUCE: Final = 0
FETCH: Final = 1
LIST_OFFSETS: Final = 2
METADATA: Final = 3
OFFSET_COMMIT: Final = 8
OFFSET_FETCH: Final = 9
FIND_COORDINATOR: Final = 10
JOIN_GROUP: Final = 11
HEARTBEAT: Final = 12
LEAVE_GROUP: Final = 13
SYNC_GROUP: Final = 14
DESCRIBE_GROUPS: Final = 15
LIST_GROUPS: Final = 16
SASL_HANDSHAKE: Final = 17
API_VERSIONS: Final = 18
CREATE_TOPICS: Final = 19
DELETE_TOPICS: Final = 20
DELETE_RECORDS: Final = 21
INIT_PRODUCER_ID: Final = 22
ADD_PARTITIONS_TO_TXN: Final = 24
ADD_OFFSETS_TO_TXN: Final = 25
END_TXN: Final = 26
TXN_OFFSET_COMMIT: Final = 28
DESCRIBE_CONFIGS: Final = 32
SASL_AUTHENTICATE: Final = 36
DELETE_GROUPS: Final = 42
OFFSET_DELETE: Final = 47
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
