"""One pod: its containers started as the specification says, asked by its probes, and ended as a kubelet ends them."""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import shutil
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import msgspec

from tests.pods import image
from tests.pods.launch import Container, Mount
from tests.pods.network import Network

Manifest = dict[str, Any]

_UNSHARE: Final = (
    *("unshare", "--net", "--mount", "--pid", "--uts", "--ipc", "--fork", "--kill-child"),
    *("--propagation", "private"),
)
_REFERENCE: Final = re.compile(r"\$\(([A-Za-z_][A-Za-z0-9_]*)\)")
INIT_SECONDS: Final = 60.0
WAIT_SECONDS: Final = 120.0
NO_IMAGES: Final[Mapping[str, Path]] = MappingProxyType({})


class PodError(Exception):
    """A pod did what it must not: its message says what, and has the end of its log."""


class Pod:
    """A pod by its specification.

    `objects`: the ConfigMaps and Secrets of its namespace by kind and name, as directories. `claims`: those of its
    volumes that last longer, by the name of the claim, or of its template. `directory`: what a node keeps of the pod,
    with its log, for one life. `images`: the project's folder in those that are of other builds than this, by name.
    """

    def __init__(
        self,
        name: str,
        specification: Manifest,
        labels: Mapping[str, str],
        *,
        network: Network,
        objects: Mapping[tuple[str, str], Path],
        claims: Mapping[str, Path],
        directory: Path,
        node: str = "",
        images: Mapping[str, Path] = NO_IMAGES,
    ) -> None:
        self.name = name
        self.node = node
        self.specification = specification
        self.labels = labels
        self.address = network.address()
        self.ready = False
        self.hosts = directory / "hosts"
        self._network = network
        self._objects = objects
        self._claims = claims
        self._directory = directory
        self._images = images
        self._process: subprocess.Popen[bytes] | None = None
        self._lives = 0
        directory.mkdir(parents=True)
        self.hosts.touch()

    def start(self) -> None:
        """Run the init containers to their ends, and start the container. Raises PodError."""
        for container in self.specification.get("initContainers", []):
            if (code := self.run_init(container)) != 0:
                raise PodError(f"{self.name}: init container {container['name']} ended with {code}\n{self.log()}")
        self.start_main()

    def run_init(self, container: Manifest) -> int:
        """Run an init container to its end; its exit code. Raises TimeoutExpired."""
        self._process = self._launch(container)
        return self._process.wait(INIT_SECONDS)

    def start_main(self) -> None:
        """Start the container, again if it ended."""
        (container,) = self.specification["containers"]
        self._process = self._launch(container)

    def passes(self, probe: str) -> bool:
        """What a probe finds now, by its name; true if there is none of that name."""
        (container,) = self.specification["containers"]
        return probe not in container or self._asked(container[probe], container)

    def wait_ready(self, seconds: float = WAIT_SECONDS) -> None:
        """Ask the startup probe, and then the readiness probe, in their periods. Raises PodError."""
        (container,) = self.specification["containers"]
        for probe in (container["startupProbe"], container["readinessProbe"]):
            self._probe_until_good(probe, container, seconds)
        self.ready = True

    def is_ready(self) -> bool:
        """What the readiness probe finds now."""
        self.ready = self.passes("readinessProbe")
        return self.ready

    def wait(self, seconds: float) -> int:
        """The exit code of a pod that ends by itself. Raises TimeoutExpired."""
        assert self._process is not None
        return self._process.wait(seconds)

    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def delete(self) -> float:
        """End it as a kubelet does: SIGTERM, and SIGKILL after the grace. Returns the seconds it took.

        Raises PodError if it had to be killed.
        """
        self.ready = False
        assert self._process is not None
        begun = time.monotonic()
        grace = float(self.specification["terminationGracePeriodSeconds"])
        self._signal(signal.SIGTERM)
        try:
            self._process.wait(grace)
        except subprocess.TimeoutExpired:
            self.kill()
            raise PodError(f"{self.name} did not end within {grace:g} s of grace\n{self.log()}") from None
        return time.monotonic() - begun

    def kill(self) -> None:
        """End it at once, as a node that is lost does."""
        self.ready = False
        if self._process is not None and self._process.poll() is None:
            self._signal(signal.SIGKILL)
            self._process.wait()

    def peak_memory(self) -> int:
        """The most memory that the container's first process has had, in bytes; 0 if it is gone."""
        for child in self._children():
            with contextlib.suppress(OSError):
                status = Path(f"/proc/{child}/status").read_text()
                return 1024 * int(status.partition("VmHWM:")[2].split()[0])
        return 0

    def log(self, lines: int = 40) -> str:
        return "\n".join((self._directory / "log").read_text(errors="replace").splitlines()[-lines:])

    def _launch(self, container: Manifest) -> subprocess.Popen[bytes]:
        self._lives += 1
        root = self._directory / f"root-{self._lives}"
        root.mkdir()
        security = self.specification["securityContext"]
        variables = self._environment(container)
        package = self._images.get(container.get("image", ""), image.ROOT)
        spec = Container(
            root=str(root),
            host=self.name,
            address=self.address,
            mounts=[*image.mounts(package), Mount(str(self.hosts), "/etc/hosts"), *self._mounts(container)],
            command=self._command(container, variables),
            environment=variables,
            user=security["runAsUser"],
            group=security["runAsGroup"],
            directory=image.DIRECTORY,
        )
        file = self._directory / f"container-{self._lives}.json"
        file.write_bytes(msgspec.json.encode(spec))
        with (self._directory / "log").open("ab") as log:
            process = subprocess.Popen(
                (*_UNSHARE, sys.executable, "-m", "tests.pods.launch", str(file)),
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                cwd=image.ROOT,
            )
        _await(lambda: _network_of(process.pid) != _network_of("self"), 10.0, f"a network for {self.name}")
        self._network.connect(process.pid)
        assert process.stdin is not None
        process.stdin.write(b"go\n")
        process.stdin.close()
        return process

    def _command(self, container: Manifest, variables: Mapping[str, str]) -> list[str]:
        command = container.get("command", image.entrypoint())
        return [_REFERENCE.sub(lambda one: variables[one[1]], word) for word in [*command, *container.get("args", [])]]

    def _environment(self, container: Manifest) -> dict[str, str]:
        fields = {"metadata.name": self.name, "spec.nodeName": self.node, "status.podIP": self.address}
        fields |= {f"metadata.labels['{key}']": value for key, value in self.labels.items()}
        variables = image.environment()
        for entry in container.get("env", []):
            value = entry["value"] if "value" in entry else fields[entry["valueFrom"]["fieldRef"]["fieldPath"]]
            variables[entry["name"]] = _REFERENCE.sub(lambda one: variables.get(one[1], one[0]), value)
        return variables

    def _mounts(self, container: Manifest) -> list[Mount]:
        volumes = {one["name"]: one for one in self.specification["volumes"]}
        found = []
        for mount in container["volumeMounts"]:
            read_only = bool(mount.get("readOnly", False))
            found.append(Mount(self._source(mount["name"], volumes.get(mount["name"])), mount["mountPath"], read_only))
        return found

    def _source(self, name: str, volume: Manifest | None) -> str:
        if volume is None:
            return str(self._claims[name])
        if "persistentVolumeClaim" in volume:
            return str(self._claims[volume["persistentVolumeClaim"]["claimName"]])
        if "emptyDir" in volume:
            return ""
        if "hostPath" in volume:
            return str(volume["hostPath"]["path"])
        if "configMap" in volume:
            return str(self._objects["ConfigMap", volume["configMap"]["name"]])
        return str(self._objects["Secret", volume["secret"]["secretName"]])

    def _probe_until_good(self, probe: Manifest, container: Manifest, seconds: float) -> None:
        end = time.monotonic() + seconds
        while not self._asked(probe, container):
            if not self.running():
                raise PodError(f"{self.name} ended\n{self.log()}")
            if time.monotonic() > end:
                raise PodError(
                    f"{self.name}: {probe['httpGet']['path']} was not good within {seconds:g} s\n{self.log()}"
                )
            time.sleep(min(probe["periodSeconds"], 0.5))

    def _asked(self, probe: Manifest, container: Manifest) -> bool:
        get = probe["httpGet"]
        port = next(one["containerPort"] for one in container["ports"] if one["name"] == get["port"])
        timeout = float(probe.get("timeoutSeconds", 1))
        if get.get("scheme") == "HTTPS":  # A kubelet looks at no certificate.
            blind = ssl.create_default_context()
            blind.check_hostname, blind.verify_mode = False, ssl.CERT_NONE
            connection: http.client.HTTPConnection = http.client.HTTPSConnection(
                self.address, port, timeout=timeout, context=blind
            )
        else:
            connection = http.client.HTTPConnection(self.address, port, timeout=timeout)
        try:
            connection.request("GET", get["path"])
            return 200 <= connection.getresponse().status < 400
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def _signal(self, number: int) -> None:
        """To the container's first process: signals to `unshare` itself would end it alone."""
        for child in self._children():
            with contextlib.suppress(ProcessLookupError):  # It ended by itself meanwhile.
                os.kill(child, number)

    def _children(self) -> list[int]:
        assert self._process is not None
        pid = self._process.pid
        try:
            return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
        except (FileNotFoundError, ProcessLookupError):
            return []

    def forget(self) -> None:
        """Remove what the node keeps of it. Its namespaces, and what was mounted in them, went with its processes."""
        shutil.rmtree(self._directory, ignore_errors=True)


def _network_of(process: int | str) -> str:
    try:
        return str(Path(f"/proc/{process}/ns/net").readlink())
    except OSError:
        return "gone"


def _await(condition: Callable[[], bool], seconds: float, what: str) -> None:
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise PodError(f"not within {seconds:g} s: {what}")
        time.sleep(0.005)
