"""What a quorum decides about consumer groups, as steps of a course.

Nothing is taken from the code under test but the records themselves, what a member then shows of its groups, and who
had asked for the offsets in a record: a record does not name the member.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Iterable
from typing import Any, NamedTuple

from pidkeeper.controller.state import requests
from pidkeeper.controller.state.machine import StateMachine
from pidkeeper.protocol.groups import (
    GroupRecord,
    OffsetsRecord,
    RemoveGroupRecord,
    RemoveOffsetsRecord,
)
from pidkeeper.protocol.logs import RemoveTopicRecord, TopicRecord
from pidkeeper.protocol.records import Record
from pidkeeper.protocol.transactions import (
    NO_PRODUCER_ID,
    AddPartitionsRecord,
    ForgetTransactionRecord,
    TransactionRecord,
)
from tests.simulation.group_model import GroupsImage, Place, image_of
from tests.simulation.transaction_model import COMPLETE_COMMIT, ONGOING, State, joined, state_of


class GroupStep(NamedTuple):
    """One step of the courses of a place, a group or a producer: those that are not None."""

    action: str
    arguments: dict[str, Any]
    place: Place | None = None
    group: str | None = None
    topic: str | None = None
    producer: str | None = None


class GroupRecorder:
    """Writes down the steps of all groups. `shown`: by the step behind which it was, what a member had then."""

    def __init__(self) -> None:
        self.steps: list[GroupStep] = []
        self.shown: dict[int, GroupsImage] = {}
        self.places: dict[Place, set[str]] = defaultdict(set)
        """Each with the producers that have held an offset of it."""
        self._asked: dict[OffsetsRecord, set[tuple[int, str]]] = defaultdict(set)
        self._versions: dict[str, list[int]] = defaultdict(list)
        """The offsets of a group's records, in order."""
        self._states: dict[str, State] = {}
        self._told: dict[str, tuple[int, bool]] = {}
        self._topics: dict[uuid.UUID, str] = {}
        self._closed = False

    def close(self) -> None:
        """Write down no more."""
        self._closed = True

    def decided(self, request: requests.CommitOffsets, record: OffsetsRecord) -> None:
        """A leader decides that a request's offsets may be committed, in that record."""
        self._asked[record].add((request.generation, request.member_id))

    def entry(self, records: Iterable[Record], first: int, machine: StateMachine) -> None:
        """An entry is committed whose first record has the offset `first`; a member that has applied it shows its
        groups."""
        if self._closed:
            return
        for offset, record in enumerate(records, first):
            self._record(record, offset)
        self.shown[len(self.steps)] = image_of(machine.groups)

    def _record(self, record: Record, offset: int) -> None:
        match record:
            case GroupRecord():
                self._advance(record, offset)
            case OffsetsRecord():
                self._commit(record)
            case RemoveOffsetsRecord():
                for topic in record.topics:
                    for number in topic.partitions:
                        self._add("Removes", {}, place=(record.group_id, topic.topic, number))
            case RemoveGroupRecord():
                self._versions.pop(record.group_id, None)
                self._add("Forgets", {}, group=record.group_id)
            case TopicRecord():
                self._topics[record.topic_id] = record.name
            case RemoveTopicRecord():
                self._add("Drops", {}, topic=self._topics.pop(record.topic_id))
            case AddPartitionsRecord() | TransactionRecord() | ForgetTransactionRecord():
                self._transact(record)

    def _advance(self, record: GroupRecord, offset: int) -> None:
        known = self._versions[record.group_id]
        after = known.index(record.after) + 1 if record.after in known else 0
        known.append(offset)
        told = {"by": record.broker_id, "after": after, "generation": record.generation}
        members = [one.member_id for one in record.members]
        self._add("Advances", {**told, "members": members}, group=record.group_id)

    def _commit(self, record: OffsetsRecord) -> None:
        by = [{"generation": one, "member": member} for one, member in sorted(self._asked[record])]
        plain = record.producer_id == NO_PRODUCER_ID
        for topic in record.topics:
            for one in topic.partitions:
                place = record.group_id, topic.topic, one.partition
                told: dict[str, Any] = {"offset": one.offset, "by": by}
                if not plain:
                    told |= {"producer": producer_name(record.producer_id), "epoch": record.producer_epoch}
                    self.places[place].add(told["producer"])
                self.places[place] |= set()
                self._add("CommitsPlain" if plain else "Holds", told, place=place)

    def _transact(self, record: AddPartitionsRecord | TransactionRecord | ForgetTransactionRecord) -> None:
        before = self._states.get(record.transactional_id)
        if isinstance(record, ForgetTransactionRecord):
            self._states.pop(record.transactional_id, None)
            return
        after = joined(before, record) if isinstance(record, AddPartitionsRecord) else state_of(record)
        assert after is not None, f"{record} joins what nobody began"
        self._states[record.transactional_id] = after
        if before is not None and before.status == ONGOING != after.status:
            epoch = after.pair[1] if after.pair[0] == before.pair[0] else before.pair[1] + 1
            producer = producer_name(before.pair[0])
            self._told[producer] = epoch, False
            ended = {"producer": producer, "epoch": epoch, "commit": after.status == COMPLETE_COMMIT}
            self._add("Ended", ended, producer=producer)
        producer, now = producer_name(after.pair[0]), (after.pair[1], after.status == ONGOING)
        if self._told.get(producer, (0, False)) != now:
            self._told[producer] = now
            self._add("Transacts", {"producer": producer, "epoch": now[0], "ongoing": now[1]}, producer=producer)

    def _add(self, action: str, arguments: dict[str, Any], **of: Any) -> None:
        self.steps.append(GroupStep(action, arguments, **of))


def producer_name(producer_id: int) -> str:
    """Of a producer, in the specification's words."""
    return f"p{producer_id}"
