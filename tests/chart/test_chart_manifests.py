"""What the chart renders: valid for Kubernetes, the same each time, and right where a quorum depends on it."""

from __future__ import annotations

import functools
import json
import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from pidkeeper.cli.failures import ExitCode
from tests.chart.goldens import KEPT, WITHOUT_FILES
from tests.chart.rendering import API_VERSIONS, CHART, PEER_KEY, VALUES, render_file, valid

GOLDEN = Path(__file__).parent / "golden"
SUPPORTED = ("1.28", "1.35", "1.36", "1.37")
"""The oldest version that the chart takes, and the three newest."""

RESTRICTED_CONTAINER = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}


def stateful_sets(rendered: Any) -> list[dict[str, Any]]:
    return [manifest for manifest in rendered.all() if manifest["kind"] == "StatefulSet"]


def with_pods(rendered: Any) -> list[dict[str, Any]]:
    return [
        manifest
        for manifest in rendered.all()
        if manifest["kind"] in {"StatefulSet", "DaemonSet", "CronJob", "Job", "Pod"}
    ]


def pod_of(manifest: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = manifest["spec"]
    if manifest["kind"] == "CronJob":
        found = found["jobTemplate"]["spec"]
    return found if manifest["kind"] == "Pod" else found["template"]["spec"]


def containers(manifest: dict[str, Any]) -> list[dict[str, Any]]:
    pod = pod_of(manifest)
    return [*pod.get("initContainers", []), *pod["containers"]]


def environment(container: dict[str, Any]) -> dict[str, Any]:
    return {entry["name"]: entry.get("value", entry.get("valueFrom")) for entry in container["env"]}


def controller_config(rendered: Any) -> dict[str, Any]:
    return tomllib.loads(rendered.one("ConfigMap", "pidkeeper-controller")["data"]["controller.toml"])


@pytest.mark.parametrize("case", VALUES)
def test_every_manifest_is_valid_for_kubernetes(render_case: Any, case: str) -> None:
    for manifest in render_case(case).all():
        if manifest["apiVersion"] in API_VERSIONS:
            valid(manifest)
            continue
        for version in SUPPORTED:
            validated(json.dumps(manifest, sort_keys=True), version)


@functools.cache
def validated(manifest: str, version: str) -> None:
    """Most manifests are the same in most cases."""
    kubernetes_validate.validate(json.loads(manifest), version, strict=True)


@pytest.mark.parametrize("case", VALUES)
def test_helm_lint_finds_nothing(helm: str, case: str) -> None:
    command = [helm, "lint", "--strict", "--kube-version", "1.31.0", "--values", str(VALUES[case]), str(CHART)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("case", KEPT)
def test_a_render_is_the_recorded_one(helm: str, case: str) -> None:
    recorded = [document for document in yaml.safe_load_all((GOLDEN / f"{case}.yaml").read_text()) if document]
    assert render_file(helm, VALUES[case], *WITHOUT_FILES).all() == recorded, "if the change is intended: make chart"


@pytest.mark.parametrize("case", KEPT)
def test_two_renders_are_equal(helm: str, render_case: Any, case: str) -> None:
    assert render_file(helm, VALUES[case]).text == render_case(case).text


def test_templates_ask_neither_the_cluster_nor_chance() -> None:
    forbidden = re.compile(r"\b(lookup|rand\w*|now|uuidv4|gen(CA|PrivateKey|SelfSignedCert|SignedCert)|htpasswd)\b")
    for template in sorted((CHART / "templates").iterdir()):
        actions = " ".join(re.findall(r"\{\{-?(?! */\*)(.*?)-?\}\}", template.read_text(), flags=re.DOTALL))
        assert not forbidden.search(actions), f"{template.name}: {forbidden.search(actions)}"


def test_there_is_no_subchart_and_no_hook_but_the_test(render: Any) -> None:
    assert "dependencies" not in yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert not (CHART / "charts").exists()
    hooks = [one["metadata"].get("annotations", {}).get("helm.sh/hook") for one in render().all()]
    assert [hook for hook in hooks if hook is not None] == ["test"]


def test_an_upgrade_asks_the_quorum_first(render: Any) -> None:
    upgrade = ("--is-upgrade",)
    job = render("controller.replicas=5", options=upgrade).one("Job", "pidkeeper-upgrade-check")
    assert job["metadata"]["annotations"]["helm.sh/hook"] == "pre-upgrade,pre-rollback"
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert container["args"][:3] == ["quorum", "check-voters", "--among=1,2,3,4,5"]
    (rule,) = job["spec"]["podFailurePolicy"]["rules"]
    assert (rule["action"], ExitCode.REFUSED in rule["onExitCodes"]["values"]) == ("FailJob", True)
    assert ExitCode.UNREACHABLE not in rule["onExitCodes"]["values"], "a quorum that elects is asked again"
    without = render("controller.checkUpgrade=false", options=upgrade)
    assert "Job" not in {one["kind"] for one in without.all()}
    certified = ("auth.peerKeySecret=", "tls.controllers=required", "tls.agents=required")
    own = ("tls.controllerSecret=c", "tls.agentSecret=a", "tls.operatorSecret=o")
    job = render(*certified, *own, options=upgrade).one("Job", "pidkeeper-upgrade-check")
    (container,) = job["spec"]["template"]["spec"]["containers"]
    (urls,) = [one for one in container["args"] if one.startswith("--controllers=")]
    assert urls.count("https://") == urls.count("http://") == 3, "what runs may speak what it spoke before"


def test_an_upgrade_that_resizes_removes_voters_before_and_adds_them_once_they_run(render: Any) -> None:
    assert "Job" not in {one["kind"] for one in render("controller.resize=true", "controller.found=false").all()}
    upgrade = render("controller.replicas=5", "controller.resize=true", options=("--is-upgrade",))
    before, after = (_arguments(upgrade.one("Job", f"pidkeeper-{name}")) for name in ("upgrade-check", "resize-1"))
    assert before[:4] == ["quorum", "resize", "--remove-only", "--voters=1,2,3,4,5"]
    assert after[:3] == ["quorum", "resize", "--voters=1,2,3,4,5"]
    host = "pidkeeper-controller-4.pidkeeper-controller-headless.ids.svc"
    assert f"--member=4={host}:9090,http://{host}:8080" in after
    assert "annotations" not in upgrade.one("Job", "pidkeeper-resize-1")["metadata"], "no hook"


RECOVERED = ("controller.recover.member=2", "controller.recover.atLeast=9223372036854770000")


def test_a_quorum_is_recovered_from_one_volume_before_its_members_run(render: Any) -> None:
    assert "pidkeeper-recover" not in {one["metadata"]["name"] for one in render(*RECOVERED).all()}, (
        "of an upgrade alone"
    )
    upgrade = render(*RECOVERED, options=("--is-upgrade",))
    assert [one["metadata"]["name"] for one in upgrade.all() if one["kind"] == "Job"] == ["pidkeeper-recover"]
    job = upgrade.one("Job", "pidkeeper-recover")
    assert job["metadata"]["annotations"]["helm.sh/hook"] == "pre-upgrade"
    assert _arguments(job) == [
        *("storage", "recover", "--config=/etc/pidkeeper/controller.toml", "--at-least=9223372036854770000")
    ]
    assert job["spec"]["backoffLimit"] == 0
    recovers, runs = (
        one["spec"]["template"]["spec"] for one in (job, upgrade.one("StatefulSet", "pidkeeper-controller"))
    )
    (container,), (member,) = recovers["containers"], runs["containers"]
    variables = {one["name"]: one["value"] for one in container["env"]}
    assert variables == {
        "PIDKEEPER__NODE_ID": "2",
        "PIDKEEPER__HTTP_ADVERTISED": "http://pidkeeper-controller-2.pidkeeper-controller-headless.ids.svc:8080",
    }
    assert container["volumeMounts"] == member["volumeMounts"]
    data, *others = recovers["volumes"]
    assert data == {"name": "data", "persistentVolumeClaim": {"claimName": "data-pidkeeper-controller-2"}}
    assert others == runs["volumes"]


@pytest.mark.parametrize(
    ("values", "says"),
    [
        (("controller.recover.member=4", "controller.recover.atLeast=1"), "there is no member 4 among 3"),
        (("controller.recover.member=1",), "say from which ID on"),
    ],
)
def test_a_recovery_that_cannot_be_is_refused(render: Any, values: tuple[str, ...], says: str) -> None:
    refused = render(*values, options=("--is-upgrade",))
    assert refused.returncode != 0
    assert says in refused.stderr


def _arguments(job: dict[str, Any]) -> list[str]:
    (container,) = job["spec"]["template"]["spec"]["containers"]
    arguments: list[str] = container["args"]
    return arguments


def test_controllers_start_together_and_keep_their_volumes(render: Any) -> None:
    spec = render().one("StatefulSet", "pidkeeper-controller")["spec"]
    assert spec["podManagementPolicy"] == "Parallel"
    assert spec["minReadySeconds"] == 10
    assert spec["persistentVolumeClaimRetentionPolicy"] == {"whenDeleted": "Retain", "whenScaled": "Retain"}
    assert spec["template"]["spec"]["terminationGracePeriodSeconds"] == 30
    claim = spec["volumeClaimTemplates"][0]
    assert claim["spec"]["resources"]["requests"]["storage"] == "1Gi"
    assert claim["spec"]["accessModes"] == ["ReadWriteOnce"]


@pytest.mark.parametrize("kind_of_set", ["controller", "agent"])
def test_nothing_immutable_holds_the_chart_version(render: Any, kind_of_set: str) -> None:
    spec = render().one("StatefulSet", f"pidkeeper-{kind_of_set}")["spec"]
    labels = [spec["selector"]["matchLabels"]]
    labels += [claim["metadata"]["labels"] for claim in spec.get("volumeClaimTemplates", [])]
    for immutable in labels:
        assert not {"helm.sh/chart", "app.kubernetes.io/version"} & immutable.keys()
        assert immutable.items() <= spec["template"]["metadata"]["labels"].items()


def test_not_ready_members_can_find_each_other(render: Any) -> None:
    rendered = render()
    spec = rendered.one("StatefulSet", "pidkeeper-controller")["spec"]
    headless = rendered.one("Service", spec["serviceName"])["spec"]
    assert headless["clusterIP"] == "None"
    assert headless["publishNotReadyAddresses"] is True
    clients = rendered.one("Service", "pidkeeper-controller")["spec"]
    assert "publishNotReadyAddresses" not in clients
    assert headless["selector"] == clients["selector"] == spec["selector"]["matchLabels"]


@pytest.mark.parametrize("replicas", [3, 5])
def test_one_disruption_at_a_time(render: Any, replicas: int) -> None:
    rendered = render(f"controller.replicas={replicas}")
    for name, of_the_broken in (("controller", "IfHealthyBudget"), ("agent", "AlwaysAllow")):
        spec = rendered.one("PodDisruptionBudget", f"pidkeeper-{name}")["spec"]
        assert (spec["maxUnavailable"], spec["unhealthyPodEvictionPolicy"]) == (1, of_the_broken)
        assert spec["selector"] == rendered.one("StatefulSet", f"pidkeeper-{name}")["spec"]["selector"]


def test_one_of_its_kind_stops_no_drain(render: Any) -> None:
    """There is nothing to protect: a budget would only keep its node from being emptied."""
    single = render("controller.replicas=1", "agent.replicas=1").all()
    assert not [one for one in single if one["kind"] == "PodDisruptionBudget"]


@pytest.mark.parametrize("name", ["controller", "agent"])
def test_pods_are_spread_over_nodes_and_zones(render: Any, name: str) -> None:
    def placement(*values: str) -> tuple[Any, Any, Any]:
        spec = render(*values).one("StatefulSet", f"pidkeeper-{name}")["spec"]
        pod = spec["template"]["spec"]
        affinity, spread = pod["affinity"]["podAntiAffinity"], pod.get("topologySpreadConstraints")
        return affinity, spread, spec["selector"]

    affinity, (spread,), selector = placement()
    (preferred,) = affinity["preferredDuringSchedulingIgnoredDuringExecution"]
    assert preferred["podAffinityTerm"] == {"topologyKey": "kubernetes.io/hostname", "labelSelector": selector}
    assert (spread["topologyKey"], spread["maxSkew"]) == ("topology.kubernetes.io/zone", 1)
    assert (spread["whenUnsatisfiable"], spread["labelSelector"]) == ("ScheduleAnyway", selector)
    affinity, (spread,), _ = placement(f"{name}.antiAffinity=hard", f"{name}.zoneSpread=hard")
    (required,) = affinity["requiredDuringSchedulingIgnoredDuringExecution"]
    assert required == {"topologyKey": "kubernetes.io/hostname", "labelSelector": selector}
    assert spread["whenUnsatisfiable"] == "DoNotSchedule"
    assert placement(f"{name}.zoneSpread=none")[1] is None


def test_helm_test_asks_for_two_blocks(render: Any) -> None:
    pod = render("test.brokerId=7").one("Pod", "pidkeeper-test")
    (describe,), (allocate,) = pod["spec"]["initContainers"], pod["spec"]["containers"]
    assert describe["args"][:2] == ["quorum", "describe"]
    assert allocate["args"][:4] == ["ids", "allocate", "--broker=7", "--blocks=2"]
    assert describe["args"][2:] == allocate["args"][4:]
    assert pod["spec"]["restartPolicy"] == "Never"


def test_more_objects_are_templates(render: Any, tmp_path: Path) -> None:
    as_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "{{ .Release.Namespace }}-map"}}
    as_text = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{ .Release.Name }}-text"
    values = tmp_path / "values.yaml"
    values.write_text(yaml.safe_dump({"extraObjects": [as_map, as_text]}))
    rendered = render(options=("--values", str(values)))
    assert rendered.one("ConfigMap", "ids-map")
    assert rendered.one("ConfigMap", "pidkeeper-text")


