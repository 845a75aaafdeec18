"""The offsets of groups, told to clients (KIP-447, KIP-709).

Any agent tells them: they come from a state of the quorum that was confirmed. Rules are Kafka's (`KafkaApis`): DESCRIBE
of the group and of each topic; where all offsets are asked for, those of other topics are left out. A partition without
an offset, or of an unknown group, has NO_OFFSET.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from itertools import groupby
from typing import Final, Self

import msgspec

from pidkeeper.broker_agent.coordinator.caller import Caller
from pidkeeper.broker_agent.data.byte_budget import ByteBudget
from pidkeeper.broker_agent.data.calls import Registration
from pidkeeper.broker_agent.data.codes import NONE, TOPIC_AUTHORIZATION_FAILED
from pidkeeper.broker_agent.groups.calls import GroupCalls
from pidkeeper.broker_agent.groups.cutting import Named, cut_named
from pidkeeper.broker_agent.groups.permitting import is_partition, no_group
from pidkeeper.broker_agent.groups.refusals import told_code
from pidkeeper.broker_agent.kafka.wire.groups.offset_fetch import (
    BATCHED_SINCE,
    FetchedGroup,
    FetchedOffset,
    FetchedTopicOffsets,
    GroupOffsets,
    OffsetFetchRequest,
    offset_fetch_response,
)
from pidkeeper.broker_agent.kafka.wire.groups.partitions import TopicPartitions
from pidkeeper.broker_agent.security.resources import GROUP_DESCRIBE, TOPIC_DESCRIBE
from pidkeeper.protocol import group_messages
from pidkeeper.protocol.errors import ErrorCode, RequestError

GATHERED_BYTES: Final = 32 * 1024 * 1024
"""Of offsets that all answers under way have together: 100,000 without metadata, half of what a quorum keeps, or 7,600
with the longest. Whoever asks for all offsets of a group with more is refused with MESSAGE_TOO_LARGE; whoever comes
while there is no room, with COORDINATOR_LOAD_IN_PROGRESS."""

OFFSET_BYTES: Final = 320
"""At most, of an offset while it is gathered and encoded, without its metadata."""


class _Share:
    """What one answer has of the bytes of all; given back when the answer is made."""

    def __init__(self, budget: ByteBudget) -> None:
        self._budget = budget
        self._held = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._budget.give_back(self._held)

    def take(self, size: int, of_group: int) -> None:
        """`size` more for a group that has `of_group` already. Raises RequestError."""
        if of_group + size > self._budget.capacity:
            raise RequestError(ErrorCode.MESSAGE_TOO_LARGE, "the group has more offsets than are told at once")
        if not self._budget.take_now(size):
            raise RequestError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "there is no room for more offsets right now")
        self._held += size


class OffsetFetcher:
    """Tells clients where their groups are to go on."""

    def __init__(self, calls: GroupCalls, session: Registration, gathered_bytes: int = GATHERED_BYTES) -> None:
        self._calls = calls
        self._session = session
        self._budget = ByteBudget(gathered_bytes)

    async def fetch(self, request: OffsetFetchRequest, version: int, caller: Caller) -> bytes:
        """The body of the answer to an OffsetFetch."""
        with _Share(self._budget) as share:
            groups = [await self._fetched(one, caller, share, stable=request.require_stable) for one in request.groups]
            if version < BATCHED_SINCE:
                groups = [_spread(found, asked) for found, asked in zip(groups, request.groups, strict=True)]
            return offset_fetch_response(version, groups)

    async def _fetched(self, group: GroupOffsets, caller: Caller, share: _Share, *, stable: bool) -> FetchedGroup:
        if code := no_group(group.group_id, GROUP_DESCRIBE, caller):
            return FetchedGroup(group.group_id, (), code)
        try:
            if group.topics is None:
                topics = await self._all(group.group_id, caller, share, stable=stable)
            else:
                topics = await self._named(group.group_id, group.topics, caller, share, stable=stable)
        except RequestError as error:
            return FetchedGroup(group.group_id, (), told_code(error, self._session, None))
        return FetchedGroup(group.group_id, topics)

    async def _all(self, group_id: str, caller: Caller, share: _Share, *, stable: bool) -> list[FetchedTopicOffsets]:
        request = group_messages.FetchOffsetsRequest(group_id, None, stable)
        found = [one async for one in self._offsets(request, caller, share)]
        return [
            FetchedTopicOffsets(topic, [_told(one) for one in ones])
            for topic, ones in groupby(found, key=lambda one: one.topic)
            if caller.may(TOPIC_DESCRIBE, topic)
        ]

    async def _named(
        self, group_id: str, topics: Sequence[TopicPartitions], caller: Caller, share: _Share, *, stable: bool
    ) -> list[FetchedTopicOffsets]:
        allowed = {one.topic: caller.may(TOPIC_DESCRIBE, one.topic) for one in topics}
        wanted = [
            Named(one.topic, partition)
            for one in topics
            for partition in one.partitions
            if allowed[one.topic] and is_partition(one.topic, partition)
        ]
        found: dict[tuple[str, int], FetchedOffset] = {}
        for part in cut_named(wanted):
            request = group_messages.FetchOffsetsRequest(group_id, part, stable)
            async for one in self._offsets(request, caller, share):
                found[one.topic, one.partition] = _told(one)

        def told(topic: str, partition: int) -> FetchedOffset:
            code = NONE if allowed[topic] else TOPIC_AUTHORIZATION_FAILED
            return found.get((topic, partition)) or FetchedOffset(partition, error_code=code)

        return [FetchedTopicOffsets(one.topic, [told(one.topic, each) for each in one.partitions]) for one in topics]

    async def _offsets(
        self, request: group_messages.FetchOffsetsRequest, caller: Caller, share: _Share
    ) -> AsyncIterator[group_messages.FetchedOffset]:
        """Those of all pages. Raises RequestError."""
        taken = 0
        while True:
            if caller.has_hung_up():
                raise RequestError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "the caller has closed its connection")
            page = await self._calls.fetch_offsets(request)
            size = sum(OFFSET_BYTES + len(one.metadata) for one in page.offsets)
            share.take(size, taken)
            taken += size
            for one in page.offsets:
                yield one
            if page.next_after is None or not page.offsets:
                return
            request = msgspec.structs.replace(request, after=page.next_after)


def _told(one: group_messages.FetchedOffset) -> FetchedOffset:
    return FetchedOffset(one.partition, one.offset, one.leader_epoch, one.metadata, one.error_code)


def _spread(found: FetchedGroup, asked: GroupOffsets) -> FetchedGroup:
    """The same with the code of the group at each partition that was asked for. Version 1 has it nowhere else; and
    aiokafka looks nowhere else, and would take a group of which nothing can be told for one without offsets."""
    if not found.error_code:
        return found
    topics = [
        FetchedTopicOffsets(one.topic, [FetchedOffset(each, error_code=found.error_code) for each in one.partitions])
        for one in asked.topics or ()
    ]
    return FetchedGroup(found.group_id, topics, found.error_code)
