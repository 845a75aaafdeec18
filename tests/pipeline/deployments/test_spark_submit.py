"""`spark-submit` starts the audit, and its master is the one that runs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pyspark
import pytest

from pidkeeper import cli
from tests.pipeline.conftest import REPOSITORY, why_no_spark
from tests.support.member_files import MemberFiles

RUN_SECONDS: Final = 280.0


def test_spark_submit_names_the_master(tmp_path: Path) -> None:
    if (reason := why_no_spark()) is not None:
        pytest.skip(reason)
    MemberFiles(tmp_path / "1").archive((5, 9))
    out, events = tmp_path / "out", tmp_path / "events"
    events.mkdir()
    logged = ["spark.eventLog.enabled=true", f"spark.eventLog.dir={events.as_uri()}", "spark.eventLog.compress=false"]
    given = [word for setting in logged for word in ("--conf", setting)]
    program = [str(Path(cli.__file__).with_name("__main__.py")), "audit", "run", str(tmp_path / "1"), "--out", str(out)]
    submit = [str(Path(pyspark.__file__).parent / "bin" / "spark-submit"), "--master", "local[1]", *given]
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY), "PYSPARK_PYTHON": sys.executable}
    ran = subprocess.run(
        [*submit, *program], capture_output=True, text=True, timeout=RUN_SECONDS, check=False, env=environment
    )
    assert ran.returncode == 6, ran.stderr
    assert json.loads((out / "verdict.json").read_text())["blocks"] == 4
    assert '"spark.master":"local[1]"' in "".join(file.read_text() for file in events.rglob("*") if file.is_file())