@pytest.mark.parametrize("name", ["controller", "agent"])
def test_liveness_is_local_and_readiness_is_not(render: Any, name: str) -> None:
    (container,) = render().one("StatefulSet", f"pidkeeper-{name}")["spec"]["template"]["spec"]["containers"]
    paths = {kind: container[kind]["httpGet"]["path"] for kind in container if kind.endswith("Probe")}
    assert paths == {"startupProbe": "/livez", "livenessProbe": "/livez", "readinessProbe": "/readyz"}
    assert {container[kind]["httpGet"]["port"] for kind in paths} == {"probe"}
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert (ports["http"], ports["probe"]) == (8080, 8081)


@pytest.mark.parametrize("name", ["controller", "agent"])
def test_probes_and_scrapes_have_a_listener_of_their_own(render: Any, name: str) -> None:
    rendered = render()
    config = tomllib.loads(rendered.one("ConfigMap", f"pidkeeper-{name}")["data"][f"{name}.toml"])
    template = rendered.one("StatefulSet", f"pidkeeper-{name}")["spec"]["template"]
    (container,) = template["spec"]["containers"]
    (probe,) = [port["containerPort"] for port in container["ports"] if port["name"] == "probe"]
    assert config["probe_listen"] == f"0.0.0.0:{probe}" != config["http_listen"]
    assert template["metadata"]["annotations"]["prometheus.io/port"] == str(probe)
    headless = rendered.one("Service", f"pidkeeper-{name}-headless")["spec"]["ports"]
    assert {"name": "probe", "port": probe, "targetPort": "probe"} in headless
    for_clients = rendered.one("Service", f"pidkeeper-{name}")["spec"]["ports"]
    assert "probe" not in {port["name"] for port in for_clients}, "clients have no use for it"


