"""Kafka's rules of groups and their offsets in plain dicts: slow, without an index, and one request after the other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pidkeeper.controller.state import requests
from pidkeeper.controller.state.groups import limits
from pidkeeper.protocol.errors import ErrorCode
from pidkeeper.protocol.groups import OFFSETS_TOPIC, offsets_partition
from tests.support.naive_logs import NaiveLogs

E = ErrorCode
Place = tuple[str, str, int]
Kept = tuple[int, str, int]
"""An offset, its metadata, and the offset of the record that committed it."""


@dataclass
class Gathered:
    """What was granted last of a group, and the offset of its record."""

    request: requests.CommitGroup
    version: int


class NaiveGroups:
    """The model: `logs` has topics and transactions. Each request is answered as `decide` should, an ErrorCode for a
    refusal. `at`: the offset of the next record."""

    def __init__(self) -> None:
        self.logs = NaiveLogs()
        self.at = 0
        self.gathered: dict[str, Gathered] = {}
        self.committed: dict[Place, Kept] = {}
        self.pending: dict[tuple[int, Place], Kept] = {}

    def ask(self, kind: str, request: Any) -> Any:
        """The answer."""
        if hasattr(self, kind):
            return getattr(self, kind)(request)
        under_way = {name: one.producer[0] for name, one in self.logs.transactions.items() if one.ongoing}
        answer = getattr(self.logs, kind)(request)
        for name, producer_id in under_way.items():
            now = self.logs.transactions[name]
            if not now.ongoing:
                self._settle(producer_id, committed=now.outcome is True)
        topics = self.logs.topics
        self.committed = {place: kept for place, kept in self.committed.items() if place[1] in topics}
        self.pending = {held: kept for held, kept in self.pending.items() if held[1][1] in topics}
        return answer

    def _settle(self, producer_id: int, *, committed: bool) -> None:
        for held, kept in list(self.pending.items()):
            if held[0] != producer_id:
                continue
            del self.pending[held]
            newer = self.committed.get(held[1])
            if committed and (newer is None or newer[2] < kept[2]):
                self.committed[held[1]] = kept

    # What is known.

    def names(self) -> set[str]:
        """Groups of which anything is known."""
        of_offsets = {place[0] for place in self.committed} | {place[0] for _, place in self.pending}
        return of_offsets | self.gathered.keys()

    def members(self, group_id: str) -> list[Any]:
        """Of the newest generation."""
        known = self.gathered.get(group_id)
        return [] if known is None else list(known.request.members)

    def version(self, group_id: str) -> int:
        """Of the newest record."""
        return self.gathered[group_id].version if group_id in self.gathered else -1

    def described(self, group_id: str) -> Any:
        """Version, generation, members, and numbers of offsets."""
        if group_id not in self.names():
            return None
        known = self.gathered.get(group_id)
        offsets = [place for place in self.committed if place[0] == group_id]
        held = {place for _, place in self.pending if place[0] == group_id}
        generation = -1 if known is None else known.request.generation
        return self.version(group_id), generation, self.members(group_id), len(offsets), len(held)

    def offset_bytes(self) -> int:
        """Names and metadata of all offsets, four bytes for each character where one is not ASCII."""
        kept = [(*place, one[1]) for place, one in self.committed.items()]
        kept += [(*held[1], one[1]) for held, one in self.pending.items()]
        texts = [text for group_id, topic, _, metadata in kept for text in (group_id, topic, metadata)]
        return sum(len(text) * (1 if text.isascii() else 4) for text in texts)

    def members_bytes(self) -> int:
        """Of all groups."""
        return sum(one.encoded_bytes for name in self.gathered for one in self.members(name))

    # Groups.

    def gather(self, request: requests.CommitGroup) -> Any:
        """Whether it was taken, and the group."""
        group_id, known = request.group_id, self.gathered.get(request.group_id)
        if known is not None and known.request == request:
            return True, self.described(group_id)
        if request.after != self.version(group_id):
            return False, self.described(group_id)
        ids = [one.member_id for one in request.members]
        static = [one.instance_id for one in request.members if one.instance_id]
        if len(set(ids)) < len(ids) or len(set(static)) < len(static):
            return E.INVALID_REQUEST
        if known is not None and request.generation < known.request.generation:
            return E.INVALID_REQUEST
        before, count = self.members_bytes(), len(self.names())
        self.gathered[group_id] = Gathered(request, self.at)
        grown = self.members_bytes() > before
        many = len(self.names()) > count and len(self.names()) > limits.MAX_GROUPS
        if many or (grown and self.members_bytes() > limits.MAX_MEMBERS_BYTES):
            del self.gathered[group_id]
            if known is not None:
                self.gathered[group_id] = known
            return E.COORDINATOR_NOT_AVAILABLE
        return True, self.described(group_id)

    def ungroup(self, request: requests.DeleteGroup) -> Any:
        """The group's id."""
        group_id = request.group_id
        if group_id not in self.names():
            return E.GROUP_ID_NOT_FOUND
        if self.members(group_id) or any(place[0] == group_id for _, place in self.pending):
            return E.NON_EMPTY_GROUP
        self._forget(group_id)
        return group_id

    def _forget(self, group_id: str) -> None:
        self.gathered.pop(group_id, None)
        self.committed = {place: kept for place, kept in self.committed.items() if place[0] != group_id}

    # Offsets.

    def keep(self, request: requests.CommitOffsets) -> Any:
        """The codes."""
        producer_id = -1
        if (asked := request.transaction) is not None:
            producer_id = asked.producer_id
            known = self.logs.transactions.get(asked.transactional_id)
            if known is None or known.producer[0] != producer_id:
                return E.INVALID_PRODUCER_ID_MAPPING
            if known.producer[1] != asked.producer_epoch:
                return E.PRODUCER_FENCED
            place = OFFSETS_TOPIC, offsets_partition(request.group_id)
            if not known.ongoing or place not in known.partitions:
                return E.INVALID_TXN_STATE
        if (refused := self._refused(request)) is not None:
            return refused
        codes, kept = [], {}
        for topic in request.topics:
            known_topic = self.logs.topics.get(topic.topic)
            for one in topic.partitions:
                if known_topic is None or one.partition >= len(known_topic.logs):
                    codes.append(3)
                elif len(one.metadata.encode()) > 4096:
                    codes.append(12)
                else:
                    codes.append(0)
                    kept[request.group_id, topic.topic, one.partition] = one.offset, one.metadata, self.at
        return self._take(producer_id, kept) or codes

    def _refused(self, request: requests.CommitOffsets) -> ErrorCode | None:
        group_id, generation = request.group_id, request.generation
        if group_id not in self.names():
            return E.ILLEGAL_GENERATION if generation >= 0 else None
        members = self.members(group_id)
        if not members and generation < 0:
            return None
        if request.broker is None:
            return E.NON_EMPTY_GROUP
        if (generation, request.member_id, request.instance_id) == (-1, "", None):
            return None if request.transaction is not None else E.UNKNOWN_MEMBER_ID
        static = {one.instance_id: one.member_id for one in members if one.instance_id}
        if request.instance_id is not None and request.instance_id in static:
            if static[request.instance_id] != request.member_id:
                return E.FENCED_INSTANCE_ID
        elif request.instance_id is not None:
            return E.UNKNOWN_MEMBER_ID
        if request.member_id not in [one.member_id for one in members]:
            return E.UNKNOWN_MEMBER_ID
        return None if generation == self.gathered[group_id].request.generation else E.ILLEGAL_GENERATION

    def _take(self, producer_id: int, kept: dict[Place, Kept]) -> ErrorCode | None:
        before = self.committed, self.pending
        counts = len(self.committed) + len(self.pending), self.offset_bytes(), len(self.names())
        self.committed, self.pending = before[0].copy(), before[1].copy()
        for place, one in kept.items():
            if producer_id == -1:
                self.committed[place] = one
            else:
                self.pending[producer_id, place] = one
        count, size, groups = len(self.committed) + len(self.pending), self.offset_bytes(), len(self.names())
        held = sum(who == producer_id for who, _ in self.pending)
        refused = None
        if producer_id != -1 and count > counts[0] and held > limits.MAX_PENDING:
            refused = E.INVALID_COMMIT_OFFSET_SIZE
        elif (
            counts[0] < count > limits.MAX_OFFSETS
            or counts[1] < size > limits.MAX_OFFSET_BYTES
            or counts[2] < groups > limits.MAX_GROUPS
        ):
            refused = E.COORDINATOR_NOT_AVAILABLE
        if refused is not None:
            self.committed, self.pending = before
        return refused

    def unkeep(self, request: requests.DeleteOffsets) -> Any:
        """How many."""
        if request.group_id not in self.names():
            return E.GROUP_ID_NOT_FOUND
        if request.broker is None and self.members(request.group_id):
            return E.NON_EMPTY_GROUP
        named = {(request.group_id, one.topic, number) for one in request.topics for number in one.partitions}
        gone = named & self.committed.keys()
        for place in gone:
            del self.committed[place]
        return len(gone)

    def lapse(self, request: requests.ExpireOffsets) -> None:
        """None."""
        group_id = request.group_id
        if self.version(group_id) != request.version or self.members(group_id):
            return
        held = {place for _, place in self.pending if place[0] == group_id}
        for topic, partition, at in request.offsets:
            place = group_id, topic, partition
            if place in self.committed and self.committed[place][2] == at and place not in held:
                del self.committed[place]
        if not held and not any(place[0] == group_id for place in self.committed):
            self._forget(group_id)
