"""Java is ended under a session that has accumulators open, as by who presses Ctrl-C twice."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.pipeline.conftest import REPOSITORY, why_no_spark

SECONDS: Final = 120.0
PROGRAM: Final = """
import contextlib, logging, socketserver, sys, threading
from pathlib import Path
from pidkeeper.pipeline.interrupts import end_java
from pidkeeper.pipeline.session import session

gone = threading.Event()
finish = socketserver.TCPServer.shutdown_request

def shutdown_request(server, request):
    finish(server, request)
    gone.set()

socketserver.TCPServer.shutdown_request = shutdown_request
# A session says that its Java is gone.
with contextlib.suppress(ConnectionError), session("local[1]", log=Path(sys.argv[1])) as spark:
    counted = spark.sparkContext.accumulator(0)
    spark.sparkContext.parallelize(range(9), 1).foreach(counted.add)
    assert counted.value == 36
    logging.disable(logging.CRITICAL)
    end_java()
    assert gone.wait(60), "the connection of the accumulators is not at its end"
print("ended")
"""


def test_its_end_leaves_no_stack_trace_of_the_accumulators(tmp_path: Path) -> None:
    if (reason := why_no_spark()) is not None:
        pytest.skip(reason)
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "spark.log")],
        env=os.environ | {"PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "ended\n", "")
