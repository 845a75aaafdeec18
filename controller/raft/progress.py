"""What the leader knows about one member's log, and how fast it may send to it (dissertation, section 10.2.1)."""

from __future__ import annotations

import enum
from collections import deque

from pidkeeper.controller.raft.invariants import InvariantViolation
from pidkeeper.controller.raft.messages import SnapshotMeta


class ProgressState(enum.Enum):
    """`PROBE`: one message at a time until the logs meet. `REPLICATE`: pipelined. `SNAPSHOT`: chunks, no entries."""

    PROBE = "probe"
    REPLICATE = "replicate"
    SNAPSHOT = "snapshot"


PROBE = ProgressState.PROBE
REPLICATE = ProgressState.REPLICATE
SNAPSHOT = ProgressState.SNAPSHOT


class Progress:
    """One member as its leader sees it.

    `match`: its log is known to agree with ours and to be durable there through this index. `counted`: the highest
    index that it acknowledged in our term while it was not recovering; a fact of history, so it never falls.
    `next`: the next entry to send. `heard`: the tick of its last message. `recovery`: the number of its recovery (0:
    none), which ends when it holds the entry at `barrier` and that entry is committed (see `elections.py`).
    `estranged`: it recovers as a learner under the id of a voter, for whom it does not stand.
    `snapshot`, `offset`: the transfer under way and the chunk last asked for; `asked`, `moved`: the ticks of the last
    request and of the last change of offset.
    """

    __slots__ = (
        "_inflight",
        "_inflight_bytes",
        "_max_bytes",
        "_max_messages",
        "asked",
        "barrier",
        "counted",
        "estranged",
        "heard",
        "match",
        "moved",
        "next",
        "offset",
        "probe_sent",
        "recovery",
        "snapshot",
        "state",
    )

    def __init__(self, next_index: int, now: int, max_messages: int, max_bytes: int) -> None:
        self.match = self.counted = 0
        self.next = next_index
        self.state = PROBE
        self.probe_sent = False
        self.heard = now
        self.recovery = self.barrier = 0
        self.estranged = False
        self.snapshot: SnapshotMeta | None = None
        self.offset = self.asked = self.moved = 0
        self._inflight: deque[tuple[int, int]] = deque()
        self._inflight_bytes = 0
        self._max_messages = max_messages
        self._max_bytes = max_bytes

    @property
    def agreed(self) -> int:
        """How far it holds the log where everybody is to agree."""
        return 0 if self.estranged else self.match

    @property
    def paused(self) -> bool:
        """Whether no AppendEntries may be sent now."""
        if self.state is REPLICATE:
            return len(self._inflight) >= self._max_messages or self._inflight_bytes >= self._max_bytes
        return self.probe_sent or self.state is SNAPSHOT

    @property
    def inflight(self) -> int:
        """AppendEntries with entries that were sent and not yet acknowledged."""
        return len(self._inflight)

    def sent(self, last_index: int, size: int) -> None:
        """Entries through `last_index`, `size` bytes of payload, were sent in REPLICATE."""
        self.next = last_index + 1
        self._inflight.append((last_index, size))
        self._inflight_bytes += size

    def acknowledge(self, index: int) -> bool:
        """An accepted append through `index`; whether this was news (an old or repeated one is not)."""
        if index > self.match:
            self.match = index
            self.next = max(self.next, index + 1)
        elif index < self.match or self.state is not PROBE:
            return False
        if self.state is REPLICATE:
            self.free_to(index)
        elif self.state is PROBE:
            self.become_replicate()
        self.check()
        return True

    def reject(self, rejected_index: int, hint_index: int) -> bool:
        """A refused append at `rejected_index`; if it is current, `next` moves back, to `hint_index + 1` at most."""
        if self.state is REPLICATE:
            if rejected_index <= self.match:
                return False
            self.become_probe()
            return True
        if self.state is SNAPSHOT or self.next - 1 != rejected_index:
            return False
        self.next = max(min(rejected_index, hint_index + 1), self.match + 1)
        self.probe_sent = False
        return True

    def forget_match(self, next_index: int) -> None:
        """The member lost entries: nothing is known about its log any more; probe at `next_index`."""
        self.match = 0
        self.become_probe()
        self.next = max(next_index, 1)

    def become_probe(self) -> None:
        """Send one message at a time, from the first entry that is not known to be there."""
        self._enter(PROBE)
        self.next = self.match + 1

    def become_replicate(self) -> None:
        """Send without waiting, from the first entry that is not known to be there."""
        self._enter(REPLICATE)
        self.next = self.match + 1

    def become_snapshot(self, meta: SnapshotMeta, now: int) -> None:
        """Send chunks of `meta` from offset 0 instead of entries."""
        self._enter(SNAPSHOT)
        self.snapshot = meta
        self.offset = 0
        self.asked = self.moved = now

    def free_to(self, index: int) -> None:
        """Messages whose entries end at or below `index` are no longer in flight."""
        inflight = self._inflight
        while inflight and inflight[0][0] <= index:
            self._inflight_bytes -= inflight.popleft()[1]

    def free_first(self) -> None:
        """A full window makes room for one message: what was sent may be lost, and only a new message can tell."""
        if self._inflight:
            self._inflight_bytes -= self._inflight.popleft()[1]

    def check(self) -> None:
        """Raise InvariantViolation if match and next contradict each other."""
        if self.match >= self.next:
            raise InvariantViolation("R8", f"match {self.match} is not below next {self.next}")

    def _enter(self, state: ProgressState) -> None:
        self.state = state
        self.probe_sent = False
        self.snapshot = None
        self._inflight.clear()
        self._inflight_bytes = 0
