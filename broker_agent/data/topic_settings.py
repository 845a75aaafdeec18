"""The settings of topics that there are: which may be set, and what the others always are. Pure.

Names, values and types are Kafka's (`org.apache.kafka.common.config.TopicConfig`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from pidkeeper.broker_agent.data.settings import DataSettings
from pidkeeper.broker_agent.kafka.wire.data.create_topics import CreatedTopicConfig, NewTopicConfig
from pidkeeper.broker_agent.kafka.wire.data.describe_configs import (
    DEFAULT_CONFIG,
    STATIC_BROKER_CONFIG,
    TOPIC_CONFIG,
    ConfigEntry,
)
from pidkeeper.protocol.errors import ErrorCode, RequestError
from pidkeeper.protocol.log_messages import TopicDescription
from pidkeeper.protocol.logs import UNLIMITED

RETENTION_MS: Final = "retention.ms"
RETENTION_BYTES: Final = "retention.bytes"
CLEANUP_POLICY: Final = "cleanup.policy"
DELETE, COMPACT = "delete", "compact"
SEGMENT_SETTINGS: Final = ("segment.bytes", "segment.ms")
"""When a broker begins another segment. Agents roll by settings of their own, so any number will do."""

_BOOLEAN, _STRING, _INT, _SHORT, _LONG, _LIST = 1, 2, 3, 4, 5, 7
"""Types of values (KIP-569)."""

MAX_NUMBER_CHARACTERS: Final = 20
"""Of a number of 64 bits with its sign."""


class Retention(msgspec.Struct, frozen=True):
    """What a topic keeps: for so long, and so much of each partition. UNLIMITED for no such limit.

    `compacted`: whoever makes it expects that older records of a key go. Here all of them are kept, which is what a
    reader of such a topic must bear anyway (docs/decisions/0057).
    """

    ms: int = UNLIMITED
    size: int = UNLIMITED
    compacted: bool = False


def retention_of(configs: Sequence[NewTopicConfig], settings: DataSettings) -> Retention:
    """The retention that a new topic shall have. Raises RequestError for a setting that is unknown, or not so here."""
    numbers = {RETENTION_MS: UNLIMITED, RETENTION_BYTES: UNLIMITED}
    policies, fixed = {DELETE}, _fixed(settings)
    for one in configs:
        if one.value is None:
            continue
        if one.name in numbers:
            numbers[one.name] = _number(one.name, one.value)
        elif one.name in SEGMENT_SETTINGS:
            _number(one.name, one.value)
        elif one.name == CLEANUP_POLICY:
            policies = _policies(one.value)
        elif one.name not in fixed:
            known = ", ".join((*numbers, *SEGMENT_SETTINGS, *fixed))
            raise RequestError(ErrorCode.INVALID_CONFIG, f"there is no setting {one.name[:100]!r} here, but: {known}")
        elif one.value.strip() != fixed[one.name][0]:
            detail = f"{one.name} is {fixed[one.name][0]} here, and cannot be {one.value[:100]!r}"
            raise RequestError(ErrorCode.INVALID_CONFIG, detail)
    if DELETE not in policies:
        return Retention(compacted=True)
    return Retention(numbers[RETENTION_MS], numbers[RETENTION_BYTES], COMPACT in policies)


def topic_entries(topic: TopicDescription, settings: DataSettings) -> list[ConfigEntry]:
    """All settings of a topic."""
    entries = [
        ConfigEntry(name, str(value), DEFAULT_CONFIG if value == UNLIMITED else TOPIC_CONFIG, config_type=_LONG)
        for name, value in ((RETENTION_MS, topic.retention_ms), (RETENTION_BYTES, topic.retention_bytes))
    ]
    for name, (value, config_type, source) in _fixed(settings).items():
        entries.append(ConfigEntry(name, value, source, read_only=True, config_type=config_type))
    return entries


def created_entries(topic: TopicDescription, settings: DataSettings) -> list[CreatedTopicConfig]:
    """The same, as CreateTopics tells them."""
    return [
        CreatedTopicConfig(one.name, one.value, one.read_only, one.source) for one in topic_entries(topic, settings)
    ]


def broker_entries(settings: DataSettings) -> list[ConfigEntry]:
    """The settings of an agent that Kafka has a name for."""
    values = {
        "auto.create.topics.enable": (str(settings.auto_create_topics).lower(), _BOOLEAN),
        "default.replication.factor": ("1", _INT),
        "message.max.bytes": (str(settings.max_message_bytes), _INT),
        "num.partitions": (str(settings.default_partitions), _INT),
    }
    return [
        ConfigEntry(name, value, STATIC_BROKER_CONFIG, read_only=True, config_type=config_type)
        for name, (value, config_type) in values.items()
    ]


def _fixed(settings: DataSettings) -> dict[str, tuple[str, int, int]]:
    """What is so for every topic: value, type and source."""
    return {
        CLEANUP_POLICY: (DELETE, _LIST, DEFAULT_CONFIG),
        "compression.type": ("producer", _STRING, DEFAULT_CONFIG),
        "max.message.bytes": (str(settings.max_message_bytes), _INT, STATIC_BROKER_CONFIG),
        "message.timestamp.type": ("CreateTime", _STRING, DEFAULT_CONFIG),
    }


def _policies(text: str) -> set[str]:
    policies = {one.strip() for one in text.split(",", 2)}
    if not policies <= {DELETE, COMPACT}:
        detail = f"{CLEANUP_POLICY} is {DELETE}, {COMPACT} or both, not {text[:100]!r}"
        raise RequestError(ErrorCode.INVALID_CONFIG, detail)
    return policies


def _number(name: str, text: str) -> int:
    """UNLIMITED, or any number of 64 bits above it."""
    value = None
    if len(text) <= MAX_NUMBER_CHARACTERS and text.isascii() and text.strip().removeprefix("-").isdigit():
        value = int(text)
    if value is None or not UNLIMITED <= value < 2**63:
        detail = f"{name} is a number of 64 bits from {UNLIMITED} on, not {text[:100]!r}"
        raise RequestError(ErrorCode.INVALID_CONFIG, detail)
    return value
