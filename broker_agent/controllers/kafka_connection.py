"""One connection to a controller that is asked in Kafka's protocol, one request at a time."""

from __future__ import annotations

import asyncio
import ssl
from typing import Final, Self

from pidkeeper.broker_agent.controllers.kafka_requests import KafkaRequest
from pidkeeper.protocol.addresses import HostPort
from pidkeeper.protocol.errors import ErrorCode
from pidkeeper.service.kafka.mechanisms import PLAIN
from pidkeeper.service.kafka.wire import sasl
from pidkeeper.service.kafka.wire.headers import RequestHeader, frame_request, read_response_header
from pidkeeper.service.kafka.wire.primitives import Reader
from pidkeeper.service.kafka.wire.versions import SASL_AUTHENTICATE, SASL_HANDSHAKE, Versions

MAX_RESPONSE_BYTES: Final = 512 * 1024
"""Largest answer that is read: a list of 1000 brokers with the longest addresses takes 350 KB."""

CLIENT_ID: Final = "pidkeeper"


class TokenRefusedError(Exception):
    """The controllers do not take the token."""


class KafkaConnection:
    """Once a request has failed or was given up, it must be cut: its answer may still come."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._correlation_id = 0

    @classmethod
    async def open(cls, address: HostPort, context: ssl.SSLContext | None, token: str | None) -> Self:
        """Raises OSError, ValueError for answers that are none, and TokenRefusedError."""
        reader, writer = await asyncio.open_connection(address.host, address.port, ssl=context)
        connection = cls(reader, writer)
        try:
            if token is not None:
                await connection._authenticate(token)
        except BaseException:
            connection.cut()
            raise
        return connection

    @property
    def usable(self) -> bool:
        """Whether another request may be tried."""
        return not self._reader.at_eof() and not self._writer.is_closing()

    def cut(self) -> None:
        """End it at once, so that the controller sees that nobody waits any more."""
        self._writer.transport.abort()

    async def ask(self, request: KafkaRequest) -> tuple[int, bytes]:
        """Status and content of the answer. Raises OSError, and ValueError for an answer that is none."""
        return request.read(await self._exchange(request.key, request.versions, request.body))

    async def _authenticate(self, token: str) -> None:
        hello = sasl.write_handshake_request(PLAIN)
        error = sasl.read_handshake_response(await self._exchange(SASL_HANDSHAKE, sasl.HANDSHAKE_VERSIONS, hello))
        if error == ErrorCode.ILLEGAL_SASL_STATE.kafka_code:
            return  # Nobody needs a token there.
        if error:
            raise TokenRefusedError(f"the controllers take no token (Kafka's error {error})")
        message = sasl.write_authenticate_request(f"\0{CLIENT_ID}\0{token}".encode())
        answer = await self._exchange(SASL_AUTHENTICATE, sasl.AUTHENTICATE_VERSIONS, message)
        if error := sasl.read_authenticate_response(answer):
            raise TokenRefusedError(f"the controllers refuse the token (Kafka's error {error})")

    async def _exchange(self, key: int, versions: Versions, body: bytes) -> Reader:
        """The body of the answer."""
        self._correlation_id = (self._correlation_id + 1) & 0x7FFF_FFFF
        header = RequestHeader(key, versions.highest, self._correlation_id, CLIENT_ID)
        self._writer.write(frame_request(header, versions, body))
        try:
            await self._writer.drain()
            length = int.from_bytes(await self._reader.readexactly(4), "big")
            if length > MAX_RESPONSE_BYTES:
                raise ValueError(f"an answer of {length} bytes, more than {MAX_RESPONSE_BYTES}")
            reader = Reader(await self._reader.readexactly(length), MAX_RESPONSE_BYTES)
        except asyncio.IncompleteReadError as error:
            raise ConnectionError("the member closed the connection") from error
        read_response_header(reader, header, versions)
        return reader
