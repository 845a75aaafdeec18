"""`python -m tests.chart.kustomize`: write the bases of `deploy/kustomize` again, from the chart's default values."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import yaml

from tests.chart.rendering import ROOT, Manifest, find_helm, template

BASES: Final = ROOT / "deploy" / "kustomize"
NAMESPACE: Final = "pidkeeper"
VALUES: Final = ("--set", "auth.peerKeySecret=pidkeeper-peer")

HEAD: Final = "# Written by `make chart` from helm/pidkeeper.\n"
OF_HELM: Final = frozenset({"helm.sh/chart", "app.kubernetes.io/managed-by"})


def bases(helm: str) -> dict[Path, str]:
    """The text of each file that is written. What is a hook of Helm's is nobody's here."""
    rendered = template(helm, *VALUES, namespace=NAMESPACE)
    manifests = [one for one in rendered.all() if "helm.sh/hook" not in one["metadata"].get("annotations", {})]
    founding = [one for one in manifests if one["kind"] == "Job"]
    rest = [one for one in manifests if one["kind"] != "Job"]
    return {BASES / "base" / "pidkeeper.yaml": _text(rest), BASES / "founding" / "founding.yaml": _text(founding)}


def _text(manifests: list[Manifest]) -> str:
    return HEAD + yaml.safe_dump_all(map(_without_helm, manifests), sort_keys=False, width=120)


def _without_helm(node: Any) -> Any:
    if isinstance(node, dict):
        return {key: _without_helm(value) for key, value in node.items() if key not in OF_HELM}
    return [_without_helm(one) for one in node] if isinstance(node, list) else node


if __name__ == "__main__":
    found = find_helm()
    assert found is not None, "deploy/install-helm.sh builds helm with Go"
    for path, text in bases(found).items():
        path.write_text(text)
