"""values.schema.json: takes the shipped values, and refuses what would harm a quorum."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest
import yaml

CHART = Path(__file__).resolve().parents[2] / "helm" / "pidkeeper"
SCHEMA = json.loads((CHART / "values.schema.json").read_text())
VALUES = yaml.safe_load((CHART / "values.yaml").read_text())

BAD: list[tuple[str, Any]] = [
    ("controller.replicas", 2),
    ("controller.replicas", 4),
    ("controller.replicas", 7),
    ("controller.replicas", "3"),
    ("controller.mode", "kraft"),
    ("controller.zookeeper.connect", "z:2181 z:2182"),
    ("controller.zookeeper.connect", "z:2181/"),
    ("controller.zookeeper.connect", 'z:2181"'),
    ("controller.zookeeper.connect", "z:2181\\u0041"),
    ("controller.zookeeper.connect", ["z:2181"]),
    ("controller.zookeeper.sessionTimeoutMs", 999),
    ("controller.zookeeper.requestTimeoutMs", 60_001),
    ("controller.zookeeper.requestTimeoutMs", "2000"),
    ("controller.zookeeper.digestSecret", "user:password"),
    ("controller.zookeeper.digest", "user:password"),
    ("controller.storage.size", "1"),
    ("controller.storage.size", "0Gi"),
    ("controller.antiAffinity", "none"),
    ("controller.podManagementPolicy", "OrderedReady"),
    ("controller.tolerations", {}),
    ("agent.replicas", -1),
    ("agent.replicas", 1.5),
    ("agent.firstBrokerId", -1),
    ("agent.firstBrokerId", 2**31),
    ("clusterId", "with space"),
    ("clusterId", "x" * 65),
    ("clusterId", 'a"\nnode_id = 9'),
    ("fullnameOverride", "Upper"),
    ("fullnameOverride", "9starts-with-a-digit"),
    ("fullnameOverride", "a" * 41),
    ("auth.peerKeySecret", "Has Space"),
    ("auth.tokenSecret", {"token": "in the values file"}),
    ("image.repository", ""),
    ("image.tag", "a b"),
    ("image.digest", "sha256:abc"),
    ("image.pullPolicy", "Sometimes"),
    ("metrics.scrapeAnnotations", "yes"),
    ("metrics.serviceMonitor.interval", "15"),
    ("metrics.serviceMonitor.tlsConfig", "viewer"),
    ("metrics.rules.docs", "docs.example.org"),
    ("metrics.rules.docs", "https://docs.example.org/'x"),
    ("metrics.dashboards.labels", {"grafana_dashboard": 1}),
    ("tls.controllers", "on"),
    ("tls.controllers", False),
    ("tls.agents", "mutual"),
    ("tls.controllerSecret", "Has Space"),
    ("tls.certManager.issuer", "ids-ca"),
    ("tls.certManager.issuer", {"name": "ids-ca", "secret": "x"}),
    ("tls.certManager.duration", "90d"),
    ("controller.zoneSpread", "yes"),
    ("agent.antiAffinity", "none"),
    ("networkPolicy.clients", {"podSelector": {}}),
    ("networkPolicy.clients", [{}]),
    ("networkPolicy.scrapers", [{"ipBlock": {}}]),
    ("networkPolicy.controllerClients", [{"podselector": {}}]),
    ("test.brokerId", -1),
    ("test.brokerId", 2**31),
    ("extraObjects", [3]),
    ("unknownKey", 1),
]


def with_value(path: str, value: Any) -> dict[str, Any]:
    values: dict[str, Any] = copy.deepcopy(VALUES)
    *parents, last = path.split(".")
    here = values
    for parent in parents:
        here = here[parent]
    here[last] = value
    return values


def test_the_schema_is_one() -> None:
    jsonschema.Draft7Validator.check_schema(SCHEMA)


def test_the_shipped_values_are_good() -> None:
    jsonschema.validate(VALUES, SCHEMA, jsonschema.Draft7Validator)


@pytest.mark.parametrize(("path", "value"), BAD)
def test_bad_values_are_refused(path: str, value: Any) -> None:
    with pytest.raises(jsonschema.ValidationError) as refusal:
        jsonschema.validate(with_value(path, value), SCHEMA, jsonschema.Draft7Validator)
    where = ".".join(str(part) for part in refusal.value.absolute_path)
    assert f"{where}.".startswith(f"{path}.") or path.rpartition(".")[2] in refusal.value.message


def test_every_value_has_a_comment_and_a_schema_entry() -> None:
    lines = (CHART / "values.yaml").read_text().splitlines()
    commented = {lines[i + 1].strip().split(":")[0] for i, line in enumerate(lines) if line.strip().startswith("# -- ")}
    continued = {
        lines[i + 1].strip().split(":")[0]
        for i, line in enumerate(lines[:-1])
        if line.strip().startswith("#") and not lines[i + 1].strip().startswith("#")
    }
    assert leaf_keys(VALUES, SCHEMA) <= commented | continued


def leaf_keys(values: dict[str, Any], schema: dict[str, Any]) -> set[str]:
    """The keys that the schema does not describe further; asserts that it knows every one."""
    keys: set[str] = set()
    for key, value in values.items():
        assert key in schema["properties"], f"{key} is not in values.schema.json"
        below = schema["properties"][key]
        keys |= leaf_keys(value, below) if below.get("properties") else {key}
    return keys


@pytest.mark.parametrize("connect", ["z:2181", "z-0.z.ns.svc:2181,z-1:2182,[::1]:2183", "z/kafka", "z:2181/a/b"])
def test_connect_strings_are_good(connect: str) -> None:
    jsonschema.validate(with_value("controller.zookeeper.connect", connect), SCHEMA, jsonschema.Draft7Validator)


def test_who_begins_in_zookeeper_has_to_say_where_it_is() -> None:
    with pytest.raises(jsonschema.ValidationError) as refusal:
        jsonschema.validate(with_value("controller.mode", "zookeeper"), SCHEMA, jsonschema.Draft7Validator)
    assert list(refusal.value.absolute_path) == ["controller", "zookeeper", "connect"]


def test_helm_refuses_an_even_quorum(render: Any) -> None:
    refused = render("controller.replicas=2")
    assert refused.returncode != 0
    assert "replicas" in refused.stderr
