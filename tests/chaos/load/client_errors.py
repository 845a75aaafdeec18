"""Which errors of the four client libraries a fault of links and processes explains: those that the library itself
would try again after, or that end one transaction. All others end the client, and no fault may bring them about.
"""

from __future__ import annotations

import re
from typing import Final

import aiokafka.errors
from confluent_kafka import KafkaError, KafkaException

from tests.clients.java_witness import JavaError
from tests.clients.witnesses import KafkaPythonError

_LIBRDKAFKA: Final = frozenset(
    {
        KafkaError._TIMED_OUT,
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._MSG_TIMED_OUT,
        # Consumers raise these as if they did not pass.
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
        KafkaError._WAIT_COORD,
    }
)

_JAVA: Final = frozenset(
    {
        "TimeoutException",
        "DisconnectException",
        "NetworkException",
        "RetriableException",
        "CoordinatorLoadInProgressException",
        "CoordinatorNotAvailableException",
        "NotCoordinatorException",
        "ConcurrentTransactionsException",
    }
)

_KAFKA_PYTHON_WAITED: Final = "RequestTimedOutError: Request timed out after"
"""What kafka-python ends a producer with that waited for an answer for longer than it may, as for an agent that stands
still. The others ask again. An answer that says so (REQUEST_TIMED_OUT) has another text, and does not pass."""

_JAVA_NAME: Final = re.compile(r"(\w+Exception): ")


def passes(error: BaseException) -> bool:
    """Whether the client, or the next one in its place, may go on after it once the cluster is healed."""
    if isinstance(error, KafkaException):
        told = error.args[0]
        return not told.fatal() and (told.retriable() or told.txn_requires_abort() or told.code() in _LIBRDKAFKA)
    if isinstance(error, aiokafka.errors.KafkaError | KafkaPythonError):
        waited = isinstance(error, aiokafka.errors.KafkaTimeoutError) or _KAFKA_PYTHON_WAITED in str(error)
        return bool(error.retriable) or waited or _is_wrapped(error)
    if isinstance(error, JavaError):
        return not _JAVA.isdisjoint(_JAVA_NAME.findall(str(error)))
    return isinstance(error, TimeoutError | ConnectionError)


def _is_wrapped(error: BaseException) -> bool:
    """Whether aiokafka gave up looking for its coordinator over an error that it tries again after elsewhere."""
    cause = error.__cause__
    return type(error) is aiokafka.errors.KafkaError and cause is not None and passes(cause)


def text_of(error: BaseException) -> str:
    """The error and what it was raised from, in one line."""
    told: list[str] = []
    cause: BaseException | None = error
    while cause is not None:
        told.append(f"{type(cause).__name__}: {cause}")
        cause = cause.__cause__
    return ", from ".join(told).replace("\n", " ")
