"""The audit on a standalone cluster of Spark: executors of their own, the code as a zip file, the same verdict."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from bench.generate import CLUSTER_ID, FIRST_OFFSET, Workload, write_workload
from bench.spark_cluster import SparkCluster
from pidkeeper.cli.failures import ExitCode
from pidkeeper.cli.local_cluster import import_root
from pidkeeper.pipeline.audit import AuditOptions, run_audit
from pidkeeper.pipeline.engine.local import LocalEngine
from pidkeeper.pipeline.files.location import locate
from pidkeeper.pipeline.paths import AuditPaths
from pidkeeper.protocol.messages import AllocatedBlock
from pidkeeper.snapshots.archive_format import encode_archive
from tests.support.spark_driver import SHORT_LIVED

pytestmark = pytest.mark.timeout(600)
LOAD: Final = Workload(blocks=400_000, batches=200_000)
"""More than one process is given alone."""
RUN_SECONDS: Final = 500.0
EXECUTOR_MEMORY: Final = "500m"


def write_overlap(quorum: Path) -> None:
    """Behind all blocks, in the archive of every member: the IDs 5500 to 6499 once more."""
    offset = FIRST_OFFSET + LOAD.blocks
    block = AllocatedBlock(5500, 6499, 7, 7, offset, 1_700_000_100_000)
    for archive in quorum.glob("*/archive"):
        name = f"{offset:020d}-{offset + 1:020d}.arc"
        (archive / name).write_bytes(encode_archive(CLUSTER_ID, offset, offset + 1, [block]))


def properties(events: Path) -> dict[str, str]:
    """What Spark says that it was set to, of the one driver."""
    (log,) = events.iterdir()
    lines = log.read_text().splitlines()
    found = [json.loads(line) for line in lines if line.startswith('{"Event":"SparkListenerEnvironmentUpdate"')]
    settings: dict[str, str] = found[0]["Spark Properties"]
    return settings


def comparable(verdict: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in verdict.items() if name != "wall_seconds"}


def test_two_workers_reach_the_verdict_of_one_process(tmp_path: Path) -> None:
    quorum, kafka = write_workload(tmp_path, LOAD)
    write_overlap(quorum)
    options = AuditOptions(AuditPaths([str(quorum)], [str(kafka)]), locate(tmp_path / "local"))
    local = json.loads(msgspec.json.encode(run_audit(LocalEngine(), options)))
    assert local["checks"]["overlap"]["violations"] > 0
    assert (local["files_bad"], local["batches"]) == (0, LOAD.batches)

    command = [
        "audit",
        "run",
        str(quorum),
        "--segments",
        str(kafka),
        "--conf",
        "spark.driver.memory=512m",
        "-o",
        "json",
    ]
    settings = SHORT_LIVED | {"spark.executor.memory": EXECUTOR_MEMORY, "spark.sql.adaptive.enabled": "true"}
    with SparkCluster(tmp_path / "cluster", memory="512m", settings=settings) as cluster:
        out = str(tmp_path / "out")
        ran = subprocess.run(
            [sys.executable, "-m", "pidkeeper.cli", *command, "--master", cluster.master, "--out", out],
            capture_output=True,
            text=True,
            cwd=import_root(),
            env=cluster.environment(),
            timeout=RUN_SECONDS,
            check=False,
        )
        pids = cluster.pids
        tasks = cluster.tasks()
    assert ran.returncode == ExitCode.REFUSED, f"{ran.stderr}\n{(tmp_path / 'out' / 'spark.log').read_text()}"
    assert comparable(json.loads(ran.stdout)) == comparable(local)
    assert set(tasks) == {"work-0", "work-1"}, f"tasks by worker: {tasks}"
    used = properties(tmp_path / "cluster" / "events")
    assert (used["spark.executor.memory"], used["spark.driver.memory"]) == (EXECUTOR_MEMORY, "512m")
    assert used["spark.sql.adaptive.enabled"] == "false"
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids), "a process of the cluster is left"
