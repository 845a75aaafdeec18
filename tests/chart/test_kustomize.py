"""The bases for Kustomize are what the chart makes, and stand by themselves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from tests.chart import kustomize

DIRECTORIES = ("base", "founding")


def kustomization(name: str) -> Any:
    return yaml.safe_load((kustomize.BASES / name / "kustomization.yaml").read_text())


def manifests(name: str) -> list[dict[str, Any]]:
    files = [kustomize.BASES / name / file for file in kustomization(name)["resources"]]
    return [one for file in files for one in yaml.safe_load_all(file.read_text())]


def test_the_bases_are_what_the_chart_makes(helm: str) -> None:
    for path, text in kustomize.bases(helm).items():
        assert path.read_text() == text, f"{path.name}: run `make chart`"


@pytest.mark.parametrize("name", DIRECTORIES)
def test_a_base_is_valid_and_has_all_of_its_files(name: str) -> None:
    listed = kustomization(name)
    assert listed["namespace"] == kustomize.NAMESPACE
    here = {file.name for file in (kustomize.BASES / name).iterdir()} - {"kustomization.yaml"}
    assert set(listed["resources"]) == here
    for manifest in manifests(name):
        kubernetes_validate.validate(manifest, "1.37", strict=True)
        assert manifest["metadata"].get("namespace", kustomize.NAMESPACE) == kustomize.NAMESPACE


def test_who_applies_the_base_again_founds_nothing() -> None:
    kinds = [one["kind"] for one in manifests("base")]
    assert "Job" not in kinds and kinds.count("StatefulSet") == 2
    assert [one["kind"] for one in manifests("founding")] == ["Job"]


def test_nothing_says_that_helm_manages_it() -> None:
    for name in DIRECTORIES:
        for path in sorted(Path(kustomize.BASES / name).iterdir()):
            assert "helm.sh/" not in path.read_text()


def test_the_key_is_the_secret_that_its_comment_creates() -> None:
    (controller,) = [
        one
        for one in manifests("base")
        if one["kind"] == "StatefulSet" and one["metadata"]["name"] == "pidkeeper-controller"
    ]
    volumes = controller["spec"]["template"]["spec"]["volumes"]
    (secret,) = [one["secret"]["secretName"] for one in volumes if "secret" in one]
    head = (kustomize.BASES / "base" / "kustomization.yaml").read_text()
    assert f"create secret generic {secret} --from-file=peer-key=" in head
