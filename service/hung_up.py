"""Whether the other side of a connection has closed it, also where bytes that nobody has read lie before its end."""

from __future__ import annotations

import asyncio
import select
import sys


def has_hung_up(transport: asyncio.BaseTransport) -> bool:
    """Whether it has, or we have. Only Linux tells of an end that is not read yet; elsewhere, False until it is.

    The kernel is asked, and not the stream: an end may lie behind requests, or within records of TLS.
    """
    if transport.is_closing():
        return True
    line = transport.get_extra_info("socket")
    if sys.platform != "linux" or line is None:
        return False
    if (descriptor := line.fileno()) < 0:
        return True
    # Not getsockopt, for which uvloop makes a socket: asked with every allocation, that was a seventh of its time.
    asked = select.poll()
    asked.register(descriptor, select.POLLRDHUP)
    return bool(asked.poll(0))
