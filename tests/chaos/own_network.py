"""A network of the run's own, where packets may be lost without harm to anybody else.

`python -m tests.chaos.own_network COMMAND...` is how `command_within` runs a command in one. The kernel gives it to
root (`unshare --net`); there is a loopback in it, and nothing else.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
import struct
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

OUTER: Final = "PIDKEEPER_CHAOS_OUTER_NETWORK"
"""The variable that says from which network this one was entered."""

SET_FLAGS: Final = 0x8914
"""SIOCSIFFLAGS of netdevice(7)."""
UP_AND_RUNNING: Final = 0x1 | 0x40

TRIAL_SECONDS: Final = 10.0


def network() -> str:
    """The network of this process, as the kernel numbers it."""
    return str(Path("/proc/self/ns/net").readlink())


def is_own() -> bool:
    """Whether this process is in a network that was made for the run, by `command_within`: not in the one from which it
    was entered, and with no device but the loopback."""
    outer = os.environ.get(OUTER)
    return outer is not None and outer != network() and [name for _, name in socket.if_nameindex()] == ["lo"]


def why_no_network() -> str | None:
    """Why this machine gives us no network of our own; None if it does."""
    if is_own():
        return None
    if os.geteuid() != 0:
        return "a network of its own takes root"
    if shutil.which("unshare") is None:
        return "unshare is not on PATH"
    trial = subprocess.run(
        ["unshare", "--net", "true"], capture_output=True, text=True, timeout=TRIAL_SECONDS, check=False
    )
    return None if trial.returncode == 0 else f"the kernel gives no network of its own: {trial.stderr.strip()}"


def command_within(command: Sequence[str]) -> list[str]:
    """What runs the command in a network of its own."""
    return [
        "env",
        f"{OUTER}={network()}",
        "unshare",
        "--net",
        sys.executable,
        "-m",
        "tests.chaos.own_network",
        *command,
    ]


def enter() -> str | None:
    """Begin this program anew in a network of its own, unless it is in one. Returns only if not: why, or None."""
    reason = why_no_network()
    if reason is None and not is_own():
        again = command_within([sys.executable, *sys.orig_argv[1:]])
        os.execvp(again[0], again)
    return reason


def _raise_loopback() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, SET_FLAGS, struct.pack("16sh14x", b"lo", UP_AND_RUNNING))


if __name__ == "__main__":
    assert is_own(), "this is for networks that were made by `command_within`"
    _raise_loopback()
    os.execvp(sys.argv[1], sys.argv[1:])
