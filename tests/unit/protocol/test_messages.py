"""The values of the HTTP interfaces: bounds and unknown fields are refused with the place named."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from pidkeeper.protocol.ids import MAX_BROKER_ID, MAX_PRODUCER_ID
from pidkeeper.protocol.messages import (
    AllocateProducerIdsRequest,
    BrokerHeartbeatRequest,
    InitProducerIdRequest,
    Problem,
    RaiseFloorRequest,
    RegisterBrokerRequest,
    UnregisterBrokerRequest,
)

REFUSED: list[tuple[type, dict[str, Any], str]] = [
    (RegisterBrokerRequest, {}, "missing required field `incarnation_id`"),
    (RegisterBrokerRequest, {"incarnation_id": ""}, "length >= 1"),
    (RegisterBrokerRequest, {"incarnation_id": "x" * 65}, "length <= 64"),
    (RegisterBrokerRequest, {"incarnation_id": "x", "cluster_id": ""}, r"length >= 1 - at `\$.cluster_id`"),
    (RegisterBrokerRequest, {"incarnation_id": "x", "cluster_id": "c" * 65}, r"length <= 64 - at `\$.cluster_id`"),
    (RegisterBrokerRequest, {"incarnation_id": "x", "broker_id": 1}, "unknown field `broker_id`"),
    (BrokerHeartbeatRequest, {"broker_epoch": -1}, ">= 0"),
    (BrokerHeartbeatRequest, {"broker_epoch": "1"}, "Expected `int`"),
    (UnregisterBrokerRequest, {"broker_epoch": None}, "Expected `int`"),
    (AllocateProducerIdsRequest, {"broker_id": -1, "broker_epoch": 0}, r"at `\$.broker_id`"),
    (AllocateProducerIdsRequest, {"broker_id": MAX_BROKER_ID + 1, "broker_epoch": 0}, r"at `\$.broker_id`"),
    (AllocateProducerIdsRequest, {"broker_id": 1, "broker_epoch": -1}, r"at `\$.broker_epoch`"),
    (AllocateProducerIdsRequest, {"broker_id": 1, "broker_epoch": 1, "count": 5}, "unknown field `count`"),
    (RaiseFloorRequest, {"at_least": -1}, ">= 0"),
    (RaiseFloorRequest, {"at_least": MAX_PRODUCER_ID + 1}, "<="),
    (InitProducerIdRequest, {"producer_epoch": 2**15}, r"at `\$.producer_epoch`"),
    (InitProducerIdRequest, {"producer_id": -2}, r"at `\$.producer_id`"),
    (InitProducerIdRequest, {"transaction_timeout_ms": 2**31}, r"at `\$.transaction_timeout_ms`"),
]


@pytest.mark.parametrize(("shape", "body", "message"), REFUSED)
def test_bad_values_are_refused_by_name(shape: type, body: dict[str, Any], message: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=message):
        msgspec.json.decode(msgspec.json.encode(body), type=shape)


def test_the_bounds_themselves_are_taken() -> None:
    largest = AllocateProducerIdsRequest(MAX_BROKER_ID, 2**63 - 1, "c" * 64)
    assert msgspec.json.decode(msgspec.json.encode(largest), type=AllocateProducerIdsRequest) == largest
    floor = RaiseFloorRequest(MAX_PRODUCER_ID)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(floor), type=RaiseFloorRequest) == floor


def test_init_producer_id_has_kafkas_defaults() -> None:
    request = msgspec.json.decode(b"{}", type=InitProducerIdRequest)
    assert request == InitProducerIdRequest(None, 2**31 - 1, -1, -1)


def test_a_problem_leaves_out_what_does_not_apply() -> None:
    problem = Problem("about:blank", "t", 503, "d", "NOT_CONTROLLER", 41, True)
    assert set(msgspec.to_builtins(problem)) == {
        "type",
        "title",
        "status",
        "detail",
        "code",
        "error_code",
        "retryable",
    }


@pytest.mark.parametrize(
    ("request_", "fields"),
    [
        (RegisterBrokerRequest("a", "c", "h:1"), {"incarnation_id", "cluster_id", "kafka"}),
        (BrokerHeartbeatRequest(5), {"broker_epoch"}),
        (AllocateProducerIdsRequest(1, 5, "c"), {"broker_id", "broker_epoch", "cluster_id"}),
    ],
)
def test_a_request_without_what_is_new_has_no_field_that_an_earlier_build_does_not_know(
    request_: msgspec.Struct, fields: set[str]
) -> None:
    """It refuses unknown fields, null or not, and agents and controllers are upgraded in any order."""
    assert set(msgspec.json.decode(msgspec.json.encode(request_))) == fields
