"""A member in memory that is asked in Kafka's protocol, and over HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from pidkeeper.controller.api.app import build_app, build_authenticator
from pidkeeper.controller.api.limits import ApiLimits
from pidkeeper.controller.kafka.interface import KafkaInterface
from pidkeeper.service.app import App
from pidkeeper.service.protection import UNPROTECTED, Protection
from pidkeeper.service.token_list import TokenList
from tests.support.memory_member import MemoryMember
from tests.support.sharing import sharing

ADDRESSES = {2: "kafka://127.0.0.1:2"}


class Served:
    """`address` is host:port of the listener; `app` is what HTTP is served from."""

    def __init__(
        self, member: MemoryMember, app: App, interface: KafkaInterface, port: int, tokens: TokenList | None
    ) -> None:
        self.member = member
        self.app = app
        self.interface = interface
        self.address = f"127.0.0.1:{port}"
        self.tokens = tokens


Serve = Callable[..., Awaitable[Served]]


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    interfaces: list[KafkaInterface] = []

    async def start(
        *,
        limits: ApiLimits | None = None,
        token: str | None = None,
        tokens: Path | None = None,
        protection: Protection = UNPROTECTED,
    ) -> Served:
        member, shared = MemoryMember(), sharing(token, None)
        listed = None if tokens is None else TokenList(str(tokens))
        authenticator = build_authenticator(shared, listed, protection)
        interface = KafkaInterface(authenticator, protection, ADDRESSES, max_connections=50)
        interfaces.append(interface)
        app = build_app(
            member,
            limits=limits or ApiLimits(),
            shared=shared,
            tokens=listed,
            protection=protection,
            collectors=[interface],
        )
        port = await interface.listener.bind("127.0.0.1", 0)
        await interface.serve(app.operations, app.dispatch, member.leader)
        return Served(member, app, interface, port, listed)

    yield start
    for interface in interfaces:
        await interface.listener.stop()
