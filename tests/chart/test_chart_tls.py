"""TLS in the chart: certificates that the processes take for theirs, and one way from none to everywhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from pidkeeper.broker_agent.config import load_config as load_agent_config
from pidkeeper.controller.config import load_config as load_controller_config
from tests.chart.rendering import started_with, valid
from tests.support.certificates import CertificateAuthority

CERT_MANAGER = ("--api-versions", "cert-manager.io/v1")
NO_KEY = "auth.peerKeySecret="
ISSUED = ("tls.certManager.issuer.name=ids-ca", "tls.certManager.issuer.kind=ClusterIssuer")
REQUIRED = (NO_KEY, "tls.controllers=required", "tls.agents=required")
OWN = ("tls.controllerSecret=own-c", "tls.agentSecret=own-a", "tls.operatorSecret=own-o")
FILES = {"certificate_file": "tls.crt", "key_file": "tls.key", "ca_file": "ca.crt"}
WAY: list[tuple[str, ...]] = [
    (),
    ("tls.controllers=optional",),
    ("tls.controllers=optional", "tls.agents=optional"),
    (NO_KEY, "tls.controllers=required", "tls.agents=optional"),
    REQUIRED,
]
"""From no TLS to TLS alone, a roll at a time: docs/operations.md, Secure it."""


@pytest.fixture
def authority(tmp_path: Path) -> CertificateAuthority:
    directory = tmp_path / "ca"
    directory.mkdir()
    return CertificateAuthority(directory)


def issued(authority: CertificateAuthority, rendered: Any, component: str, config: Path) -> None:
    """Put files in place of those that `config` names: what cert-manager makes of the component's Certificate."""
    spec = valid(rendered.one("Certificate", f"pidkeeper-{component}"))["spec"]
    files = msgspec.structs.asdict(authority.issue(component, uris=spec["uris"], hosts=spec["dnsNames"]))
    text = config.read_text()
    for name, entry in FILES.items():
        assert f'{name} = "/etc/pidkeeper-secrets/tls/{entry}"' in text
        text = text.replace(f"/etc/pidkeeper-secrets/tls/{entry}", str(files[name]))
    config.write_text(text)


@pytest.mark.parametrize("ordinal", [1, 3])
def test_the_certificate_of_controllers_is_that_of_each(
    render: Any, tmp_path: Path, authority: CertificateAuthority, ordinal: int
) -> None:
    rendered = render(*REQUIRED, *ISSUED, options=CERT_MANAGER)
    file, environment = started_with(rendered, "controller", ordinal, tmp_path)
    issued(authority, rendered, "controller", file)
    config = load_controller_config(file, environment)
    assert config.protection().required
    settings = config.member_settings()
    assert settings.certified
    assert config.http_advertised == config.voters[ordinal - 1].http
    assert config.http_advertised is not None
    assert config.http_advertised.startswith("https://")


def test_the_certificate_of_agents_is_that_of_each(
    render: Any, tmp_path: Path, authority: CertificateAuthority
) -> None:
    rendered = render(*REQUIRED, *ISSUED, "agent.firstBrokerId=40", "agent.replicas=3", options=CERT_MANAGER)
    for ordinal in (40, 42):
        file, environment = started_with(rendered, "agent", ordinal, tmp_path)
        issued(authority, rendered, "agent", file)
        config = load_agent_config(file, environment=environment)
        assert config.protection().required
        assert all(url.startswith("https://") for url in config.controllers)


def test_kafkas_protocol_is_spoken_over_tls_too(render: Any, tmp_path: Path, authority: CertificateAuthority) -> None:
    rendered = render(*REQUIRED, *ISSUED, "controller.kafka=true", "agent.transport=kafka", options=CERT_MANAGER)
    file, environment = started_with(rendered, "controller", 1, tmp_path)
    issued(authority, rendered, "controller", file)
    controller = load_controller_config(file, environment)
    assert controller.protection().required
    file, environment = started_with(rendered, "agent", 1, tmp_path)
    issued(authority, rendered, "agent", file)
    agent = load_agent_config(file, environment=environment)
    assert agent.protection().required
    assert list(agent.controllers) == list(controller.kafka_addresses().values())
    assert all(url.startswith("kafka+ssl://") for url in agent.controllers)


@pytest.mark.parametrize("component", ["controller", "agent"])
def test_certificates_name_the_hosts_that_are_called(render: Any, component: str) -> None:
    rendered = render(*REQUIRED, *ISSUED, "tls.certManager.agentDnsNames={ids.example.org}", options=CERT_MANAGER)
    certificate = rendered.one("Certificate", f"pidkeeper-{component}")["spec"]
    services = {one["metadata"]["name"] for one in rendered.all() if one["kind"] == "Service"}
    mine = {f"pidkeeper-{component}", f"pidkeeper-{component}-headless"}
    assert mine <= services
    more = ["ids.example.org"] if component == "agent" else []
    assert certificate["dnsNames"] == [
        f"*.pidkeeper-{component}-headless.ids.svc",
        f"pidkeeper-{component}.ids.svc",
        "pidkeeper.ids.svc",
        *more,
    ]
    assert certificate["usages"] == ["digital signature", "server auth", "client auth"]
    assert certificate["issuerRef"] == {"name": "ids-ca", "kind": "ClusterIssuer"}


