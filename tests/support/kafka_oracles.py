"""Two codecs that are not ours, kafka-python's and kio's, behind one face. Frames are without their length field."""

from __future__ import annotations

import importlib
import io
import warnings
from typing import Any

from kio.serial import entity_reader, entity_writer

with warnings.catch_warnings():
    # kafka-python reads its bundled schemas in a way that Python 3.11 deprecates.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.protocol.admin import (
        CreateTopicsRequest,
        CreateTopicsResponse,
        DeleteGroupsRequest,
        DeleteGroupsResponse,
        DeleteRecordsRequest,
        DeleteRecordsResponse,
        DeleteTopicsRequest,
        DeleteTopicsResponse,
        DescribeConfigsRequest,
        DescribeConfigsResponse,
        DescribeGroupsRequest,
        DescribeGroupsResponse,
        ListGroupsRequest,
        ListGroupsResponse,
    )
    from kafka.protocol.consumer import (
        FetchRequest,
        FetchResponse,
        HeartbeatRequest,
        HeartbeatResponse,
        JoinGroupRequest,
        JoinGroupResponse,
        LeaveGroupRequest,
        LeaveGroupResponse,
        ListOffsetsRequest,
        ListOffsetsResponse,
        OffsetCommitRequest,
        OffsetCommitResponse,
        OffsetDeleteRequest,
        OffsetDeleteResponse,
        OffsetFetchRequest,
        OffsetFetchResponse,
        SyncGroupRequest,
        SyncGroupResponse,
    )
    from kafka.protocol.consumer.metadata import ConsumerProtocolSubscription
    from kafka.protocol.metadata import (
        ApiVersionsRequest,
        ApiVersionsResponse,
        FindCoordinatorRequest,
        FindCoordinatorResponse,
        MetadataRequest,
        MetadataResponse,
    )
    from kafka.protocol.producer import (
        AddOffsetsToTxnRequest,
        AddOffsetsToTxnResponse,
        AddPartitionsToTxnRequest,
        AddPartitionsToTxnResponse,
        EndTxnRequest,
        EndTxnResponse,
        InitProducerIdRequest,
        InitProducerIdResponse,
        ProduceRequest,
        ProduceResponse,
        TxnOffsetCommitRequest,
        TxnOffsetCommitResponse,
    )
    from kafka.protocol.sasl import (
        SaslAuthenticateRequest,
        SaslAuthenticateResponse,
        SaslHandshakeRequest,
        SaslHandshakeResponse,
    )

