"""Whether the other side of a connection has closed it, also where bytes that nobody has read lie before its end."""

from __future__ import annotations

import asyncio
import socket
import sys
from typing import Final

_GONE: Final = frozenset({6, 7, 8, 9, 11})
"""TIME_WAIT, CLOSE, CLOSE_WAIT, LAST_ACK and CLOSING of Linux's `tcp_states.h`: a FIN or a RST has come."""


def has_hung_up(transport: asyncio.BaseTransport) -> bool:
    """Whether it has, or we have. Only Linux tells of an end that is not read yet; elsewhere, False until it is.

    The kernel is asked, and not the stream: an end may lie behind requests, or within records of TLS.
    """
    if transport.is_closing():
        return True
    line = transport.get_extra_info("socket")
    if sys.platform != "linux" or line is None:
        return False
    try:
        state: bytes = line.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)
    except OSError:
        return False
    return state[0] in _GONE
