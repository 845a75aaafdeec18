"""`python -m tests.pods.launch SPEC`: become a container, inside of namespaces that were made for it.

It reads one line first: by then the kubelet has put its network device into the namespace.
"""

from __future__ import annotations

import ctypes
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Final

import msgspec

DEVICE: Final = "eth0"
PREFIX_BITS: Final = 16
_LIBC: Final = ctypes.CDLL(None, use_errno=True)

# The flags of mount, in section 2 of the manual.
_RDONLY: Final = 1
_NOSUID: Final = 2
_NODEV: Final = 4
_REMOUNT: Final = 32
_BIND: Final = 4096
_REC: Final = 16384

# The options of prctl, there as well.
_NO_NEW_PRIVILEGES: Final = 38
_DROP_CAPABILITY: Final = 24
_CAPABILITIES: Final = 64


class Mount(msgspec.Struct, frozen=True):
    """`source` of this machine at `target` of the container; an empty source is an empty file system in memory."""

    source: str
    target: str
    read_only: bool = True


class Container(msgspec.Struct, frozen=True):
    """A process to become, and the place that it is to see. `root`: an empty directory to build that in."""

    root: str
    host: str
    address: str
    mounts: list[Mount]
    command: list[str]
    environment: dict[str, str]
    user: int
    group: int
    directory: str


def become(container: Container) -> None:
    """Never returns. Raises OSError where the kernel refuses."""
    socket.sethostname(container.host)
    _raise_network(container.address)
    root = Path(container.root)
    _mount("tmpfs", root, "tmpfs", _NOSUID | _NODEV, "mode=0755")
    for one in container.mounts:
        _put(one, root / one.target.lstrip("/"))
    proc = root / "proc"
    proc.mkdir()
    _mount("proc", proc, "proc", _NOSUID | _NODEV, "")
    (root / container.directory.lstrip("/")).mkdir(parents=True, exist_ok=True)
    _mount("", root, "", _REMOUNT | _RDONLY | _NOSUID | _NODEV, "")
    os.chroot(root)
    os.chdir(container.directory)
    for capability in range(_CAPABILITIES):
        _LIBC.prctl(_DROP_CAPABILITY, capability, 0, 0, 0)
    os.setgroups([container.group])
    os.setresgid(container.group, container.group, container.group)
    os.setresuid(container.user, container.user, container.user)
    if _LIBC.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "no_new_privs")
    os.execve(container.command[0], container.command, container.environment)


def _raise_network(address: str) -> None:
    for command in (
        ("address", "add", f"{address}/{PREFIX_BITS}", "dev", DEVICE),
        ("link", "set", DEVICE, "up"),
        ("link", "set", "lo", "up"),
    ):
        subprocess.run(("ip", *command), check=True)


def _put(one: Mount, target: Path) -> None:
    if not one.source:
        target.mkdir(parents=True, exist_ok=True)
        _mount("tmpfs", target, "tmpfs", _NOSUID | _NODEV, "mode=1777")
        return
    source = Path(one.source)
    if source.is_dir():
        target.mkdir(parents=True, exist_ok=True)
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.touch()
    _mount(str(source), target, "", _BIND | _REC, "")
    if one.read_only:
        _mount("", target, "", _REMOUNT | _BIND | _RDONLY, "")


def _mount(source: str, target: Path, kind: str, flags: int, data: str) -> None:
    done = _LIBC.mount(source.encode(), str(target).encode(), kind.encode(), flags, data.encode())
    if done != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"mount of {source or kind} at {target}: {os.strerror(number)}")


if __name__ == "__main__":
    wanted = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=Container)
    sys.stdin.readline()
    become(wanted)
