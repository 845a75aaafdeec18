"""What a refusal by the controllers means to this agent: register anew, end, or ask again. Pure."""

from __future__ import annotations

from typing import Final

from pidkeeper.protocol.errors import ErrorCode, RequestError

STALE: Final = frozenset({ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED})
"""The registration is not in force any more: the agent registers anew."""

_FATAL: Final = frozenset(
    {
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.DUPLICATE_BROKER_REGISTRATION,
        ErrorCode.INCONSISTENT_CLUSTER_ID,
        ErrorCode.EVIDENCE_REFUSED,
        ErrorCode.STORE_REFUSED,
    }
)
"""An operator has to act, and asking again would only hide that (KIP-730, "Error Handling")."""


FAILED: Final = 1
NOT_AUTHORISED: Final = 4
"""Exit codes of the process."""


class FatalAgentError(Exception):
    """The controller refused this agent for good: the process must end with `exit_code`."""

    def __init__(self, message: str, exit_code: int = FAILED) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def raise_if_fatal(error: RequestError) -> None:
    """Raise FatalAgentError for a refusal that stays one however often the agent asks."""
    if error.code in _FATAL:
        refused = error.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        raise FatalAgentError(str(error), NOT_AUTHORISED if refused else FAILED) from error
