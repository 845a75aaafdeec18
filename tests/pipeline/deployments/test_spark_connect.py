"""The audit by Spark Connect: a server with Java and workers of its own, and a client that has neither."""

from __future__ import annotations

import importlib.util
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pyspark
import pytest

from bench.process_tree import descendants
from pidkeeper.cli.local_cluster import free_ports
from pidkeeper.pipeline.files.location import locate
from tests.pipeline.conftest import REPOSITORY, why_no_spark
from tests.pipeline.member_faults import CASES, expected, findings_of, write_case
from tests.pipeline.small_audits import table
from tests.support.spark_driver import SHORT_LIVED

START_SECONDS: Final = 120.0
POLL_SECONDS: Final = 0.2
COMMAND_SECONDS: Final = 120.0
SERVER: Final = "org.apache.spark.sql.connect.service.SparkConnectServer"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Its address. It has the audit's libraries, and none of its code."""
    if (reason := why_no_spark()) is not None:
        pytest.skip(reason)
    if importlib.util.find_spec("grpc") is None:
        pytest.skip("no Spark Connect: grpc is not installed")
    (port,) = free_ports(1)
    directory = tmp_path_factory.mktemp("connect")
    settings = SHORT_LIVED | {
        "spark.connect.grpc.binding.port": str(port),
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
    }
    submit = [str(Path(pyspark.__file__).parent / "bin" / "spark-submit"), "--master", "local[2]", "--class", SERVER]
    given = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment["PYSPARK_PYTHON"] = sys.executable
    with (directory / "server.log").open("w") as log:
        process = subprocess.Popen(
            [*submit, *given, "spark-internal"], stdout=log, stderr=log, cwd=directory, env=environment
        )
        try:
            _wait_for(port)
            yield f"sc://127.0.0.1:{port}"
        finally:
            for pid in descendants([process.pid]):
                if pid != process.pid:
                    os.kill(pid, 15)
            process.terminate()
            process.wait(START_SECONDS)


def _wait_for(port: int) -> None:
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1.0).close()
        except OSError:
            assert time.monotonic() < deadline, f"no server within {START_SECONDS:g} s"
            time.sleep(POLL_SECONDS)
        else:
            return


@pytest.mark.parametrize("name", ["nothing wrong, one", "IDs given twice, all"])
def test_an_audit_by_a_server_says_the_same(server: str, tmp_path: Path, name: str) -> None:
    case = next(case for case in CASES if case.name == name)
    data, out = tmp_path / "data", tmp_path / "out"
    write_case(data, case)
    command = [sys.executable, "-m", "pidkeeper.cli", "audit", "run", str(data), "--out", str(out), "-o", "json"]
    ran = subprocess.run(
        [*command, "--master", server],
        capture_output=True,
        text=True,
        timeout=COMMAND_SECONDS,
        check=False,
        cwd=REPOSITORY,
        env=os.environ | {"JAVA_HOME": "/nowhere"},
    )
    assert ran.returncode in {0, 5}, ran.stderr
    assert json.loads(ran.stdout)["verdict"] == expected()[name].verdict
    assert findings_of(table(locate(out), "findings"), data) == expected()[name].findings
