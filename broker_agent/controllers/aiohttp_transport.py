"""The transport over HTTP. Nothing else in the way to the controllers knows aiohttp."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final, Self

import aiohttp

from pidkeeper.broker_agent.controllers.client import MAX_DATA_CALLS, MAX_GROUP_CALLS, MAX_TRANSACTIONAL_CALLS
from pidkeeper.service.problems import DENIED
from pidkeeper.service.refreshing import Refreshed
from pidkeeper.service.tls import Tls

MAX_RESPONSE_BYTES: Final = 512 * 1024
"""Largest answer that is read: a list of 1000 brokers with the longest addresses takes 350 KB."""

_MAX_CONNECTIONS_PER_MEMBER: Final = 16 + MAX_TRANSACTIONAL_CALLS + MAX_DATA_CALLS + MAX_GROUP_CALLS
"""A round of eight allocations, a heartbeat, the list of brokers, and the attempts given up on that are still being
closed; and the transactions, the partition logs and the groups, which so keep none of these from a connection."""

_NO_TIMEOUT: Final = aiohttp.ClientTimeout(total=None)
"""The whole of an exchange has one."""


class AiohttpTransport:
    """`token` goes along as a bearer token. `tls`: for https:// addresses, what is shown and trusted.

    `trace`: the headers that name the trace of a request. Use as an asynchronous context manager.
    """

    def __init__(
        self,
        *,
        token: Refreshed[str] | None = None,
        tls: Tls | None = None,
        trace: Callable[[], Mapping[str, str]] | None = None,
    ) -> None:
        self._token = token
        self._trace = trace
        self._tls = tls
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        # A pod that is started again has another address. Connections last, so names are seldom asked for.
        connector = aiohttp.TCPConnector(limit=0, limit_per_host=_MAX_CONNECTIONS_PER_MEMBER, use_dns_cache=False)
        self._session = aiohttp.ClientSession(connector=connector, headers={"Content-Type": "application/json"})
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._session is not None:
            await self._session.close()

    async def exchange(
        self, method: str, base_url: str, path: str, body: bytes | None, timeout_seconds: float
    ) -> tuple[int, bytes]:
        """As `Transport.exchange`. A redirect is an answer like any other: the token would follow it anywhere.

        When a token is refused, its file is looked at again, for the refusal is the last word and ends the agent: one
        that takes the place of the refused one goes along then.
        """
        token = self._token
        async with asyncio.timeout(timeout_seconds):
            if token is None:
                return await self._send(method, base_url + path, body, None)
            sent = token.value
            answer = await self._send(method, base_url + path, body, sent)
            if answer[0] in DENIED:
                token.refresh()
                if token.value != sent:
                    return await self._send(method, base_url + path, body, token.value)
            return answer

    async def _send(self, method: str, url: str, body: bytes | None, token: str | None) -> tuple[int, bytes]:
        assert self._session is not None, "the transport is used outside of its `async with` block"
        headers = {} if self._trace is None else dict(self._trace())
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        context = True if self._tls is None else self._tls.contexts.client
        try:
            async with self._session.request(
                method, url, data=body, headers=headers, allow_redirects=False, timeout=_NO_TIMEOUT, ssl=context
            ) as response:
                return response.status, await _read_bounded(response)
        except aiohttp.ClientError as error:
            if isinstance(error, OSError):
                raise
            raise ConnectionError(str(error) or type(error).__name__) from error


async def _read_bounded(response: aiohttp.ClientResponse) -> bytes:
    content = bytearray()
    async for chunk in response.content.iter_any():
        content += chunk
        if len(content) > MAX_RESPONSE_BYTES:
            raise ValueError(f"an answer of more than {MAX_RESPONSE_BYTES} bytes")
    return bytes(content)
