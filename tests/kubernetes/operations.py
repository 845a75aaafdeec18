"""What is done to a release on the cluster, one after the other, while callers claim IDs; each says what came of it."""

from __future__ import annotations

import time
from functools import partial
from typing import Any, Final

from tests.kubernetes.api import NODES, ApiError, Manifest, in_namespace
from tests.kubernetes.cluster import NAMESPACE, Cluster, until
from tests.pods.load import quorum

READY_SECONDS: Final = 240.0
DRAIN_SECONDS: Final = 300.0
CONTROLLERS: Final = "pidkeeper-controller"
AGENTS: Final = "pidkeeper-agent"
MARGIN: Final = 1_000_000
"""IDs to skip where a quorum is recovered."""


class OperationError(Exception):
    """Something that must succeed was refused, or the other way round; the message has what was said."""


class Operations:
    """`values`: the options of helm that every upgrade has."""

    def __init__(self, cluster: Cluster, values: list[str]) -> None:
        self._cluster = cluster
        self._api = cluster.api
        self._values = values
        self._upgrades = 0

    def install(self) -> dict[str, Any]:
        """`helm install`; the seconds until all pods were ready."""
        begun = time.monotonic()
        self._must("install", *self._values, "--wait", f"--timeout={READY_SECONDS:g}s")
        self._settle()
        return {"seconds": round(time.monotonic() - begun, 1)}

    def test(self) -> dict[str, Any]:
        """`helm test`, which must succeed."""
        done = self._cluster.helm("test", "pidkeeper")
        if done.returncode != 0:
            raise OperationError(done.stdout + done.stderr)
        return {}

    def roll(self) -> dict[str, Any]:
        """An upgrade that restarts all controllers and agents; the moves of the leader."""
        self._upgrades += 1
        before, begun = self._term(), time.monotonic()
        self._must(
            "upgrade",
            *self._values,
            f"--set=controller.settings.transaction_abort_check_ms={10_000 + self._upgrades}",
            f"--set=agent.settings.min_reserve_ids={100_000 + self._upgrades}",
        )
        self._settle()
        return {"moves": self._term() - before, "seconds": round(time.monotonic() - begun, 1)}

    def refused_upgrade(self) -> dict[str, Any]:
        """An upgrade to fewer controllers than vote; nothing may come of it."""
        before = self._cluster.stateful_set(CONTROLLERS)["metadata"]["generation"]
        done = self._cluster.put("upgrade", *self._values, "--set=controller.replicas=1")
        if done.returncode == 0:
            raise OperationError("an upgrade to one controller was not refused")
        changed = self._cluster.stateful_set(CONTROLLERS)["metadata"]["generation"] != before
        return {"changed": changed, "said": done.stderr.strip()[-300:]}

    def drain(self) -> dict[str, Any]:
        """Two nodes with a controller each are drained at once; how often the budget said: not now."""
        controllers = self._cluster.pods("controller")
        nodes = [pod["spec"]["nodeName"] for pod in controllers[:2]]
        for node in nodes:
            self._api.merge(f"{NODES}/{node}", {"spec": {"unschedulable": True}})
        refusals, lowest = 0, len(controllers)
        end = time.monotonic() + DRAIN_SECONDS
        while pods := self._on(nodes):
            for pod in pods:
                refusals += not self._evict(pod)
            lowest = min(lowest, sum(map(_is_ready, self._cluster.pods("controller"))))
            if time.monotonic() > end:
                raise OperationError(f"not drained: {[pod['metadata']['name'] for pod in pods]}")
            time.sleep(0.5)
        for node in nodes:
            self._api.merge(f"{NODES}/{node}", {"spec": {"unschedulable": False}})
        self._settle()
        return {"refusals": refusals, "fewest controllers ready": lowest}

    def lose_pod(self) -> dict[str, Any]:
        """The process of the leader's pod is killed; the seconds until it was ready again."""
        name = f"{CONTROLLERS}-{self._leader()}"
        pod = self._cluster.kubelets.worker(name).pod
        assert pod is not None
        pod.kill()
        until(lambda: not self._ready(name), 30.0, f"{name} is not ready")
        return {"seconds": round(until(lambda: self._ready(name), READY_SECONDS, f"{name} is ready again"), 1)}

    def lose_volume(self) -> dict[str, Any]:
        """A controller's volume is gone, and it gets another one; the seconds until it was ready."""
        number = next(one for one in (3, 2) if one != self._leader())
        name, claim = f"{CONTROLLERS}-{number}", f"data-{CONTROLLERS}-{number}"
        path = in_namespace("PersistentVolumeClaim", NAMESPACE, claim)
        lost = self._api.get(path)["spec"]["volumeName"]
        self._cluster.add_volume()
        self._api.delete(path)
        self._api.delete(in_namespace("Pod", NAMESPACE, name))
        until(lambda: self._claimed(path) not in {lost, None}, 60.0, f"{claim} has another volume")
        taken = until(lambda: self._ready(name), READY_SECONDS, f"{name} is ready with another volume")
        self._settle()
        return {"seconds": round(taken, 1)}

    def scale(self, controllers: int) -> dict[str, Any]:
        """An upgrade to another number of controllers, who all vote in the end, and nobody else."""
        begun = time.monotonic()
        self._values = [*self._values, f"--set=controller.replicas={controllers}"]
        self._must("upgrade", *self._values, "--set=controller.resize=true")
        until(lambda: len(self._voters()) == controllers, READY_SECONDS, f"{controllers} voters")
        self._settle()
        return {"voters": self._voters(), "seconds": round(time.monotonic() - begun, 1)}

    def roll_back(self, controllers: int) -> dict[str, Any]:
        """`helm rollback` to the revision before, which had so many controllers."""
        done = self._cluster.helm("rollback", "pidkeeper")
        if done.returncode != 0:
            raise OperationError(done.stderr)
        self._values = [*self._values, f"--set=controller.replicas={controllers}"]
        until(lambda: len(self._voters()) == controllers, READY_SECONDS, f"{controllers} voters")
        self._settle()
        return {"voters": self._voters()}

    def grow_volumes(self, size: str) -> dict[str, Any]:
        """More room for each controller, as docs/operations.md has it; no pod may be restarted for it.

        `refused`: what is said to an upgrade that does no more than ask for it.
        """
        before, wanted = self._uids(), f"--set=controller.storage.size={size}"
        alone = self._cluster.put("upgrade", *self._values, wanted)
        if alone.returncode == 0:
            raise OperationError("the API server takes another size in the template of claims")
        for claim in self._claims():
            # Who provisions volumes would make room. Here there is nobody, and the request is all there is to see.
            self._api.merge(claim, {"spec": {"resources": {"requests": {"storage": size}}}})
        orphaned = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Orphan"}
        self._api.delete(in_namespace("StatefulSet", NAMESPACE, CONTROLLERS, "apps/v1"), orphaned)
        until(self._is_unowned, READY_SECONDS, "pods without an owner")
        self._values = [*self._values, wanted]
        self._must("upgrade", *self._values)
        self._settle()
        asked = [self._api.get(claim)["spec"]["resources"]["requests"]["storage"] for claim in self._claims()]
        return {"asked": asked, "restarted": sorted(self._uids() - before), "refused": alone.stderr.strip()[:300]}

    def recover(self) -> dict[str, Any]:
        """All volumes but one are gone, and the quorum goes on from that one, as docs/operations.md has it.

        Before that a recovery of a member that runs is refused, and one from an ID on that was handed out.
        """
        described = quorum(self._addresses()[0])
        at_least, kept = int(described["next_producer_id"]) + MARGIN, len(described["voters"]) - 1
        refused = [self._refused_recovery(kept, at_least)]
        self._api.merge(in_namespace("StatefulSet", NAMESPACE, CONTROLLERS, "apps/v1"), {"spec": {"replicas": 0}})
        until(lambda: not self._cluster.pods("controller"), READY_SECONDS, "no controllers")
        for claim in self._claims():
            if not claim.endswith(f"-{kept}"):
                self._cluster.add_volume()
                self._api.delete(claim)
        refused.append(self._refused_recovery(kept, at_least=1))
        begun = time.monotonic()
        self._must("upgrade", *self._values, *_recovery(kept, at_least))
        self._settle()
        now = quorum(self._addresses()[0])
        return {
            "refused": refused,
            "seconds": round(time.monotonic() - begun, 1),
            "voters": self._voters(),
            "floor": now["succession"]["floor"] - at_least,
            "of": now["succession"]["predecessor"] == described["founding_id"],
        }

    def peak_memory(self) -> dict[str, int]:
        """The most memory that a pod of each component has had in its present life, in MiB."""
        found: dict[str, int] = {}
        for worker in self._cluster.kubelets.workers():
            if worker.pod is not None:
                component = worker.pod.labels["app.kubernetes.io/component"]
                found[component] = max(found.get(component, 0), worker.pod.peak_memory() >> 20)
        return found

    def uninstall(self) -> dict[str, Any]:
        """`helm uninstall`: pods go, claims stay."""
        founding = quorum(self._addresses()[0])["founding_id"]
        done = self._cluster.helm("uninstall", "pidkeeper", "--wait")
        if done.returncode != 0:
            raise OperationError(done.stderr)
        until(lambda: not self._cluster.pods("controller"), 60.0, "no controllers")
        claims = self._api.list(in_namespace("PersistentVolumeClaim", NAMESPACE))
        return {"claims": sorted(one["metadata"]["name"] for one in claims), "founding": founding}

    def reinstall(self) -> dict[str, Any]:
        """`helm install` once more, on the claims that are left: the quorum goes on, and is no new one."""
        self._must("install", *self._values, "--set=controller.found=false", "--wait", f"--timeout={READY_SECONDS:g}s")
        self._settle()
        described = quorum(self._addresses()[0])
        return {"founding": described["founding_id"], "voters": self._voters()}

    def _must(self, verb: str, *options: str) -> None:
        done = self._cluster.put(verb, *options)
        if done.returncode != 0:
            raise OperationError(f"helm {verb}: {done.stderr}")

    def _settle(self) -> None:
        for name in (CONTROLLERS, AGENTS):
            until(partial(self._cluster.is_rolled_out, name), READY_SECONDS, f"{name} is rolled out")

    def _addresses(self) -> list[str]:
        return [pod["status"]["podIP"] for pod in self._cluster.pods("controller") if _is_ready(pod)]

    def _term(self) -> int:
        return max(int(quorum(address)["term"]) for address in self._addresses())

    def _leader(self) -> int:
        return int(quorum(self._addresses()[0])["leader_id"])

    def _voters(self) -> list[int]:
        return sorted(voter["id"] for voter in quorum(self._addresses()[0])["voters"])

    def _refused_recovery(self, member: int, at_least: int) -> str:
        """What a recovery says that must not be."""
        done = self._cluster.put("upgrade", *self._values, *_recovery(member, at_least))
        if done.returncode == 0:
            raise OperationError(f"a recovery of member {member} from ID {at_least} on was not refused")
        return self._cluster.job_log("pidkeeper-recover")

    def _claims(self) -> list[str]:
        """The paths of the claims of controllers."""
        found = self._api.list(in_namespace("PersistentVolumeClaim", NAMESPACE))
        names = [str(one["metadata"]["name"]) for one in found]
        return [in_namespace("PersistentVolumeClaim", NAMESPACE, one) for one in names if CONTROLLERS in one]

    def _uids(self) -> set[str]:
        return {str(pod["metadata"]["uid"]) for pod in self._cluster.pods("controller")}

    def _is_unowned(self) -> bool:
        """Whether the StatefulSet of the controllers is gone, and its pods are nobody's."""
        return not any("ownerReferences" in pod["metadata"] for pod in self._cluster.pods("controller"))

    def _ready(self, name: str) -> bool:
        try:
            return _is_ready(self._api.get(in_namespace("Pod", NAMESPACE, name)))
        except ApiError:
            return False

    def _claimed(self, path: str) -> str | None:
        try:
            volume = self._api.get(path)["spec"].get("volumeName")
        except ApiError:
            return None
        return None if volume is None else str(volume)

    def _on(self, nodes: list[str]) -> list[Manifest]:
        found = self._api.list(in_namespace("Pod", NAMESPACE))
        return [
            pod for pod in found if pod["spec"].get("nodeName") in nodes and "phase" in pod["status"] and _lives(pod)
        ]

    def _evict(self, pod: Manifest) -> bool:
        """Ask that a pod leaves its node; whether its budget allows it now."""
        if "deletionTimestamp" in pod["metadata"]:
            return True
        name = pod["metadata"]["name"]
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": NAMESPACE}}
        try:
            self._api.create(in_namespace("Pod", NAMESPACE, name) + "/eviction", eviction)
        except ApiError as error:
            if error.status not in {404, 429}:
                raise
            return error.status == 404
        return True


def _is_ready(pod: Manifest) -> bool:
    conditions = pod["status"].get("conditions", [])
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def _recovery(member: int, at_least: int) -> list[str]:
    return [f"--set=controller.recover.member={member}", f"--set=controller.recover.atLeast={at_least}"]


def _lives(pod: Manifest) -> bool:
    return pod["status"]["phase"] not in {"Succeeded", "Failed"}
