"""Which agent coordinates the copiers, seen from outside while a run goes on."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import struct
from typing import Final

from pidkeeper.cli.local_cluster import member_name
from pidkeeper.service.kafka.wire.versions import FIND_COORDINATOR
from tests.chaos.load.credentials import PRODUCER, takes_tls_alone, tls_of
from tests.chaos.load.groups_process import COPIERS
from tests.chaos.stage import Stage

LOOK_SECONDS: Final = 0.5
CALL_SECONDS: Final = 1.0


def _string(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


_REQUEST: Final = struct.pack(">hhi", FIND_COORDINATOR, 0, 0) + _string("chaos") + _string(COPIERS)
"""Version 0, which is of a group, correlation id, client id, and the group."""
_ANSWER: Final = struct.Struct(">iihi")
"""Length, correlation id, error code, and the id of the node, which is all that is looked at."""


class Coordinators:
    """Asks the agents again and again, and tells the stage."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        tls = tls_of(stage.cluster, PRODUCER) if takes_tls_alone(stage.cluster) else None
        self._context = None if tls is None else tls.contexts.client

    async def watch(self) -> None:
        """Look until cancelled. One that a fault has taken down is not asked: it may believe in what was before."""
        while True:
            for agent in self._stage.cluster.layout.agents:
                if member_name(agent) in self._stage.down:
                    continue
                found = await named(agent.kafka, self._context)
                if found is not None:
                    self._stage.coordinator_id = found
                    break
            await asyncio.sleep(LOOK_SECONDS)


async def named(address: str, context: ssl.SSLContext | None) -> int | None:
    """The agent that the one at `address` names; None if it does not answer, or names none."""
    host, _, port = address.rpartition(":")
    with contextlib.suppress(OSError, EOFError, TimeoutError):
        async with asyncio.timeout(CALL_SECONDS):
            reader, writer = await asyncio.open_connection(host, int(port), ssl=context)
            try:
                writer.write(struct.pack(">i", len(_REQUEST)) + _REQUEST)
                _, _, code, node = _ANSWER.unpack(await reader.readexactly(_ANSWER.size))
            finally:
                writer.transport.abort()
            return node if code == 0 else None
    return None
