"""Valid requests of the data plane, without their length field: what malformed ones are made of."""

from __future__ import annotations

import uuid
from typing import Final

from tests.support.data_codecs import versions_of
from tests.support.plain_messages import Plain, requests

MESSAGES: Final[dict[str, Plain]] = {
    "produce": {"transactional_id": "x", "acks": -1, "timeout_ms": 30_000},
    "fetch": {
        "replica_id": -1,
        "max_wait_ms": 500,
        "min_bytes": 1,
        "max_bytes": 1000,
        "isolation_level": 1,
        "topics": [{"topic": "t", "partitions": [{"partition": 1, "fetch_offset": 5, "partition_max_bytes": 100}]}],
        "forgotten_topics_data": [{"topic": "u", "partitions": [1, 2]}],
        "rack_id": "r",
    },
    "list_offsets": {
        "replica_id": -1,
        "isolation_level": 1,
        "topics": [{"name": "t", "partitions": [{"partition_index": 1, "timestamp": -1}]}],
    },
    "create_topics": {
        "topics": [
            {
                "name": "t",
                "num_partitions": -1,
                "replication_factor": -1,
                "assignments": [{"partition_index": 0, "broker_ids": [1, 2]}],
                "configs": [{"name": "retention.ms", "value": "1"}],
            }
        ],
        "timeout_ms": 1,
        "validate_only": False,
    },
    "delete_topics": {
        "topics": [{"name": None, "topic_id": uuid.UUID(int=7)}],
        "topic_names": ["t"],
        "timeout_ms": 1,
    },
    "delete_records": {
        "topics": [{"name": "t", "partitions": [{"partition_index": 1, "offset": 5}]}],
        "timeout_ms": 1,
    },
    "describe_configs": {
        "resources": [{"resource_type": 2, "resource_name": "t", "configuration_keys": ["a"]}],
        "include_synonyms": True,
        "include_documentation": False,
    },
}


def valid_frames(records: bytes = b"0123456789") -> dict[tuple[str, int], bytes]:
    """A request of every API in every version, by both; `records` are what the Produce requests carry."""
    return {(api, version): _frame(api, version, records) for api in MESSAGES for version in versions_of(api)}


def _frame(api: str, version: int, records: bytes) -> bytes:
    message = MESSAGES[api]
    if api == "produce":
        partition = {"index": 1, "records": records}
        message = message | {"topic_data": [{"name": "t", "partition_data": [partition]}]}
    if api == "delete_topics":
        left_out = "topic_names" if version >= 6 else "topics"
        message = {name: value for name, value in message.items() if name != left_out}
    return requests(api, version, message)[0]
