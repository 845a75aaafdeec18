"""What stands in for the image: the machine's libraries, this Python, its packages and the project, all read-only."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from tests.pods.launch import Mount

ROOT: Final = Path(__file__).resolve().parents[2]
PACKAGE: Final = "/opt/pidkeeper"
PACKAGES: Final = "/opt/packages"
DIRECTORY: Final = "/var/lib/pidkeeper"
"""The Dockerfile's WORKDIR."""
_LIBRARIES: Final = ("/usr", "/lib", "/lib64", "/bin", "/etc/ssl")
_FILES: Final = ("/etc/ld.so.cache", "/etc/nsswitch.conf", "/etc/localtime")
_DEVICES: Final = ("null", "zero", "urandom", "random")


def mounts(package: Path = ROOT) -> list[Mount]:
    """All that a container sees of the machine; `package`: where the project lies, this one or another build of it."""
    found = [Mount(str(Path(one).resolve()), one) for one in (*_LIBRARIES, sys.base_prefix) if Path(one).exists()]
    found += [Mount(one, one) for one in _FILES if Path(one).exists()]
    found += [Mount(f"/dev/{one}", f"/dev/{one}", read_only=False) for one in _DEVICES]
    # The environment is put elsewhere: where it is on this machine a volume of the pod may be.
    return [*found, Mount(sys.prefix, PACKAGES), Mount(str(package), PACKAGE)]


def entrypoint() -> list[str]:
    """What `ENTRYPOINT ["pidkeeper"]` comes to."""
    return [f"{PACKAGES}/bin/python", "-m", "pidkeeper.cli"]


def environment() -> dict[str, str]:
    """What the Dockerfile sets, and where the package lies."""
    return {
        "PATH": f"{PACKAGES}/bin:/usr/bin:/bin",
        "PYTHONPATH": PACKAGE,
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUNBUFFERED": "1",
    }
