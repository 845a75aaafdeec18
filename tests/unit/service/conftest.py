"""A small service: it greets and divides."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from pidkeeper.protocol.errors import ErrorCode, RequestError
from pidkeeper.service.access import Access
from pidkeeper.service.app import App, Service
from pidkeeper.service.authentication import Authenticator
from pidkeeper.service.call import Call
from pidkeeper.service.health_check import HealthCheck
from pidkeeper.service.openapi import Description
from pidkeeper.service.routes import Route
from pidkeeper.service.tracing import Tracer
from tests.support.certificates import CertificateAuthority


class NumberPath(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    number: int


class DivisorQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    divisor: int = 1


class Greeting(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str


class Quotient(msgspec.Struct, frozen=True):
    quotient: int


class Arithmetic:
    """The operations, which note who called; `upkeep` counts the turns of the upkeep. Greetings wait for `may`."""

    def __init__(self) -> None:
        self.callers: list[str] = []
        self.upkeep = 0
        self.may = asyncio.Event()
        self.may.set()

    async def greet(self, call: Call[None, None, Greeting]) -> Greeting:
        self.callers.append(call.principal.name)
        await self.may.wait()
        return Greeting(f"hello {call.body.name}")

    async def divide(self, call: Call[NumberPath, DivisorQuery, None]) -> Quotient:
        self.callers.append(call.principal.name)
        if call.query.divisor < 0:
            raise RequestError(ErrorCode.NOT_CONTROLLER, "not here")
        return Quotient(call.path.number // call.query.divisor)

    def keep_up(self) -> None:
        self.upkeep += 1


def routes(divide: Access = Access.VIEWER, greet: Access = Access.PUBLIC) -> tuple[Route[Arithmetic], ...]:
    return (
        Route(
            method="POST",
            path="/greet",
            name="greet",
            summary="Greet.",
            access=greet,
            handler=Arithmetic.greet,
            request=Greeting,
            response=Greeting,
        ),
        Route(
            method="GET",
            path="/divide/{number}",
            name="divide",
            summary="Divide.",
            access=divide,
            handler=Arithmetic.divide,
            path_model=NumberPath,
            query_model=DivisorQuery,
            response=Quotient,
            errors=(ErrorCode.NOT_CONTROLLER,),
        ),
    )


def build(
    operations: Arithmetic,
    authenticator: Authenticator,
    *,
    in_kind: bool = False,
    divide: Access = Access.VIEWER,
    greet: Access = Access.PUBLIC,
    tracer: Tracer | None = None,
) -> App:
    service = Service(
        description=Description("arithmetic", "Greets and divides."),
        readiness="Can it divide?",
        routes=routes(divide, greet),
        operations=operations,
        live=list,
        ready=lambda: [HealthCheck("divider", ok=True)],
        collectors=[],
        leader=lambda: (2, "http://two"),
        upkeep=operations.keep_up,
        answers_in_kind=in_kind,
        tracer=tracer,
    )
    return App(service, authenticator)


@pytest.fixture
def arithmetic() -> Arithmetic:
    return Arithmetic()


@pytest.fixture
def app(arithmetic: Arithmetic) -> App:
    return build(arithmetic, Authenticator())


@pytest.fixture
def authority(tmp_path: Path) -> CertificateAuthority:
    return CertificateAuthority(tmp_path)
