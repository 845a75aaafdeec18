"""The requests of the data plane and of groups, read as a listener would."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from pidkeeper.broker_agent.kafka.wire.data import (
    create_topics,
    delete_records,
    delete_topics,
    describe_configs,
    fetch,
    list_offsets,
    produce,
)
from pidkeeper.broker_agent.kafka.wire.data.frames import RecordsReader
from pidkeeper.broker_agent.kafka.wire.groups import (
    delete_groups,
    describe_groups,
    heartbeat,
    join_group,
    leave_group,
    list_groups,
    offset_commit,
    offset_delete,
    offset_fetch,
    sync_group,
    txn_offset_commit,
)
from pidkeeper.service.kafka.wire.headers import RequestHeader, read_request_header
from pidkeeper.service.kafka.wire.versions import (
    CREATE_TOPICS,
    DELETE_GROUPS,
    DELETE_RECORDS,
    DELETE_TOPICS,
    DESCRIBE_CONFIGS,
    DESCRIBE_GROUPS,
    FETCH,
    HEARTBEAT,
    JOIN_GROUP,
    LEAVE_GROUP,
    LIST_GROUPS,
    LIST_OFFSETS,
    OFFSET_COMMIT,
    OFFSET_DELETE,
    OFFSET_FETCH,
    PRODUCE,
    SYNC_GROUP,
    TXN_OFFSET_COMMIT,
    Versions,
)

APIS: Final[dict[str, int]] = {
    "produce": PRODUCE,
    "fetch": FETCH,
    "list_offsets": LIST_OFFSETS,
    "create_topics": CREATE_TOPICS,
    "delete_topics": DELETE_TOPICS,
    "delete_records": DELETE_RECORDS,
    "describe_configs": DESCRIBE_CONFIGS,
    "offset_commit": OFFSET_COMMIT,
    "offset_fetch": OFFSET_FETCH,
    "join_group": JOIN_GROUP,
    "heartbeat": HEARTBEAT,
    "leave_group": LEAVE_GROUP,
    "sync_group": SYNC_GROUP,
    "describe_groups": DESCRIBE_GROUPS,
    "list_groups": LIST_GROUPS,
    "txn_offset_commit": TXN_OFFSET_COMMIT,
    "delete_groups": DELETE_GROUPS,
    "offset_delete": OFFSET_DELETE,
}
VERSIONS: Final[dict[int, Versions]] = {
    PRODUCE: produce.VERSIONS,
    FETCH: fetch.VERSIONS,
    LIST_OFFSETS: list_offsets.VERSIONS,
    CREATE_TOPICS: create_topics.VERSIONS,
    DELETE_TOPICS: delete_topics.VERSIONS,
    DELETE_RECORDS: delete_records.VERSIONS,
    DESCRIBE_CONFIGS: describe_configs.VERSIONS,
    OFFSET_COMMIT: offset_commit.VERSIONS,
    OFFSET_FETCH: offset_fetch.VERSIONS,
    JOIN_GROUP: join_group.VERSIONS,
    HEARTBEAT: heartbeat.VERSIONS,
    LEAVE_GROUP: leave_group.VERSIONS,
    SYNC_GROUP: sync_group.VERSIONS,
    DESCRIBE_GROUPS: describe_groups.VERSIONS,
    LIST_GROUPS: list_groups.VERSIONS,
    TXN_OFFSET_COMMIT: txn_offset_commit.VERSIONS,
    DELETE_GROUPS: delete_groups.VERSIONS,
    OFFSET_DELETE: offset_delete.VERSIONS,
}
_READERS: Final[dict[int, Callable[[RecordsReader, int], Any]]] = {
    PRODUCE: produce.read_produce_request,
    FETCH: fetch.read_fetch_request,
    LIST_OFFSETS: list_offsets.read_list_offsets_request,
    CREATE_TOPICS: create_topics.read_create_topics_request,
    DELETE_TOPICS: delete_topics.read_delete_topics_request,
    DELETE_RECORDS: delete_records.read_delete_records_request,
    DESCRIBE_CONFIGS: describe_configs.read_describe_configs_request,
    OFFSET_COMMIT: offset_commit.read_offset_commit_request,
    OFFSET_FETCH: offset_fetch.read_offset_fetch_request,
    JOIN_GROUP: join_group.read_join_group_request,
    HEARTBEAT: heartbeat.read_heartbeat_request,
    LEAVE_GROUP: leave_group.read_leave_group_request,
    SYNC_GROUP: sync_group.read_sync_group_request,
    DESCRIBE_GROUPS: describe_groups.read_describe_groups_request,
    LIST_GROUPS: list_groups.read_list_groups_request,
    TXN_OFFSET_COMMIT: txn_offset_commit.read_txn_offset_commit_request,
    DELETE_GROUPS: delete_groups.read_delete_groups_request,
    OFFSET_DELETE: offset_delete.read_offset_delete_request,
}


def read(frame: bytes) -> tuple[RequestHeader, Any]:
    """Header and body of a frame without its length field. Raises WireError."""
    reader = RecordsReader(frame)
    header = read_request_header(reader, VERSIONS)
    return header, _READERS[header.api_key](reader, header.api_version)


def versions_of(api: str) -> range:
    """Every version that is served."""
    versions = VERSIONS[APIS[api]]
    return range(versions.lowest, versions.highest + 1)
