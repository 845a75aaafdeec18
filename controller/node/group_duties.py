"""What the leader does about consumer groups by itself: forget offsets that nobody goes on with (KIP-211). Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice
from typing import Final, NamedTuple

from pidkeeper.controller.node.transaction_duties import Ask
from pidkeeper.controller.state.groups.group import Group
from pidkeeper.controller.state.machine import StateMachine
from pidkeeper.controller.state.requests import ExpireOffsets
from pidkeeper.snapshots.groups_image import KeptOffset

GROUPS_A_TICK: Final = 100
OFFSETS_A_TICK: Final = 1000
"""That one tick looks at: a millisecond. All groups are seen within ten seconds, and all offsets within twenty."""

OFFSETS_A_REQUEST: Final = 200
"""That are forgotten together: with the longest names 52 KiB of the log."""

Row = tuple[str, int, KeptOffset]
"""Topic, partition, and what is committed there."""

_FIRST: Final = ("", -1)


class Look(NamedTuple):
    """One look at all groups, over several ticks. `end`: of the log when it began; `before_ms`: what was old then."""

    end: int
    before_ms: int


class GroupDuties:
    """The duties of one member while it leads. `retention_ms`: Kafka's `offsets.retention.minutes`, by the wall clock.

    That may be wrong, or may have been at a commit. So two looks must find an offset old and unchanged since, and time
    passes between them by ticks. A group with members keeps all offsets; one without has kept them since its last one
    left, or since their commit, whichever was later. A group of which nothing else is left is forgotten by the second
    look that finds it so. `expired`: offsets that were to be forgotten while this member led.
    """

    def __init__(
        self, machine: StateMachine, ask: Ask, *, ticks: Callable[[int], int], retention_ms: int, check_ms: int
    ) -> None:
        self._machine = machine
        self._ask = ask
        self._retention_ms = retention_ms
        self._look_ticks = ticks(check_ms)
        self.expired = 0
        self.lead(0)

    def lead(self, ticks: int) -> None:
        """This member leads from now on."""
        self._next_look = ticks
        self._before: Look | None = None
        self._now: Look | None = None
        # How far it has come: the group, and within it the topic and the partition.
        self._group: str | None = None
        self._place = _FIRST

    def tick(self, ticks: int, now_ms: int) -> None:
        """Time has passed; `now_ms` by the wall clock."""
        if self._now is None and ticks >= self._next_look:
            self._next_look = ticks + self._look_ticks
            self._now = Look(self._machine.next_offset, now_ms - self._retention_ms)
            self._group, self._place = None, _FIRST
        if self._now is not None:
            self._go_on(self._now)

    def _go_on(self, now: Look) -> None:
        room = OFFSETS_A_TICK
        groups = self._following()
        for group in groups:
            rows = [] if group.members else list(islice(group.committed_after(*self._place), room))
            if self._before is not None:
                self._expire(group, rows, Look(self._before.end, min(self._before.before_ms, now.before_ms)))
            self._group, room = group.group_id, room - len(rows)
            if not room:
                self._place = rows[-1][:2]
                return
            self._place = _FIRST
        if len(groups) < GROUPS_A_TICK:
            self._before, self._now = now, None

    def _following(self) -> list[Group]:
        """The next groups; first the one in whose midst it is, if it is there still."""
        groups = self._machine.groups
        there = None if self._group is None or self._place == _FIRST else groups.get(self._group)
        following = groups.after(self._group, GROUPS_A_TICK)
        return following if there is None else [there, *following]

    def _expire(self, group: Group, rows: Iterable[Row], twice: Look) -> None:
        """Have those forgotten that are old and unchanged since `twice`."""
        record = group.record
        if record is not None and (record.members or group.version >= twice.end):
            return
        if record is not None and not group.topics:
            self._ask(ExpireOffsets(group.group_id, group.version, ()), _nothing)
            return
        if record is not None and record.timestamp_ms > twice.before_ms:
            return
        old = [
            (topic, partition, kept.record_offset)
            for topic, partition, kept in rows
            if kept.record_offset < twice.end
            and kept.timestamp_ms <= twice.before_ms
            and not group.is_pending(topic, partition)
        ]
        self.expired += len(old)
        for first in range(0, len(old), OFFSETS_A_REQUEST):
            some = tuple(old[first : first + OFFSETS_A_REQUEST])
            self._ask(ExpireOffsets(group.group_id, group.version, some), _nothing)


def _nothing() -> None:
    """The next looks find them again."""
