"""Real clients write into a real broker with IDs of a real quorum; its audit beside the quorum's files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest

from pidkeeper.cli.local_cluster import LocalCluster
from pidkeeper.pipeline.audit import AuditOptions, run_audit
from pidkeeper.pipeline.engine.local import LocalEngine
from pidkeeper.pipeline.files.location import locate
from pidkeeper.pipeline.formats.log_segment import SegmentReader
from pidkeeper.pipeline.formats.record_batch import CONTROL, BatchHeader
from pidkeeper.pipeline.paths import AuditPaths
from pidkeeper.pipeline.verdict import read_verdict
from tests.pipeline.quorum_segments import (
    OWN_TOPICS,
    PARTITIONS,
    PRODUCERS,
    TOPICS,
    TRANSACTIONS,
    write_logs,
    write_segments,
)
from tests.support.cluster import bring_back, ledger, pidkeeper, running_cluster, wait_until
from tests.support.http_calls import call
from tests.support.kafka_broker import why_unavailable

FLOOR: Final = 1_000_000
"""Far above all that the broker would give out by itself."""


def batches(logs: Path, topic: str) -> list[BatchHeader]:
    found: list[BatchHeader] = []
    for path in sorted((logs / f"{topic}-0").glob("*.log")):
        with path.open("rb") as file:
            for chunk in SegmentReader(file, path.stat().st_size, base_offset=int(path.stem)).chunks():
                found += chunk.batches()
    return found


def test_the_ids_in_the_segments_are_those_of_the_quorum(tmp_path: Path) -> None:
    if (reason := why_unavailable()) is not None:
        pytest.skip(reason)
    with running_cluster(tmp_path / "cluster", agents=1) as cluster:
        raised = call(cluster.leader().http, "POST", "/v1/producer-ids/floor", {"at_least": FLOOR})
        assert raised.status == 200
        # What an agent has in hand it keeps for as long as it runs.
        cluster.kill(*cluster.layout.agents)
        bring_back(cluster)
        logs = write_segments(cluster.layout.agents[0].kafka, tmp_path / "kafka")
        history = ledger(cluster)
        data = [controller.data_dir for controller in cluster.layout.controllers]
    written = [one for topic in TOPICS for one in batches(logs, topic)]
    producers = {one.producer_id for one in written}
    assert len(producers) == PRODUCERS + 1 + 2, "the idempotent ones of two libraries, and two transactional ids"
    markers = [one for one in written if one.attributes & CONTROL]
    assert len(markers) == 2 * TRANSACTIONS * len(TOPICS) + TRANSACTIONS
    assert min(producers) >= FLOOR
    assert all(any(block["first"] <= one <= block["last"] for block in history) for one in producers), history
    verdict = run_audit(LocalEngine(), AuditOptions(AuditPaths(data, [str(logs)]), locate(tmp_path / "out")))
    warned = {name: count.warnings for name, count in verdict.checks.items() if count.warnings}
    assert (verdict.verdict, warned, verdict.coverage.unseen) == ("clean", {}, [])
    assert verdict.batches >= len(written)


def partitions(cluster: LocalCluster) -> list[dict[str, Any]]:
    """Of the quorum's own topics, as they are described."""
    found = []
    for topic in OWN_TOPICS:
        printed = pidkeeper("topics", "describe", topic, "--cluster", cluster.directory, "--output", "json")
        assert printed.returncode == 0, printed.stderr
        found += json.loads(printed.stdout)["partitions"]
    return found


def test_rolled_logs_of_real_clients_are_clean(tmp_path: Path) -> None:
    """While agents roll, and when all is at rest: every offset was looked at, those in segments too."""
    settings = {"log_roll_rows": 4, "log_roll_ms": 200, "snapshot_entries": 100}
    with running_cluster(tmp_path / "cluster", agents=2, data=True, controller_options=settings) as cluster:
        audit = ("audit", "run", "--cluster", cluster.directory, "--engine", "local", "--out")
        write_logs(cluster.layout.agents[0].kafka)
        busy = pidkeeper(*audit, tmp_path / "busy")
        assert busy.returncode == 0, busy.stdout + busy.stderr
        wait_until(lambda: all(one["batches"] == 0 for one in partitions(cluster)), "segments of all there is")
        end = sum(one["end"] for one in partitions(cluster))
    rested = pidkeeper(*audit, tmp_path / "out")
    assert rested.returncode == 0, rested.stdout + rested.stderr
    verdict = read_verdict(locate(tmp_path / "out"))
    logs = verdict.coverage.logs
    assert logs is not None
    assert (verdict.verdict, logs.batches) == ("clean", 0)
    assert logs.groups == 1
    assert logs.group_offsets > 0
    assert logs.segments_read == logs.segments >= PARTITIONS
    assert logs.offsets_read == logs.offsets_rolled == end > 0
