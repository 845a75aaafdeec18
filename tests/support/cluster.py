"""Clusters of real processes for the integration tests, and questions to ask their members.

Every wait is bounded by WAIT_SECONDS, which is generous: it says when a test gives up, never how fast a member must be.
"""

from __future__ import annotations

import contextlib
import http.client
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, TypeVar

from prometheus_client.parser import text_string_to_metric_families

from pidkeeper.cli.local_cluster import Controller, LocalCluster, Member, member_name
from pidkeeper.protocol.metadata_version import LATEST
from tests.support.http_calls import Answer, call
from tests.support.waiting import stop_process

WAIT_SECONDS: Final = 60.0
POLL_SECONDS: Final = 0.02
REPOSITORY: Final = Path(__file__).resolve().parents[2]

UNLIMITED: Final = {"per_second": 1_000_000.0, "burst": 10_000_000}
CONTROLLER_OPTIONS: Final[dict[str, Any]] = {
    "limits": {
        "broker_allocations": UNLIMITED,
        "cluster_allocations": UNLIMITED,
        "broker_sessions": UNLIMITED,
        "cluster_sessions": UNLIMITED,
    },
    # The tests' own brokers send no heartbeats.
    "broker_session_timeout_ms": 3_600_000,
    "segment_bytes": 1024 * 1024,
}
"""Quotas out of the way, small segments: a start writes 1 MiB instead of 16."""

Found = TypeVar("Found")

SOON_ANOTHER: Final[dict[str, Any]] = {"max_reserve_blocks": 2, "min_reserve_ids": 1000}
"""A reserve of which a thousand claims make an agent ask for more: a slow machine takes a minute for six thousand."""


@contextlib.contextmanager
def running_cluster(
    directory: Path,
    *,
    controllers: int = 3,
    agents: int = 0,
    controller_options: dict[str, Any] | None = None,
    agent_options: dict[str, Any] | None = None,
    secure: bool = False,
    data: bool = False,
) -> Iterator[LocalCluster]:
    """A ready cluster on free ports, with `data` one that keeps records. Whatever still runs at the end is killed."""
    cluster = LocalCluster(
        directory,
        controllers=controllers,
        agents=agents,
        controller_options=CONTROLLER_OPTIONS | (controller_options or {}),
        agent_options=agent_options,
        secure=secure,
        data=data,
    )
    try:
        bring_back(cluster)
        yield cluster
    finally:
        running = [member for member in cluster.members() if cluster.running(member)]
        cluster.kill(*running)


def bring_back(cluster: LocalCluster) -> None:
    """Start every member that does not run, and wait until all are ready."""
    cluster.start()
    cluster.wait_ready(seconds=WAIT_SECONDS)
    context = cluster.context if cluster.layout.secure else None
    wait_until(lambda: quorum(cluster.leader(), context)["metadata_version"] == LATEST, "the newest metadata version")


def wait_until(condition: Callable[[], Found], what: str) -> Found:
    """The first true value of `condition`. Raises AssertionError that says `what` did not come."""
    deadline = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError, http.client.HTTPException):
            if found := condition():
                return found
        time.sleep(POLL_SECONDS)
    raise AssertionError(f"not within {WAIT_SECONDS:g} s: {what}")


def exit_code(cluster: LocalCluster, member: Member) -> int:
    """The exit code of a member that is ending by itself."""
    wait_until(lambda: not cluster.running(member), f"the end of {member_name(member)}")
    code = cluster.exit_code(member)
    assert code is not None, f"{member_name(member)} has no exit code"
    return code


def log_of(cluster: LocalCluster, member: Member) -> str:
    """Everything that the member has logged."""
    return (cluster.directory / "logs" / f"{member_name(member)}.log").read_text(errors="replace")


def config_of(cluster: LocalCluster, member: Member) -> Path:
    """The configuration that the member was started with."""
    return cluster.directory / "config" / f"{member_name(member)}.toml"


def followers(cluster: LocalCluster, leader: Controller) -> list[Controller]:
    """The other controllers."""
    return [controller for controller in cluster.layout.controllers if controller.id != leader.id]


