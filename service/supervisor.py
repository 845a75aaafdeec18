"""What systemd is told of a service of `Type=notify`: that it has started, that it lives, that it stops (sd_notify(3)).

Without NOTIFY_SOCKET, which is without systemd, nothing is told to nobody.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import AsyncIterator, Mapping
from typing import Final

_BEATS_PER_TIMEOUT: Final = 3
"""So one that comes late is no death."""

_log = logging.getLogger(__name__)


@contextlib.asynccontextmanager
async def supervised(environment: Mapping[str, str] = os.environ) -> AsyncIterator[None]:
    """Say that the service has started, that its event loop turns meanwhile, and that it stops.

    Waiting for a founding, or for a quorum, is no failure to start: other units would wait for it in vain.
    """
    address = environment.get("NOTIFY_SOCKET")
    if address is None:
        yield
        return
    _notify(address, "READY=1")
    beating = asyncio.create_task(_beat(address, _watchdog_seconds(environment)), name="watchdog")
    try:
        yield
    finally:
        beating.cancel()
        _notify(address, "STOPPING=1")


async def _beat(address: str, seconds: float | None) -> None:
    while seconds is not None:
        await asyncio.sleep(seconds / _BEATS_PER_TIMEOUT)
        _notify(address, "WATCHDOG=1")


def _watchdog_seconds(environment: Mapping[str, str]) -> float | None:
    """After which systemd takes this process for dead; None if it does not watch it (sd_watchdog_enabled(3))."""
    if environment.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return None
    try:
        return int(environment["WATCHDOG_USEC"]) / 1e6
    except (KeyError, ValueError):
        return None


def _notify(address: str, state: str) -> None:
    path = "\0" + address[1:] if address.startswith("@") else address
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as told:
            told.setblocking(False)
            told.sendto(state.encode(), path)
    except OSError as error:
        _log.warning("the supervisor at %s cannot be told %s: %s", address, state, error)
