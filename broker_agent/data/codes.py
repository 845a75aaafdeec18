"""Kafka's error codes that the data plane answers clients with (`org.apache.kafka.common.protocol.Errors`)."""

from __future__ import annotations

from typing import Final

from pidkeeper.broker_agent.kafka.wire.data.record_batch import (
    CORRUPT_MESSAGE,
    INVALID_RECORD,
    UNSUPPORTED_FOR_MESSAGE_FORMAT,
)
from pidkeeper.protocol.errors import ErrorCode

NONE: Final = 0
OFFSET_OUT_OF_RANGE: Final = 1
UNKNOWN_TOPIC_OR_PARTITION: Final = 3
LEADER_NOT_AVAILABLE: Final = 5
NOT_LEADER_OR_FOLLOWER: Final = 6
REQUEST_TIMED_OUT: Final = 7
MESSAGE_TOO_LARGE: Final = 10
INVALID_TOPIC_EXCEPTION: Final = 17
INVALID_REQUIRED_ACKS: Final = 21
TOPIC_AUTHORIZATION_FAILED: Final = 29
INVALID_TIMESTAMP: Final = 32
UNSUPPORTED_VERSION: Final = 35
INVALID_PARTITIONS: Final = 37
INVALID_REPLICATION_FACTOR: Final = 38
INVALID_REPLICA_ASSIGNMENT: Final = 39
INVALID_CONFIG: Final = 40
INVALID_REQUEST: Final = 42
TRANSACTIONAL_ID_AUTHORIZATION_FAILED: Final = 53
KAFKA_STORAGE_ERROR: Final = 56
FETCH_SESSION_ID_NOT_FOUND: Final = 70
UNKNOWN_TOPIC_ID: Final = 100

OTHER: Final = "OTHER"

_NAMES: Final = {one.kafka_code: one.name for one in ErrorCode if one.kafka_code > 0} | {
    CORRUPT_MESSAGE: "CORRUPT_MESSAGE",
    INVALID_TIMESTAMP: "INVALID_TIMESTAMP",
    UNSUPPORTED_FOR_MESSAGE_FORMAT: "UNSUPPORTED_FOR_MESSAGE_FORMAT",
    INVALID_RECORD: "INVALID_RECORD",
}


def code_name(code: int) -> str:
    """Kafka's name of a code that batches are refused with; OTHER for one that only a newer quorum knows."""
    return _NAMES.get(code, OTHER)