@pytest.mark.parametrize("case", VALUES)
def test_pods_satisfy_the_restricted_standard(render_case: Any, case: str) -> None:
    for manifest in with_pods(render_case(case)):
        pod = pod_of(manifest)
        assert pod["automountServiceAccountToken"] is False
        assert pod["enableServiceLinks"] is False
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["runAsUser"] == 10001
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in containers(manifest):
            assert container["securityContext"] == RESTRICTED_CONTAINER
            writable = {mount["mountPath"] for mount in container["volumeMounts"] if not mount.get("readOnly")}
            assert writable <= {"/var/lib/pidkeeper", "/tmp"}


def test_the_service_account_mounts_no_token(render: Any) -> None:
    assert render().one("ServiceAccount", "pidkeeper")["automountServiceAccountToken"] is False


def test_storage_is_formatted_before_the_member_runs(render: Any) -> None:
    pod = render().one("StatefulSet", "pidkeeper-controller")["spec"]["template"]["spec"]
    (init,) = pod["initContainers"]
    (main,) = pod["containers"]
    config = "/etc/pidkeeper/controller.toml"
    assert init["args"] == ["storage", "format", "--config", config, "--if-needed"]
    assert main["args"] == ["controller", "run", "--config", config]
    assert "command" not in init
    assert "command" not in main
    for key in ("image", "env", "volumeMounts"):
        assert init[key] == main[key]


