"""Settings of consumer groups: the table `[groups]` of an agent's configuration."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

MAX_SESSION_MS: Final = 24 * 60 * 60_000
"""Of `max_session_timeout_ms`: so long may a member be gone before its partitions are given to others."""

MAX_INITIAL_DELAY_MS: Final = 5 * 60_000
"""Of `initial_rebalance_delay_ms`: Java's default of `max.poll.interval.ms`, for which members wait at most."""

MAX_GROUP_SIZE: Final = 1000
"""Of `max_size`. Kafka's has no bound. What one record holds (`MAX_MEMBERS_BYTES`) is some 300 members with names of
usual length, and never more than this."""

_Session = Annotated[int, msgspec.Meta(ge=1, le=MAX_SESSION_MS)]


class GroupSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Kafka's settings of brokers that begin with `group.`, with Kafka's defaults.

    A member's session timeout is `min_session_timeout_ms` to `max_session_timeout_ms`. The first member of an empty
    group waits for `initial_rebalance_delay_ms` for others. A group has at most `max_size` members.
    """

    min_session_timeout_ms: _Session = 6_000
    max_session_timeout_ms: _Session = 30 * 60_000
    initial_rebalance_delay_ms: Annotated[int, msgspec.Meta(ge=0, le=MAX_INITIAL_DELAY_MS)] = 3_000
    max_size: Annotated[int, msgspec.Meta(ge=1, le=MAX_GROUP_SIZE)] = MAX_GROUP_SIZE

    def __post_init__(self) -> None:
        if self.min_session_timeout_ms > self.max_session_timeout_ms:
            raise ValueError("min_session_timeout_ms: above max_session_timeout_ms")
