"""What the data directory takes is looked at again and again, and a look that fails shows nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from pidkeeper.controller.api import usage_metrics
from pidkeeper.controller.api.usage_metrics import UsageCollector, usage_watched
from tests.support.loopback_cluster import eventually


def shown(collector: UsageCollector) -> dict[str, float]:
    return {sample.name: sample.value for family in collector.collect() for sample in family.samples}


async def test_a_directory_is_looked_at_again_and_one_that_cannot_be_read_is_told_nothing_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(usage_metrics, "LOOK_SECONDS", 0.005)
    for name in ("wal", "archive", "snapshots"):
        (tmp_path / name).mkdir()
    async with usage_watched(tmp_path) as collector:
        assert shown(collector)["pidkeeper_raft_log_bytes"] == 0, "the first look is done"
        assert "pidkeeper_snapshot_timestamp_seconds" not in shown(collector)
        (tmp_path / "wal" / "segment").write_bytes(bytes(100))
        await eventually(lambda: shown(collector)["pidkeeper_raft_log_bytes"] == 100)
        (tmp_path / "archive").rename(tmp_path / "elsewhere")
        await eventually(lambda: shown(collector) == {})
        (tmp_path / "elsewhere").rename(tmp_path / "archive")
        await eventually(lambda: "pidkeeper_disk_free_bytes" in shown(collector))
