"""`python -m tests.pods.looking_around DIRECTORY`: a pod that only tells what it sees of its container, as JSON."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Final

from tests.pods import image
from tests.pods.namespaces import enter
from tests.pods.network import Network
from tests.pods.pod import Pod

LOOK: Final = """
import ctypes, json, os, socket
from pathlib import Path

def writable(folder):
    try:
        (Path(folder) / "try").touch()
    except OSError as error:
        return error.strerror
    return "yes"

status = dict(line.split(":\\t", 1) for line in Path("/proc/self/status").read_text().splitlines())
print(json.dumps({
    "ids": [os.getuid(), os.getgid(), os.getgroups()],
    "pid": os.getpid(),
    "capabilities": [status[name] for name in ("CapEff", "CapPrm", "CapBnd")],
    "no_new_privileges": status["NoNewPrivs"],
    "host": socket.gethostname(),
    "directory": os.getcwd(),
    "root": sorted(os.listdir("/")),
    "writable": {one: writable(one) for one in ("/", "/tmp", "/etc", "/opt/pidkeeper", "/settings", "/data")},
    "settings": Path("/settings/entry").read_text(),
    "environment": {key: value for key, value in os.environ.items() if key.startswith("MY_")},
    "me": socket.gethostbyname("me.ids.svc"),
    "argument": ARGUMENT,
}))
"""

SPECIFICATION: Final[dict[str, Any]] = {
    "terminationGracePeriodSeconds": 5,
    "securityContext": {"runAsUser": 10001, "runAsGroup": 10001},
    "volumes": [
        {"name": "settings", "configMap": {"name": "settings"}},
        {"name": "scratch", "emptyDir": {}},
    ],
    "containers": [
        {
            "name": "looks",
            "command": [f"{image.PACKAGES}/bin/python", "-c", LOOK.replace("ARGUMENT", "'$(MY_NAME)'")],
            "env": [
                {"name": "MY_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                {"name": "MY_URL", "value": "http://$(MY_NAME).svc"},
                {"name": "MY_INDEX", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['index']"}}},
            ],
            "volumeMounts": [
                {"name": "settings", "mountPath": "/settings", "readOnly": True},
                {"name": "scratch", "mountPath": "/tmp"},
                {"name": "data", "mountPath": "/data"},
            ],
        }
    ],
}


def main(directory: Path) -> None:
    settings, data = directory / "settings", directory / "data"
    settings.mkdir()
    (settings / "entry").write_text("a setting")
    data.mkdir(mode=0o777)
    data.chmod(0o777)
    network = Network()
    pod = Pod(
        "looks-3",
        SPECIFICATION,
        {"index": "3"},
        network=network,
        objects={("ConfigMap", "settings"): settings},
        claims={"data": data},
        directory=directory / "pod",
    )
    network.tell_names([pod.hosts], {"me.ids.svc": pod.address})
    pod.start()
    code = pod.wait(30)
    print(pod.log())
    sys.exit(code)


if __name__ == "__main__":
    if (reason := enter()) is not None:
        sys.exit(f"no pods: {reason}")
    main(Path(sys.argv[1]))
