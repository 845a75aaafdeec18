"""What a node says of a pod (Kubernetes API, PodStatus): built here, sent by the worker."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

Manifest = dict[str, Any]


def now() -> str:
    """A time as the API writes it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class PodStatus:
    """The status of one pod with one container; `restarts` counts the lives of that container after its first."""

    def __init__(self, manifest: Manifest, address: str) -> None:
        (container,) = manifest["spec"]["containers"]
        self._container = container
        self._inits: list[Manifest] = manifest["spec"].get("initContainers", [])
        self._codes: dict[int, int] = {}
        self._address = address
        self._started = now()
        self._ready_since: tuple[bool, str] = (False, self._started)
        self.restarts = 0
        self.state: Manifest = {"waiting": {"reason": "PodInitializing"}}
        self._last: Manifest = {}
        self.started = False

    def init_ended(self, number: int, code: int) -> None:
        """So the init container with this number ended."""
        self._codes[number] = code

    def runs(self) -> None:
        """The container was started."""
        if self.state.keys() == {"terminated"}:
            self._last, self.restarts = self.state, self.restarts + 1
        self.state = {"running": {"startedAt": now()}}
        self.started = False

    def ended(self, code: int) -> None:
        self.state = {"terminated": {"exitCode": code, "finishedAt": now(), "reason": "Error" if code else "Completed"}}
        self.started = False

    def report(self, phase: str, *, ready: bool, reason: str = "") -> Manifest:
        """The body of a patch: `phase` is Pending, Running, Succeeded or Failed."""
        if ready != self._ready_since[0]:
            self._ready_since = (ready, now())
        initialized = all(self._codes.get(number) == 0 for number in range(len(self._inits)))
        status: Manifest = {
            "phase": phase,
            "startTime": self._started,
            "podIP": self._address,
            "podIPs": [{"ip": self._address}],
            "conditions": [
                self._condition("Initialized", initialized, self._started),
                self._condition("ContainersReady", *self._ready_since),
                self._condition("Ready", *self._ready_since),
            ],
            "containerStatuses": [self._container_status(ready=ready)],
            "initContainerStatuses": [self._init_status(number) for number in range(len(self._inits))],
        }
        return {"status": status | ({"reason": reason} if reason else {})}

    def _container_status(self, *, ready: bool) -> Manifest:
        return {
            "name": self._container["name"],
            "image": self._container["image"],
            "imageID": self._container["image"],
            "ready": ready,
            "started": self.started,
            "restartCount": self.restarts,
            "state": self.state,
            "lastState": self._last,
        }

    def _init_status(self, number: int) -> Manifest:
        container = self._inits[number]
        state: Manifest = {"waiting": {"reason": "PodInitializing"}}
        if number in self._codes:
            state = {"terminated": {"exitCode": self._codes[number]}}
        return {
            "name": container["name"],
            "image": container["image"],
            "imageID": container["image"],
            "ready": state.get("terminated", {}).get("exitCode") == 0,
            "restartCount": 0,
            "state": state,
        }

    @staticmethod
    def _condition(kind: str, holds: bool, since: str) -> Manifest:
        return {"type": kind, "status": str(holds), "lastTransitionTime": since}
