"""`pidkeeper demo` in small: the same acts with fewer IDs."""

from __future__ import annotations

import json

from tests.support.cluster import pidkeeper

KEYS = [
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
