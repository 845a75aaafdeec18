"""Namespaces of the run's own, so that nothing of it is left whatever ends it: network, mounts and processes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import Final

from tests.chaos import own_network
from tests.chart.rendering import find_helm

TOOLS: Final = ("ip", "unshare")
TRIAL_SECONDS: Final = 10.0
_TRIAL: Final = "ip link add pods type bridge && ip link add near type veth peer name far"
_UNSHARE: Final = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")


def why_not() -> str | None:
    """Why this machine cannot run pods; None if it can."""
    for tool in TOOLS:
        if shutil.which(tool) is None:
            return f"{tool} is not on PATH: apt-get install iproute2 util-linux"
    if find_helm() is None:
        return "helm is neither on PATH nor in .tools/bin; deploy/install-helm.sh builds it with Go"
    if (reason := own_network.why_no_network()) is not None or own_network.is_own():
        return reason
    trial = subprocess.run(
        (*_UNSHARE, "--net", "sh", "-c", _TRIAL), capture_output=True, text=True, timeout=TRIAL_SECONDS, check=False
    )
    return None if trial.returncode == 0 else f"the kernel gives no network between pods: {trial.stderr.strip()}"


def enter() -> str | None:
    """Begin this program anew as the first process of its namespaces, unless it is. Returns only if not: why, or None.

    When the first process ends, the kernel ends all others: a container's own parent could not, for who changes its
    user is not told of its parent's end.
    """
    reason = why_not()
    if reason is None and not own_network.is_own():
        within = own_network.command_within([*_UNSHARE, sys.executable, *sys.orig_argv[1:]])
        os.execvp(within[0], within)
    return reason
