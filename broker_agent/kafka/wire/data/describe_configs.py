"""DescribeConfigs, key 32, versions 1 to 4 (KIP-133; KIP-226 from version 1, KIP-569 from 3)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from pidkeeper.service.kafka.wire.primitives import Reader, array, int16, int32, string, tags
from pidkeeper.service.kafka.wire.versions import Versions

VERSIONS: Final = Versions(1, 4, first_flexible=4)

TOPIC: Final = 2
BROKER: Final = 4
"""Resource types. Others belong to parts of Kafka that are not here."""

TOPIC_CONFIG: Final = 1
STATIC_BROKER_CONFIG: Final = 4
DEFAULT_CONFIG: Final = 5
"""Config sources: set on the topic, in the settings of the process, or nowhere."""

_TYPES_SINCE: Final = 3


class ConfigResource(msgspec.Struct, frozen=True):
    """What is asked about; `keys` is None for all its settings."""

    resource_type: int
    name: str
    keys: list[str] | None


class DescribeConfigsRequest(msgspec.Struct, frozen=True):
    """`include_documentation` is false before version 3."""

    resources: list[ConfigResource]
    include_synonyms: bool
    include_documentation: bool = False


class ConfigSynonym(msgspec.Struct, frozen=True):
    """A setting elsewhere that this one would have its value from."""

    name: str
    value: str | None
    source: int


class ConfigEntry(msgspec.Struct, frozen=True):
    """A setting. `config_type`: Kafka's number of the value's type, 0 if unknown."""

    name: str
    value: str | None
    source: int
    read_only: bool = False
    is_sensitive: bool = False
    synonyms: Sequence[ConfigSynonym] = ()
    config_type: int = 0
    documentation: str | None = None


class DescribedResource(msgspec.Struct, frozen=True):
    """The outcome for one resource."""

    resource_type: int
    name: str
    configs: Sequence[ConfigEntry] = ()
    error_code: int = 0
    error_message: str | None = None


def read_describe_configs_request(reader: Reader, version: int) -> DescribeConfigsRequest:
    """Read the whole body. Raises WireError."""
    flexible = VERSIONS.is_flexible(version)
    count = reader.array_length(flexible=flexible, min_element_bytes=4 if flexible else 7)
    resources = [_read_resource(reader, flexible=flexible) for _ in range(count)]
    synonyms = reader.boolean()
    documentation = reader.boolean() if version >= _TYPES_SINCE else False
    if flexible:
        reader.skip_tags()
    reader.finish()
    return DescribeConfigsRequest(resources, synonyms, documentation)


def _read_resource(reader: Reader, *, flexible: bool) -> ConfigResource:
    resource_type, name = reader.int8(), reader.string(flexible=flexible)
    count = reader.nullable_array_length(flexible=flexible, min_element_bytes=1 if flexible else 2)
    keys = None if count is None else [reader.string(flexible=flexible) for _ in range(count)]
    if flexible:
        reader.skip_tags()
    return ConfigResource(resource_type, name, keys)


def describe_configs_response(version: int, resources: Sequence[DescribedResource], throttle_time_ms: int = 0) -> bytes:
    """The body of the answer."""
    flexible = VERSIONS.is_flexible(version)
    results = array([_resource(one, version) for one in resources], flexible=flexible)
    return int32(throttle_time_ms) + results + tags(flexible=flexible)


def _resource(one: DescribedResource, version: int) -> bytes:
    flexible = VERSIONS.is_flexible(version)
    return b"".join(
        (
            int16(one.error_code) + string(one.error_message, flexible=flexible),
            _int8(one.resource_type) + string(one.name, flexible=flexible),
            array([_entry(config, version) for config in one.configs], flexible=flexible),
            tags(flexible=flexible),
        )
    )


def _entry(one: ConfigEntry, version: int) -> bytes:
    flexible = VERSIONS.is_flexible(version)
    described = _int8(one.config_type) + string(one.documentation, flexible=flexible)
    return b"".join(
        (
            string(one.name, flexible=flexible) + string(one.value, flexible=flexible),
            _int8(one.read_only) + _int8(one.source) + _int8(one.is_sensitive),
            array([_synonym(synonym, flexible=flexible) for synonym in one.synonyms], flexible=flexible),
            described if version >= _TYPES_SINCE else b"",
            tags(flexible=flexible),
        )
    )


def _synonym(one: ConfigSynonym, *, flexible: bool) -> bytes:
    texts = string(one.name, flexible=flexible) + string(one.value, flexible=flexible)
    return texts + _int8(one.source) + tags(flexible=flexible)


def _int8(value: int) -> bytes:
    return value.to_bytes(1, "big", signed=True)
