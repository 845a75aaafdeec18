"""What processes that copy report, put together."""

from __future__ import annotations

import json

import pytest

from bench.copies import together
from bench.copy_load import CopyResult, Requests


def statistics(name: str, **requests: int) -> str:
    """As librdkafka tells them, of a client with two brokers of which one was asked nothing."""
    return json.dumps({"name": name, "brokers": {"a": {"req": requests}, "b": {"req": dict.fromkeys(requests, 0)}}})


def test_the_last_word_of_each_client_counts() -> None:
    requests = Requests()
    requests.heard(statistics("consumer", Fetch=3))
    requests.heard(statistics("producer", Produce=1, EndTxn=1))
    requests.heard(statistics("producer", Produce=5, EndTxn=2))
    assert +requests.all() == {"Fetch": 3, "Produce": 5, "EndTxn": 2}


def test_requests_are_told_for_a_thousand_records_and_rates_are_added() -> None:
    one = CopyResult(1, 3000, 30, 10.0, {"Produce": 40, "EndTxn": 30, "Fetch": 1000})
    other = CopyResult(1, 1000, 10, 5.0, {"Produce": 20, "EndTxn": 10, "Metadata": 7})
    copies = together([one, other])
    assert (copies.producers, copies.rate, copies.transactions) == (2, 500.0, 5.0)
    assert copies.by_name["Produce"] == 15.0
    assert copies.requests == 25.0


def test_nothing_copied_is_no_result() -> None:
    with pytest.raises(RuntimeError, match="nothing was copied"):
        together([CopyResult(1, 0, 0, 10.0, {})])
