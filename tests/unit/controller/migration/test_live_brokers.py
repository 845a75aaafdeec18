"""Whose session lasts: what counts as a broker, and what is said of those that are left."""

from __future__ import annotations

import pytest

from pidkeeper.controller.migration.live_brokers import MAX_NAMED, parse_children, why_not_seal
from pidkeeper.controller.migration.zookeeper import Cause, Failure, LiveBrokers


def test_brokers_are_in_order_of_their_ids() -> None:
    assert parse_children(["10", "2", "0", "2147483647"]) == LiveBrokers((0, 2, 10, 2147483647))
    assert parse_children([]) == LiveBrokers(())


@pytest.mark.parametrize(
    "name", ["", "x", "-1", "+1", "01", "00", "1 ", "1\n", "1_0", "2147483648", "99999999999", "\u0661"]
)
def test_a_child_with_another_name_is_no_broker(name: str) -> None:
    assert parse_children(["7", name]) == LiveBrokers((7,), foreign=1)


def test_nothing_is_in_the_way_where_no_broker_is() -> None:
    assert why_not_seal(LiveBrokers(())) is None
    assert why_not_seal(LiveBrokers((), foreign=3)) is None


def test_the_brokers_that_are_left_are_named_with_what_they_would_do() -> None:
    reason = why_not_seal(LiveBrokers((1, 7)))
    assert reason is not None
    assert reason.startswith("brokers 1, 7 are still in ZooKeeper (/brokers/ids). ")
    assert "3.0 or above answers new producers with COORDINATOR_LOAD_IN_PROGRESS for ever" in reason
    assert "below 3.0 answers with UNKNOWN_SERVER_ERROR, and does not start again" in reason
    assert reason.endswith("wait until their sessions have ended; or force it, with the operators' token")
    assert (why_not_seal(LiveBrokers((7,))) or "").startswith("broker 7 is still in ZooKeeper ")


def test_what_is_named_is_bounded() -> None:
    everybody = LiveBrokers(tuple(range(MAX_NAMED)))
    assert f", {MAX_NAMED - 1} are still" in (why_not_seal(everybody) or "")
    many = LiveBrokers(tuple(range(10_000)))
    assert f", {MAX_NAMED - 1} and {10_000 - MAX_NAMED} more are still" in (why_not_seal(many) or "")


@pytest.mark.parametrize(
    ("failure", "said"),
    [
        (Failure(Cause.UNAVAILABLE, "no session"), "(/brokers/ids): no session. Mend that, or force it"),
        (Failure(Cause.DENIED, "NoAuth"), "ZooKeeper does not permit it: let this user read /brokers/ids"),
    ],
)
def test_a_list_that_cannot_be_read_is_not_an_empty_one(failure: Failure, said: str) -> None:
    reason = why_not_seal(failure)
    assert reason is not None
    assert reason.startswith("nobody can tell which brokers are still in ZooKeeper ")
    assert said in reason
