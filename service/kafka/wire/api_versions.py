"""ApiVersions, key 18, versions 0 to 4 (KIP-35, KIP-511)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from pidkeeper.protocol.errors import ErrorCode
from pidkeeper.service.kafka.wire.primitives import Reader, array, int16, int32, tags
from pidkeeper.service.kafka.wire.versions import Versions

VERSIONS: Final = Versions(0, 4, first_flexible=3)


class ApiVersionsRequest(msgspec.Struct, frozen=True):
    """The client's own name and version, empty before version 3."""

    client_software_name: str = ""
    client_software_version: str = ""


def read_api_versions_request(reader: Reader, version: int) -> ApiVersionsRequest:
    """Read the whole body, unless the version is above ours: nobody knows what is in it. Raises WireError."""
    if version > VERSIONS.highest:
        return ApiVersionsRequest()
    if not VERSIONS.is_flexible(version):
        reader.finish()
        return ApiVersionsRequest()
    request = ApiVersionsRequest(reader.string(flexible=True), reader.string(flexible=True))
    reader.skip_tags()
    reader.finish()
    return request


def api_versions_response(version: int, served: Mapping[int, Versions]) -> bytes:
    """The body of the answer: what is `served`, by API key.

    A version above ours is told so in a version 0 body that still lists every key.
    """
    error = ErrorCode.NONE
    if version > VERSIONS.highest:
        error, version = ErrorCode.UNSUPPORTED_VERSION, 0
    flexible = VERSIONS.is_flexible(version)
    keys = [
        int16(key) + int16(versions.lowest) + int16(versions.highest) + tags(flexible=flexible)
        for key, versions in served.items()
    ]
    throttle = int32(0) if version >= 1 else b""
    return int16(error.kafka_code) + array(keys, flexible=flexible) + throttle + tags(flexible=flexible)