@pytest.mark.parametrize("step", range(len(WAY)))
def test_a_cluster_that_runs_goes_from_none_to_required_step_by_step(
    render: Any, tmp_path: Path, authority: CertificateAuthority, step: int
) -> None:
    """Each step is a configuration that the processes take, with URLs that they accept at that level."""
    rendered = render(*WAY[step], *ISSUED, options=CERT_MANAGER)
    for name in ("controller", "agent"):
        file, environment = started_with(rendered, name, 1, tmp_path)
        if "[tls]" in file.read_text():
            issued(authority, rendered, name, file)
        load = load_controller_config if name == "controller" else load_agent_config
        assert load(file, environment=environment).protection() is not None
    key = "auth.peerKeySecret" if NO_KEY in WAY[step] else "peer_key_file"
    config = rendered.one("ConfigMap", "pidkeeper-controller")["data"]["controller.toml"]
    assert ("peer_key_file" in config) == (key == "peer_key_file")


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        (("tls.agents=required",), "tls.agents: agents speak TLS to controllers that speak none"),
        ((NO_KEY, "tls.controllers=required", *OWN), "tls.controllers: agents without TLS reach no controller"),
        (("tls.controllers=required", "tls.agents=required", *OWN), "auth.peerKeySecret, auth.insecurePeers: with"),
        ((*REQUIRED, *OWN, "auth.insecurePeers=true"), "auth.peerKeySecret, auth.insecurePeers: with"),
        (
            (*REQUIRED, *OWN, "tls.operatorSecret="),
            "tls.operatorSecret: name a Secret with tls.crt, tls.key and ca.crt",
        ),
        (REQUIRED, "Secret: name a Secret with tls.crt, tls.key and ca.crt, or set tls.certManager.issuer.name"),
        ((*REQUIRED, *ISSUED), "tls.certManager: this Kubernetes cluster does not know cert-manager.io/v1"),
        ((NO_KEY, "tls.controllers=optional", *OWN), "auth.peerKeySecret: the controllers must prove"),
    ],
)
def test_what_cannot_work_is_refused_with_what_to_do(render: Any, values: tuple[str, ...], reason: str) -> None:
    refused = render(*values)
    assert refused.returncode != 0
    assert reason in refused.stderr


def test_secrets_of_ones_own_need_no_cert_manager(render: Any) -> None:
    rendered = render(*REQUIRED, *OWN)
    assert "Certificate" not in {one["kind"] for one in rendered.all()}
    for pods, secret in (("controller", "own-c"), ("agent", "own-a")):
        pod = rendered.one("StatefulSet", f"pidkeeper-{pods}")["spec"]["template"]["spec"]
        (volume,) = [one for one in pod["volumes"] if one["name"] == "tls"]
        assert volume["secret"] == {"secretName": secret, "defaultMode": 0o440}
        for container in [*pod.get("initContainers", []), *pod["containers"]]:
            mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
            assert mounts["tls"] == "/etc/pidkeeper-secrets/tls"
    only_one = render(*REQUIRED, *ISSUED, "tls.agentSecret=own-a", options=CERT_MANAGER)
    named = {one["metadata"]["name"] for one in only_one.all() if one["kind"] == "Certificate"}
    assert named == {"pidkeeper-controller", "pidkeeper-operator"}


@pytest.mark.parametrize("pods", ["controller", "agent"])
def test_probes_speak_what_the_port_speaks(render: Any, pods: str) -> None:
    for values, scheme in (
        ((), None),
        (REQUIRED, "HTTPS"),
        (("tls.controllers=optional", "tls.agents=optional"), None),
    ):
        spec = render(*values, *OWN).one("StatefulSet", f"pidkeeper-{pods}")["spec"]["template"]["spec"]
        (container,) = spec["containers"]
        probes = [container[kind]["httpGet"].get("scheme") for kind in container if kind.endswith("Probe")]
        assert probes == [scheme] * 3


def test_jobs_show_an_operators_certificate_or_bring_a_token(render: Any) -> None:
    def arguments(*values: str) -> list[list[str]]:
        rendered = render(*values)
        job = rendered.one("Job", "pidkeeper-founding")["spec"]["template"]["spec"]
        test = rendered.one("Pod", "pidkeeper-test")["spec"]
        for pod in (job, test):
            volumes = {volume["name"] for volume in pod["volumes"]}
            for container in [*pod.get("initContainers", []), *pod["containers"]]:
                directories = {mount["mountPath"] for mount in container["volumeMounts"]}
                named = [one.partition("=")[2] for one in container["args"] if "/etc/" in one]
                assert {file.rpartition("/")[0] for file in named} <= directories
                assert {mount["name"] for mount in container["volumeMounts"]} <= volumes
        return [pod["containers"][0]["args"] for pod in (job, test)]

    for args in arguments(*REQUIRED, *OWN, "auth.tokenSecret=t"):
        assert "--certificate-file=/etc/pidkeeper-secrets/tls/tls.crt" in args
        assert "--key-file=/etc/pidkeeper-secrets/tls/tls.key" in args
        assert "--ca-file=/etc/pidkeeper-secrets/tls/ca.crt" in args
        assert not [one for one in args if one.startswith("--token-file")]
        assert any(one.startswith("--controllers=https://") for one in args)
    introduced = ("tls.controllers=optional", *ISSUED, "auth.tokenSecret=t")
    upgrade = render(*introduced, options=("--is-upgrade", *CERT_MANAGER)).one("Job", "pidkeeper-upgrade-check")
    volumes = upgrade["spec"]["template"]["spec"]["volumes"]
    assert "ids-operator-tls" not in str(volumes), "cert-manager makes it in this very upgrade"
    assert {volume["name"] for volume in volumes} == {"tmp", "token"}
    for args in arguments("auth.tokenSecret=t"):
        assert args[-1] == "--token-file=/etc/pidkeeper-secrets/token/token"
        assert not [one for one in args if "tls" in one]
    for args in arguments():
        assert args[-1].startswith("--controllers=http://")
