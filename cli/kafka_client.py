"""A small client of one agent's Kafka listener: finds out what is served there, logs in, fetches, finds offsets."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Sequence
from typing import Final, Self

from pidkeeper.broker_agent.kafka.wire.data import fetch, list_offsets
from pidkeeper.broker_agent.kafka.wire.data.frames import MAX_PRODUCE_FRAME_BYTES, RecordsReader
from pidkeeper.broker_agent.kafka.wire.data.isolation import IsolationLevel
from pidkeeper.broker_agent.kafka.wire.data.list_offsets import PartitionOffset
from pidkeeper.cli import list_offsets_wire
from pidkeeper.cli.fetch_wire import read_fetch_response, write_fetch_request
from pidkeeper.cli.list_offsets_wire import read_list_offsets_response, write_list_offsets_request
from pidkeeper.protocol.addresses import HostPort
from pidkeeper.service.kafka.mechanisms import PLAIN
from pidkeeper.service.kafka.wire import api_versions, sasl
from pidkeeper.service.kafka.wire.headers import RequestHeader, frame_request, read_response_header
from pidkeeper.service.kafka.wire.primitives import WireError
from pidkeeper.service.kafka.wire.versions import (
    API_VERSIONS,
    FETCH,
    LIST_OFFSETS,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    Versions,
)

CLIENT_ID: Final = "pidkeeper-cli"

FETCH_BYTES: Final = 1024 * 1024
"""Asked for at once; one batch that is larger comes whole."""

MAX_ANSWER_BYTES: Final = FETCH_BYTES + MAX_PRODUCE_FRAME_BYTES + 256 * 1024
"""What was asked for, a batch as large as any that is taken, and 4096 aborted transactions of 17 bytes."""


class ListenerError(Exception):
    """The listener gives no answer to go on with. `refused`: another attempt will fare no better."""

    def __init__(self, message: str, *, refused: bool = False) -> None:
        super().__init__(message)
        self.refused = refused


class KafkaClient:
    """One connection, which serves one request at a time. After an error it must be closed.

    Every method raises OSError, WireError for an answer that is none, and ListenerError.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._correlation_id = 0
        self._fetch_version = fetch.VERSIONS.lowest

    @classmethod
    def connect(cls, address: HostPort, context: ssl.SSLContext | None, seconds: float) -> Self:
        """`context`: with TLS. `seconds`: for each part of an answer."""
        connection = socket.create_connection((address.host, address.port), seconds)
        if context is None:
            return cls(connection)
        try:
            return cls(context.wrap_socket(connection, server_hostname=address.host))
        except BaseException:
            connection.close()
            raise

    def wait(self, seconds: float) -> None:
        """Give so many seconds to each part of an answer from now on."""
        self._connection.settimeout(seconds)

    def close(self) -> None:
        """End the connection."""
        self._connection.close()

    def negotiate(self) -> None:
        """Agree on the newest version of Fetch that both sides know (KIP-35)."""
        reader = self._exchange(API_VERSIONS, 0, api_versions.VERSIONS, b"")
        if error := reader.int16():
            raise ListenerError(f"it answers ApiVersions with Kafka's error {error}")
        count = reader.array_length(flexible=False, min_element_bytes=6)
        served = {reader.int16(): (reader.int16(), reader.int16()) for _ in range(count)}
        if FETCH not in served:
            raise ListenerError("it serves no Fetch, so it keeps no partition logs")
        lowest, highest = served[FETCH]
        self._fetch_version = min(highest, fetch.VERSIONS.highest)
        if self._fetch_version < max(lowest, fetch.VERSIONS.lowest):
            known = f"{fetch.VERSIONS.lowest}-{fetch.VERSIONS.highest}"
            raise ListenerError(f"it serves Fetch {lowest}-{highest}, and {known} are spoken here")

    def log_in(self, user: str, password: str) -> None:
        """By SASL's PLAIN (RFC 4616)."""
        hello = sasl.write_handshake_request(PLAIN)
        handshake = self._exchange(SASL_HANDSHAKE, sasl.HANDSHAKE_VERSIONS.highest, sasl.HANDSHAKE_VERSIONS, hello)
        if error := sasl.read_handshake_response(handshake):
            raise ListenerError(f"it takes no password by PLAIN: Kafka's error {error}", refused=True)
        message = sasl.write_authenticate_request(f"\0{user}\0{password}".encode())
        versions = sasl.AUTHENTICATE_VERSIONS
        answer = self._exchange(SASL_AUTHENTICATE, versions.highest, versions, message)
        if error := sasl.read_authenticate_response(answer):
            raise ListenerError(f"it refuses user {user!r} or the password: Kafka's error {error}", refused=True)

    def fetch(
        self, topic: str, partition: int, offset: int, isolation: IsolationLevel, wait_ms: int
    ) -> fetch.FetchedPartition:
        """Batches from the one that has `offset` on; the answer may wait until there are any."""
        version = self._fetch_version
        wanted = fetch.FetchTopic(topic, [fetch.FetchPartition(partition, offset, FETCH_BYTES)])
        request = fetch.FetchRequest(-1, wait_ms, 1, FETCH_BYTES, isolation, [wanted])
        answer = self._exchange(FETCH, version, fetch.VERSIONS, write_fetch_request(version, request))
        return read_fetch_response(answer, version, topic, partition)

    def list_offsets(self, topic: str, partitions: Sequence[int], timestamp: int) -> list[PartitionOffset]:
        """The first offset since `timestamp`, in ms since the epoch, in each of these partitions."""
        body = write_list_offsets_request(topic, partitions, timestamp)
        answer = self._exchange(LIST_OFFSETS, list_offsets_wire.VERSION, list_offsets.VERSIONS, body)
        return read_list_offsets_response(answer, topic)

    def _exchange(self, key: int, version: int, versions: Versions, body: bytes) -> RecordsReader:
        """The body of the answer."""
        self._correlation_id += 1
        header = RequestHeader(key, version, self._correlation_id, CLIENT_ID)
        self._connection.sendall(frame_request(header, versions, body))
        length = int.from_bytes(self._exactly(4), "big")
        if length > MAX_ANSWER_BYTES:
            raise WireError(f"an answer of {length} bytes, and {MAX_ANSWER_BYTES} are taken")
        reader = RecordsReader(self._exactly(length), MAX_ANSWER_BYTES)
        read_response_header(reader, header, versions)
        return reader

    def _exactly(self, size: int) -> bytes:
        data = bytearray(size)
        view, there = memoryview(data), 0
        while there < size:
            received = self._connection.recv_into(view[there:])
            if not received:
                raise ListenerError("it closes the connection; does it want TLS, or a user of SASL (--user)?")
            there += received
        return bytes(data)
