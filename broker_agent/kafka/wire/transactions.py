"""AddPartitionsToTxn, AddOffsetsToTxn and EndTxn, keys 24 to 26, as producers send them (KIP-98)."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from pidkeeper.broker_agent.coordinator.requests import AddOffsetsToTxn, AddPartitionsToTxn, EndTxn
from pidkeeper.protocol.messages import TransactionTopic
from pidkeeper.service.kafka.wire.primitives import Reader, array, int16, int32, int64, string, tags
from pidkeeper.service.kafka.wire.versions import Versions

ADD_PARTITIONS_VERSIONS: Final = Versions(0, 3, first_flexible=3)
"""Version 4 is left out: it is for brokers."""

ADD_OFFSETS_VERSIONS: Final = Versions(0, 3, first_flexible=3)

END_VERSIONS: Final = Versions(0, 5, first_flexible=3)

NEW_EPOCH_SINCE: Final = 5
"""The first version of EndTxn that gives the producer another pair (KIP-890)."""

END_VERSIONS_ALONE: Final = Versions(0, NEW_EPOCH_SINCE - 1, first_flexible=3)
"""What a listener says it serves where no records are kept: whoever keeps them goes by the pairs that it knows."""


def read_add_partitions_to_txn_request(reader: Reader, version: int) -> AddPartitionsToTxn:
    """Read the whole body. Raises WireError."""
    flexible = ADD_PARTITIONS_VERSIONS.is_flexible(version)
    transactional_id, producer_id, producer_epoch = _producer(reader, flexible=flexible)
    count = reader.array_length(flexible=flexible, min_element_bytes=3 if flexible else 6)
    topics = [_read_topic(reader, flexible=flexible) for _ in range(count)]
    _finish(reader, flexible=flexible)
    return AddPartitionsToTxn(transactional_id, producer_id, producer_epoch, topics)


def read_add_offsets_to_txn_request(reader: Reader, version: int) -> AddOffsetsToTxn:
    """Read the whole body. Raises WireError."""
    flexible = ADD_OFFSETS_VERSIONS.is_flexible(version)
    request = AddOffsetsToTxn(*_producer(reader, flexible=flexible), reader.string(flexible=flexible))
    _finish(reader, flexible=flexible)
    return request


def read_end_txn_request(reader: Reader, version: int) -> EndTxn:
    """Read the whole body. Raises WireError."""
    flexible = END_VERSIONS.is_flexible(version)
    request = EndTxn(*_producer(reader, flexible=flexible), reader.boolean(), version >= NEW_EPOCH_SINCE)
    _finish(reader, flexible=flexible)
    return request


def add_partitions_to_txn_response(
    version: int,
    topics: list[TransactionTopic],
    error_code: int,
    refused: Mapping[tuple[str, int], int] = MappingProxyType({}),
) -> bytes:
    """The body of the answer: the same code for every partition, since all of them join or none does.

    `refused`: the codes of those that keep the others from it, by topic and partition.
    """
    flexible = ADD_PARTITIONS_VERSIONS.is_flexible(version)
    end = tags(flexible=flexible)
    results = [
        string(topic.topic, flexible=flexible)
        + array(
            [
                int32(number) + int16(refused.get((topic.topic, number), error_code)) + end
                for number in topic.partitions
            ],
            flexible=flexible,
        )
        + end
        for topic in topics
    ]
    return int32(0) + array(results, flexible=flexible) + tags(flexible=flexible)


def error_response(error_code: int, *, flexible: bool) -> bytes:
    """The body of an answer that is an error code alone: AddOffsetsToTxn's, and EndTxn's below version 5."""
    return int32(0) + int16(error_code) + tags(flexible=flexible)


def end_txn_response(version: int, error_code: int, producer: tuple[int, int]) -> bytes:
    """The body of the answer; `producer`: the pair that it goes on with, -1 and -1 beside an error."""
    if version < NEW_EPOCH_SINCE:
        return error_response(error_code, flexible=END_VERSIONS.is_flexible(version))
    return int32(0) + int16(error_code) + int64(producer[0]) + int16(producer[1]) + tags(flexible=True)


def _producer(reader: Reader, *, flexible: bool) -> tuple[str, int, int]:
    return reader.string(flexible=flexible), reader.int64(), reader.int16()


def _read_topic(reader: Reader, *, flexible: bool) -> TransactionTopic:
    name = reader.string(flexible=flexible)
    count = reader.array_length(flexible=flexible, min_element_bytes=4)
    topic = TransactionTopic(name, [reader.int32() for _ in range(count)])
    if flexible:
        reader.skip_tags()
    return topic


def _finish(reader: Reader, *, flexible: bool) -> None:
    if flexible:
        reader.skip_tags()
    reader.finish()
