"""The image of deploy/audit and the chart's audit are valid, and the command line knows what they name."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import kubernetes_validate
import pytest

from pidkeeper.cli.main import cli
from tests.chart.policies import lets_through
from tests.chart.rendering import Render, Rendered, valid

ROOT = Path(__file__).resolve().parents[2]
AUDIT = ROOT / "deploy" / "audit"
IMAGE = "pidkeeper-audit:0.1.0"
MEMBERS = (1, 2, 3)

BUCKET = ("audit.enabled=true", "audit.archive=s3://BUCKET/members", "audit.out=s3://BUCKET/audit")
STORE = "s3://LOGS/prefix?region=here"
ON_SPARK = (*BUCKET, f"audit.store={STORE}", "audit.bucketSecret=ids-bucket", "audit.spark.serviceAccount=spark")
SPARK_OPERATOR = ("--api-versions", "sparkoperator.k8s.io/v1beta2")


@pytest.fixture(scope="session")
def rendered(render: Render) -> Rendered:
    """A release whose archives go to a bucket."""
    return render("clusterId=CLUSTER_ID", *BUCKET, f"audit.store={STORE}", "audit.bucketSecret=ids-bucket")


@pytest.fixture(scope="session")
def jobs(rendered: Rendered) -> dict[str, Any]:
    """The CronJobs by name."""
    return {one["metadata"]["name"]: one for one in rendered.all() if one["kind"] == "CronJob"}


@pytest.fixture(scope="session")
def application(render: Render) -> Any:
    """The audit where there is an operator for Spark."""
    on_spark = render("clusterId=CLUSTER_ID", *ON_SPARK, options=SPARK_OPERATOR)
    return valid(on_spark.one("ScheduledSparkApplication", "pidkeeper-audit"))


@pytest.fixture(scope="module")
def command() -> Callable[[list[str], dict[str, str]], list[str]]:
    """What a container executes."""
    spec = importlib.util.spec_from_file_location("entrypoint", AUDIT / "entrypoint.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found: Callable[[list[str], dict[str, str]], list[str]] = module.command
    return found


def instructions() -> list[tuple[str, str]]:
    """The instructions of the Dockerfile as (name, arguments), continuation lines joined, comments dropped."""
    text = re.sub(r"(?m)^#.*\n", "", (AUDIT / "Dockerfile").read_text()).replace("\\\n", " ")
    return [(name, rest) for name, _, rest in (line.partition(" ") for line in text.splitlines() if line)]


def pod_of(job: Any) -> Any:
    return job["spec"]["jobTemplate"]["spec"]["template"]["spec"]


def parsed(arguments: list[str]) -> dict[str, Any]:
    """What the command line makes of them. Raises click.UsageError for what it does not know."""
    group: click.Command = cli
    words = list(arguments)
    while isinstance(group, click.Group):
        name = words.pop(0)
        found = group.get_command(click.Context(group), name)
        assert found is not None, f"there is no command {name}"
        group = found
    return group.make_context("pidkeeper", words).params


# The image.


def _installs(command: str) -> bool:
    return "/pip " in command and " install " in command


def test_the_image_runs_without_root_and_installs_nothing_without_a_hash() -> None:
    found = instructions()
    final = found[max(place for place, (name, _) in enumerate(found) if name == "FROM") :]
    assert final.index(("USER", "10001:10001")) < [name for name, _ in final].index("ENTRYPOINT")
    installs = [part for name, rest in found if name == "RUN" for part in rest.split("&&") if _installs(part)]
    assert len(installs) == 3
    assert all("--no-deps" in part and ("--require-hashes" in part or "--no-index" in part) for part in installs)


def test_the_image_has_the_python_of_the_other_one_and_a_java_that_spark_takes() -> None:
    pins = [rest for name, rest in instructions() if name == "ARG"]
    assert pins == re.findall(r"(?m)^ARG (.*)$", (ROOT / "deploy" / "Dockerfile").read_text())
    assert any("openjdk-17-jre-headless" in rest for name, rest in instructions() if name == "RUN")


def test_the_lock_of_the_image_has_what_the_extra_names() -> None:
    extra = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["audit"]
    locked = set(re.findall(r"(?m)^([\w.-]+)==", (ROOT / "requirements" / "audit.txt").read_text()))
    assert {re.split(r"[<>=]", one)[0] for one in extra} <= locked


def test_everything_that_the_image_takes_is_sent_to_the_build() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    packages = {"pidkeeper", *(link.name for link in (ROOT / "pidkeeper").iterdir() if link.is_symlink())}
    sent = {line[1:] for line in (AUDIT / "Dockerfile.dockerignore").read_text().splitlines() if line[:1] == "!"}
    copies = [rest.split()[:-1] for name, rest in instructions() if name == "COPY" and "--from" not in rest]
    copied = {one for sources in copies for one in sources} - {"."}
    assert copied == {"requirements/audit.txt", "requirements/sbom.txt", "deploy/audit/entrypoint.py"}
    assert sent == packages | copied | {"pyproject.toml", project["readme"], *project["license-files"]}


def test_the_entry_point_is_pidkeeper(command: Any) -> None:
    (entry,) = [json.loads(rest) for name, rest in instructions() if name == "ENTRYPOINT"]
    (copied,) = [rest.split()[1] for name, rest in instructions() if name == "COPY" and "entrypoint.py" in rest]
    assert entry[:2] == ["tini", "--"] and entry[-1] == copied
    assert command(["audit", "run", "x"], {}) == ["pidkeeper", "audit", "run", "x"]
    assert command([], {}) == ["pidkeeper"]
    done = subprocess.run(
        [sys.executable, str(AUDIT / "entrypoint.py"), "--version"],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": str(Path(sys.executable).parent)},
        timeout=60,
    )
    assert (done.returncode, "0.1.0" in done.stdout) == (0, True), done.stderr


def test_the_image_is_driver_and_executor_of_spark(command: Any) -> None:
    home = {"SPARK_HOME": "/spark", "SPARK_DRIVER_BIND_ADDRESS": "10.0.0.1"}
    assert command(["driver", "--class", "x", "local:///y"], home) == [
        "/spark/bin/spark-submit",
        "--conf",
        "spark.driver.bindAddress=10.0.0.1",
        "--deploy-mode",
        "client",
        "--class",
        "x",
        "local:///y",
    ]
    told = {
        "SPARK_DRIVER_URL": "spark://driver",
        "SPARK_EXECUTOR_ID": "7",
        "SPARK_EXECUTOR_CORES": "2",
        "SPARK_EXECUTOR_MEMORY": "1g",
        "SPARK_APPLICATION_ID": "spark-1",
        "SPARK_EXECUTOR_POD_IP": "10.0.0.2",
        "SPARK_RESOURCE_PROFILE_ID": "0",
        "SPARK_EXECUTOR_POD_NAME": "pod",
        "SPARK_CONF_DIR": "/conf",
        "SPARK_JAVA_OPT_10": "-Da=10",
        "SPARK_JAVA_OPT_9": "-Db=9 and more",
    }
    words = command(["executor"], home | told)
    assert words[:7] == ["java", "-Db=9 and more", "-Da=10", "-Xms1g", "-Xmx1g", "-cp", "/conf:/spark/jars/*"]
    pairs = dict(zip(words[8::2], words[9::2], strict=True))
    assert pairs == {
        "--driver-url": "spark://driver",
        "--executor-id": "7",
        "--cores": "2",
        "--app-id": "spark-1",
        "--hostname": "10.0.0.2",
        "--resourceProfileId": "0",
        "--podName": "pod",
    }
    with pytest.raises(KeyError, match="SPARK_DRIVER_URL"):
        command(["executor"], home | {name: value for name, value in told.items() if name != "SPARK_DRIVER_URL"})


# The CronJobs.


def test_without_an_audit_there_is_none_and_with_one_it_must_know_its_bucket(render: Render) -> None:
    assert not [one for one in render().all() if one["kind"] == "CronJob"]
    for lacking in BUCKET[1:]:
        refused = render(*(one for one in BUCKET if one != lacking))
        assert refused.returncode != 0
        assert f"/{lacking.partition('=')[0].replace('.', '/')}" in refused.stderr, refused.stderr


def test_each_member_is_shipped_and_the_bucket_is_audited(jobs: dict[str, Any]) -> None:
    assert list(jobs) == [*(f"pidkeeper-ship-{member}" for member in MEMBERS), "pidkeeper-audit"]
    assert len({job["spec"]["schedule"] for job in jobs.values()}) == len(jobs)
    for job in jobs.values():
        spec = job["spec"]
        assert (spec["concurrencyPolicy"], spec["jobTemplate"]["spec"]["backoffLimit"]) == ("Forbid", 0)
        (container,) = pod_of(job)["containers"]
        assert {mount["mountPath"] for mount in container["volumeMounts"] if not mount.get("readOnly")} == {"/tmp"}
        assert container["image"] == IMAGE
        assert container["envFrom"] == [{"secretRef": {"name": "ids-bucket"}}]


def test_a_service_account_may_have_the_credentials_instead(render: Render) -> None:
    for job in (one for one in render(*BUCKET).all() if one["kind"] == "CronJob"):
        assert "envFrom" not in pod_of(job)["containers"][0]


def test_the_jobs_reach_the_bucket_and_nobody_else_of_the_release_does(rendered: Rendered) -> None:
    policies = [one for one in rendered.all() if one["kind"] == "NetworkPolicy"]
    elsewhere = {"app": "somebody's bucket"}
    for one in rendered.all():
        if one["kind"] == "CronJob":
            labels = one["spec"]["jobTemplate"]["spec"]["template"]["metadata"]["labels"]
            assert lets_through(policies, labels, elsewhere, 443)
            assert not lets_through(policies, labels, elsewhere, 80)
        elif one["kind"] == "StatefulSet":
            assert not lets_through(policies, one["spec"]["template"]["metadata"]["labels"], elsewhere, 443)


def test_the_audit_reads_what_the_others_ship(jobs: dict[str, Any]) -> None:
    targets = {
        parsed(pod_of(jobs[f"pidkeeper-ship-{member}"])["containers"][0]["args"])["target"] for member in MEMBERS
    }
    audit = parsed(pod_of(jobs["pidkeeper-audit"])["containers"][0]["args"])
    assert [f"{target}/CLUSTER_ID/*" for target in targets] == list(audit["data"])


def test_each_member_is_shipped_from_its_own_volume_on_its_own_node(jobs: dict[str, Any], rendered: Rendered) -> None:
    controller = rendered.one("StatefulSet", "pidkeeper-controller")
    (claim,) = [one["metadata"]["name"] for one in controller["spec"]["volumeClaimTemplates"]]
    name = controller["metadata"]["name"]
    (place,) = {
        mount["mountPath"]
        for container in controller["spec"]["template"]["spec"]["containers"]
        for mount in container["volumeMounts"]
        if mount["name"] == claim
    }
    data = tomllib.loads(rendered.one("ConfigMap", name)["data"]["controller.toml"])["data_dir"]
    assert controller["spec"]["replicas"] == len(MEMBERS)
    for member in MEMBERS:
        spec = pod_of(jobs[f"pidkeeper-ship-{member}"])
        (rule,) = spec["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        assert rule["labelSelector"]["matchLabels"] == {"statefulset.kubernetes.io/pod-name": f"{name}-{member}"}
        assert rule["topologyKey"] == "kubernetes.io/hostname"
        (volume,) = [one for one in spec["volumes"] if "persistentVolumeClaim" in one]
        assert volume["persistentVolumeClaim"] == {"claimName": f"{claim}-{name}-{member}"}
        (mount,) = [one for one in spec["containers"][0]["volumeMounts"] if one["name"] == volume["name"]]
        assert (mount["mountPath"], mount["readOnly"]) == (place, True)
        assert [str(one) for one in parsed(spec["containers"][0]["args"])["directories"]] == [data]


# The SparkApplication.


def test_executors_are_used_where_there_is_an_operator_for_them(render: Render, application: Any) -> None:
    with_operator = render(*ON_SPARK, options=SPARK_OPERATOR).all()
    assert "pidkeeper-audit" not in {one["metadata"]["name"] for one in with_operator if one["kind"] == "CronJob"}
    assert application["spec"]["schedule"] == "30 4 * * *"
    kinds = [one["kind"] for one in render(*ON_SPARK).all() if one["metadata"]["name"] == "pidkeeper-audit"]
    assert sorted(kinds) == ["CronJob", "NetworkPolicy"], "without the operator"
    kinds = [one["kind"] for one in render(*BUCKET, options=SPARK_OPERATOR).all()]
    assert "ScheduledSparkApplication" not in kinds, "without an account that may make pods"


def test_its_containers_are_valid_ones(application: Any) -> None:
    for role in ("driver", "executor"):
        found = application["spec"]["template"][role]
        container = {
            "name": role,
            "image": IMAGE,
            "envFrom": found["envFrom"],
            "securityContext": found["securityContext"],
        }
        manifest = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": role}, "spec": {"containers": [container]}}
        kubernetes_validate.validate(manifest, "1.31", strict=True)


def test_it_runs_the_audit_of_this_image(application: Any, jobs: dict[str, Any]) -> None:
    spec = application["spec"]["template"]
    audit = parsed(pod_of(jobs["pidkeeper-audit"])["containers"][0]["args"])
    told = parsed(spec["arguments"])
    assert (told["data"], told["out"], spec["image"]) == (audit["data"], audit["out"], IMAGE)
    assert told["store"] == audit["store"] == STORE
    (home,) = re.findall(r"SPARK_HOME=(\S+)/pyspark", (AUDIT / "Dockerfile").read_text())
    main = spec["mainApplicationFile"].removeprefix("local://").removeprefix(f"{home}/pidkeeper/")
    assert (ROOT / main).is_file()
    python = re.findall(r"PYTHON_IMAGE=python:(\d+\.\d+)", (AUDIT / "Dockerfile").read_text())[0]
    assert f"/python{python}/" in home


def test_it_names_the_spark_that_the_lock_has(application: Any) -> None:
    (locked,) = re.findall(r"(?m)^pyspark==(\S+)", (ROOT / "requirements" / "audit.txt").read_text())
    assert application["spec"]["template"]["sparkVersion"] == locked
