"""Requests that Schemathesis makes from the `/openapi.json` of a controller and an agent that run."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pidkeeper.cli.local_cluster import LocalCluster
from tests.support.cluster import running_cluster

CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "negative_data_rejection",
    "unsupported_method",
)
SETTINGS = """
[checks]
negative_data_rejection.expected-statuses = [400, 403, 404, 405, 409, 413, 415, 421]
"""
"""Schemathesis does not know of 413 and 421 by itself."""

SECONDS = 120


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with running_cluster(tmp_path_factory.mktemp("openapi") / "cluster", controllers=1, agents=1) as running:
        yield running


def test_whatever_the_documents_permit_is_answered_as_they_say(cluster: LocalCluster, tmp_path: Path) -> None:
    (controller,), (agent,) = cluster.layout.controllers, cluster.layout.agents
    (tmp_path / "schemathesis.toml").write_text(SETTINGS)
    # The agent first: strangers may register as its broker here, and then it ends.
    for url in (agent.http, controller.http):
        command = [str(Path(sys.executable).with_name("schemathesis")), "run", f"{url}/openapi.json", "--no-color"]
        command += ["--phases", "fuzzing", "--max-examples", "10", "--seed", "1", "--checks", ",".join(CHECKS)]
        ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=SECONDS, check=False)
        assert ran.returncode == 0, ran.stdout
        tested = re.search(r"Selected: (\d+)/(\d+)\s+Tested: (\d+)", ran.stdout)
        assert tested is not None, ran.stdout
        assert len({int(count) for count in tested.groups()}) == 1