def quorum(member: Member, context: ssl.SSLContext | None = None) -> dict[str, Any]:
    """/v1/quorum of one member. `context`: of a secure cluster. Raises OSError or HTTPException."""
    description: dict[str, Any] = call(member.http, "GET", "/v1/quorum", context=context).json()
    return description


def new_leader(cluster: LocalCluster, old: Controller) -> Controller:
    """A controller other than `old` that leads and serves."""

    def look() -> Controller | None:
        for controller in followers(cluster, old):
            with contextlib.suppress(OSError, http.client.HTTPException):
                description = quorum(controller)
                if description["role"] == "leader" and cluster.ready(controller):
                    return controller
        return None

    found = wait_until(look, f"a leader other than member {old.id}")
    assert found is not None
    return found


def ledger(cluster: LocalCluster) -> list[dict[str, Any]]:
    """The allocation history, in order of ID: of all members together, which must not contradict each other."""
    blocks: dict[int, dict[str, Any]] = {}
    for controller in cluster.layout.controllers:
        after: int | None = -1
        while after is not None:
            page = call(controller.http, "GET", f"/v1/producer-ids/blocks?after={after}&limit=1000").json()
            for block in page["blocks"]:
                known = blocks.setdefault(block["first"], block)
                assert known == block, f"two histories: {known} and {block}"
            after = page["next_after"]
    ordered = [blocks[first] for first in sorted(blocks)]
    for one, other in pairwise(ordered):
        assert one["last"] < other["first"], f"{one} and {other} overlap"
    return ordered


def metrics(member: Member) -> dict[str, float]:
    """The samples of one member that have no labels, by name."""
    text = call(member.http, "GET", "/metrics").body.decode()
    return {
        sample.name: sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if not sample.labels
    }


def labelled(member: Member, name: str) -> dict[tuple[str, ...], float]:
    """The samples of one member that have this name, by the values of their labels in order of the labels."""
    text = call(member.http, "GET", "/metrics").body.decode()
    return {
        tuple(value for _, value in sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == name
    }


def register(member: Member, broker_id: int, incarnation_id: str) -> Answer:
    """Register a broker at one member."""
    return call(member.http, "POST", f"/v1/brokers/{broker_id}/register", {"incarnation_id": incarnation_id})


def allocate(member: Member, broker_id: int, broker_epoch: int, blocks: int = 1) -> Answer:
    """Ask one member for one block, or for several."""
    body = {"broker_id": broker_id, "broker_epoch": broker_epoch}
    query = "" if blocks == 1 else f"?blocks={blocks}"
    return call(member.http, "POST", f"/v1/producer-ids/allocate{query}", body)


def pidkeeper(*arguments: str | Path, timeout: float = WAIT_SECONDS) -> subprocess.CompletedProcess[str]:
    """Run the command line to its end."""
    command = [sys.executable, "-m", "pidkeeper.cli", *map(str, arguments)]
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=timeout, check=False)


def assert_healthy(cluster: LocalCluster) -> None:
    """`pidkeeper health` says so, once the disk, which tests share with others, has kept pace for a while."""
    told: list[subprocess.CompletedProcess[str]] = []

    def healthy() -> bool:
        told.append(pidkeeper("health", "--cluster", cluster.directory))
        return (told[-1].returncode, told[-1].stdout) == (0, "healthy\n")

    try:
        wait_until(healthy, "a healthy cluster")
    except AssertionError as error:
        raise AssertionError(f"{error}; the last answer: {told[-1]}") from error


def restart(cluster: LocalCluster, member: Member) -> None:
    """Kill it, and start it again; it is ready then."""
    cluster.kill(member)
    cluster.start(member)
    cluster.wait_ready(member, seconds=WAIT_SECONDS)


def restart_leader(cluster: LocalCluster) -> None:
    """Kill the leader, and start it again once another one leads; it is ready then."""
    leader = cluster.leader()
    cluster.kill(leader)
    new_leader(cluster, leader)
    cluster.start(leader)
    cluster.wait_ready(leader, seconds=WAIT_SECONDS)


def pause(cluster: LocalCluster, member: Member) -> None:
    """SIGSTOP, and wait until the process is stopped."""
    stop_process(member.pid)


def resume(cluster: LocalCluster, member: Member) -> None:
    """SIGCONT."""
    cluster.signal(member, signal.SIGCONT)
