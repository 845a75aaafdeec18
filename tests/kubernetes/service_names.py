"""What the cluster's DNS and kube-proxy do: names of Services, in a file that each pod has as its /etc/hosts.

A headless Service has a name for each of its pods. The name of another one leads to one of its ready pods, a different
one for each who asks, where a cluster would have an address that is routed to any of them.
"""

from __future__ import annotations

import threading
from pathlib import Path

from tests.kubernetes.api import Api, Manifest, in_namespace
from tests.pods.network import Network


class ServiceNames:
    """Follows the endpoints of one namespace, and keeps the files."""

    def __init__(self, api: Api, network: Network, namespace: str) -> None:
        self._api = api
        self._network = network
        self._namespace = namespace
        self._end = threading.Event()
        self._lock = threading.Lock()
        self._slices: dict[str, Manifest] = {}
        self._files: list[Path] = []

    def start(self) -> None:
        threading.Thread(target=self._watch, daemon=True).start()

    def stop(self) -> None:
        self._end.set()

    def tell_also(self, hosts: Path) -> None:
        """Keep one more file."""
        with self._lock:
            self._files.append(hosts)
            self._write()

    def forget(self, hosts: Path) -> None:
        with self._lock:
            if hosts in self._files:
                self._files.remove(hosts)

    def ready(self, service: str) -> list[str]:
        """The addresses of a Service's pods that are ready."""
        with self._lock:
            return self._ready().get(service, [])

    def _watch(self) -> None:
        path = in_namespace("EndpointSlice", self._namespace, version="discovery.k8s.io/v1")
        for event, one in self._api.watch(path, self._end):
            with self._lock:
                if event == "DELETED":
                    self._slices.pop(one["metadata"]["name"], None)
                else:
                    self._slices[one["metadata"]["name"]] = one
                self._write()

    def _ready(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for service, endpoint in self._endpoints():
            if endpoint["conditions"].get("ready", True):
                found.setdefault(service, []).extend(endpoint["addresses"])
        return found

    def _endpoints(self) -> list[tuple[str, Manifest]]:
        return [
            (one["metadata"]["labels"]["kubernetes.io/service-name"], endpoint)
            for _, one in sorted(self._slices.items())
            for endpoint in one.get("endpoints") or []
        ]

    def _write(self) -> None:
        suffix = f"{self._namespace}.svc"
        named = {
            f"{endpoint['hostname']}.{service}.{suffix}": endpoint["addresses"][0]
            for service, endpoint in self._endpoints()
            if "hostname" in endpoint and endpoint["conditions"].get("ready", True)
        }
        ready = self._ready()
        for number, file in enumerate(self._files):
            routed = {f"{service}.{suffix}": found[number % len(found)] for service, found in ready.items()}
            self._network.tell_names([file], named | routed)
