"""A front of a real Kafka broker whose producers get their IDs, and the outcome of transactions, from a quorum's agent.

To a client it is the broker: the broker advertises its address. InitProducerId, AddPartitionsToTxn and EndTxn go to an
agent, everything else goes to the broker, byte for byte. When the agent has ended a transaction, the front writes the
markers into the broker's partitions, for the quorum leaves that to whoever has them (controller/node/markers.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
import threading
from collections.abc import Iterator, Mapping
from typing import Final

from pidkeeper.broker_agent.kafka.dispatch import DISPATCH, SERVED
from pidkeeper.service.kafka.wire.headers import read_request_header
from pidkeeper.service.kafka.wire.primitives import Reader, array, int16, int32, int64, string, tags
from pidkeeper.service.kafka.wire.versions import ADD_PARTITIONS_TO_TXN, END_TXN, INIT_PRODUCER_ID
from tests.support.hanging_up import hang_up

SETTINGS: Final[Mapping[str, str]] = {"transaction.partition.verification.enable": "false"}
"""Of the broker: its own coordinator knows nothing of these transactions, so it must not be asked."""
OF_THE_AGENT: Final = (INIT_PRODUCER_ID, ADD_PARTITIONS_TO_TXN, END_TXN)
_WRITE_TXN_MARKERS, _MARKERS_VERSION = 27, 1
_COORDINATOR_EPOCH: Final = 0

_Connections = dict[str, tuple[asyncio.StreamReader, asyncio.StreamWriter]]


@contextlib.contextmanager
def quorum_front(address: str, agent: str, broker: str) -> Iterator[None]:
    """Serve at `address`, in a thread, while the block runs; all three are `host:port`."""
    loop = asyncio.new_event_loop()
    front = _Front(agent, broker)
    host, _, port = address.rpartition(":")
    server = loop.run_until_complete(asyncio.start_server(front.serve, host, int(port)))
    thread = threading.Thread(target=loop.run_forever, name="front")
    thread.start()
    try:
        yield
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.run_until_complete(hang_up(server))
        loop.close()


class _Front:
    """`partitions`: of open transactions by transactional id, as (topic, partition)."""

    def __init__(self, agent: str, broker: str) -> None:
        self._agent = agent
        self._broker = broker
        self._partitions: dict[str, set[tuple[str, int]]] = {}

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one client, in order. It waits for every answer, so there must be one: acks=0 is not for here."""
        connections: _Connections = {}
        try:
            while True:
                request = await _frame(reader)
                writer.write(_framed(await self._answer(connections, request)))
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass  # It ends with the client, or with the front.
        finally:
            for _, other in connections.values():
                other.transport.abort()
            writer.transport.abort()

    async def _answer(self, connections: _Connections, request: bytes) -> bytes:
        (key,) = struct.unpack_from(">h", request)
        answer = await _ask(connections, self._agent if key in OF_THE_AGENT else self._broker, request)
        if key in {ADD_PARTITIONS_TO_TXN, END_TXN}:
            await self._follow(connections, request, answer)
        return answer

    async def _follow(self, connections: _Connections, request: bytes, answer: bytes) -> None:
        reader = Reader(request)
        header = read_request_header(reader, SERVED)
        asked = DISPATCH[header.api_key].read(reader, header.api_version)
        if header.api_key == ADD_PARTITIONS_TO_TXN:
            known = self._partitions.setdefault(asked.transactional_id, set())
            known |= {(topic.topic, number) for topic in asked.topics for number in topic.partitions}
            return
        # Correlation id, tags in flexible versions, throttle time, then the error.
        (error,) = struct.unpack_from(">h", answer, 8 + SERVED[END_TXN].is_flexible(header.api_version))
        if error:
            return
        for topic, partition in sorted(self._partitions.pop(asked.transactional_id, set())):
            outcome = int64(asked.producer_id) + int16(asked.producer_epoch) + bytes([asked.committed])
            await _write_marker(connections, self._broker, outcome, topic, partition)


async def _write_marker(connections: _Connections, broker: str, outcome: bytes, topic: str, partition: int) -> None:
    name, end = string(topic, flexible=True), tags(flexible=True)
    topics = array([name + array([int32(partition)], flexible=True) + end], flexible=True)
    markers = array([outcome + topics + int32(_COORDINATOR_EPOCH) + end], flexible=True)
    header = int16(_WRITE_TXN_MARKERS) + int16(_MARKERS_VERSION) + int32(0) + string(None, flexible=False) + end
    answer = await _ask(connections, broker, header + markers + end)
    # Correlation id and tags; then of the one marker its producer, of the one topic its name, the partition, the error.
    (error,) = struct.unpack_from(">h", answer, 4 + 1 + (1 + 8) + (1 + len(name)) + (1 + 4))
    assert error == 0, f"the broker refused the marker for {topic}-{partition} with error {error}"


async def _ask(connections: _Connections, address: str, request: bytes) -> bytes:
    if address not in connections:
        host, _, port = address.rpartition(":")
        connections[address] = await asyncio.open_connection(host, int(port))
    reader, writer = connections[address]
    writer.write(_framed(request))
    await writer.drain()
    return await _frame(reader)


async def _frame(reader: asyncio.StreamReader) -> bytes:
    (size,) = struct.unpack(">i", await reader.readexactly(4))
    return await reader.readexactly(size)


def _framed(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload
