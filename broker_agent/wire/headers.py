"""Request and response headers (KIP-482), and which versions of which API are served."""

from __future__ import annotations

from typing import Final

import msgspec

from pidkeeper.broker_agent.wire.primitives import Reader, WireError, int32, tags

METADATA: Final = 3
FIND_COORDINATOR: Final = 10
API_VERSIONS: Final = 18
INIT_PRODUCER_ID: Final = 22
ADD_PARTITIONS_TO_TXN: Final = 24
ADD_OFFSETS_TO_TXN: Final = 25
END_TXN: Final = 26

SUPPORTED_VERSIONS: Final = {
    METADATA: (0, 13),
    FIND_COORDINATOR: (0, 6),
    API_VERSIONS: (0, 4),
    INIT_PRODUCER_ID: (0, 5),
    ADD_PARTITIONS_TO_TXN: (0, 3),
    ADD_OFFSETS_TO_TXN: (0, 3),
    END_TXN: (0, 4),
}
"""Lowest and highest version of each API key. InitProducerId 6 is left out: it means two-phase commit (KIP-939). So are
AddPartitionsToTxn 4, which is for brokers, and EndTxn 5: it means an epoch for each transaction (KIP-890)."""

_FIRST_FLEXIBLE: Final = {
    METADATA: 9,
    FIND_COORDINATOR: 3,
    API_VERSIONS: 3,
    INIT_PRODUCER_ID: 2,
    ADD_PARTITIONS_TO_TXN: 3,
    ADD_OFFSETS_TO_TXN: 3,
    END_TXN: 3,
}


class RequestHeader(msgspec.Struct, frozen=True):
    """Fields of request header v1 and v2. `client_id` is for people only."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None


def is_flexible(api_key: int, api_version: int) -> bool:
    """Whether the version uses compact types and tagged fields."""
    return api_version >= _FIRST_FLEXIBLE[api_key]


def read_request_header(reader: Reader) -> RequestHeader:
    """Read the header and leave `reader` at the body. Raises WireError for an API or version that is not served.

    ApiVersions above its highest version is let through with the body unread: it has an answer of its own (KIP-511).
    """
    api_key, api_version, correlation_id = reader.int16(), reader.int16(), reader.int32()
    supported = SUPPORTED_VERSIONS.get(api_key)
    if supported is None:
        raise WireError(f"API key {api_key} is not served here")
    if api_key == API_VERSIONS and api_version > supported[1]:
        return RequestHeader(api_key, api_version, correlation_id, None)
    if not supported[0] <= api_version <= supported[1]:
        raise WireError(f"version {api_version} of API key {api_key} is not served, only {supported[0]}-{supported[1]}")
    # The client id stays a classic string in header v2 as well.
    client_id = reader.nullable_string(flexible=False)
    if is_flexible(api_key, api_version):
        reader.skip_tags()
    return RequestHeader(api_key, api_version, correlation_id, client_id)


def frame_response(header: RequestHeader, body: bytes) -> bytes:
    """The whole response frame, length field included.

    The header of an ApiVersions response is never flexible: the client cannot know our versions yet (KIP-511).
    """
    flexible = header.api_key != API_VERSIONS and is_flexible(header.api_key, header.api_version)
    payload = int32(header.correlation_id) + tags(flexible=flexible) + body
    return int32(len(payload)) + payload
