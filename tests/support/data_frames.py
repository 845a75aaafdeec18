"""Valid requests of the data plane and of groups, without their length field: what malformed ones are made of."""

from __future__ import annotations

import uuid
from typing import Final

from tests.support.data_codecs import versions_of
from tests.support.plain_messages import Plain, requests

_MEMBER: Final[Plain] = {"group_id": "g", "generation_id": 3, "member_id": "m", "group_instance_id": "i"}
_COMMITS: Final[list[Plain]] = [
    {
        "name": "t",
        "partitions": [
            {"partition_index": 1, "committed_offset": 5, "committed_leader_epoch": 2, "committed_metadata": "ab"}
        ],
    }
]

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
    "offset_commit": {
        **_MEMBER,
        "generation_id_or_member_epoch": 3,
        "retention_time_ms": -1,
        "topics": _COMMITS,
    },
    "offset_fetch": {
        "group_id": "g",
        "topics": [{"name": "t", "partition_indexes": [1, 2]}],
        "groups": [
            {"group_id": "g", "topics": [{"name": "t", "partition_indexes": [1, 2]}]},
            {"group_id": "h", "topics": None},
        ],
        "require_stable": True,
    },
    "txn_offset_commit": {
        **_MEMBER,
        "transactional_id": "x",
        "producer_id": 7,
        "producer_epoch": 1,
        "topics": _COMMITS,
    },
    "offset_delete": {"group_id": "g", "topics": [{"name": "t", "partitions": [{"partition_index": 1}]}]},
    "join_group": {
        **_MEMBER,
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 60_000,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b"ab"}],
        "reason": "r",
    },
    "sync_group": {
        **_MEMBER,
        "protocol_type": "consumer",
        "protocol_name": "range",
        "assignments": [{"member_id": "m", "assignment": b"ab"}],
    },
    "heartbeat": _MEMBER,
    "leave_group": {
        "group_id": "g",
        "member_id": "m",
        "members": [{"member_id": "m", "group_instance_id": "i", "reason": "r"}],
    },
    "list_groups": {"states_filter": ["Stable"], "types_filter": ["classic"]},
    "describe_groups": {"groups": ["g", "h"], "include_authorized_operations": False},
    "delete_groups": {"groups_names": ["g", "h"]},
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
