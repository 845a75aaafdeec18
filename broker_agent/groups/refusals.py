"""What a client is told when the controllers refuse a call about its group. Pure.

What may pass by itself is COORDINATOR_LOAD_IN_PROGRESS (14): on it every client asks the same agent again, for a
commit, a commit within a transaction, and for offsets (Java's, librdkafka's, aiokafka's and kafka-python's handlers of
these three answers). COORDINATOR_NOT_AVAILABLE and NOT_COORDINATOR send it to look for a coordinator, which is this
agent still; and the first of them ends a consumer of aiokafka that asks for its offsets.
"""

from __future__ import annotations

import logging
from typing import Final

from pidkeeper.broker_agent.data.calls import Registration
from pidkeeper.broker_agent.session.refusals import STALE
from pidkeeper.protocol.errors import ErrorCode, RequestError

COME_AGAIN: Final = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS.kafka_code

_TOLD: Final = {
    code: code.kafka_code
    for code in (
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.NON_EMPTY_GROUP,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.MESSAGE_TOO_LARGE,
    )
} | {
    # Kafka's coordinator of groups says so in every version of TxnOffsetCommit.
    ErrorCode.PRODUCER_FENCED: ErrorCode.INVALID_PRODUCER_EPOCH.kafka_code
}
"""What is wrong with the request itself, and Kafka's code for it."""

_log = logging.getLogger(__name__)


def told_code(error: RequestError, session: Registration, epoch: int | None) -> int:
    """Kafka's code for a refusal; a stale `epoch` of this agent is doubted, if the request had one."""
    if error.code in _TOLD:
        return _TOLD[error.code]
    if error.code in STALE and epoch is not None:
        session.doubt_epoch(epoch)
    _log.debug("the controllers do not serve a request about a group: %s", error)
    return COME_AGAIN
