"""ApiVersions, key 18, versions 0 to 4 (KIP-35, KIP-511; KIP-584 from version 3)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from pidkeeper.protocol.errors import ErrorCode
from pidkeeper.service.kafka.wire.primitives import Reader, array, int16, int32, int64, string, tagged_fields, tags
from pidkeeper.service.kafka.wire.versions import Versions

VERSIONS: Final = Versions(0, 4, first_flexible=3)

_LEVEL_ZERO_SINCE: Final = 4
"""Clients refuse the whole answer below, if a feature's lowest level is 0 in it (KAFKA-17492)."""

_SUPPORTED_TAG: Final = 0
_EPOCH_TAG: Final = 1
_FINALIZED_TAG: Final = 2


class Features(msgspec.Struct, frozen=True):
    """What a cluster has agreed on beyond versions of APIs (KIP-584). `supported`: the lowest and the highest level of
    each feature that is known here; `finalized`: the level that counts, as of `epoch`. Of several answers clients go by
    the one with the highest epoch."""

    supported: Mapping[str, tuple[int, int]]
    finalized: Mapping[str, int]
    epoch: int


def no_features() -> Features | None:
    """Where nothing is agreed on."""
    return None


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


def api_versions_response(version: int, served: Mapping[int, Versions], features: Features | None = None) -> bytes:
    """The body of the answer: what is `served`, by API key, and the `features`, if there are any.

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
    end = tags(flexible=flexible) if features is None or not flexible else _features(version, features)
    return int16(error.kafka_code) + array(keys, flexible=flexible) + throttle + end


def _features(version: int, features: Features) -> bytes:
    """The section of tagged fields that tells them; it leaves out what says nothing, as Kafka's does."""
    least = 0 if version >= _LEVEL_ZERO_SINCE else 1
    supported = [
        _levels(name, lowest, highest) for name, (lowest, highest) in features.supported.items() if lowest >= least
    ]
    fields = {_SUPPORTED_TAG: array(supported, flexible=True)} if supported else {}
    if features.finalized:
        finalized = [_levels(name, level, level) for name, level in features.finalized.items()]
        fields |= {_EPOCH_TAG: int64(features.epoch), _FINALIZED_TAG: array(finalized, flexible=True)}
    return tagged_fields(fields)


def _levels(name: str, one: int, other: int) -> bytes:
    return string(name, flexible=True) + int16(one) + int16(other) + tags(flexible=True)
