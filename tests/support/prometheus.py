"""A real Prometheus that runs for a test: Debian's, from .tools/prometheus or PATH."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from pidkeeper.cli.local_cluster import HOST, free_ports
from tests.support.cluster import REPOSITORY, wait_until
from tests.support.http_calls import call

PROMTOOL_SECONDS: Final = 60.0


def binary(name: str) -> str:
    """`prometheus` or `promtool`; skips the test where there is none."""
    own = REPOSITORY / ".tools" / "prometheus" / name
    found = str(own) if own.exists() else shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is neither on PATH nor in .tools/prometheus; tools/fetch-prometheus brings it by apt")
    return found


def promtool(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run promtool to its end."""
    command = [binary("promtool"), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=PROMTOOL_SECONDS)


class Prometheus:
    """Questions to one that runs."""

    def __init__(self, url: str) -> None:
        self._url = url

    def query(self, expr: str) -> list[dict[str, Any]]:
        """The samples of an instant query."""
        answer = self._ask(f"/api/v1/query?{urllib.parse.urlencode({'query': expr})}")
        assert answer["status"] == "success", f"{expr}: {answer}"
        found: list[dict[str, Any]] = answer["data"]["result"]
        return found

    def firing(self, name: str) -> list[dict[str, str]]:
        """The labels of the alerts of this name that fire now."""
        alerts = self._ask("/api/v1/alerts")["data"]["alerts"]
        labels = [one["labels"] for one in alerts if one["state"] == "firing"]
        return [one for one in labels if one["alertname"] == name]

    def targets(self) -> dict[str, str]:
        """Health of each target by its address: `up`, `down` or `unknown`."""
        active = self._ask("/api/v1/targets")["data"]["activeTargets"]
        return {one["labels"]["instance"]: one["health"] for one in active}

    def ready(self) -> bool:
        """Whether it takes queries."""
        return call(self._url, "GET", "/-/ready").status == 200

    def _ask(self, path: str) -> Any:
        return json.loads(call(self._url, "GET", path).body)


@contextlib.contextmanager
def running_prometheus(directory: Path, config: dict[str, Any]) -> Iterator[Prometheus]:
    """One with this configuration, its data in `directory`. It is killed at the end."""
    file, log = directory / "prometheus.yml", directory / "prometheus.log"
    file.write_text(yaml.safe_dump(config))
    (port,) = free_ports(1)
    command = [
        binary("prometheus"),
        f"--config.file={file}",
        f"--storage.tsdb.path={directory / 'data'}",
        f"--web.listen-address={HOST}:{port}",
    ]
    with log.open("wb") as written:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=written, stderr=written)
    try:
        prometheus = Prometheus(f"http://{HOST}:{port}")

        def ready() -> bool:
            assert process.poll() is None, log.read_text()
            return prometheus.ready()

        wait_until(ready, "Prometheus to be ready")
        yield prometheus
    finally:
        process.kill()
        process.wait()
