"""What a kubelet does for one pod: its life from the binding to a node until nothing is left of it."""

from __future__ import annotations

import base64
import contextlib
import os
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import requests

from tests.kubernetes.api import Api, ApiError, Manifest, in_namespace
from tests.kubernetes.pod_status import PodStatus
from tests.kubernetes.probes import Probe
from tests.pods.network import Network
from tests.pods.pod import Pod, PodError

GROUP: Final = 10001
TURN_SECONDS: Final = 0.1
RESTART_SECONDS: Final = 1.0
"""Before a container that ended is started again; a kubelet takes longer and longer from 10 s on."""


class PodWorker(threading.Thread):
    """Runs one pod of a node. `begun` is called with its hosts file before its first container, `ended` at the end.

    `complaints`: what no pod of ours may do, for whoever judges the run. `directory`: where its node keeps it.
    """

    def __init__(
        self,
        api: Api,
        manifest: Manifest,
        network: Network,
        directory: Path,
        *,
        begun: Callable[[Path], None],
        ended: Callable[[PodWorker], None],
    ) -> None:
        super().__init__(name=manifest["metadata"]["name"], daemon=True)
        self._api = api
        self._manifest = manifest
        self._network = network
        metadata = manifest["metadata"]
        self._directory = directory / f"{metadata['name']}-{metadata['uid'][:8]}"
        self._begun = begun
        self._ended = ended
        self._path = in_namespace("Pod", metadata["namespace"], metadata["name"])
        self.uid: str = metadata["uid"]
        self.pod: Pod | None = None
        self.complaints: list[str] = []
        self._deleted = threading.Event()
        self._grace = 0.0
        self._tries = 0
        self._sent: Manifest = {}

    def delete(self, grace: float) -> None:
        """End the pod within the grace, in seconds."""
        self._grace = grace
        self._deleted.set()

    def run(self) -> None:
        try:
            if (pod := self._prepare()) is not None:
                self.pod = pod
                self._begun(pod.hosts)
                _Life(self, pod, PodStatus(self._manifest, pod.address)).run()
                pod.kill()
        finally:
            self._ended(self)
            self._forget()

    @property
    def deleted(self) -> bool:
        return self._deleted.is_set()

    @property
    def specification(self) -> Manifest:
        specification: Manifest = self._manifest["spec"]
        return specification

    def rest(self, seconds: float) -> bool:
        """Wait, less long if the pod is deleted meanwhile; whether it is."""
        return self._deleted.wait(seconds)

    def tell(self, status: Manifest) -> None:
        """Send a status, unless it is the one that was sent last."""
        if status != self._sent:
            with contextlib.suppress(ApiError, requests.RequestException):
                self._api.merge(self._path + "/status", status)
                self._sent = status

    def end(self, pod: Pod) -> None:
        """End what runs of it, as it was asked for."""
        if self._grace == 0:
            pod.kill()
        elif pod.running():
            try:
                pod.delete()
            except PodError as error:
                self.complaints.append(str(error))

    def _forget(self) -> None:
        if self.deleted:
            with contextlib.suppress(ApiError, requests.RequestException):
                self._api.delete(self._path, {"gracePeriodSeconds": 0, "preconditions": {"uid": self.uid}})

    def _prepare(self) -> Pod | None:
        """The pod, once all that it mounts is there; None if it is deleted before."""
        while not self.deleted:
            with contextlib.suppress(ApiError, KeyError, requests.RequestException):
                return self._assembled()
            self.rest(0.5)
        return None

    def _assembled(self) -> Pod:
        metadata, specification = self._manifest["metadata"], self._manifest["spec"]
        self._tries += 1
        objects: dict[tuple[str, str], Path] = {}
        claims: dict[str, Path] = {}
        for volume in specification.get("volumes", []):
            if "configMap" in volume:
                name = volume["configMap"]["name"]
                objects["ConfigMap", name] = self._mounted("ConfigMap", name)
            elif "secret" in volume:
                name = volume["secret"]["secretName"]
                objects["Secret", name] = self._mounted("Secret", name)
            elif "persistentVolumeClaim" in volume:
                name = volume["persistentVolumeClaim"]["claimName"]
                claims[name] = self._claimed(name)
        return Pod(
            metadata["name"],
            specification,
            metadata.get("labels", {}),
            network=self._network,
            objects=objects,
            claims=claims,
            directory=self._directory / f"pod-{self._tries}",
            node=specification["nodeName"],
        )

    def _mounted(self, kind: str, name: str) -> Path:
        """Files as a kubelet makes them: owned by root, readable for the group of the pod."""
        found = self._api.get(in_namespace(kind, self._manifest["metadata"]["namespace"], name))
        entries: Mapping[str, str] = found.get("data", {})
        place = self._directory / kind / name
        place.mkdir(parents=True, exist_ok=True)
        for entry, text in entries.items():
            file = place / entry
            file.write_bytes(base64.b64decode(text) if kind == "Secret" else text.encode())
            os.chown(file, 0, GROUP)
            file.chmod(0o440)
        return place

    def _claimed(self, name: str) -> Path:
        claim = self._api.get(in_namespace("PersistentVolumeClaim", self._manifest["metadata"]["namespace"], name))
        volume = self._api.get(f"/api/v1/persistentvolumes/{claim['spec']['volumeName']}")
        place = Path(volume["spec"]["hostPath"]["path"])
        os.chown(place, -1, GROUP)
        place.chmod(0o2770)
        return place


