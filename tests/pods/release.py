"""A release of the chart, carried out: its pods with names, volumes and jobs, and the rolls of its StatefulSets."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from tests.pods.network import Network
from tests.pods.pod import NO_IMAGES, WAIT_SECONDS, Pod, PodError

Manifest = dict[str, Any]

NAMESPACE: Final = "ids"
GROUP: Final = 10001
JOB_SECONDS: Final = 120.0
PROBE_SECONDS: Final = 0.5
_INDEX: Final = "apps.kubernetes.io/pod-index"
_JOB: Final = "batch.kubernetes.io/controller-uid"


class Release:
    """The manifests of one render, as pods.

    `secrets`: the entries of each Secret by its name. `directory`: what the nodes keep. `images`: as of a pod.
    """

    def __init__(
        self,
        manifests: Iterable[Manifest],
        secrets: Mapping[str, Mapping[str, str]],
        directory: Path,
        network: Network,
        images: Mapping[str, Path] = NO_IMAGES,
    ) -> None:
        self._directory = directory
        self._images = images
        self._network = network
        self._objects: dict[tuple[str, str], Path] = {}
        for name, entries in secrets.items():
            self._objects["Secret", name] = self._written("Secret", name, entries)
        self.pods: dict[str, Pod] = {}
        self._starts = 0
        self.apply(manifests)

    def apply(self, manifests: Iterable[Manifest]) -> None:
        """Take the manifests for what is wanted from now on; pods change with the next roll."""
        self._manifests = {(one["kind"], one["metadata"]["name"]): one for one in manifests}
        for (kind, name), one in self._manifests.items():
            if kind == "ConfigMap":
                self._objects[kind, name] = self._written(kind, name, one["data"])

    def install(self) -> None:
        """Start the pods of all StatefulSets, all at once, found the quorum, and wait until all are ready.

        Raises PodError.
        """
        for stateful_set in self._of("StatefulSet"):
            for ordinal in self.ordinals(stateful_set):
                self._start(stateful_set, ordinal)
        for job in self._of("Job"):
            self.run_job(job)
        for pod in self.pods.values():
            pod.wait_ready()
            self.tell_names()

    def run_job(self, job: Manifest) -> str:
        """Run a Job, or a Pod that ends, to its end; returns its log. Raises PodError."""
        template = job["spec"]["template"] if job["kind"] == "Job" else job
        labels = {**template["metadata"]["labels"], _JOB: str(uuid.uuid4())}
        pod = self._pod(f"{job['metadata']['name']}-{self._starts}", template["spec"], labels, {})
        self.pods[pod.name] = pod
        self.tell_names()
        try:
            pod.start()
            if (code := pod.wait(JOB_SECONDS)) != 0:
                raise PodError(f"{pod.name} ended with {code}\n{pod.log()}")
            return pod.log()
        finally:
            pod.kill()
            del self.pods[pod.name]

    def upgrade(self, manifests: Iterable[Manifest]) -> str:
        """What `helm upgrade` does: run its hook, and only then take the manifests for what is wanted.

        Returns the hook's log. Raises PodError, and nothing has changed, if it refuses.
        """
        wanted = list(manifests)
        (hook,) = [one for one in wanted if "pre-upgrade" in str(one["metadata"].get("annotations"))]
        log = self.run_job(hook)
        self.apply(one for one in wanted if one is not hook)
        return log

    def test(self) -> str:
        """What `helm test` does; returns the log. Raises PodError."""
        (pod,) = self._of("Pod")
        return self.run_job(pod)

    def roll(self, name: str) -> dict[str, float]:
        """Replace the pods of a StatefulSet as its controller does; returns the seconds that each took to end.

        From the highest ordinal down, each once the one before has been ready for long enough. Raises PodError.
        """
        stateful_set = self._manifests["StatefulSet", name]
        took = {}
        for ordinal in reversed(self.ordinals(stateful_set)):
            pod = self.pods[f"{name}-{ordinal}"]
            pod.ready = False
            self.tell_names()
            took[pod.name] = pod.delete()
            pod.forget()
            self._start(stateful_set, ordinal).wait_ready()
            self.tell_names()
            self._stays_ready(self.pods[pod.name], float(stateful_set["spec"].get("minReadySeconds", 0)))
        return took

    def tell_names(self) -> None:
        """Who is found under which name: by the rules of Services, as far as the chart has them."""
        addresses: dict[str, str] = {}
        for service in self._of("Service"):
            spec, name = service["spec"], service["metadata"]["name"]
            selected = [pod for pod in self.pods.values() if spec["selector"].items() <= pod.labels.items()]
            found = [pod for pod in selected if pod.ready or spec.get("publishNotReadyAddresses", False)]
            if spec.get("clusterIP") == "None":
                addresses |= {f"{pod.name}.{name}.{NAMESPACE}.svc": pod.address for pod in found}
            elif found:
                addresses[f"{name}.{NAMESPACE}.svc"] = found[self._starts % len(found)].address
        self._network.tell_names([pod.hosts for pod in self.pods.values()], addresses)

    def stop(self) -> None:
        """End all pods at once."""
        for pod in self.pods.values():
            pod.kill()

    def named(self, component: str) -> list[Pod]:
        """The pods of a component, by their ordinals."""
        label = "app.kubernetes.io/component"
        return [pod for _, pod in sorted(self.pods.items()) if pod.labels[label] == component]

    @staticmethod
    def ordinals(stateful_set: Manifest) -> range:
        first = stateful_set["spec"].get("ordinals", {}).get("start", 0)
        return range(first, first + stateful_set["spec"]["replicas"])

    def _of(self, kind: str) -> list[Manifest]:
        return [one for (each, _), one in self._manifests.items() if each == kind]

    def _start(self, stateful_set: Manifest, ordinal: int) -> Pod:
        name, template = f"{stateful_set['metadata']['name']}-{ordinal}", stateful_set["spec"]["template"]
        labels = {**template["metadata"]["labels"], _INDEX: str(ordinal)}
        claims = {}
        for claim in stateful_set["spec"].get("volumeClaimTemplates", []):
            volume = self._directory / "volumes" / f"{claim['metadata']['name']}-{name}"
            volume.mkdir(parents=True, exist_ok=True)
            os.chown(volume, -1, GROUP)
            volume.chmod(0o2770)
            claims[claim["metadata"]["name"]] = volume
        self.pods[name] = pod = self._pod(name, template["spec"], labels, claims)
        self.tell_names()
        pod.start()
        return pod

    def _pod(self, name: str, specification: Manifest, labels: Mapping[str, str], claims: Mapping[str, Path]) -> Pod:
        self._starts += 1
        directory = self._directory / "pods" / f"{self._starts}-{name}"
        return Pod(
            name,
            specification,
            labels,
            network=self._network,
            objects=self._objects,
            claims=claims,
            directory=directory,
            images=self._images,
        )

    def _stays_ready(self, pod: Pod, seconds: float) -> None:
        """As `minReadySeconds` has it: whoever is not ready in between begins again."""
        end = time.monotonic() + seconds
        give_up = end + WAIT_SECONDS
        while time.monotonic() < end:
            time.sleep(PROBE_SECONDS)
            if not pod.is_ready():
                pod.wait_ready()
                end = time.monotonic() + seconds
            if time.monotonic() > give_up:
                raise PodError(f"{pod.name} does not stay ready for {seconds:g} s\n{pod.log()}")

    def _written(self, kind: str, name: str, entries: Mapping[str, str]) -> Path:
        """Files as a kubelet makes them: owned by root, readable for the group of the pod."""
        directory = self._directory / kind / name
        directory.mkdir(parents=True, exist_ok=True)
        for entry, text in entries.items():
            file = directory / entry
            file.write_text(text)
            os.chown(file, 0, GROUP)
            file.chmod(0o440)
        return directory
