"""What the audit sets of Spark, and what it leaves to whoever runs a cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from pidkeeper.pipeline import session
from pidkeeper.pipeline.session import DEFAULT_MEMORY, REQUIRED, why_not

OWN = {"spark.ui.showConsoleProgress", "spark.log.level", "spark.python.sql.dataFrameDebugging.enabled"}
"""What the driver shows and notes: nothing of these reaches the machines of a cluster."""


@pytest.mark.parametrize("master", ["spark://host:7077", "k8s://https://host:6443", "yarn", "local-cluster[1,1,512]"])
def test_a_cluster_gets_what_was_asked_for_and_no_more(master: str) -> None:
    settings = session._settings(master, None)
    assert set(settings) == OWN
    settings = session._settings(master, "3g")
    assert (settings["spark.driver.memory"], settings["spark.executor.memory"]) == ("3g", "3g")


def test_local_threads_share_a_bounded_heap(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "SPARK_LOCAL_IP", "PYTHONPATH"):
        monkeypatch.setenv(name, "")
    assert session._settings("local[2]", None)["spark.driver.memory"] == DEFAULT_MEMORY
    assert session._settings("local[2]", "1g")["spark.driver.memory"] == "1g"


def test_what_the_engine_rests_on_cannot_be_set_otherwise() -> None:
    assert why_not("spark.executor.memory", "4g") is None
    for name, value in REQUIRED.items():
        assert why_not(name, value) is None
        assert why_not(name, f"{value}0") == f"the audit needs {name}={value}"
    assert why_not("spark.master", "local") == "the master is named by --master"
    assert "spark.hadoop.fs.defaultFS" in (why_not("fs.defaultFS", "hdfs://h") or "")


def test_an_audit_in_one_process_needs_no_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert session.why_no_audit() is None
    assert "java does not run" in (session.why_no_spark() or "")
    monkeypatch.setattr(session, "_NEEDED", ("numpy", "no_such_library"))
    assert session.why_no_audit() == session.why_no_spark() == f"the audit needs no_such_library: {session.EXTRA}"
