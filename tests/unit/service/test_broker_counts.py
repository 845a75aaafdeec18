"""Counts by broker stay few, whatever ids come."""

from __future__ import annotations

from pidkeeper.service.broker_counts import MAX_NAMED_BROKERS, OTHER, BrokerCounts


def test_each_broker_is_counted_by_its_id() -> None:
    counts = BrokerCounts()
    for broker in (7, 7, 3):
        counts.count(broker)
    assert dict(counts.items()) == {"7": 2, "3": 1, OTHER: 0}


def test_brokers_behind_the_first_ones_are_counted_together() -> None:
    counts = BrokerCounts()
    for broker in range(10 * MAX_NAMED_BROKERS):
        counts.count(broker)
    counts.count(0)
    counts.count(10**9)
    shown = dict(counts.items())
    assert len(shown) == MAX_NAMED_BROKERS + 1
    assert (shown["0"], shown[str(MAX_NAMED_BROKERS - 1)], shown[OTHER]) == (2, 1, 9 * MAX_NAMED_BROKERS + 1)
