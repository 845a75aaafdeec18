"""ApiVersions, key 18, versions 0 to 4 (KIP-35, KIP-511)."""

from __future__ import annotations

import msgspec

from pidkeeper.broker_agent.wire.headers import API_VERSIONS, SUPPORTED_VERSIONS, is_flexible
from pidkeeper.broker_agent.wire.primitives import Reader, array, int16, int32, tags
from pidkeeper.protocol.errors import ErrorCode


class ApiVersionsRequest(msgspec.Struct, frozen=True):
    """The client's own name and version, empty before version 3."""

    client_software_name: str = ""
    client_software_version: str = ""


def read_api_versions_request(reader: Reader, version: int) -> ApiVersionsRequest:
    """Read the whole body. Raises WireError."""
    if not is_flexible(API_VERSIONS, version):
        reader.finish()
        return ApiVersionsRequest()
    request = ApiVersionsRequest(reader.string(flexible=True), reader.string(flexible=True))
    reader.skip_tags()
    reader.finish()
    return request


def api_versions_response(version: int) -> bytes:
    """The body of the answer. A version above ours is told so in a version 0 body that still lists every key."""
    error = ErrorCode.NONE
    if version > SUPPORTED_VERSIONS[API_VERSIONS][1]:
        error, version = ErrorCode.UNSUPPORTED_VERSION, 0
    flexible = is_flexible(API_VERSIONS, version)
    keys = [
        int16(key) + int16(lowest) + int16(highest) + tags(flexible=flexible)
        for key, (lowest, highest) in SUPPORTED_VERSIONS.items()
    ]
    throttle = int32(0) if version >= 1 else b""
    return int16(error.kafka_code) + array(keys, flexible=flexible) + throttle + tags(flexible=flexible)
