"""Renders the chart with helm; without helm the tests that need it are skipped with what to do."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "helm" / "pidkeeper"
SCHEMAS = Path(__file__).parent / "schemas"
KUBE_VERSION = "1.31.0"
HELM_TIMEOUT = 60.0

PEER_KEY = "auth.peerKeySecret=ids-peer"

Manifest = dict[str, Any]


@dataclass(frozen=True)
class Rendered:
    """The manifests of one render, and helm's exit code and messages."""

    returncode: int
    stderr: str
    text: str

    def all(self) -> list[Manifest]:
        assert self.returncode == 0, self.stderr
        return [document for document in yaml.safe_load_all(self.text) if document]

    def one(self, kind: str, name: str) -> Manifest:
        found = [m for m in self.all() if (m["kind"], m["metadata"]["name"]) == (kind, name)]
        assert len(found) == 1, f"{len(found)} manifests are {kind}/{name}"
        return found[0]


Render = Callable[..., Rendered]


def started_with(rendered: Rendered, name: str, ordinal: int, directory: Path) -> tuple[Path, dict[str, str]]:
    """The configuration file and the environment that the pod with this ordinal starts with."""
    file = directory / f"{name}.toml"
    file.write_text(rendered.one("ConfigMap", f"pidkeeper-{name}")["data"][file.name])
    (container,) = rendered.one("StatefulSet", f"pidkeeper-{name}")["spec"]["template"]["spec"]["containers"]
    assert container["args"] == [name, "run", "--config", f"/etc/pidkeeper/{file.name}"]
    fields = {
        "metadata.name": f"pidkeeper-{name}-{ordinal}",
        "metadata.labels['apps.kubernetes.io/pod-index']": str(ordinal),
    }
    environment: dict[str, str] = {}
    for entry in container["env"]:
        value = entry["value"] if "value" in entry else fields[entry["valueFrom"]["fieldRef"]["fieldPath"]]
        environment[entry["name"]] = value.replace("$(POD_NAME)", environment.get("POD_NAME", ""))
    return file, environment


def valid(manifest: Manifest) -> Manifest:
    """A custom resource that is as its kind's own definition wants it, as far as the chart uses it."""
    schema = json.loads((SCHEMAS / f"{manifest['kind'].lower()}.json").read_text())
    jsonschema.validate(manifest, schema, jsonschema.Draft7Validator)
    return manifest


@pytest.fixture(scope="session")
def helm() -> str:
    own = ROOT / ".tools" / "bin" / "helm"
    found = str(own) if own.exists() else shutil.which("helm")
    if found is None:
        pytest.skip("helm is neither on PATH nor in .tools/bin; deploy/install-helm.sh builds it with Go")
    return found


@pytest.fixture(scope="session")
def render(helm: str) -> Render:
    """`render("controller.replicas=5")`: the chart as release `pidkeeper` in namespace `ids`, with --set values.

    Beside them only what has no default: the members' key.
    """

    def run(*values: str, release: str = "pidkeeper", options: tuple[str, ...] = ()) -> Rendered:
        sets = [word for value in (PEER_KEY, *values) for word in ("--set", value)]
        command = [helm, "template", release, str(CHART), "--namespace", "ids", "--kube-version", KUBE_VERSION]
        done = subprocess.run(
            [*command, *sets, *options], capture_output=True, text=True, check=False, timeout=HELM_TIMEOUT
        )
        return Rendered(done.returncode, done.stderr, done.stdout)

    return run
