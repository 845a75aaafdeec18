"""A cluster that somebody else runs on this machine, such as `pidkeeper dev`: what a run may do to it.

Nothing stands between its processes, nothing is preloaded, and nothing of it is written. Its processes are killed and
stopped by their pids, as cluster.json says them; whoever runs it starts them again.
"""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path
from typing import Final

import msgspec

from pidkeeper.cli.failures import CommandError
from pidkeeper.cli.local_cluster import Layout, Member, member_name
from tests.chaos.fault import FaultKind
from tests.chaos.faults import groups, operators, processes
from tests.chaos.load.credentials import OPERATOR, PRODUCER, tls_of
from tests.chaos.looking import process_state
from tests.chaos.stage import ChaosCluster

CLUSTER: Final = "cluster.json"

KINDS: Final[tuple[FaultKind, ...]] = (
    *(kind for kind in processes.KINDS if kind.name != "rolling_restart"),
    *operators.KINDS,
    *groups.KINDS,
)
"""A rolling restart is the act of whoever runs it."""

DEAD: Final = ("", "Z")


class FoundCluster(ChaosCluster):
    """The members that cluster.json names. Raises CommandError if there is none, or nothing to show them.

    A secure cluster is to have the certificates of an operator and of a producer in its directory.
    """

    def __init__(self, path: Path) -> None:
        if path.name != CLUSTER or not path.is_file():
            raise CommandError(f"{path} is no {CLUSTER} of a cluster that runs on this machine")
        self._killed: set[int] = set()
        super().__init__(path.parent)
        for name in (OPERATOR, PRODUCER):
            tls_of(self, name)
        if strangers := [member_name(one) for one in self.members() if not self.running(one)]:
            raise CommandError(f"not running, by the pids in {path}: {', '.join(strangers)}; start the cluster first")

    def start(self, *members: Member) -> None:
        """Nothing: whoever runs the cluster does."""

    def _make_certificates(self) -> None:
        """None: it has its own."""

    def running(self, member: Member) -> bool:
        """Whether a process of ours has the pid that cluster.json says now."""
        self._read_again()
        return process_state(member.pid) not in DEAD and _is_pidkeeper(member.pid)

    def exit_code(self, member: Member) -> int | None:
        """How a process that was killed has ended; of others nobody but their parent knows."""
        return -signal.SIGKILL if member.pid in self._killed else None

    def kill(self, *members: Member) -> None:
        """`kill -9`."""
        for member in members:
            self._killed.add(member.pid)
            self.signal(member, signal.SIGKILL)

    def signal(self, member: Member, number: signal.Signals) -> None:
        """Send a signal to a member that runs."""
        if process_state(member.pid) not in DEAD and _is_pidkeeper(member.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(member.pid, number)

    def _read_again(self) -> None:
        """Members that were started again have other pids."""
        newest = msgspec.json.decode(self._path.read_bytes(), type=Layout)
        members: list[Member] = [*newest.controllers, *newest.agents]
        pids = {member_name(one): one.pid for one in members}
        for member in self.members():
            member.pid = pids.get(member_name(member), member.pid)


def _is_pidkeeper(pid: int) -> bool:
    """A pid that cluster.json has may be anybody's by now."""
    try:
        return b"pidkeeper" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
