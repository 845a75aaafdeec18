"""What the API server says of every values file of the chart: of all its objects, and of pods as templates make them.

Dry runs go through validation and admission, Pod Security `restricted` included, and store nothing. A workload is only
warned about its pods, so these are tried by themselves.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, Final

from tests.chart.rendering import VALUES, find_helm, render_file
from tests.kubernetes.api import Api, ApiError, Manifest, collection
from tests.kubernetes.cluster import NAMESPACE, until

CUSTOM: Final = {
    "Certificate": "cert-manager.io/v1",
    "PrometheusRule": "monitoring.coreos.com/v1",
    "ScaledObject": "keda.sh/v1alpha1",
    "ScheduledSparkApplication": "sparkoperator.k8s.io/v1beta2",
    "ServiceMonitor": "monitoring.coreos.com/v1",
}
"""Kinds that a cluster knows where their operators are; `tests/chart/schemas` say what may be in them."""

_DEFINITIONS: Final = collection("apiextensions.k8s.io/v1", "CustomResourceDefinition")


def know_custom_resources(api: Api) -> None:
    """Have the API server take objects of the custom kinds, with anything in them."""
    for kind, version in CUSTOM.items():
        group, _, number = version.partition("/")
        plural = kind.lower() + "s"
        schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        served = {"name": number, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
        names = {"kind": kind, "plural": plural, "singular": kind.lower()}
        specification = {"group": group, "scope": "Namespaced", "names": names, "versions": [served]}
        # Groups of k8s.io are the Kubernetes project's own, whose operators' definitions say so.
        metadata = {"name": f"{plural}.{group}", "annotations": {"api-approved.kubernetes.io": "unapproved: a test"}}
        definition = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"}
        api.create(_DEFINITIONS, {**definition, "metadata": metadata, "spec": specification})
    for kind, version in CUSTOM.items():
        until(partial(_is_known, api, kind, version), 60.0, f"the API server knows {kind}")


def refusals(api: Api) -> dict[str, list[str]]:
    """What is refused, by values file: of an install and of an upgrade. A file that is missing has nothing refused."""
    helm = find_helm()
    assert helm is not None
    found: dict[str, list[str]] = {}
    for name, file in VALUES.items():
        for options in ((), ("--is-upgrade",)):
            for manifest in render_file(helm, file, *options).all():
                for one in (manifest, *_pods_of(manifest)):
                    found.setdefault(name, []).extend(_refusal(api, one))
    return {name: said for name, said in found.items() if said}


def _refusal(api: Api, manifest: Manifest) -> list[str]:
    path = collection(manifest["apiVersion"], manifest["kind"], NAMESPACE)
    try:
        api.create(path, manifest, dryRun="All", fieldValidation="Strict")
    except ApiError as error:
        return [f"{manifest['kind']} {manifest['metadata']['name']}: {error}"]
    return []


def _pods_of(manifest: Manifest) -> Iterator[Manifest]:
    specification: dict[str, Any] = manifest.get("spec", {})
    if manifest["kind"] == "Pod":
        manifest["spec"]["serviceAccountName"] = "default"
    if manifest["kind"] == "CronJob":
        specification = specification["jobTemplate"]["spec"]
    if manifest["kind"] in {"CronJob", "DaemonSet", "Job", "StatefulSet"}:
        template = specification["template"]
        claimed = [one["metadata"]["name"] for one in specification.get("volumeClaimTemplates", [])]
        volumes = [*template["spec"].get("volumes", []), *({"name": name, "emptyDir": {}} for name in claimed)]
        yield {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {**template["metadata"], "name": manifest["metadata"]["name"]},
            # Its own is there only after the release is.
            "spec": {**template["spec"], "volumes": volumes, "serviceAccountName": "default"},
        }


def _is_known(api: Api, kind: str, version: str) -> bool:
    try:
        api.get(collection(version, kind, NAMESPACE))
    except ApiError:
        return False
    return True
