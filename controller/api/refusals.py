"""What a call may be refused with, whatever it is about."""

from __future__ import annotations

from typing import Final

from pidkeeper.protocol.errors import ErrorCode

PROPOSAL: Final = (
    ErrorCode.NOT_CONTROLLER,
    ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.KAFKA_STORAGE_ERROR,
)
"""Of whatever the quorum decides."""

SESSION: Final = (*PROPOSAL, ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED)
"""Of what it decides for a registered broker."""
