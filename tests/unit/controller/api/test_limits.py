"""The limits of a controller: defaults that fit together, and values that are refused."""

from __future__ import annotations

import math

import msgspec
import pytest

from pidkeeper.controller.api.limits import ApiLimits
from pidkeeper.service import throttle


def test_the_defaults_need_fewer_buckets_than_the_bound() -> None:
    limits = ApiLimits()
    for broker, cluster in (
        (limits.broker_allocations, limits.cluster_allocations),
        (limits.broker_sessions, limits.cluster_sessions),
    ):
        busy_seconds = broker.burst / broker.per_second
        assert math.ceil(cluster.burst + cluster.per_second * busy_seconds) <= throttle.MAX_BUCKETS


@pytest.mark.parametrize(
    "text",
    [
        '{"max_pending": 0}',
        '{"broker_allocations": {"per_second": 0, "burst": 1}}',
        '{"broker_allocations": {"per_second": -1, "burst": 1}}',
        '{"broker_allocations": {"per_second": 1e300, "burst": 1}}',
        '{"broker_allocations": {"per_second": 1, "burst": 0}}',
        '{"request_timeout_ms": 0}',
        '{"max_pendign": 7}',
    ],
)
def test_limits_that_make_no_sense_are_refused(text: str) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(text, type=ApiLimits)
