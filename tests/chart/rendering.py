"""Renders of the chart, and what they are taken for: manifests, and the configuration and environment of a pod."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import yaml

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "helm" / "pidkeeper"
SCHEMAS = Path(__file__).parent / "schemas"
KUBE_VERSION = "1.31.0"
HELM_TIMEOUT = 60.0

API_VERSIONS = ("cert-manager.io/v1", "keda.sh/v1alpha1", "monitoring.coreos.com/v1", "sparkoperator.k8s.io/v1beta2")
"""Of the custom resources that the chart makes where the cluster knows them."""

PEER_KEY = "auth.peerKeySecret=ids-peer"

VALUES = {file.name.removesuffix("-values.yaml"): file for file in sorted((CHART / "ci").iterdir())}

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


def find_helm() -> str | None:
    own = ROOT / ".tools" / "bin" / "helm"
    return str(own) if own.exists() else shutil.which("helm")


def template(
    helm: str, *options: str, release: str = "pidkeeper", namespace: str = "ids", chart: Path = CHART
) -> Rendered:
    """The chart as a release in a namespace."""
    place = ["--namespace", namespace, "--kube-version", KUBE_VERSION]
    command = [helm, "template", release, str(chart), *place, *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=HELM_TIMEOUT)
    return Rendered(done.returncode, done.stderr, done.stdout)


def render_file(helm: str, values: Path, *options: str) -> Rendered:
    """The chart with values of a file, on a cluster that knows all custom resources."""
    known = [word for version in API_VERSIONS for word in ("--api-versions", version)]
    return template(helm, "--values", str(values), *known, *options)


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
