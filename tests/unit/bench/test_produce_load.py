from __future__ import annotations

from collections import Counter

import pytest

from bench.data_systems import who_was_busy
from bench.produce_load import Acknowledged, ProduceSpec, settings, summed

SPEC = ProduceSpec("127.0.0.1:1", "t", 2, 4, 3_000_000, 1.0, 0.0)


def test_only_what_was_acknowledged_after_the_warm_up_counts() -> None:
    one = Acknowledged(times=[(9.5, 9.9), (9.9, 10.1), (11.0, 11.3)], offsets=[0, 1, 2])
    other = Acknowledged(times=[(10.0, 10.4), (11.9, 12.0)], offsets=[0, 1])
    result = summed([one, other], 10.0, 12.0, 0.5)
    assert (result.batches, result.rate, result.busy) == (3, 1.5, 0.5)
    assert [result.p50_ms, result.p99_ms] == pytest.approx([300, 400])
    assert (result.repeated, result.failures) == (0, {})


def test_an_offset_that_one_partition_gives_twice_is_seen() -> None:
    one = Acknowledged(times=[(0.0, 0.1)], offsets=[3, 4, 3])
    other = Acknowledged(times=[(0.0, 0.1)], offsets=[3, 5])
    assert summed([one, other], 0.0, 1.0, 0.0).repeated == 1


def test_failures_of_all_producers_are_told() -> None:
    one = Acknowledged(times=[(0.0, 0.1)], failures=Counter({"late": 2}))
    other = Acknowledged(failures=Counter({"late": 1, "no answer": 1}))
    assert summed([one, other], 0.0, 1.0, 0.0).failures == {"late": 3, "no answer": 1}
    with pytest.raises(ValueError, match=r"nothing was acknowledged: \{'late': 1"):
        summed([other], 0.0, 1.0, 0.0)


def test_a_batch_has_one_record_and_fits() -> None:
    asked = settings(SPEC)
    assert (asked["batch.num.messages"], asked["enable.idempotence"], asked["acks"]) == (1, True, "all")
    assert int(asked["message.max.bytes"]) > SPEC.batch_bytes


def test_the_busiest_is_named_first() -> None:
    assert who_was_busy({"leader": 0.2, "agent": 0.9}) == "cores busy: agent 0.90, leader 0.20"
