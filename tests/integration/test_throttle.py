"""A broker over its rate is told to wait, and for how long; the others are served."""

from __future__ import annotations

from pathlib import Path

from tests.support.cluster import (
    CONTROLLER_OPTIONS,
    UNLIMITED,
    allocate,
    followers,
    labelled,
    ledger,
    quorum,
    register,
    running_cluster,
    wait_until,
)
from tests.support.http_calls import call

BURST = 3


def test_a_broker_over_its_rate_waits_alone(tmp_path: Path) -> None:
    # One token in 100 s: however slow the machine, none comes back within this test.
    narrow = {"broker_allocations": {"per_second": 0.01, "burst": BURST}}
    options = {"limits": CONTROLLER_OPTIONS["limits"] | narrow}
    with running_cluster(tmp_path, controllers=1, controller_options=options) as cluster:
        member = cluster.leader()
        greedy, modest = (register(member, broker, "throttle").json()["broker_epoch"] for broker in (1, 2))
        assert [allocate(member, 1, greedy).status for _ in range(BURST)] == [200] * BURST
        next_id = quorum(member)["next_producer_id"]
        refused = allocate(member, 1, greedy)
        assert refused.status == 429
        problem = refused.json()
        assert (problem["code"], problem["error_code"], problem["retryable"]) == ("THROTTLING_QUOTA_EXCEEDED", 89, True)
        assert 0 < problem["throttle_time_ms"] <= 100_000
        assert int(refused.headers["retry-after"]) == -(-problem["throttle_time_ms"] // 1000)
        assert quorum(member)["next_producer_id"] == next_id
        assert [allocate(member, 2, modest).status for _ in range(BURST)] == [200] * BURST
        text = call(member.http, "GET", "/metrics").body.decode()
        assert 'pidkeeper_throttled_total{quota="broker"} 1.0' in text
        assert labelled(member, "pidkeeper_ids_allocation_throttled_total") == {("1",): 1, ("other",): 0}
        assert labelled(member, "pidkeeper_ids_blocks_allocated_total") == {
            ("1",): BURST,
            ("2",): BURST,
            ("other",): 0,
        }


def test_blocks_of_one_request_are_one_entry_and_cost_a_token_each(tmp_path: Path) -> None:
    narrow = {"broker_allocations": {"per_second": 0.01, "burst": 70}}
    options = {"limits": CONTROLLER_OPTIONS["limits"] | narrow}
    with running_cluster(tmp_path, controller_options=options) as cluster:
        leader = cluster.leader()
        epoch = register(leader, 1, "several").json()["broker_epoch"]
        before = quorum(leader)["commit_index"]
        answer = allocate(leader, 1, epoch, blocks=64).json()
        assert quorum(leader)["commit_index"] == before + 1
        assert [one["producer_id_start"] for one in (answer, *answer["more"])] == list(range(0, 64_000, 1000))
        assert len(allocate(leader, 1, epoch, blocks=64).json()["more"]) == 5, "70 tokens there were"
        assert allocate(leader, 1, epoch, blocks=2).status == 429
        follower = followers(cluster, leader)[0]
        assert allocate(follower, 1, epoch, blocks=2).json()["code"] == "NOT_CONTROLLER"
        wait_until(lambda: len(ledger(cluster)) == 70, "all blocks in the history of all members")
        assert {block["broker_epoch"] for block in ledger(cluster)} == {epoch}


def test_all_brokers_together_have_a_rate(tmp_path: Path) -> None:
    narrow = {"broker_allocations": UNLIMITED, "cluster_allocations": {"per_second": 0.01, "burst": BURST}}
    options = {"limits": CONTROLLER_OPTIONS["limits"] | narrow}
    with running_cluster(tmp_path, controllers=1, controller_options=options) as cluster:
        member = cluster.leader()
        epochs = {broker: register(member, broker, "throttle").json()["broker_epoch"] for broker in range(BURST + 1)}
        answers = [allocate(member, broker, epoch) for broker, epoch in epochs.items()]
        assert [answer.status for answer in answers] == [200] * BURST + [429]
        assert "the quota of the cluster" in answers[-1].json()["detail"]
