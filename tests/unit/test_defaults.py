"""Defaults of agents and controllers that rest on each other."""

from __future__ import annotations

from typing import Any

import msgspec

from pidkeeper.broker_agent.config import AgentConfig
from pidkeeper.broker_agent.producer_ids import HEARTBEAT_SECONDS
from pidkeeper.controller.api.limits import ApiLimits
from pidkeeper.controller.config import ControllerConfig

COUNTED_WITH = 4000
"""Brokers from which the quotas of all together are derived (docs/api.md)."""


def default(config: type[Any], key: str) -> int:
    (field,) = (field for field in msgspec.structs.fields(config) if field.name == key)
    assert isinstance(field.default, int)
    return field.default


def test_the_quota_of_sessions_has_room_for_the_heartbeats_of_all_brokers_that_it_counts_with() -> None:
    seconds = default(AgentConfig, "heartbeat_interval_ms") / 1000
    limits = ApiLimits()
    assert COUNTED_WITH / seconds <= limits.cluster_sessions.per_second
    assert 2 / seconds <= limits.broker_sessions.per_second, "with one to spare"
    assert seconds == HEARTBEAT_SECONDS, "the library asks as agents do"


def test_a_broker_that_lives_is_heard_several_times_before_anything_follows_from_its_silence() -> None:
    interval_ms = default(AgentConfig, "heartbeat_interval_ms")
    assert 4 * interval_ms <= default(ControllerConfig, "broker_session_timeout_ms")
    assert 4 * interval_ms <= default(ControllerConfig, "founding_hearing_ms")
