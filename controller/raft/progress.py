"""What the leader knows about one member's log, and how fast it may send to it (dissertation, section 10.2.1)."""

from __future__ import annotations

import enum
from collections import deque

from pidkeeper.controller.raft.invariants import InvariantViolation
from pidkeeper.snapshots.snapshot_id import SnapshotId


class ProgressState(enum.Enum):
    """`PROBE`: one message at a time until the logs meet. `REPLICATE`: pipelined. `SNAPSHOT`: chunks, no entries."""

    PROBE = "probe"
    REPLICATE = "replicate"
    SNAPSHOT = "snapshot"


PROBE = ProgressState.PROBE
REPLICATE = ProgressState.REPLICATE
SNAPSHOT = ProgressState.SNAPSHOT


class Progress:
    """One member as its leader sees it in this term; the leader has one for itself, too.

    Indexes are log indexes, ticks are those of the leadership's clock (`Leadership.now`). Only the leadership calls
    what changes a progress, and only on a message of this term or of its own accord.
    """

    __slots__ = (
        "_inflight",
        "_inflight_bytes",
        "_max_bytes",
        "_max_messages",
        "asked",
        "barrier",
        "counted",
        "heard",
        "id_reused",
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
        # The member's log is known to agree with the leader's through this index, and to be durable there: the paper's
        # matchIndex. Only an accepted append or an installed snapshot raises it; a heartbeat reply does not, for it
        # names the end of a log that may differ from the leader's. Falls to 0 when the member has lost entries.
        self.match = 0
        # The highest index that the member acknowledged in this term while it was not recovering. It never falls: even
        # if the member loses the entry later, it held it and had not forgotten any promise when it said so. The
        # majority rule counts this; the unanimous rule counts `agreed`. counted > match only after `forget_match`.
        self.counted = 0
        # The next entry to send: the paper's nextIndex. Always above `match` (R8). In PROBE a guess, which rejections
        # move down; in REPLICATE optimistic, one past the last entry sent; in SNAPSHOT unused.
        self.next = next_index
        # PROBE at first and whenever something may have been lost on the way; REPLICATE after an accepted append;
        # SNAPSHOT while the entry before `next` is gone from the leader's log. Changed by the `become_` methods alone.
        self.state = PROBE
        # In PROBE: an AppendEntries is on its way, so no other is sent. A reply, a heartbeat reply or a new link clears
        # it. Without meaning in the other states.
        self.probe_sent = False
        # The tick at which the member was last heard in this term; the start of the leadership or of this progress
        # before that. Never falls. Check-quorum reads it (dissertation, section 6.2).
        self.heard = now
        # The number of the recovery that the member is in, as it said in its last reply; 0: none. While it is not 0,
        # the acknowledgements of the member count by the unanimous rule alone (see `elections.py`).
        self.recovery = 0
        # The leader's entry that ends the recovery once it is committed and held by the member. Appended after the
        # leader heard of the recovery, so every recovery has one of its own. Valid while `recovery` is not 0.
        self.barrier = 0
        # Whether the one that answers is a learner with an empty disk, while the leader's configurations still know a
        # voter by this id. What it holds is not held by that voter. As of its last append reply.
        self.id_reused = False
        # The snapshot that is being sent, None in the other states. The transfer keeps to it although the leader may
        # take a newer one meanwhile.
        self.snapshot: SnapshotId | None = None
        # In SNAPSHOT: the byte of the chunk last asked for, as the member wants it.
        self.offset = 0
        # In SNAPSHOT: the ticks of the last request to the driver for a chunk, and of the last change of `offset`.
        self.asked = self.moved = 0
        # In REPLICATE: (last index, bytes of payload) of each AppendEntries with entries that was sent and not yet
        # acknowledged, by rising index; empty in the other states. `_inflight_bytes` is the sum of the bytes.
        self._inflight: deque[tuple[int, int]] = deque()
        self._inflight_bytes = 0
        # The limits of the window; one message may pass the limit of bytes.
        self._max_messages = max_messages
        self._max_bytes = max_bytes

    @property
    def agreed(self) -> int:
        """How far the member holds the log, as the unanimous rule may count it."""
        return 0 if self.id_reused else self.match

    @property
    def held(self) -> int:
        """How far the member will hold the log when it has what is on its way to it, a snapshot included."""
        return self.match if self.snapshot is None else max(self.match, self.snapshot.index)

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

    # What the member said.

    def hear(self, now: int) -> None:
        """A message of the member came, whatever it says."""
        self.heard = now

    def hear_append_reply(self, now: int, id_reused: bool) -> None:
        """An append reply came; `id_reused`: see the field."""
        self.heard = now
        self.id_reused = id_reused

    def acknowledge(self, index: int) -> bool:
        """An accepted append through `index`; whether this was news (an old or repeated one is not)."""
        if index > self.match:
            self.match = index
            self.next = max(self.next, index + 1)
        elif index < self.match or self.state is not PROBE:
            # Late or repeated. But in PROBE an acknowledgement of `match` is the answer to the probe.
            return False
        if self.state is REPLICATE:
            self.free_to(index)
        elif self.state is PROBE:
            self.become_replicate()
        self.check()
        return True

    def count(self, index: int) -> None:
        """Count an acknowledgement through `index`, given outside of any recovery; `index` is above `counted`."""
        self.counted = index

    def reject(self, rejected_index: int, hint_index: int) -> bool:
        """A refused append at `rejected_index`; if it is current, `next` moves back, to `hint_index + 1` at most."""
        if self.state is REPLICATE:
            # What was acknowledged since cannot be refused: the refusal is late.
            if rejected_index <= self.match:
                return False
            self.become_probe()
            return True
        if self.state is SNAPSHOT or self.next - 1 != rejected_index:
            return False
        # At least one entry back, so that the probes end; never into what is known to agree.
        self.next = max(min(rejected_index, hint_index + 1), self.match + 1)
        self.probe_sent = False
        return True

    def hear_heartbeat_reply(self, now: int) -> None:
        """Whoever answers a heartbeat can take a message: a lost probe or a full window holds nothing up for ever."""
        self.heard = now
        self.probe_sent = False
        if self.state is REPLICATE and self.paused:
            self.free_first()

    def note_recovery(self, recovery: int, barrier: int) -> None:
        """The member is in recovery `recovery`, which the entry at `barrier` will end; 0 and 0: it has recovered."""
        self.recovery = recovery
        self.barrier = barrier

    def forget_match(self, next_index: int) -> None:
        """The member lost entries: nothing is known about its log any more; probe at `next_index`."""
        self.match = 0
        self.become_probe()
        self.next = max(next_index, 1)

    # What was sent, and how to go on.

    def sent(self, last_index: int, size: int) -> None:
        """Entries through `last_index`, `size` bytes of payload, were sent in REPLICATE."""
        self.next = last_index + 1
        self._inflight.append((last_index, size))
        self._inflight_bytes += size

    def await_reply(self) -> None:
        """Send no other probe until the member was heard."""
        self.probe_sent = True

    def allow_probe(self) -> None:
        """Send another probe: the one before may be lost, or must not hold up a last message."""
        self.probe_sent = False

    def become_probe(self) -> None:
        """Send one message at a time, from the first entry that is not known to be there."""
        self._enter(PROBE)
        self.next = self.match + 1

    def become_replicate(self) -> None:
        """Send without waiting, from the first entry that is not known to be there."""
        self._enter(REPLICATE)
        self.next = self.match + 1

    def become_snapshot(self, snapshot: SnapshotId, now: int) -> None:
        """Send chunks of `snapshot` from offset 0 instead of entries."""
        self._enter(SNAPSHOT)
        self.snapshot = snapshot
        self.offset = 0
        self.asked = self.moved = now

    def ask_chunk(self, offset: int, now: int) -> None:
        """The driver was asked for the chunk at byte `offset`."""
        self.offset = offset
        self.asked = now

    def move(self, now: int) -> None:
        """The member wants another chunk than the one last asked for: the transfer makes headway."""
        self.moved = now

    def installed(self, index: int) -> None:
        """The member has put a snapshot through `index` in force: find out by a probe where its log goes on."""
        self.match = max(self.match, index)
        self.become_probe()

    def free_to(self, index: int) -> None:
        """Messages whose entries end at or below `index` are no longer in flight."""
        inflight = self._inflight
        while inflight and inflight[0][0] <= index:
            self._inflight_bytes -= inflight.popleft()[1]

    def free_first(self) -> None:
        """A full window makes room for one message: what was sent may be lost, and only a new message can tell."""
        if self._inflight:
            self._inflight_bytes -= self._inflight.popleft()[1]

    # The leader's own log.

    def append_own(self, index: int) -> None:
        """The leader appended its entry at `index`."""
        self.next = index + 1

    def store_own(self, index: int, *, counts: bool) -> None:
        """The leader's log is durable through `index`; it acknowledges that as any member does if it `counts`."""
        self.match = index
        if counts:
            self.counted = index
        self.check()

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
