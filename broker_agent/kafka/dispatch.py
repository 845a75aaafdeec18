"""The one table of what Kafka clients may ask here: for each API key its versions, its reader, and what serves it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Final

import msgspec

from pidkeeper.broker_agent.coordinator.caller import ANYBODY, Caller
from pidkeeper.broker_agent.coordinator.requests import TransactionStep
from pidkeeper.broker_agent.kafka.answers import LocalAnswers
from pidkeeper.broker_agent.kafka.frame_limits import LONGER_FRAMES
from pidkeeper.broker_agent.kafka.wire import find_coordinator, init_producer_id, metadata, transactions
from pidkeeper.broker_agent.kafka.wire.data import (
    create_topics,
    delete_records,
    delete_topics,
    describe_configs,
    fetch,
    list_offsets,
    produce,
)
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
from pidkeeper.protocol.messages import InitProducerIdRequest
from pidkeeper.service.kafka.wire import api_versions, sasl
from pidkeeper.service.kafka.wire.headers import RequestHeader
from pidkeeper.service.kafka.wire.versions import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    API_VERSIONS,
    CREATE_TOPICS,
    DELETE_GROUPS,
    DELETE_RECORDS,
    DELETE_TOPICS,
    DESCRIBE_CONFIGS,
    DESCRIBE_GROUPS,
    END_TXN,
    FETCH,
    FIND_COORDINATOR,
    HEARTBEAT,
    INIT_PRODUCER_ID,
    JOIN_GROUP,
    LEAVE_GROUP,
    LIST_GROUPS,
    LIST_OFFSETS,
    METADATA,
    OFFSET_COMMIT,
    OFFSET_DELETE,
    OFFSET_FETCH,
    PRODUCE,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    SYNC_GROUP,
    TXN_OFFSET_COMMIT,
    Versions,
)


class TransactionalCall(msgspec.Struct, frozen=True):
    """A decoded request that has to be put to the controllers, for whoever sent it."""

    header: RequestHeader
    request: InitProducerIdRequest | TransactionStep
    caller: Caller = ANYBODY


class DataCall(msgspec.Struct, frozen=True):
    """A decoded request about topics or records."""

    header: RequestHeader
    request: Any
    caller: Caller = ANYBODY


class ProduceCall(msgspec.Struct, frozen=True):
    """A decoded Produce request. The next one of its connection may go along."""

    overlaps: ClassVar[bool] = True

    header: RequestHeader
    request: produce.ProduceRequest
    caller: Caller = ANYBODY


class GroupCall(msgspec.Struct, frozen=True):
    """A decoded request about consumer groups or their offsets."""

    header: RequestHeader
    request: Any
    caller: Caller = ANYBODY


Call = TransactionalCall | DataCall | ProduceCall | GroupCall
"""A request that has to wait for something."""

Ask = Callable[[Any], Awaitable[bytes]]
"""Gives the frame that answers a call."""


class Api(msgspec.Struct, frozen=True):
    """One API. `read` takes the whole body in a version and raises WireError.

    `serve` gives the body of the answer, or the call that has to wait for something. `advertised`: the versions that
    clients are told of, if they are not those that are served.
    """

    versions: Versions
    read: Callable[[Any, int], Any]
    serve: Callable[[LocalAnswers, RequestHeader, Any, Caller], bytes | Call]
    advertised: Versions | None = None


class Apis:
    """What an agent serves, by API key. `served`: the versions of each; `advertised`: as ApiVersions lists them;
    `longer`: those whose frames may be longer than MAX_FRAME_BYTES, and how long."""

    def __init__(self, dispatch: Mapping[int, Api], longer: Mapping[int, int] = MappingProxyType({})) -> None:
        self.dispatch: Final = dispatch
        self.longer: Final = longer
        self.served: Final[Mapping[int, Versions]] = {key: api.versions for key, api in dispatch.items()}
        self.advertised: Final[Mapping[int, Versions]] = {
            key: api.advertised or api.versions for key, api in dispatch.items()
        }


def _put_to_controllers(_: LocalAnswers, header: RequestHeader, request: Any, caller: Caller) -> TransactionalCall:
    return TransactionalCall(header, request, caller)


def _put_to_data(_: LocalAnswers, header: RequestHeader, request: Any, caller: Caller) -> DataCall:
    return DataCall(header, request, caller)


def _put_to_logs(_: LocalAnswers, header: RequestHeader, request: Any, caller: Caller) -> ProduceCall:
    return ProduceCall(header, request, caller)


def _put_to_groups(_: LocalAnswers, header: RequestHeader, request: Any, caller: Caller) -> GroupCall:
    return GroupCall(header, request, caller)


DISPATCH: Final[Mapping[int, Api]] = {
    METADATA: Api(metadata.VERSIONS, metadata.read_metadata_request, LocalAnswers.metadata),
    FIND_COORDINATOR: Api(
        find_coordinator.VERSIONS, find_coordinator.read_find_coordinator_request, LocalAnswers.find_coordinator
    ),
    SASL_HANDSHAKE: Api(sasl.HANDSHAKE_VERSIONS, sasl.read_handshake_request, LocalAnswers.sasl_handshake),
    API_VERSIONS: Api(api_versions.VERSIONS, api_versions.read_api_versions_request, LocalAnswers.api_versions),
    # Without a transactional id it never comes this far: the responder claims an ID from the reserve.
    INIT_PRODUCER_ID: Api(
        init_producer_id.VERSIONS, init_producer_id.read_init_producer_id_request, _put_to_controllers
    ),
    ADD_PARTITIONS_TO_TXN: Api(
        transactions.ADD_PARTITIONS_VERSIONS, transactions.read_add_partitions_to_txn_request, _put_to_controllers
    ),
    ADD_OFFSETS_TO_TXN: Api(
        transactions.ADD_OFFSETS_VERSIONS, transactions.read_add_offsets_to_txn_request, _put_to_controllers
    ),
    END_TXN: Api(
        transactions.END_VERSIONS,
        transactions.read_end_txn_request,
        _put_to_controllers,
        transactions.END_VERSIONS_ALONE,
    ),
    SASL_AUTHENTICATE: Api(sasl.AUTHENTICATE_VERSIONS, sasl.read_authenticate_request, LocalAnswers.sasl_authenticate),
}

IDS_ALONE: Final = Apis(DISPATCH)
"""What an agent serves without a store."""

SERVED: Final = IDS_ALONE.served

_DATA: Final[Mapping[int, Api]] = MappingProxyType(
    {
        PRODUCE: Api(produce.VERSIONS, produce.read_produce_request, _put_to_logs, produce.ADVERTISED_VERSIONS),
        FETCH: Api(fetch.VERSIONS, fetch.read_fetch_request, _put_to_data),
        LIST_OFFSETS: Api(list_offsets.VERSIONS, list_offsets.read_list_offsets_request, _put_to_data),
        METADATA: Api(metadata.VERSIONS, metadata.read_metadata_request, _put_to_data),
        CREATE_TOPICS: Api(create_topics.VERSIONS, create_topics.read_create_topics_request, _put_to_data),
        DELETE_TOPICS: Api(delete_topics.VERSIONS, delete_topics.read_delete_topics_request, _put_to_data),
        DELETE_RECORDS: Api(delete_records.VERSIONS, delete_records.read_delete_records_request, _put_to_data),
        DESCRIBE_CONFIGS: Api(describe_configs.VERSIONS, describe_configs.read_describe_configs_request, _put_to_data),
        END_TXN: Api(transactions.END_VERSIONS, transactions.read_end_txn_request, _put_to_controllers),
    }
)

_GROUPS: Final[Mapping[int, Api]] = MappingProxyType(
    {
        OFFSET_COMMIT: Api(offset_commit.VERSIONS, offset_commit.read_offset_commit_request, _put_to_groups),
        OFFSET_FETCH: Api(offset_fetch.VERSIONS, offset_fetch.read_offset_fetch_request, _put_to_groups),
        JOIN_GROUP: Api(join_group.VERSIONS, join_group.read_join_group_request, _put_to_groups),
        HEARTBEAT: Api(heartbeat.VERSIONS, heartbeat.read_heartbeat_request, _put_to_groups),
        LEAVE_GROUP: Api(leave_group.VERSIONS, leave_group.read_leave_group_request, _put_to_groups),
        SYNC_GROUP: Api(sync_group.VERSIONS, sync_group.read_sync_group_request, _put_to_groups),
        DESCRIBE_GROUPS: Api(describe_groups.VERSIONS, describe_groups.read_describe_groups_request, _put_to_groups),
        LIST_GROUPS: Api(list_groups.VERSIONS, list_groups.read_list_groups_request, _put_to_groups),
        TXN_OFFSET_COMMIT: Api(
            txn_offset_commit.VERSIONS, txn_offset_commit.read_txn_offset_commit_request, _put_to_groups
        ),
        DELETE_GROUPS: Api(delete_groups.VERSIONS, delete_groups.read_delete_groups_request, _put_to_groups),
        OFFSET_DELETE: Api(offset_delete.VERSIONS, offset_delete.read_offset_delete_request, _put_to_groups),
    }
)

WITH_DATA: Final = Apis({**DISPATCH, **_DATA, **_GROUPS}, LONGER_FRAMES)
"""With a store: groups come with the topics that they read."""
