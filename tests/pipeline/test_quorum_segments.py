"""Real clients write into a real broker with IDs of a real quorum; its audit beside the quorum's files."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from pidkeeper.pipeline.audit import AuditOptions, run_audit
from pidkeeper.pipeline.engine.local import LocalEngine
from pidkeeper.pipeline.files.location import locate
from pidkeeper.pipeline.formats.log_segment import SegmentReader
from pidkeeper.pipeline.formats.record_batch import CONTROL, BatchHeader
from pidkeeper.pipeline.paths import AuditPaths
from tests.pipeline.quorum_segments import PRODUCERS, TOPICS, TRANSACTIONS, write_segments
from tests.support.cluster import bring_back, ledger, running_cluster
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
