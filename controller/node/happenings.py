"""What happens at a member, noted while somebody watches, and handed over in small portions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pidkeeper.controller.node.ledger import block_of
from pidkeeper.controller.state.machine import Allocation, allocations
from pidkeeper.protocol.events import AllocationsEvent, BrokerEvent, Change, Event, LeaderEvent, MemberEvent, Reach
from pidkeeper.protocol.messages import AllocatedBlock
from pidkeeper.protocol.records import (
    BrokerRegistrationChangeRecord,
    Record,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)

MAX_BLOCKS: Final = 100
"""Blocks in one portion, the first ones; 13 KiB of JSON. Nobody reads as many, and the history has them all."""

MAX_CHANGES: Final = 256
"""Other changes in one portion, the last ones."""


class Happenings:
    """Notes what happened since `take` was called last. Nothing is noted, nor asked, before `watched` is set."""

    def __init__(self) -> None:
        self.watched = False
        self._blocks: list[tuple[int, Allocation]] = []
        self._left_out = 0
        self._leaders: list[tuple[int | None, int, str | None]] = []
        self._brokers: list[tuple[int, Change]] = []
        self._reach: dict[int, Reach] = {}

    def watch(self, watched: bool) -> None:
        """Begin to take notes, or throw them away and take none."""
        if self.watched != watched:
            self.watched = watched
            self.take(0, {})

    def applied(self, records: Sequence[Record], first_offset: int) -> None:
        """These were committed and applied; the first one has `first_offset`."""
        given = allocations(records, first_offset)
        room = MAX_BLOCKS - len(self._blocks)
        self._blocks += given[:room]
        self._left_out += max(0, len(given) - room)
        for record in records:
            match record:
                case RegisterBrokerRecord():
                    self._brokers.append((record.broker_id, "registered"))
                case BrokerRegistrationChangeRecord():
                    self._brokers.append((record.broker_id, "fenced" if record.fenced else "unfenced"))
                case UnregisterBrokerRecord():
                    self._brokers.append((record.broker_id, "unregistered"))
                case _:
                    pass
        del self._brokers[:-MAX_CHANGES]

    def led_by(self, leader_id: int | None, term: int, cause: str | None) -> None:
        """The leader that this member knows is another one, or none."""
        self._leaders.append((leader_id, term, cause))
        del self._leaders[:-MAX_CHANGES]

    def take(self, now_ms: int, states: dict[int, str]) -> list[Event]:
        """What was noted, as of `now_ms`, and who of the members can be reached otherwise than before.

        `states`: those that the leader sees of the others, by id; empty where another member leads.
        """
        events: list[Event] = [LeaderEvent(*change, now_ms) for change in self._leaders]
        events += [BrokerEvent(broker_id, change, now_ms) for broker_id, change in self._brokers]
        if self._blocks:
            blocks: list[AllocatedBlock] = [block_of(*one) for one in self._blocks]
            events.append(AllocationsEvent(blocks, self._left_out))
        reach = {member_id: _reach(state) for member_id, state in states.items()}
        for member_id, now in reach.items():
            if self._reach.get(member_id, now) != now:
                events.append(MemberEvent(member_id, now, now_ms))
        self._blocks, self._left_out, self._leaders, self._brokers, self._reach = [], 0, [], [], reach
        return events


def _reach(state: str) -> Reach:
    if state == "unreachable":
        return "unreachable"
    return "recovering" if state == "recovering" else "reachable"
