"""`python -m tests.pods.composed DIRECTORY`: what deploy/compose.yaml runs, as processes, founded twice, and asked.

Prints one JSON document: the exit codes of what ends by itself, and an ID of each agent.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import yaml

from tests.pods import image
from tests.pods.load import claim, connect
from tests.pods.namespaces import enter
from tests.pods.network import Network
from tests.pods.pod import Pod, PodError

COMPOSE: Final = image.ROOT / "deploy" / "compose.yaml"
USER: Final = 10001
"""The Dockerfile's USER."""
READY_SECONDS: Final = 60.0
ENDS_SECONDS: Final = 90.0

Service = dict[str, Any]


class Composition:
    """The services that run our image, each a pod: with a key, named volumes, and each other as hosts."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._network = Network()
        self._file: dict[str, Any] = yaml.safe_load(COMPOSE.read_text())
        self._key = directory / "peer-key"
        self._key.write_text("the key of the members of a test\n")
        self._starts = 0
        self.pods: dict[str, Pod] = {}
        self.services: dict[str, Service] = {
            name: one for name, one in self._file["services"].items() if str(one["image"]).startswith("pidkeeper:")
        }

    def start(self, name: str) -> Pod:
        """Begin one service, whatever it depends on."""
        service = self.services[name]
        self._starts += 1
        claims = {volume: self._claimed(volume) for volume in self._file["volumes"] if volume.startswith("controller")}
        self.pods[name] = pod = Pod(
            name,
            self._specification(service),
            {},
            network=self._network,
            objects={},
            claims=claims,
            directory=self._directory / f"{self._starts}-{name}",
        )
        addresses = {one.name: one.address for one in self.pods.values()}
        self._network.tell_names([one.hosts for one in self.pods.values()], addresses)
        pod.start()
        return pod

    def ends(self, name: str) -> int:
        """Run one service to its end; the exit code."""
        code = self.start(name).wait(ENDS_SECONDS)
        del self.pods[name]
        return code

    def ready(self, name: str) -> None:
        """Wait until what the healthcheck asks for is good. Raises PodError."""
        end = time.monotonic() + READY_SECONDS
        while True:
            connection = connect(self.pods[name].address, None)
            try:
                connection.request("GET", "/readyz")
                if connection.getresponse().status == 200:
                    return
            except OSError:
                pass
            finally:
                connection.close()
            if time.monotonic() > end:
                raise PodError(f"{name} was not ready within {READY_SECONDS:g} s\n{self.pods[name].log()}")
            time.sleep(0.1)

    def _specification(self, service: Service) -> Service:
        mounts = list(self._mounts(service))
        return {
            "terminationGracePeriodSeconds": 30,
            "securityContext": {"runAsUser": USER, "runAsGroup": USER},
            "volumes": [volume for _, volume in mounts if volume is not None],
            "containers": [
                {
                    "name": "service",
                    "args": service["command"],
                    "env": [{"name": name, "value": value} for name, value in service.get("environment", {}).items()],
                    "volumeMounts": [mount for mount, _ in mounts],
                }
            ],
        }

    def _mounts(self, service: Service) -> Iterator[tuple[Service, Service | None]]:
        """Each mount, with its volume unless it is a claim."""
        for number, one in enumerate(service.get("volumes", [])):
            source, target, *options = one.split(":")
            mount = {"name": source, "mountPath": target, "readOnly": options == ["ro"]}
            if source in self._file["volumes"]:
                yield mount, None
                continue
            mount["name"] = f"file-{number}"
            yield mount, {"name": mount["name"], "hostPath": {"path": str(COMPOSE.parent / source)}}
        for secret in service.get("secrets", []):
            mount = {"name": secret, "mountPath": f"/run/secrets/{secret}", "readOnly": True}
            yield mount, {"name": secret, "hostPath": {"path": str(self._key)}}
        for target in service["tmpfs"]:
            yield {"name": "tmpfs", "mountPath": target}, {"name": "tmpfs", "emptyDir": {}}

    def _claimed(self, volume: str) -> Path:
        """A named volume: owned as the directory of the image is on which it is first mounted."""
        directory = self._directory / volume
        directory.mkdir(exist_ok=True)
        os.chown(directory, USER, USER)
        directory.chmod(0o750)
        return directory


def main(directory: Path) -> None:
    composition = Composition(directory)
    members = [name for name in composition.services if name.startswith("controller-")]
    agents = [name for name in composition.services if name.startswith("agent-")]
    codes = {f"format-{name[-1]}": composition.ends(f"format-{name[-1]}") for name in members}
    for name in (*members, *agents):
        composition.start(name)
    codes["found"] = composition.ends("found")
    for name in (*members, *agents):
        composition.ready(name)
    codes["found again"] = composition.ends("found")
    composition.pods.pop("controller-1").delete()
    codes["format again"] = composition.ends("format-1")
    ids = {name: json.loads(claim(connect(composition.pods[name].address, None))[1])["producer_id"] for name in agents}
    print(json.dumps({"codes": codes, "ids": ids}))


if __name__ == "__main__":
    if (reason := enter()) is not None:
        sys.exit(f"no pods: {reason}")
    main(Path(sys.argv[1]))
