"""Agents on nodes that are named: each with the broker id that is named with its node, and none elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from pidkeeper.broker_agent.config import load_config
from tests.chart.rendering import Render, Rendered

NODES = {"node-a": 1_000_000, "node-b.example.org": 7}


@pytest.fixture(scope="session")
def rendered(render: Render, tmp_path_factory: pytest.TempPathFactory) -> Rendered:
    values = tmp_path_factory.mktemp("values") / "values.yaml"
    values.write_text(yaml.safe_dump({"agent": {"nodes": NODES, "settings": {"log_level": "debug"}}}))
    return render(options=("--values", str(values)))


def pod_of(rendered: Rendered) -> dict[str, Any]:
    pod: dict[str, Any] = rendered.one("DaemonSet", "pidkeeper-agent")["spec"]["template"]["spec"]
    return pod


def test_each_node_has_an_agent_with_its_id_and_what_all_have(rendered: Rendered, tmp_path: Path) -> None:
    (container,) = pod_of(rendered)["containers"]
    files = rendered.one("ConfigMap", "pidkeeper-agent")["data"]
    for node, broker_id in NODES.items():
        environment = {"NODE_NAME": node, "POD_IP": "10.1.2.3"}
        assert [entry["name"] for entry in container["env"][:2]] == list(environment)
        path = container["args"][-1].replace("$(NODE_NAME)", node)
        file = tmp_path / path.removeprefix("/etc/pidkeeper/")
        file.write_text(files[file.name])
        (advertised,) = (entry for entry in container["env"] if "value" in entry)
        value = advertised["value"].replace("$(POD_IP)", environment["POD_IP"])
        config = load_config(file, {advertised["name"]: value})
        assert (config.broker_id, config.kafka_advertised) == (broker_id, "10.1.2.3:9092")
        assert len(config.controllers) == 3 and config.log_level == "debug"
    assert files.keys() == {f"{node}.toml" for node in NODES}


def test_no_other_node_gets_one(rendered: Rendered) -> None:
    terms = pod_of(rendered)["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    fields = [term["matchFields"] for term in terms["nodeSelectorTerms"]]
    # A field takes one value: Kubernetes refuses more.
    assert fields == [[{"key": "metadata.name", "operator": "In", "values": [node]}] for node in sorted(NODES)]


def test_there_is_no_other_set_of_agents_and_no_budget_which_would_not_count(rendered: Rendered) -> None:
    kinds = {one["kind"] for one in rendered.all() if one["metadata"]["name"] == "pidkeeper-agent"}
    assert "DaemonSet" in kinds and not {"StatefulSet", "PodDisruptionBudget"} & kinds
    strategy = rendered.one("DaemonSet", "pidkeeper-agent")["spec"]["updateStrategy"]
    assert strategy == {"type": "RollingUpdate"}, "one at a time, which is what Kubernetes does by default"


@pytest.mark.parametrize(
    ("values", "why"),
    [
        (("agent.nodes.a=1", "agent.nodes.b=1"), "two nodes have the same broker id"),
        (("agent.nodes.a=1", "agent.autoscaling.by=cpu"), "the nodes say how many agents there are"),
        (
            ("agent.nodes.a=1", "tls.controllers=optional", "tls.agents=optional", "tls.certManager.issuer.name=ca"),
            "clients are sent to the addresses of pods, which no certificate of cert-manager names",
        ),
    ],
)
def test_what_cannot_be_is_refused(render: Render, values: tuple[str, ...], why: str) -> None:
    refused = render(*values, options=("--api-versions", "cert-manager.io/v1"))
    assert refused.returncode != 0
    assert why in refused.stderr, refused.stderr
