"""Request and response headers (KIP-482)."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from pidkeeper.service.kafka.wire.primitives import Reader, WireError, int16, int32, string, tags
from pidkeeper.service.kafka.wire.versions import API_VERSIONS, Versions


class RequestHeader(msgspec.Struct, frozen=True):
    """Fields of request header v1 and v2. `client_id` is for people only."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None


def read_request_header(reader: Reader, served: Mapping[int, Versions]) -> RequestHeader:
    """Read the header and leave `reader` at the body. Raises WireError for an API or version that is not `served`.

    ApiVersions above its highest version is let through with the body unread: it has an answer of its own (KIP-511).
    """
    api_key, api_version, correlation_id = reader.int16(), reader.int16(), reader.int32()
    versions = served.get(api_key)
    if versions is None:
        raise WireError(f"API key {api_key} is not served here")
    if api_key == API_VERSIONS and api_version > versions.highest:
        return RequestHeader(api_key, api_version, correlation_id, None)
    if not versions.lowest <= api_version <= versions.highest:
        known = f"{versions.lowest}-{versions.highest}"
        raise WireError(f"version {api_version} of API key {api_key} is not served, only {known}")
    # The client id stays a classic string in header v2 as well.
    client_id = reader.nullable_string(flexible=False)
    if versions.is_flexible(api_version):
        reader.skip_tags()
    return RequestHeader(api_key, api_version, correlation_id, client_id)


def frame_response(header: RequestHeader, versions: Versions, body: bytes) -> bytes:
    """The whole response frame, length field included; `versions` are those of the API.

    The header of an ApiVersions response is never flexible: the client cannot know our versions yet (KIP-511).
    """
    flexible = header.api_key != API_VERSIONS and versions.is_flexible(header.api_version)
    payload = int32(header.correlation_id) + tags(flexible=flexible) + body
    return int32(len(payload)) + payload


def frame_request(header: RequestHeader, versions: Versions, body: bytes) -> bytes:
    """The whole request frame, length field included; `versions` are those of the API."""
    flexible = versions.is_flexible(header.api_version)
    payload = int16(header.api_key) + int16(header.api_version) + int32(header.correlation_id)
    payload += string(header.client_id, flexible=False) + tags(flexible=flexible) + body
    return int32(len(payload)) + payload


def read_response_header(reader: Reader, header: RequestHeader, versions: Versions) -> None:
    """Read the header of the response to a request, and leave `reader` at the body. Raises WireError if it is to
    another one."""
    if (correlation_id := reader.int32()) != header.correlation_id:
        raise WireError(f"an answer to request {correlation_id}, where {header.correlation_id} was asked")
    if header.api_key != API_VERSIONS and versions.is_flexible(header.api_version):
        reader.skip_tags()
