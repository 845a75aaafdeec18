"""What can be seen of a process from outside: its state, its log, its clock, and what its metrics tell."""

from __future__ import annotations

import asyncio
import contextlib
import email.utils
import functools
import http.client
import json
import ssl
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from prometheus_client.parser import text_string_to_metric_families

from pidkeeper.cli.controllers import connect
from pidkeeper.cli.local_cluster import Controller, Member, member_name
from tests.chaos.stage import ChaosCluster

STOPPED: Final = "T"
POLL_SECONDS: Final = 0.05
START_SECONDS: Final = 10.0
"""Within which a process that was just started listens."""
CALL_SECONDS: Final = 1.0


def process_state(pid: int) -> str:
    """The letter of proc(5), as `T` for stopped; nothing if there is no such process."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return ""
    # The name before it may hold anything, parentheses too.
    return fields.rpartition(")")[2].split()[0]


class LogSince:
    """What a member logs from now on."""

    def __init__(self, cluster: ChaosCluster, member: Member) -> None:
        self._path = cluster.directory / "logs" / f"{member_name(member)}.log"
        self._begin = self._path.stat().st_size if self._path.exists() else 0

    def lines(self, *phrases: str) -> list[str]:
        """The lines since then that have one of the phrases."""
        with self._path.open("rb") as file:
            file.seek(self._begin)
            text = file.read().decode(errors="replace")
        return [line for line in text.splitlines() if any(phrase in line for phrase in phrases)]


def clock_offset(member: Member) -> float | None:
    """By how many seconds the clock of the process is ahead of ours, by the Date of an answer; None without one."""
    try:
        connection = connect(member.http, CALL_SECONDS, _nobody)
        with contextlib.closing(connection):
            connection.request("GET", "/livez")
            told = connection.getresponse().getheader("Date")
    except (OSError, http.client.HTTPException):
        return None
    return None if told is None else email.utils.parsedate_to_datetime(told).timestamp() - time.time()


def described(cluster: ChaosCluster, controller: Controller) -> dict[str, Any]:
    """What a controller tells of the quorum; nothing if it does not answer."""
    try:
        told: dict[str, Any] = json.loads(cluster.get(controller, "/v1/quorum", timeout=CALL_SECONDS)[1])
    except (OSError, http.client.HTTPException, ValueError):
        return {}
    return told


def sample(cluster: ChaosCluster, member: Member, name: str) -> float | None:
    """The sample of one name without labels among the member's metrics; None if it cannot be had."""
    try:
        status, body = cluster.get(member, "/metrics", timeout=CALL_SECONDS)
    except (OSError, http.client.HTTPException):
        return None
    families = text_string_to_metric_families(body.decode()) if status == http.HTTPStatus.OK else ()
    found = (one.value for family in families for one in family.samples if one.name == name and not one.labels)
    return next(found, None)


async def until(condition: Callable[[], bool], seconds: float, every: float = POLL_SECONDS) -> bool:
    """Whether the condition comes to hold within the time. It is asked on a thread, for it may wait."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if await asyncio.to_thread(condition):
            return True
        await asyncio.sleep(every)
    return False


async def started(member: Member) -> bool:
    """Whether it listens, once it had time to come that far.

    A process that is only starting ends where it finds its certificate expired, as it must, and nobody starts it again.
    """
    return await until(lambda: clock_offset(member) is not None, START_SECONDS)


@functools.cache
def _nobody() -> ssl.SSLContext:
    """Of a caller who shows no certificate and believes any: a member whose clock is wrong holds all for expired."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
