"""The requests of the data plane, read as a listener would."""

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
from pidkeeper.service.kafka.wire.headers import RequestHeader, read_request_header
from pidkeeper.service.kafka.wire.versions import (
    CREATE_TOPICS,
    DELETE_RECORDS,
    DELETE_TOPICS,
    DESCRIBE_CONFIGS,
    FETCH,
    LIST_OFFSETS,
    PRODUCE,
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
}
VERSIONS: Final[dict[int, Versions]] = {
    PRODUCE: produce.VERSIONS,
    FETCH: fetch.VERSIONS,
    LIST_OFFSETS: list_offsets.VERSIONS,
    CREATE_TOPICS: create_topics.VERSIONS,
    DELETE_TOPICS: delete_topics.VERSIONS,
    DELETE_RECORDS: delete_records.VERSIONS,
    DESCRIBE_CONFIGS: describe_configs.VERSIONS,
}
_READERS: Final[dict[int, Callable[[RecordsReader, int], Any]]] = {
    PRODUCE: produce.read_produce_request,
    FETCH: fetch.read_fetch_request,
    LIST_OFFSETS: list_offsets.read_list_offsets_request,
    CREATE_TOPICS: create_topics.read_create_topics_request,
    DELETE_TOPICS: delete_topics.read_delete_topics_request,
    DELETE_RECORDS: delete_records.read_delete_records_request,
    DESCRIBE_CONFIGS: describe_configs.read_describe_configs_request,
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
