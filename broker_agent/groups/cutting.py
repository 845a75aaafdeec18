"""Cuts what a client asks for at once into requests that the controllers take. Pure.

A request has at most MAX_COMMITTED_OFFSETS partitions, and is shorter than the longest body that members read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any, Final, NamedTuple

import msgspec

from pidkeeper.protocol.groups import (
    MAX_COMMITTED_OFFSETS,
    OFFSET_BYTES,
    TOPIC_OFFSETS_BYTES,
    PartitionOffset,
    TopicOffsets,
)
from pidkeeper.protocol.transactions import TopicPartitions

MAX_TOPICS_BYTES: Final = 48 * 1024
"""Of a request's topics, as JSON and as in a record, whichever is more. What else is in it takes 6 KiB with the longest
ids; a body has 64 KiB, and a record as many (`MAX_OFFSETS_BYTES`). The longest metadata takes 24 KiB, escaped."""

_JSON_TOPIC: Final = len('["",[]],')
_JSON_NUMBER: Final = len("2147483647,")


class Commit(NamedTuple):
    """An offset for one partition of a topic; `place`: where it stands in the client's request."""

    topic: str
    offset: PartitionOffset
    place: int

    @property
    def size(self) -> int:
        record = OFFSET_BYTES + len(self.offset.metadata.encode())
        return max(len(msgspec.json.encode(self.offset)) + 1, record)


class Named(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int

    @property
    def size(self) -> int:
        return _JSON_NUMBER


def cut_commits(commits: Sequence[Commit]) -> Iterator[tuple[Sequence[Commit], list[TopicOffsets]]]:
    """Parts of `commits` in their order, and the topics of a request for each."""
    for part in _parts(commits):
        by_topic = groupby(part, key=lambda one: one.topic)
        yield part, [TopicOffsets(topic, tuple(one.offset for one in ones)) for topic, ones in by_topic]


def cut_named(named: Sequence[Named]) -> Iterator[list[TopicPartitions]]:
    """The topics of each request, where partitions are named alone."""
    for part in _parts(named):
        by_topic = groupby(part, key=lambda one: one.topic)
        yield [TopicPartitions(topic, tuple(one.partition for one in ones)) for topic, ones in by_topic]


def _parts(ones: Sequence[Any]) -> Iterator[Sequence[Any]]:
    begin, size, topic = 0, 0, None
    for at, one in enumerate(ones):
        new = 0 if one.topic == topic else _topic_size(one.topic)
        if at - begin == MAX_COMMITTED_OFFSETS or size + new + one.size > MAX_TOPICS_BYTES:
            yield ones[begin:at]
            begin, size, new = at, 0, _topic_size(one.topic)
        size, topic = size + new + one.size, one.topic
    if begin < len(ones):
        yield ones[begin:]


def _topic_size(topic: str) -> int:
    return max(len(msgspec.json.encode(topic)) + _JSON_TOPIC, TOPIC_OFFSETS_BYTES + len(topic.encode()))