class _Life:
    """The containers of a pod, from the first init container on, until the pod ends or is deleted."""

    def __init__(self, worker: PodWorker, pod: Pod, status: PodStatus) -> None:
        self._worker = worker
        self._pod = pod
        self._status = status
        self._begun = time.monotonic()
        (self._container,) = worker.specification["containers"]
        self._policy = worker.specification.get("restartPolicy", "Always")
        self._deadline = float(worker.specification.get("activeDeadlineSeconds", "inf"))

    def run(self) -> None:
        self._worker.tell(self._status.report("Pending", ready=False))
        if not self._initialize():
            return
        while True:
            self._pod.start_main()
            self._status.runs()
            ended = self._attend()
            if ended is None:
                self._worker.tell(self._status.report("Running", ready=False))
                self._worker.end(self._pod)
                self._finish(self._pod.wait(1.0))
                return
            self._status.ended(ended)
            if self._policy == "Never" or (self._policy == "OnFailure" and ended == 0):
                self._finish(ended)
                return
            self._worker.tell(self._status.report("Running", ready=False))
            if self._worker.rest(RESTART_SECONDS):
                return

    def _finish(self, code: int, reason: str = "") -> None:
        self._status.ended(code)
        self._worker.tell(self._status.report("Failed" if code else "Succeeded", ready=False, reason=reason))

    def _initialize(self) -> bool:
        """Run the init containers; whether all ended well, and the pod is still wanted."""
        for number, container in enumerate(self._worker.specification.get("initContainers", [])):
            while not self._worker.deleted:
                try:
                    code = self._pod.run_init(container)
                except subprocess.TimeoutExpired:
                    self._pod.kill()
                    code = 137
                self._status.init_ended(number, code)
                if code == 0:
                    break
                if self._policy == "Never":
                    self._finish(code)
                    return False
                self._worker.tell(self._status.report("Pending", ready=False))
                self._worker.rest(RESTART_SECONDS)
        return not self._worker.deleted

    def _attend(self) -> int | None:
        """Ask the probes until the container ends, which gives its exit code; None if the pod is deleted before."""
        now = time.monotonic()
        startup, liveness, readiness = (
            Probe(name, self._container, now) for name in ("startupProbe", "livenessProbe", "readinessProbe")
        )
        while not self._worker.deleted:
            if not self._pod.running():
                return self._pod.wait(1.0)
            if time.monotonic() - self._begun > self._deadline:
                self._pod.kill()
                continue
            for probe in (liveness, readiness) if startup.passed else (startup,):
                if probe.is_due(time.monotonic()):
                    probe.found(self._pod.passes(probe.name), time.monotonic())
            if startup.failed or (startup.passed and liveness.failed):
                self._worker.complaints.append(f"{self._pod.name} was not alive\n{self._pod.log()}")
                self._pod.kill()
                continue
            self._status.started = startup.passed
            self._pod.ready = startup.passed and readiness.passed
            self._worker.tell(self._status.report("Running", ready=self._pod.ready))
            self._worker.rest(TURN_SECONDS)
        self._pod.ready = False
        return None
