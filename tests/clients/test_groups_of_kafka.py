"""Groups say what those of a real Kafka broker say, to calls that are drawn from seeds."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from typing import Final

import pytest

from pidkeeper.protocol.errors import ErrorCode
from tests.support.groups_side_by_side import KafkaGroup, SideBySide
from tests.support.kafka_broker import KafkaBroker, why_unavailable

SEEDS: Final = 12
STEPS: Final = 60
SECONDS: Final = 60.0


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    if (reason := why_unavailable()) is not None:
        pytest.skip(reason)
    one = KafkaBroker(tmp_path_factory.mktemp("kafka"))
    try:
        one.start()
        until_it_coordinates(one)
        yield one
    finally:
        one.close()


def until_it_coordinates(broker: KafkaBroker) -> None:
    """The first who looks for a coordinator has the broker begin to be one."""
    group = KafkaGroup(broker.bootstrap, "first")
    deadline = time.monotonic() + SECONDS
    code = None
    while code != ErrorCode.UNKNOWN_MEMBER_ID.kafka_code:
        assert time.monotonic() < deadline, "the broker coordinates no group"
        group.ask(0, "find_coordinator", 3, {"key": "first", "key_type": 0})
        group.answer(0)
        group.ask(1, "heartbeat", 4, {"member_id": "nobody", "group_instance_id": None, "generation_id": 0})
        code = group.answer(1)["error_code"]


def test_the_same_is_said(broker: KafkaBroker) -> None:
    told = set()
    for seed in range(SEEDS):
        both = SideBySide(KafkaGroup(broker.bootstrap, f"group-{seed}"), random.Random(seed))
        try:
            for _ in range(STEPS):
                both.step()
        finally:
            both.end()
        told |= both.told
    assert told >= {("join", 0), ("join", 79), ("join", 25), ("join", 82), ("sync", 0), ("sync", 27), ("leave", 0)}
