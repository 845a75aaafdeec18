"""Ports that a test's servers will listen on, held from before the first start until the last one has ended."""

from __future__ import annotations

import socket

from pidkeeper.cli.local_cluster import HOST, free_ports


def hold_ports(count: int) -> list[socket.socket]:
    """Sockets bound to `count` free ports, for the caller to close. Raises OSError if there are not so many.

    A server that sets SO_REUSEADDR, as asyncio's do, may listen on such a port meanwhile; nobody else is given it.
    """
    held = []
    for port in free_ports(count):
        one = socket.socket()
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        one.bind((HOST, port))
        held.append(one)
    return held
