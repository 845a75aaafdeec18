"""The error table: Kafka's codes, one row each, and what a refusal carries."""

from __future__ import annotations

import aiokafka.errors
import pytest

from pidkeeper.protocol.errors import ErrorCode, RequestError

KAFKA_CODES = {
    "NONE": 0,
    "UNKNOWN_SERVER_ERROR": -1,
    "UNKNOWN_TOPIC_OR_PARTITION": 3,
    "REQUEST_TIMED_OUT": 7,
    "MESSAGE_TOO_LARGE": 10,
    "COORDINATOR_LOAD_IN_PROGRESS": 14,
    "COORDINATOR_NOT_AVAILABLE": 15,
    "INVALID_TOPIC_EXCEPTION": 17,
    "NOT_ENOUGH_REPLICAS": 19,
    "CLUSTER_AUTHORIZATION_FAILED": 31,
    "UNSUPPORTED_SASL_MECHANISM": 33,
    "ILLEGAL_SASL_STATE": 34,
    "UNSUPPORTED_VERSION": 35,
    "TOPIC_ALREADY_EXISTS": 36,
    "INVALID_PARTITIONS": 37,
    "INVALID_CONFIG": 40,
    "NOT_CONTROLLER": 41,
    "INVALID_REQUEST": 42,
    "INVALID_TRANSACTION_TIMEOUT": 50,
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": 53,
    "INVALID_PRODUCER_EPOCH": 47,
    "INVALID_TXN_STATE": 48,
    "INVALID_PRODUCER_ID_MAPPING": 49,
    "CONCURRENT_TRANSACTIONS": 51,
    "PRODUCER_FENCED": 90,
    "TRANSACTIONAL_ID_NOT_FOUND": 105,
    "TRANSACTION_ABORTABLE": 120,
    "OFFSET_METADATA_TOO_LARGE": 12,
    "NOT_COORDINATOR": 16,
    "ILLEGAL_GENERATION": 22,
    "INVALID_COMMIT_OFFSET_SIZE": 28,
    "INCONSISTENT_GROUP_PROTOCOL": 23,
    "INVALID_GROUP_ID": 24,
    "UNKNOWN_MEMBER_ID": 25,
    "INVALID_SESSION_TIMEOUT": 26,
    "REBALANCE_IN_PROGRESS": 27,
    "GROUP_AUTHORIZATION_FAILED": 30,
    "NON_EMPTY_GROUP": 68,
    "GROUP_ID_NOT_FOUND": 69,
    "MEMBER_ID_REQUIRED": 79,
    "GROUP_MAX_SIZE_REACHED": 81,
    "FENCED_INSTANCE_ID": 82,
    "GROUP_SUBSCRIBED_TO_TOPIC": 86,
    "UNSTABLE_OFFSET_COMMIT": 88,
    "KAFKA_STORAGE_ERROR": 56,
    "SASL_AUTHENTICATION_FAILED": 58,
    "REASSIGNMENT_IN_PROGRESS": 60,
    "STALE_BROKER_EPOCH": 77,
    "THROTTLING_QUOTA_EXCEEDED": 89,
    "RESOURCE_NOT_FOUND": 91,
    "DUPLICATE_BROKER_REGISTRATION": 101,
    "BROKER_ID_NOT_REGISTERED": 102,
    "INCONSISTENT_CLUSTER_ID": 104,
    "OFFSET_OUT_OF_RANGE": 1,
    "OUT_OF_ORDER_SEQUENCE_NUMBER": 45,
    "STORE_REFUSED": -1,
    "PRODUCER_IDS_EXHAUSTED": -1,
    "ZOOKEEPER_UNAVAILABLE": -1,
    "MIGRATION_UNDER_WAY": -1,
    "MIGRATION_REFUSED": -1,
    "VOTERS_NOT_CONNECTED": -1,
    "FOUNDING_UNDER_WAY": -1,
    "EVIDENCE_OPEN": -1,
    "EVIDENCE_REFUSED": -1,
    "FOUNDING_REFUSED": -1,
}
"""As in Kafka's `Errors`; the last one is ours and travels as -1."""


def test_the_codes_are_kafkas() -> None:
    assert {code.name: code.kafka_code for code in ErrorCode} == KAFKA_CODES


def test_the_codes_agree_with_an_independent_client() -> None:
    theirs = {error.errno: error.message for error in vars(aiokafka.errors).values() if hasattr(error, "errno")}
    shared = [code for code in ErrorCode if code.kafka_code in theirs and code.kafka_code > 0]
    assert len(shared) > 10
    # Two names differ: that client says MESSAGE_SIZE_TOO_LARGE and INVALID_TOPIC, where Kafka says this.
    kafkas = {"MESSAGE_SIZE_TOO_LARGE": "MESSAGE_TOO_LARGE", "INVALID_TOPIC": "INVALID_TOPIC_EXCEPTION"}
    names = {kafkas.get(theirs[code.kafka_code], theirs[code.kafka_code]) for code in shared}
    assert {code.name for code in shared} == names


@pytest.mark.parametrize("code", ErrorCode, ids=lambda code: code.name)
def test_every_row_tells_who_has_to_act(code: ErrorCode) -> None:
    assert code.meaning
    assert (code.http_status == 200) == (code is ErrorCode.NONE) == (code.actor == "nobody")
    assert 200 <= code.http_status <= 599
    # The same bytes are wrong the second time too.
    if code.http_status in {400, 403, 413}:
        assert not code.retriable


def test_exhaustion_is_not_retried_and_not_taken_for_another_error() -> None:
    exhausted, unknown = ErrorCode["PRODUCER_IDS_EXHAUSTED"], ErrorCode["UNKNOWN_SERVER_ERROR"]
    assert exhausted.name == "PRODUCER_IDS_EXHAUSTED"
    assert exhausted is not unknown
    assert not exhausted.retriable


def test_losing_leadership_and_a_stale_epoch_are_retried() -> None:
    assert ErrorCode.NOT_CONTROLLER.retriable
    assert ErrorCode.STALE_BROKER_EPOCH.retriable
    assert not ErrorCode.DUPLICATE_BROKER_REGISTRATION.retriable


def test_a_refusal_says_what_was_wrong() -> None:
    refusal = RequestError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "too fast", throttle_time_ms=20)
    assert str(refusal) == "THROTTLING_QUOTA_EXCEEDED: too fast"
    assert (refusal.code, refusal.detail, refusal.throttle_time_ms) == (
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        "too fast",
        20,
    )


def test_a_refusal_without_detail_gives_the_meaning_of_its_row() -> None:
    refusal = RequestError(ErrorCode.NOT_CONTROLLER)
    assert refusal.detail == ErrorCode.NOT_CONTROLLER.meaning
    assert refusal.throttle_time_ms == 0
