"""The transport in Kafka's protocol: `transport = "kafka"`."""

from __future__ import annotations

import asyncio
from typing import Final, Self

from pidkeeper.broker_agent.controllers.client import MAX_DATA_CALLS, MAX_GROUP_CALLS, MAX_TRANSACTIONAL_CALLS
from pidkeeper.broker_agent.controllers.kafka_connection import KafkaConnection, TokenRefusedError
from pidkeeper.broker_agent.controllers.kafka_requests import KafkaRequest, kafka_request, refusal
from pidkeeper.protocol.addresses import KafkaUrl
from pidkeeper.protocol.errors import ErrorCode
from pidkeeper.service.kafka.wire.primitives import MAX_FRAME_BYTES
from pidkeeper.service.refreshing import Refreshed
from pidkeeper.service.tls import Tls

MAX_CONNECTIONS_PER_MEMBER: Final = 16 + MAX_TRANSACTIONAL_CALLS + MAX_DATA_CALLS + MAX_GROUP_CALLS
"""As over HTTP: heartbeats, the round of blocks, what was just given up; transactions, partition logs, and groups."""

MAX_MEMBERS: Final = 16
"""Whose connections are kept: nine, the most that there are, and some whose address has changed."""

HEADER_BYTES: Final = 64
"""Room for the header of a request."""


class _Member:
    """The connections to one member: those that nobody uses now, and room for those in use."""

    def __init__(self) -> None:
        self.room: Final = asyncio.Semaphore(MAX_CONNECTIONS_PER_MEMBER)
        self.idle: Final[list[KafkaConnection]] = []

    def take(self) -> KafkaConnection | None:
        """One that can be used."""
        while self.idle:
            if (connection := self.idle.pop()).usable:
                return connection
            connection.cut()
        return None

    def cut(self) -> None:
        """End those that nobody uses."""
        while self.idle:
            self.idle.pop().cut()


class KafkaTransport:
    """`token` is the password of PLAIN. `tls`: for kafka+ssl:// addresses, what is shown and trusted.

    Use as an asynchronous context manager.
    """

    def __init__(self, *, token: Refreshed[str] | None = None, tls: Tls | None = None) -> None:
        self._token = token
        self._tls = tls
        self._members: dict[str, _Member] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for member in self._members.values():
            member.cut()

    async def exchange(
        self, method: str, base_url: str, path: str, body: bytes | None, timeout_seconds: float
    ) -> tuple[int, bytes]:
        """As `Transport.exchange`.

        When a token is refused, its file is looked at again, for the refusal is the last word and ends the agent.
        """
        request = kafka_request(method, path, body)
        if len(request.body) + HEADER_BYTES > MAX_FRAME_BYTES:
            return refusal(ErrorCode.MESSAGE_TOO_LARGE, f"the request takes {len(request.body)} bytes")
        async with asyncio.timeout(timeout_seconds):
            sent = None if self._token is None else self._token.value
            try:
                return await self._ask(base_url, request, sent)
            except TokenRefusedError as error:
                assert self._token is not None, "nobody refuses what was not sent"
                self._token.refresh()
                if self._token.value == sent:
                    return _refused(error)
            try:
                return await self._ask(base_url, request, self._token.value)
            except TokenRefusedError as error:
                return _refused(error)

    async def _ask(self, base_url: str, request: KafkaRequest, token: str | None) -> tuple[int, bytes]:
        """By a connection that nobody else uses meanwhile; cut if it fails or the answer is given up."""
        member = self._member(base_url)
        async with member.room:
            connection = member.take() or await self._open(base_url, token)
            try:
                answer = await connection.ask(request)
            except BaseException:
                connection.cut()
                raise
            member.idle.append(connection)
            return answer

    def _member(self, base_url: str) -> _Member:
        """That of an address. Beyond MAX_MEMBERS the one that was met first is forgotten."""
        if (known := self._members.get(base_url)) is not None:
            return known
        if len(self._members) >= MAX_MEMBERS:
            self._members.pop(next(iter(self._members))).cut()
        return self._members.setdefault(base_url, _Member())

    async def _open(self, base_url: str, token: str | None) -> KafkaConnection:
        url = KafkaUrl.parse(base_url, "controllers")
        context = None
        if url.encrypted:
            if self._tls is None:
                raise OSError(f"{base_url} wants TLS, and [tls] names no certificates to trust")
            context = self._tls.contexts.client
        return await KafkaConnection.open(url.address, context, token)


def _refused(error: TokenRefusedError) -> tuple[int, bytes]:
    return refusal(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, str(error))
