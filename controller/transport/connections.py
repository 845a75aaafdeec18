"""What the two ends of a peer connection have in common: its time limits, and whose certificate came with it."""

from __future__ import annotations

import asyncio
import socket
import sys
from typing import Final

from pidkeeper.service.certified import controllers_in

HANDSHAKE_SECONDS: Final = 2.0
"""A connection that has not shaken hands by then is closed; a healthy one takes two round trips."""

SILENT_SECONDS: Final = 5
"""A connection whose other host answers nothing for so long is given up: the kernel alone would try for minutes. Raft
does not wait for it, it only lets a link be dialled again soon after a host or a network came back."""


def certified_by(transport: asyncio.Transport, cluster_id: str) -> frozenset[int] | None:
    """The members of the cluster that the certificate of the other side names; None of a link without TLS."""
    if transport.get_extra_info("ssl_object") is None:
        return None
    return controllers_in(transport.get_extra_info("peercert") or {}, cluster_id)


def notice_silence(transport: asyncio.Transport) -> None:
    """Have the kernel break the connection when the other host is silent for SILENT_SECONDS, sending or idle."""
    connection = transport.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if sys.platform == "linux":
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, SILENT_SECONDS * 1000)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, SILENT_SECONDS - 3)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 1)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)