KAFKA_PYTHON = {
    "metadata": (MetadataRequest, MetadataResponse),
    "find_coordinator": (FindCoordinatorRequest, FindCoordinatorResponse),
    "api_versions": (ApiVersionsRequest, ApiVersionsResponse),
    "init_producer_id": (InitProducerIdRequest, InitProducerIdResponse),
    "add_partitions_to_txn": (AddPartitionsToTxnRequest, AddPartitionsToTxnResponse),
    "add_offsets_to_txn": (AddOffsetsToTxnRequest, AddOffsetsToTxnResponse),
    "end_txn": (EndTxnRequest, EndTxnResponse),
    "sasl_handshake": (SaslHandshakeRequest, SaslHandshakeResponse),
    "sasl_authenticate": (SaslAuthenticateRequest, SaslAuthenticateResponse),
    "produce": (ProduceRequest, ProduceResponse),
    "fetch": (FetchRequest, FetchResponse),
    "list_offsets": (ListOffsetsRequest, ListOffsetsResponse),
    "create_topics": (CreateTopicsRequest, CreateTopicsResponse),
    "delete_topics": (DeleteTopicsRequest, DeleteTopicsResponse),
    "delete_records": (DeleteRecordsRequest, DeleteRecordsResponse),
    "describe_configs": (DescribeConfigsRequest, DescribeConfigsResponse),
    "offset_commit": (OffsetCommitRequest, OffsetCommitResponse),
    "offset_fetch": (OffsetFetchRequest, OffsetFetchResponse),
    "join_group": (JoinGroupRequest, JoinGroupResponse),
    "heartbeat": (HeartbeatRequest, HeartbeatResponse),
    "leave_group": (LeaveGroupRequest, LeaveGroupResponse),
    "sync_group": (SyncGroupRequest, SyncGroupResponse),
    "describe_groups": (DescribeGroupsRequest, DescribeGroupsResponse),
    "list_groups": (ListGroupsRequest, ListGroupsResponse),
    "txn_offset_commit": (TxnOffsetCommitRequest, TxnOffsetCommitResponse),
    "delete_groups": (DeleteGroupsRequest, DeleteGroupsResponse),
    "offset_delete": (OffsetDeleteRequest, OffsetDeleteResponse),
}
KEYS = {
    "metadata": 3,
    "find_coordinator": 10,
    "api_versions": 18,
    "init_producer_id": 22,
    "add_partitions_to_txn": 24,
    "add_offsets_to_txn": 25,
    "end_txn": 26,
    "sasl_handshake": 17,
    "sasl_authenticate": 36,
    "broker_registration": 62,
    "broker_heartbeat": 63,
    "allocate_producer_ids": 67,
    "produce": 0,
    "fetch": 1,
    "list_offsets": 2,
    "create_topics": 19,
    "delete_topics": 20,
    "delete_records": 21,
    "describe_configs": 32,
    "offset_commit": 8,
    "offset_fetch": 9,
    "join_group": 11,
    "heartbeat": 12,
    "leave_group": 13,
    "sync_group": 14,
    "describe_groups": 15,
    "list_groups": 16,
    "txn_offset_commit": 28,
    "delete_groups": 42,
    "offset_delete": 47,
}
KIO_NAMES = {
    "metadata": "Metadata",
    "find_coordinator": "FindCoordinator",
    "api_versions": "ApiVersions",
    "init_producer_id": "InitProducerId",
    "add_partitions_to_txn": "AddPartitionsToTxn",
    "add_offsets_to_txn": "AddOffsetsToTxn",
    "end_txn": "EndTxn",
    "sasl_handshake": "SaslHandshake",
    "sasl_authenticate": "SaslAuthenticate",
    "broker_registration": "BrokerRegistration",
    "broker_heartbeat": "BrokerHeartbeat",
    "allocate_producer_ids": "AllocateProducerIds",
    "produce": "Produce",
    "fetch": "Fetch",
    "list_offsets": "ListOffsets",
    "create_topics": "CreateTopics",
    "delete_topics": "DeleteTopics",
    "delete_records": "DeleteRecords",
    "describe_configs": "DescribeConfigs",
    "offset_commit": "OffsetCommit",
    "offset_fetch": "OffsetFetch",
    "join_group": "JoinGroup",
    "heartbeat": "Heartbeat",
    "leave_group": "LeaveGroup",
    "sync_group": "SyncGroup",
    "describe_groups": "DescribeGroups",
    "list_groups": "ListGroups",
    "txn_offset_commit": "TxnOffsetCommit",
    "delete_groups": "DeleteGroups",
    "offset_delete": "OffsetDelete",
}


def kafka_python_subscription(version: int, topics: list[str]) -> bytes:
    """What a consumer tells its group, with something in every other field."""
    found = ConsumerProtocolSubscription(
        version=version, topics=topics, user_data=b"user", owned_partitions=[], generation_id=3, rack_id="r"
    )
    return bytes(found.encode(version=version))


def kafka_python_request(api: str, version: int, correlation_id: int, client_id: str | None, **fields: Any) -> bytes:
    request = KAFKA_PYTHON[api][0](version=version, **fields)
    request.with_header(correlation_id=correlation_id, client_id=client_id)
    return bytes(request.encode(header=True))


def kafka_python_response(api: str, version: int, frame: bytes) -> Any:
    """The decoded response; encoding it again must give the same bytes, so nothing was left over."""
    response = KAFKA_PYTHON[api][1].decode(frame, version=version, header=True)
    assert bytes(response.encode(header=True)) == frame
    return response


def kio_type(api: str, version: int, kind: str) -> Any:
    module = importlib.import_module(f"kio.schema.{api}.v{version}.{kind}")
    return getattr(module, KIO_NAMES[api] + kind.capitalize())


def kio_nested(api: str, version: int, kind: str, name: str) -> Any:
    return getattr(importlib.import_module(f"kio.schema.{api}.v{version}.{kind}"), name)


def kio_request(api: str, version: int, correlation_id: int, client_id: str | None, **fields: Any) -> bytes:
    kind = kio_type(api, version, "request")
    header_fields = {"request_api_key": KEYS[api], "request_api_version": version, "correlation_id": correlation_id}
    header = kind.__header_schema__(**header_fields, client_id=client_id)
    buffer = io.BytesIO()
    entity_writer(type(header))(buffer, header)
    entity_writer(kind)(buffer, kind(**fields))
    return buffer.getvalue()


def kio_response(api: str, version: int, frame: bytes) -> tuple[int, Any]:
    """Correlation id and decoded response; every byte must have been read."""
    kind = kio_type(api, version, "response")
    header, header_size = entity_reader(kind.__header_schema__)(frame, 0)
    response, size = entity_reader(kind)(frame, header_size)
    assert header_size + size == len(frame), f"kio read {header_size + size} of {len(frame)} bytes"
    return header.correlation_id, response
