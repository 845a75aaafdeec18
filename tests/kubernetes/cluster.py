"""A cluster of the run's own: control plane, nodes, volumes, names, and helm to put releases on it."""

from __future__ import annotations

import base64
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tests.chart.rendering import CHART, find_helm
from tests.kubernetes.api import Api, ApiError, Manifest, collection, in_namespace
from tests.kubernetes.control_plane import ControlPlane
from tests.kubernetes.kubelet import Kubelets
from tests.kubernetes.service_names import ServiceNames
from tests.pods.network import Network

NAMESPACE: Final = "ids"
ZONES: Final = {f"node-{number}": f"zone-{'abc'[number % 3]}" for number in range(1, 7)}
HELM_SECONDS: Final = 400.0
VOLUMES: Final = 10
"""For five controllers, and some to spare."""
STORAGE_CLASS: Final = "grows"
"""Of all volumes. Whoever has claimed one may ask for more."""


class Cluster:
    """Use as a context manager, within `tests.pods.namespaces.enter`. `directory`: for all that it keeps."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._plane = ControlPlane(directory / "control-plane")
        self._stack = ExitStack()
        self._volumes = 0
        network = Network()
        self.api: Api = self._plane.api
        self.names = ServiceNames(self.api, network, NAMESPACE)
        self.kubelets = Kubelets(self.api, network, self.names, ZONES, directory / "nodes")

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.enter_context(self._plane)
            self._make_namespace()
            self._make_storage_class()
            for _ in range(VOLUMES):
                self.add_volume()
            for part in (self.names, self.kubelets):
                part.start()
                stack.callback(part.stop)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stack.close()

    def helm(self, *words: str) -> subprocess.CompletedProcess[str]:
        """One command of helm in the namespace, whatever comes of it."""
        helm = find_helm()
        assert helm is not None
        command = [helm, f"--kubeconfig={self._plane.kubeconfig}", f"--namespace={NAMESPACE}", *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=HELM_SECONDS, check=False)

    def put(self, verb: str, *options: str) -> subprocess.CompletedProcess[str]:
        """`helm install` or `helm upgrade` of the chart as the release `pidkeeper`."""
        return self.helm(verb, "pidkeeper", str(CHART), *options)

    def add_volume(self) -> None:
        """One more empty volume for whoever claims one."""
        self._volumes += 1
        place = self._directory / "volumes" / str(self._volumes)
        place.mkdir(parents=True)
        specification: Manifest = {
            "capacity": {"storage": "8Gi"},
            "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Retain",
            "storageClassName": STORAGE_CLASS,
            "hostPath": {"path": str(place)},
        }
        name = {"name": f"volume-{self._volumes}"}
        volume = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": name, "spec": specification}
        self.api.create("/api/v1/persistentvolumes", volume)

    def add_secret(self, name: str, entries: Mapping[str, str]) -> None:
        data = {key: base64.b64encode(text.encode()).decode() for key, text in entries.items()}
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "data": data}
        self.api.create(in_namespace("Secret", NAMESPACE), secret)

    def stateful_set(self, name: str) -> Manifest:
        return self.api.get(in_namespace("StatefulSet", NAMESPACE, name, "apps/v1"))

    def pods(self, component: str) -> list[Manifest]:
        """The pods of a component, by name."""
        found = self.api.list(in_namespace("Pod", NAMESPACE), labelSelector=f"app.kubernetes.io/component={component}")
        return sorted(found, key=lambda pod: str(pod["metadata"]["name"]))

    def job_log(self, name: str) -> str:
        """What the newest pod of a Job said."""
        pods = self.api.list(in_namespace("Pod", NAMESPACE), labelSelector=f"batch.kubernetes.io/job-name={name}")
        metadata = max((pod["metadata"] for pod in pods), key=lambda one: str(one["creationTimestamp"]))
        kept = self._directory / "nodes" / f"{metadata['name']}-{metadata['uid'][:8]}"
        return "\n".join(log.read_text(errors="replace") for log in sorted(kept.glob("*/log")))

    def is_rolled_out(self, name: str) -> bool:
        """Whether a StatefulSet has all the pods that it wants, of its newest revision, ready for long enough."""
        found = self.stateful_set(name)
        wanted, status = found["spec"]["replicas"], found["status"]
        return bool(
            status.get("observedGeneration") == found["metadata"]["generation"]
            and status.get("currentRevision") == status.get("updateRevision")
            and status.get("updatedReplicas", wanted) == wanted
            and status.get("availableReplicas", 0) == wanted == status.get("replicas", 0)
        )

    def _make_namespace(self) -> None:
        labels = {"pod-security.kubernetes.io/enforce": "restricted"}
        metadata = {"name": NAMESPACE, "labels": labels}
        self.api.create("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
        # Without its account the namespace takes no pods.
        until(self._has_account, 60.0, "a service account of the namespace")

    def _make_storage_class(self) -> None:
        kind = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": STORAGE_CLASS}}
        body = {**kind, "provisioner": "kubernetes.io/no-provisioner", "allowVolumeExpansion": True}
        self.api.create(collection("storage.k8s.io/v1", "StorageClass"), body)

    def _has_account(self) -> bool:
        try:
            return bool(self.api.get(in_namespace("ServiceAccount", NAMESPACE, "default")))
        except ApiError:
            return False


class NotInTimeError(Exception):
    """What was to come about did not; the message says what."""


def until(condition: Callable[[], bool], seconds: float, what: str) -> float:
    """Wait for a condition; the seconds that it took. Raises NotInTimeError."""
    begun = time.monotonic()
    while not condition():
        if time.monotonic() - begun > seconds:
            raise NotInTimeError(f"not within {seconds:g} s: {what}")
        time.sleep(0.1)
    return time.monotonic() - begun
