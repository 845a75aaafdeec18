"""Which errors of client libraries a fault explains."""

from __future__ import annotations

import pytest
from aiokafka.errors import KafkaConnectionError, KafkaError, KafkaTimeoutError, ProducerFenced
from confluent_kafka import KafkaError as ConfluentError
from confluent_kafka import KafkaException

from tests.chaos.load.client_errors import passes, text_of
from tests.clients.java_witness import JavaError
from tests.clients.witnesses import KafkaPythonError


def wrapped(cause: BaseException) -> KafkaError:
    error = KafkaError(repr(cause))
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    "error",
    [
        KafkaConnectionError("closed"),
        KafkaTimeoutError(),
        wrapped(KafkaConnectionError("closed")),
        KafkaException(ConfluentError(ConfluentError._TRANSPORT)),
        KafkaPythonError("KafkaTimeoutError: RequestTimedOutError: Request timed out after 30 ms"),
        JavaError("org.apache.kafka.common.errors.TimeoutException: 60000 ms"),
        ConnectionResetError(),
    ],
    ids=repr,
)
def test_what_a_fault_of_links_and_processes_explains(error: BaseException) -> None:
    assert passes(error)


@pytest.mark.parametrize(
    "error",
    [
        ProducerFenced(),
        wrapped(ProducerFenced()),
        KafkaError("Unexpected error during batch delivery"),
        KafkaException(ConfluentError(ConfluentError.INVALID_PRODUCER_EPOCH)),
        JavaError("org.apache.kafka.common.errors.ProducerFencedException: fenced"),
        ValueError("a bug of the witness"),
    ],
    ids=repr,
)
def test_what_ends_a_client_is_explained_by_no_fault(error: BaseException) -> None:
    assert not passes(error)


def test_an_error_is_told_with_what_it_was_raised_from_in_one_line() -> None:
    told = text_of(wrapped(KafkaConnectionError("closed\nby the other")))
    assert told.startswith("KafkaError: ") and ", from KafkaConnectionError: " in told
    assert "\n" not in told
