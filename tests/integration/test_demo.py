"""`pidkeeper demo` in small: the same acts with fewer IDs."""

from __future__ import annotations

import json
from pathlib import Path

from pidkeeper.cli.demo.history import whole_history
from tests.support.checking_client import CheckingClient
from tests.support.cluster import bring_back, followers, metrics, pidkeeper, running_cluster

KEYS = [
    "schema_version",
    "producer_ids",
    "duplicates",
    "blocks",
    "leader_kills",
    "claim_errors",
    "longest_service_gap_ms",
    "allocate_p50_ms",
    "allocate_p99_ms",
]


def test_the_demonstration_proves_itself() -> None:
    run = pidkeeper("demo", "--claims", "20000", "--rate", "10000", "--kills", "1", "--json")
    assert run.returncode == 0, run.stderr
    facts = json.loads(run.stdout.splitlines()[-1])
    assert list(facts) == KEYS
    assert facts["producer_ids"] >= 40_000, "the load, the witnesses, and the claims after the restart"
    assert (facts["duplicates"], facts["claim_errors"], facts["leader_kills"]) == (0, 0, 1)
    assert facts["blocks"] * 1000 >= facts["producer_ids"]
    assert 0 < facts["allocate_p50_ms"] <= facts["allocate_p99_ms"]
    assert "kill -9 of the leader" in run.stderr
    assert "no ID twice, nothing lost" in run.stdout


def test_the_history_is_whole_though_a_member_lacks_a_part_of_it(tmp_path: Path) -> None:
    with running_cluster(tmp_path, controller_options={"snapshot_entries": 40}) as cluster:
        lagging = followers(cluster, cluster.leader())[0]
        with CheckingClient(cluster) as client:
            client.more(20)
            cluster.kill(lagging)
            client.more(200)
            bring_back(cluster)
            client.more(20)
        assert metrics(lagging)["pidkeeper_raft_snapshots_installed_total"] >= 1
        given = {(grant.first, grant.last, grant.broker_id) for grant in client.grants}
        history = whole_history(cluster.layout.controllers)
        assert given <= {(block.first, block.last, block.broker_id) for block in history}
        assert [block.first for block in history] == [number * 1000 for number in range(len(history))], (
            "each block once"
        )
        assert not given <= {(block.first, block.last, block.broker_id) for block in whole_history([lagging])}
