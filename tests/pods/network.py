"""The network between pods: a bridge in a network namespace of the run's own, an address for each start, and names."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Iterable, Mapping
from ipaddress import IPv4Address
from pathlib import Path
from typing import Final

BRIDGE: Final = "pods"
BRIDGE_ADDRESS: Final = "02:00:00:00:00:01"
FIRST: Final = IPv4Address("10.244.0.1")
"""Of whoever asks the pods: the machine that they run on."""


def run_ip(*words: str) -> None:
    """One command of iproute2. Raises CalledProcessError."""
    subprocess.run(("ip", *words), check=True, capture_output=True, text=True, timeout=10)


class Network:
    """Gives addresses, connects namespaces, and keeps the files that stand in for the cluster's DNS."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._given = 0
        self._connected = 0
        # One that is not given an address takes the least of its ports': another one with a pod that comes or goes, and
        # for seconds nobody's answer finds whoever asks the pods.
        run_ip("link", "add", BRIDGE, "address", BRIDGE_ADDRESS, "type", "bridge")
        run_ip("address", "add", f"{FIRST}/16", "dev", BRIDGE)
        run_ip("link", "set", BRIDGE, "up")

    def address(self) -> str:
        """One that nobody had yet: a pod that starts again is found by its name alone."""
        with self._lock:
            self._given += 1
            return str(FIRST + self._given)

    def connect(self, process: int) -> None:
        """Put a device into the network of a process, at this bridge."""
        with self._lock:
            self._connected += 1
            near = f"pod{self._connected}"
        run_ip("link", "add", near, "type", "veth", "peer", "name", "eth0", "netns", str(process))
        run_ip("link", "set", near, "master", BRIDGE, "up")

    def tell_names(self, files: Iterable[Path], addresses: Mapping[str, str]) -> None:
        """Write who has which name into each pod's hosts file, in place: it is mounted as the file that it is.

        By one call, and never shorter than before: whoever met half of it would look for the rest of the names at a
        server that does not exist here, for ten seconds.
        """
        lines = ["127.0.0.1 localhost", *(f"{address} {name}" for name, address in sorted(addresses.items()))]
        text = ("\n".join(lines) + "\n").encode()
        for file in files:
            with file.open("r+b", buffering=0) as hosts:
                hosts.write(text.ljust(os.fstat(hosts.fileno()).st_size, b"\n"))
