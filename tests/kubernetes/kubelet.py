"""The nodes of the cluster: they register, renew their leases, and run the pods that are bound to them.

One program does it for all nodes: what a node is to the scheduler, to evictions and to PodDisruptionBudgets is in its
objects. Network policies are not carried out, and names come from files instead of DNS.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import requests

from tests.kubernetes.api import NODES, PODS, Api, ApiError, Manifest, collection
from tests.kubernetes.pod_status import now
from tests.kubernetes.pod_worker import PodWorker
from tests.kubernetes.service_names import ServiceNames
from tests.pods.network import Network

LEASE_SECONDS: Final = 10.0
RESOURCES: Final = {"cpu": "4", "memory": "8Gi", "pods": "20", "ephemeral-storage": "10Gi"}
_LEASES: Final = collection("coordination.k8s.io/v1", "Lease", "kube-node-lease")


class Kubelets:
    """The kubelets of some nodes. `zones`: the zone of each node by its name."""

    def __init__(
        self, api: Api, network: Network, names: ServiceNames, zones: Mapping[str, str], directory: Path
    ) -> None:
        self._api = api
        self._network = network
        self._names = names
        self._zones = dict(zones)
        self._directory = directory
        self._end = threading.Event()
        self._workers: dict[str, PodWorker] = {}
        # By their uids. What is told of a pod that has ended may be older than its end.
        self._ended: set[str] = set()
        self._complaints: list[str] = []
        self._lock = threading.Lock()

    def start(self) -> None:
        """Register the nodes, and take pods from now on."""
        for node, zone in self._zones.items():
            self._register(node, zone)
        threading.Thread(target=self._renew, daemon=True).start()
        threading.Thread(target=self._watch, daemon=True).start()

    def stop(self) -> None:
        """End all pods at once."""
        self._end.set()
        for worker in self.workers():
            if worker.pod is not None:
                worker.pod.kill()

    def workers(self) -> list[PodWorker]:
        """Those whose pods run, or are about to."""
        with self._lock:
            return list(self._workers.values())

    def worker(self, pod: str) -> PodWorker:
        """That of a pod, by its name. Raises KeyError if it runs nowhere."""
        for worker in self.workers():
            if worker.name == pod and worker.pod is not None:
                return worker
        raise KeyError(pod)

    @property
    def complaints(self) -> list[str]:
        """What pods did that none of ours may."""
        return [*self._complaints, *(complaint for worker in self.workers() for complaint in worker.complaints)]

    def _register(self, node: str, zone: str) -> None:
        labels = {"kubernetes.io/hostname": node, "topology.kubernetes.io/zone": zone, "disk": "ssd"}
        body: Manifest = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": node, "labels": labels}}
        self._api.create(NODES, body)
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
        times = {"lastHeartbeatTime": now(), "lastTransitionTime": now()}
        self._api.merge(
            f"{NODES}/{node}/status",
            {"status": {"capacity": RESOURCES, "allocatable": RESOURCES, "conditions": [ready | times]}},
        )
        self._api.create(
            _LEASES,
            {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {"name": node},
                "spec": {"holderIdentity": node, "leaseDurationSeconds": 40, "renewTime": _microtime()},
            },
        )

    def _renew(self) -> None:
        while not self._end.wait(LEASE_SECONDS):
            for node in self._zones:
                with contextlib.suppress(ApiError, requests.RequestException):
                    self._api.merge(f"{_LEASES}/{node}", {"spec": {"renewTime": _microtime()}})

    def _watch(self) -> None:
        for event, pod in self._api.watch(PODS, self._end):
            if pod["spec"].get("nodeName") in self._zones:
                self._changed(event, pod)

    def _changed(self, event: str, pod: Manifest) -> None:
        metadata = pod["metadata"]
        uid = metadata["uid"]
        with self._lock:
            worker = self._workers.get(uid)
            if worker is None and event != "DELETED" and uid not in self._ended:
                worker = self._workers[uid] = self._new_worker(pod)
                worker.start()
        if worker is None:
            return
        if event == "DELETED":
            worker.delete(0.0)
        elif "deletionTimestamp" in metadata:
            worker.delete(float(metadata.get("deletionGracePeriodSeconds", 0)))

    def _new_worker(self, pod: Manifest) -> PodWorker:
        return PodWorker(
            self._api, pod, self._network, self._directory, begun=self._names.tell_also, ended=self._has_ended
        )

    def _has_ended(self, worker: PodWorker) -> None:
        with self._lock:
            self._complaints += worker.complaints
            self._ended.add(worker.uid)
            self._workers.pop(worker.uid, None)
        if worker.pod is not None:
            self._names.forget(worker.pod.hosts)


def _microtime() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
