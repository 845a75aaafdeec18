"""values.schema.json: takes the shipped values, and refuses what would harm a quorum."""

from __future__ import annotations

import copy
import json
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import msgspec
import pytest
import yaml

from deploy import chart_schema
from deploy.chart_readme import CHART, README, rendered, values
from pidkeeper.broker_agent.config import AgentConfig
from pidkeeper.controller.config import ControllerConfig

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
    ("controller.settings", {"snapshot_entries": 9}),
    ("controller.settings", {"snapshot_entires": 1000}),
    ("controller.settings", {"profile": "moon"}),
    ("controller.settings", {"limits": {"broker_allocations": {"per_second": 0, "burst": 1}}}),
    ("controller.settings", {"limits": {"broker_allocation": {"per_second": 1, "burst": 1}}}),
    ("agent.settings", {"min_reserve_ids": -1}),
    ("agent.settings", {"ask_fraction": 1.5}),
    ("agent.nodes", {"Node_A": 1}),
    ("agent.nodes", {"node-a": -1}),
    ("agent.nodes", {"node-a": "1"}),
    ("agent.autoscaling.by", "memory"),
    ("agent.autoscaling.minReplicas", 0),
    ("agent.autoscaling.maxReplicas", 1001),
    ("agent.autoscaling.cpu", "2"),
    ("agent.autoscaling.prometheus", "prometheus:9090"),
    ("agent.autoscaling.claimsPerSecond", 0),
    ("agent.autoscaling.reserveMissingPercent", 100),
    ("audit.archive", "bucket/members"),
    ("audit.archive", "file:///tmp"),
    ("audit.out", 's3://a"b'),
    ("audit.schedule", "daily"),
    ("audit.schedule", "30 4 * *"),
    ("audit.memory", "2Gi"),
    ("audit.ports", []),
    ("audit.bucketSecret", {"AWS_ACCESS_KEY_ID": "in the values file"}),
    ("audit.spark.serviceAccount", "Has Space"),
    ("audit.spark.executors", 0),
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
    ("controller.checkUpgrade", "no"),
    ("controller.resize", "no"),
    ("controller.recover.member", "6"),
    ("controller.recover.atLeast", "-1"),
    ("controller.recover.atLeast", "much"),
    ("controller.recover.force", "true"),
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
    changed: dict[str, Any] = copy.deepcopy(VALUES)
    *parents, last = path.split(".")
    here = changed
    for parent in parents:
        here = here[parent]
    here[last] = value
    return changed


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
    described = {value.path for value in values((CHART / "values.yaml").read_text())}
    assert leaf_keys(VALUES, SCHEMA) == described


def test_the_schema_of_settings_is_that_of_the_programs() -> None:
    assert chart_schema.SCHEMA.read_text() == chart_schema.rendered(), "run `make chart`"


@pytest.mark.parametrize(("program", "model"), [("controller", ControllerConfig), ("agent", AgentConfig)])
def test_every_setting_is_given_by_the_chart_or_through_it(program: str, model: type[msgspec.Struct]) -> None:
    free = SCHEMA["definitions"][model.__name__]["properties"].keys()
    assert free | chart_schema.SET_BY_THE_CHART[model] == set(model.__struct_fields__)
    assert not free & chart_schema.SET_BY_THE_CHART[model]
    for owned in chart_schema.SET_BY_THE_CHART[model]:
        settings = with_value(f"{program}.settings", {owned: "x"})
        with pytest.raises(jsonschema.ValidationError, match=owned):
            jsonschema.validate(settings, SCHEMA, jsonschema.Draft7Validator)


def test_the_readme_has_every_value_as_it_is() -> None:
    assert README.read_text() == rendered(), "run `make chart`"


def leaf_keys(here: dict[str, Any], schema: dict[str, Any], prefix: str = "") -> set[str]:
    """The paths that lead to no further defaults; asserts that the schema knows every one."""
    keys: set[str] = set()
    for key, value in here.items():
        assert key in schema["properties"], f"{key} is not in values.schema.json"
        below = schema["properties"][key]
        if below.get("properties") and value:
            keys |= leaf_keys(value, below, f"{prefix}{key}.")
        else:
            keys.add(prefix + key)
    return keys


@pytest.mark.parametrize("connect", ["z:2181", "z-0.z.ns.svc:2181,z-1:2182,[::1]:2183", "z/kafka", "z:2181/a/b"])
def test_connect_strings_are_good(connect: str) -> None:
    jsonschema.validate(with_value("controller.zookeeper.connect", connect), SCHEMA, jsonschema.Draft7Validator)


@pytest.mark.parametrize(
    ("path", "value", "needed"),
    [
        ("controller.mode", "zookeeper", ["controller.zookeeper.connect"]),
        ("agent.autoscaling.by", "claims", ["agent.autoscaling.prometheus"]),
        ("audit.enabled", True, ["audit.archive", "audit.out"]),
    ],
)
def test_who_wants_something_has_to_say_where_it_is(path: str, value: Any, needed: list[str]) -> None:
    errors = jsonschema.Draft7Validator(SCHEMA).iter_errors(with_value(path, value))
    assert sorted(".".join(map(str, error.absolute_path)) for error in errors) == needed


def test_helm_refuses_an_even_quorum(render: Any) -> None:
    refused = render("controller.replicas=2")
    assert refused.returncode != 0
    assert "replicas" in refused.stderr