def test_the_first_install_founds_the_quorum_and_no_upgrade_does(render: Any) -> None:
    rendered = render("controller.replicas=5")
    pod = rendered.one("Job", "pidkeeper-founding")["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    urls = ",".join(voter["http"] for voter in controller_config(rendered)["voters"])
    wanted = ["--voters=1,2,3,4,5", "--founding-id=$(FOUNDING_ID)", "--wait=600", f"--controllers={urls}"]
    assert container["args"] == ["quorum", "found", *wanted]
    assert "command" not in container
    assert pod["restartPolicy"] == "Never"
    for other in (render(options=("--is-upgrade",)), render("controller.found=false")):
        assert "pidkeeper-founding" not in {manifest["metadata"]["name"] for manifest in other.all()}


def test_all_pods_of_the_job_order_one_founding_and_another_install_orders_another(render: Any) -> None:
    """A pod may die when its order was carried out: the next one asks for the same, and is granted it."""
    job = render().one("Job", "pidkeeper-founding")
    (container,) = job["spec"]["template"]["spec"]["containers"]
    label = "batch.kubernetes.io/controller-uid"
    assert environment(container)["FOUNDING_ID"] == {"fieldRef": {"fieldPath": f"metadata.labels['{label}']"}}
    # Kubernetes sets it to the uid of the job, which no other job ever has, unless the chart says otherwise.
    assert label not in job["spec"]["template"]["metadata"]["labels"]
    assert "manualSelector" not in job["spec"]


def test_the_job_that_founds_is_not_asked_again_after_a_refusal(render: Any) -> None:
    """With the exit codes of the command line: a refusal is final, and a member that does not answer yet is not."""
    (rule,) = render().one("Job", "pidkeeper-founding")["spec"]["podFailurePolicy"]["rules"]
    assert rule["action"] == "FailJob"
    assert rule["onExitCodes"]["values"] == [ExitCode.USAGE, ExitCode.NOT_AUTHORISED, ExitCode.REFUSED]


@pytest.mark.parametrize(
    ("secrets", "expected"),
    [
        (("auth.tokenSecret=ids-api",), "ids-api"),
        (("auth.tokenSecret=ids-api", "auth.operatorTokenSecret=ids-operators"), "ids-operators"),
    ],
)
def test_the_job_that_founds_brings_an_operators_token(render: Any, secrets: tuple[str, ...], expected: str) -> None:
    pod = render(*secrets).one("Job", "pidkeeper-founding")["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    directory, _, file = container["args"][-1].removeprefix("--token-file=").rpartition("/")
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    mounted = {mount["mountPath"]: volumes[mount["name"]] for mount in container["volumeMounts"]}
    assert mounted[directory]["secret"] == {"secretName": expected, "defaultMode": 0o440}
    assert file == "token"


@pytest.mark.parametrize("replicas", [1, 3, 5])
def test_each_pod_is_the_voter_of_its_ordinal(render: Any, replicas: int) -> None:
    rendered = render(f"controller.replicas={replicas}")
    stateful_set = rendered.one("StatefulSet", "pidkeeper-controller")
    spec = stateful_set["spec"]
    ordinals = range(spec["ordinals"]["start"], spec["ordinals"]["start"] + spec["replicas"])
    config = controller_config(rendered)
    hosts = [f"{stateful_set['metadata']['name']}-{n}.{spec['serviceName']}.ids.svc" for n in ordinals]
    assert config["voters"] == [
        {"id": n, "peer": f"{host}:9090", "http": f"http://{host}:8080"}
        for n, host in zip(ordinals, hosts, strict=True)
    ]
    env = environment(spec["template"]["spec"]["containers"][0])
    assert env["PIDKEEPER__NODE_ID"] == {"fieldRef": {"fieldPath": "metadata.labels['apps.kubernetes.io/pod-index']"}}
    advertised = [env["PIDKEEPER__HTTP_ADVERTISED"].replace("$(POD_NAME)", host.split(".")[0]) for host in hosts]
    assert advertised == [voter["http"] for voter in config["voters"]]


def test_data_is_on_the_claimed_volume(render: Any) -> None:
    rendered = render()
    pod = rendered.one("StatefulSet", "pidkeeper-controller")["spec"]["template"]["spec"]
    mounts = {mount["name"]: mount["mountPath"] for mount in pod["containers"][0]["volumeMounts"]}
    assert controller_config(rendered)["data_dir"].startswith(mounts["data"] + "/")


def test_each_agent_has_a_broker_id_of_its_own(render: Any) -> None:
    rendered = render("agent.firstBrokerId=1000000", "agent.replicas=3")
    spec = rendered.one("StatefulSet", "pidkeeper-agent")["spec"]
    assert (spec["replicas"], spec["ordinals"]["start"]) == (3, 1000000)
    env = environment(spec["template"]["spec"]["containers"][0])
    label = {"fieldRef": {"fieldPath": "metadata.labels['apps.kubernetes.io/pod-index']"}}
    assert env["PIDKEEPER_AGENT__BROKER_ID"] == label
    assert env["PIDKEEPER_AGENT__KAFKA_ADVERTISED"] == f"$(POD_NAME).{spec['serviceName']}.ids.svc:9092"


def test_agents_know_every_controller(render: Any) -> None:
    rendered = render("controller.replicas=5")
    agent = tomllib.loads(rendered.one("ConfigMap", "pidkeeper-agent")["data"]["agent.toml"])
    assert agent["controllers"] == [voter["http"] for voter in controller_config(rendered)["voters"]]


def test_agents_ask_in_kafkas_protocol_where_controllers_listen_for_it(render: Any) -> None:
    rendered = render("controller.kafka=true", "agent.transport=kafka")
    agent = tomllib.loads(rendered.one("ConfigMap", "pidkeeper-agent")["data"]["agent.toml"])
    controller = controller_config(rendered)
    assert agent["transport"] == "kafka"
    assert agent["controllers"] == [voter["kafka"] for voter in controller["voters"]]
    assert all(re.fullmatch(r"kafka://pidkeeper-controller-[123]\..*:9093", url) for url in agent["controllers"])
    assert controller["kafka_listen"] == "0.0.0.0:9093"
    for name in ("pidkeeper-controller", "pidkeeper-controller-headless"):
        assert {"name": "kafka", "port": 9093, "targetPort": "kafka"} in rendered.one("Service", name)["spec"]["ports"]
    refused = render("agent.transport=kafka")
    assert refused.returncode != 0
    assert "set controller.kafka=true" in refused.stderr


def test_without_being_asked_for_controllers_speak_http_alone(render: Any) -> None:
    """Also where the values are those of an earlier release, which knew no other way."""
    for options in ((), ("--set", "controller.kafka=null,agent.transport=null")):
        rendered = render(options=options)
        assert "kafka_listen" not in controller_config(rendered)
        agent = tomllib.loads(rendered.one("ConfigMap", "pidkeeper-agent")["data"]["agent.toml"])
        assert "transport" not in agent
        assert all(url.startswith("http://") for url in agent["controllers"])


def test_cluster_id_comes_from_namespace_and_release(render: Any) -> None:
    derived = controller_config(render())["cluster_id"]
    assert re.fullmatch("[0-9a-f]{22}", derived)
    assert controller_config(render("clusterId=prod-1"))["cluster_id"] == "prod-1"
    other = render(release="pidkeeper-other").one("ConfigMap", "pidkeeper-other-controller")
    assert tomllib.loads(other["data"]["controller.toml"])["cluster_id"] != derived


def test_a_changed_configuration_rolls_the_pods(render: Any) -> None:
    def checksums(rendered: Any) -> list[str]:
        return [s["spec"]["template"]["metadata"]["annotations"]["checksum/config"] for s in stateful_sets(rendered)]

    before, after = checksums(render()), checksums(render("controller.replicas=5"))
    assert not set(before) & set(after)


def test_long_release_names_stay_within_the_limits(render: Any) -> None:
    for manifest in render(release="a" * 53).all():
        limit = 52 if manifest["kind"] == "StatefulSet" else 63
        assert len(manifest["metadata"]["name"]) <= limit


def test_controllers_without_a_key_are_refused_with_what_to_set(render: Any) -> None:
    refused = render("auth.peerKeySecret=")
    assert refused.returncode != 0
    assert "auth.peerKeySecret: the controllers must prove to each other who they are" in refused.stderr
    assert "insecure" not in controller_config(render())
    assert "peer_key_file" not in controller_config(render("auth.peerKeySecret=", "controller.replicas=1"))
    introduced = controller_config(render("auth.insecurePeers=true"))
    assert (introduced["insecure"], introduced["peer_key_file"]) == (True, "/etc/pidkeeper-secrets/peer/peer-key")


def test_secrets_are_files_of_existing_secrets(render: Any) -> None:
    secrets = ("auth.peerKeySecret=ids-peer", "auth.tokenSecret=ids-api", "auth.operatorTokenSecret=ids-operators")
    rendered = render(*secrets)
    assert "Secret" not in {manifest["kind"] for manifest in rendered.all()}
    files = {
        "peer_key_file": ("ids-peer", "peer-key"),
        "token_file": ("ids-api", "token"),
        "operator_token_file": ("ids-operators", "token"),
    }
    assert "operators" not in str(rendered.one("StatefulSet", "pidkeeper-agent")), "agents are no operators"
    for name, keys in (("controller", list(files)), ("agent", ["token_file"])):
        config = tomllib.loads(rendered.one("ConfigMap", f"pidkeeper-{name}")["data"][f"{name}.toml"])
        stateful_set = rendered.one("StatefulSet", f"pidkeeper-{name}")
        volumes = {volume["name"]: volume for volume in stateful_set["spec"]["template"]["spec"]["volumes"]}
        for container, key in ((c, k) for c in containers(stateful_set) for k in keys):
            secret, entry = files[key]
            mounted = {mount["mountPath"]: volumes.get(mount["name"], {}) for mount in container["volumeMounts"]}
            directory, _, file = config[key].rpartition("/")
            assert (mounted[directory]["secret"]["secretName"], file) == (secret, entry)
            assert mounted[directory]["secret"]["defaultMode"] == 0o440


def test_the_digest_for_zookeeper_is_a_file_of_an_existing_secret(render: Any) -> None:
    rendered = render("controller.zookeeper.connect=z", "controller.zookeeper.digestSecret=ids-zookeeper")
    directory, _, file = controller_config(rendered)["zookeeper"]["digest_file"].rpartition("/")
    stateful_set = rendered.one("StatefulSet", "pidkeeper-controller")
    volumes = {volume["name"]: volume for volume in stateful_set["spec"]["template"]["spec"]["volumes"]}
    for container in containers(stateful_set):
        mounted = {mount["mountPath"]: volumes.get(mount["name"], {}) for mount in container["volumeMounts"]}
        assert mounted[directory]["secret"] == {"secretName": "ids-zookeeper", "defaultMode": 0o440}
    assert file == "digest"
    assert "zookeeper" not in str(rendered.one("StatefulSet", "pidkeeper-agent"))


def test_without_zookeeper_it_is_not_spoken_of(render: Any) -> None:
    assert "zookeeper" not in render().text.lower()
    assert "mode" not in controller_config(render())


def test_the_notes_show_the_way_only_where_there_is_one(helm: str, tmp_path: Path) -> None:
    # helm prints the notes when it installs alone, so they are rendered as a manifest of a copy.
    chart = Path(shutil.copytree(CHART, tmp_path / "pidkeeper"))
    (chart / "templates" / "NOTES.txt").rename(chart / "NOTES.txt")
    (chart / "templates" / "notes.yaml").write_text('notes: {{ tpl (.Files.Get "NOTES.txt") . | toJson }}')

    def notes(*values: str) -> str:
        sets = [word for value in (PEER_KEY, *values) for word in ("--set", value)]
        command = [helm, "template", "pidkeeper", str(chart), "--show-only", "templates/notes.yaml", *sets]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 0, done.stderr
        return str(yaml.safe_load(done.stdout)["notes"])

    assert "kubectl" in notes()
    assert "migrate" not in notes()
    shown = notes("controller.zookeeper.connect=z:2181", "auth.tokenSecret=ids-api")
    assert "pidkeeper migrate zookeeper plan --token-file /etc/pidkeeper-secrets/api/token\n" in shown
    assert "plan\n" in notes("controller.zookeeper.connect=z:2181")
    secure = ("auth.peerKeySecret=", "tls.controllers=required", "tls.agents=required", "controller.found=false")
    own = ("tls.controllerSecret=c", "tls.agentSecret=a", "tls.operatorSecret=o")
    shown = notes(*secure, *own, "controller.zookeeper.connect=z:2181")
    assert shown.count(" --ca-file /etc/pidkeeper-secrets/tls/ca.crt --certificate-file OPERATOR.pem") == 2
    assert "curl https://" in shown
    shown = notes("controller.zookeeper.connect=z:2181", "auth.tokenSecret=a", "auth.operatorTokenSecret=b")
    assert "plan --token-file /etc/pidkeeper-secrets/operator/token\n" in shown


def test_without_secrets_none_is_asked_for(render: Any) -> None:
    assert "secret" not in render("auth.peerKeySecret=", "auth.insecurePeers=true").text.lower()
