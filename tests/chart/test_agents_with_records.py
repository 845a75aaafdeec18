"""Agents that keep records: where, with whose credentials, and what cannot be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from pidkeeper.broker_agent.config import load_config
from tests.chart.rendering import VALUES, Render, Rendered, started_with

BUCKET = "agent.data.store=s3://records/ids"
CLAIM = "agent.data.claim=ids-records"


def pod_of(rendered: Rendered) -> dict[str, Any]:
    pod: dict[str, Any] = rendered.one("StatefulSet", "pidkeeper-agent")["spec"]["template"]["spec"]
    return pod


def configured(rendered: Rendered, directory: Path) -> Any:
    """What an agent takes its configuration for, without TLS's files, which are not here."""
    file, environment = started_with(rendered, "agent", 1, directory)
    return load_config(file, environment).data


def test_by_default_agents_keep_none(render: Render, tmp_path: Path) -> None:
    rendered = render()
    assert configured(rendered, tmp_path) is None
    (container,) = pod_of(rendered)["containers"]
    assert "envFrom" not in container
    assert "pidkeeper-agent-store" not in {one["metadata"]["name"] for one in rendered.all()}


def test_records_go_into_a_bucket_that_agents_reach(render: Render, tmp_path: Path) -> None:
    options = ("--values", str(VALUES["records-in-bucket"]))
    rendered = render(options=options)
    data = configured(rendered, tmp_path)
    assert data.store == "s3://records/ids"
    assert data.store_options == {"region": "eu-central-1", "endpoint": "https://s3.example.org:9000"}
    assert (data.linger_ms, data.auto_create_topics) == (20, False)
    (container,) = pod_of(rendered)["containers"]
    assert container["envFrom"] == [{"secretRef": {"name": "ids-bucket"}}]
    policy = rendered.one("NetworkPolicy", "pidkeeper-agent-store")["spec"]
    assert policy["egress"] == [{"ports": [{"port": 9000}]}]
    labels = rendered.one("StatefulSet", "pidkeeper-agent")["spec"]["template"]["metadata"]["labels"]
    assert policy["podSelector"]["matchLabels"].items() <= labels.items()


@pytest.mark.parametrize("tls", [(), ("tls.controllers=optional", "tls.agents=optional", "tls.agentSecret=x")])
def test_records_go_onto_one_volume_that_all_agents_mount(render: Render, tmp_path: Path, tls: tuple[str, ...]) -> None:
    rendered = render(CLAIM, *tls, *(("tls.controllerSecret=y",) if tls else ()))
    data = configured(rendered, tmp_path)
    pod = pod_of(rendered)
    (volume,) = [one for one in pod["volumes"] if "persistentVolumeClaim" in one]
    assert volume["persistentVolumeClaim"] == {"claimName": "ids-records"}
    (mount,) = [one for one in pod["containers"][0]["volumeMounts"] if one["name"] == volume["name"]]
    assert Path(mount["mountPath"]) in Path(data.store).parents
    assert "readOnly" not in mount
    assert "pidkeeper-agent-store" not in {one["metadata"]["name"] for one in rendered.all()}


def test_agents_on_nodes_keep_records_too(render: Render, tmp_path: Path) -> None:
    rendered = render("agent.nodes.a=1", BUCKET)
    file = tmp_path / "a.toml"
    file.write_text(rendered.one("ConfigMap", "pidkeeper-agent")["data"]["a.toml"])
    data = load_config(file, {"PIDKEEPER_AGENT__KAFKA_ADVERTISED": "a:9092"}).data
    assert data is not None and data.store == "s3://records/ids"


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ((BUCKET, CLAIM), "leave store or claim out"),
        ((CLAIM, "agent.data.storeOptions.region=x"), "a volume has no options"),
        ((CLAIM, "agent.data.storeSecret=x"), "a volume has no options and no credentials"),
        (("agent.data.settings.linger_ms=1",), "nothing says where records are kept"),
        (("agent.data.storeSecret=x",), "nothing says where records are kept"),
        ((BUCKET, "agent.data.storeOptions.secret_access_key=x"), "secret_access_key is a credential"),
        ((BUCKET, "agent.data.storeOptions.aws_session_token=x"), "aws_session_token is a credential"),
        ((BUCKET, "agent.data.storeOptions.account_key=x"), "account_key is a credential"),
        (("agent.data.store=/var/lib/records",), "agent"),
        (("agent.data.store=s3://key:secret@records/ids",), "agent"),
        ((BUCKET, "agent.data.settings.linger=1"), "linger"),
    ],
)
def test_what_cannot_be_is_refused(render: Render, values: tuple[str, ...], why: str) -> None:
    refused = render(*values)
    assert refused.returncode != 0
    assert why in refused.stderr, refused.stderr


def test_values_kept_from_an_earlier_release_say_nothing_of_records(render: Render, tmp_path: Path) -> None:
    kept = tmp_path / "kept.yaml"
    kept.write_text(yaml.safe_dump({"agent": {"data": None}}))
    assert configured(render(options=("--values", str(kept))), tmp_path) is None
