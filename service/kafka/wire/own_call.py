"""A call of the HTTP interface within a frame of Kafka's protocol: what Kafka has no words for. Version 0, and ours."""

from __future__ import annotations

from typing import Final, NamedTuple

from pidkeeper.service.kafka.wire.own_field import TAG
from pidkeeper.service.kafka.wire.primitives import Reader, byte_string, int16, string
from pidkeeper.service.kafka.wire.versions import Versions

KEY: Final = TAG
"""An API key far from those that Kafka gives."""

VERSIONS: Final = Versions(0, 0, first_flexible=0)


class OwnCall(NamedTuple):
    """`path`: with its query. `body`: JSON, or nothing."""

    method: str
    path: str
    body: bytes


class OwnAnswer(NamedTuple):
    """Status and body, as over HTTP."""

    status: int
    body: bytes


def read_request(reader: Reader, _: int) -> OwnCall:
    """Read the whole body. Raises WireError."""
    call = OwnCall(reader.string(flexible=True), reader.string(flexible=True), reader.byte_string(flexible=True))
    reader.skip_tags()
    reader.finish()
    return call


def write_request(call: OwnCall) -> bytes:
    """The body."""
    texts = string(call.method, flexible=True) + string(call.path, flexible=True)
    return texts + byte_string(call.body, flexible=True) + b"\x00"


def read_response(reader: Reader) -> OwnAnswer:
    """Read the whole body. Raises WireError."""
    answer = OwnAnswer(reader.int16(), reader.byte_string(flexible=True))
    reader.skip_tags()
    reader.finish()
    return answer


def write_response(answer: OwnAnswer) -> bytes:
    """The body."""
    return int16(answer.status) + byte_string(answer.body, flexible=True) + b"\x00"
