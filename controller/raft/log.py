"""The replicated log in memory: everything after a compaction point, and how much of it is durable, committed, applied.

Durability is tracked per write, in the order of issue. Truncating the log also shortens what the writes under way will
have made durable. So a late acknowledgement can never cover an entry that was overwritten since it was written, not
even if an equal entry came back in its place: that one waits for its own write.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from pidkeeper.controller.raft.invariants import InvariantViolation
from pidkeeper.controller.raft.membership import Memberships
from pidkeeper.controller.raft.messages import ENTRY_BYTES, MAX_ENTRIES_PER_MESSAGE, Entry
from pidkeeper.protocol.records import VotersRecord, read_voters
from pidkeeper.snapshots.snapshot_id import SnapshotId


class RaftLog:
    """Entries `first_index`..`last_index`. `first_index - 1` is the compaction point: only its term is known.

    Always `applied <= delivered <= commit <= last_index` (R4, R5) and `stable <= submitted <= last_index`, where
    `delivered <= stable`; `commit` may be ahead of `stable`.
    """

    __slots__ = (
        "_entries",
        "_offset",
        "_offset_term",
        "_writes",
        "applied",
        "commit",
        "delivered",
        "last_index",
        "last_term",
        "memberships",
        "snapshot",
        "stable",
        "submitted",
    )

    def __init__(self, snapshot: SnapshotId, entries: Sequence[Entry], memberships: Memberships) -> None:
        """`entries`: the durable ones, contiguous. Those that do not connect to `snapshot` are left out.

        `memberships`: as of `snapshot`.
        """
        # The configurations in force by the entries above the snapshot. Only the log changes it, with its entries.
        self.memberships = memberships
        # The newest own snapshot that is durable. Its index never falls; entries at or below it may still be at hand.
        self.snapshot = snapshot
        # The compaction point, and its term. It never falls; entries at or below it are gone from memory.
        self._offset, self._offset_term = snapshot.index, snapshot.term
        # Entry `index` is at position `index - _offset - 1`. Grows and is cut at its end, is dropped at its front.
        self._entries = _connected(snapshot, entries)
        if self._entries and self._entries[0].index != snapshot.index + 1:
            # Older than the snapshot. The first one's predecessor has no known term, so the first one marks the point.
            if self._entries[0].index == 1:
                self._offset, self._offset_term = 0, 0
            else:
                self._offset, self._offset_term = self._entries[0].index, self._entries[0].term
                del self._entries[0]
        # The end of the log, durable or not, and the term there. Falls when a conflict is cut off (R3, R6).
        self.last_index = self._offset + len(self._entries)
        self.last_term = self._entries[-1].term if self._entries else self._offset_term
        # Durable through this index, and handed out for writing through that one. Both fall when the log is cut before
        # them, so `stable` never covers an entry that was overwritten since it was written.
        self.stable = self.submitted = self.last_index
        # Known to be committed; applied by the state machine; handed out for applying: each through this index. None
        # of them ever falls. As a snapshot is of applied entries, all of them start at its index.
        self.commit = self.applied = self.delivered = snapshot.index
        # Through which index each write under way will have made the log durable, oldest first. Lowered when the log is
        # cut: what is behind the cut waits for another write.
        self._writes: deque[int] = deque()
        self._note_memberships(self.slice(max(snapshot.index, self._offset) + 1, self.last_index))

    @property
    def first_index(self) -> int:
        """The lowest index whose entry is at hand (one past the end if there is none)."""
        return self._offset + 1

    def term(self, index: int) -> int | None:
        """The term of the entry at `index`; None if it was compacted or does not exist yet."""
        if index == self.last_index:
            return self.last_term
        position = index - self._offset
        if position == 0:
            return self._offset_term
        return self._entries[position - 1].term if 0 < position <= len(self._entries) else None

    def matches(self, index: int, term: int) -> bool:
        """Whether the entry at `index` is known to have `term`."""
        return self.term(index) == term

    def is_up_to_date(self, last_index: int, last_term: int, through: int | None = None) -> bool:
        """Whether a log ending at (`last_index`, `last_term`) holds at least as much as ours (paper, section 5.4.1).

        through: as much as ours up to there, which is at hand; all of it by default.
        """
        index = self.last_index if through is None else through
        term = self.term(index)
        assert term is not None, f"the entry at {index} was compacted"
        return (last_term, last_index) >= (term, index)

    def slice(self, low: int, high: int) -> list[Entry]:
        """Entries `low`..`high`, both included and at hand."""
        return self._entries[low - self._offset - 1 : high - self._offset]

    def page(self, low: int, max_bytes: int) -> list[Entry]:
        """Entries from `low` on: at most MAX_ENTRIES_PER_MESSAGE, and `max_bytes` of payload; one at least."""
        start = low - self._offset - 1
        entries = self._entries[start : start + MAX_ENTRIES_PER_MESSAGE]
        if len(entries) > 1:
            size = 0
            for count, entry in enumerate(entries):
                size += len(entry.data)
                if size > max_bytes and count:
                    return entries[:count]
        return entries

    def tail(self, high: int, max_entries: int, max_bytes: int) -> int:
        """From where on at most `max_entries` that take `max_bytes` lead up to `high`; one above if none do."""
        low = high + 1
        for entry in reversed(self.slice(max(self.first_index, low - max_entries), high)):
            max_bytes -= ENTRY_BYTES + len(entry.data)
            if max_bytes < 0:
                break
            low = entry.index
        return low

    def append(self, entry: Entry) -> None:
        """Add the leader's own next entry. Raises RecordError for a configuration that cannot be read back."""
        if entry.index != self.last_index + 1:
            raise InvariantViolation("R6", f"own entry at {entry.index}, but the log ends at {self.last_index}")
        if (record := read_voters(entry.data)) is not None:
            if not self.memberships.committed:
                before = self.memberships.newest.index
                raise InvariantViolation(
                    "R15", f"a configuration at {entry.index} after the uncommitted one at {before}"
                )
            self.memberships.append(entry.index, record)
        self._entries.append(entry)
        self.last_index, self.last_term = entry.index, entry.term

    def maybe_append(self, prev_index: int, prev_term: int, entries: Sequence[Entry]) -> int | None:
        """Take a leader's entries if the log matches at `prev`; the last index that they cover, or None if it does not.

        Truncates only at an entry whose term differs from the leader's (paper, section 5.3, figure 2).
        """
        # By log matching (paper, figure 3), logs that agree in one entry agree in all before it.
        if self.term(prev_index) != prev_term:
            return None
        if not entries:
            return prev_index
        _check_run(prev_index, prev_term, entries)
        last = prev_index + len(entries)
        if prev_index != self.last_index:
            # A late message may hold less than we have of the same leader, and must not cut that off.
            new = self._first_new(entries)
            if new == len(entries):
                return last
            entries = entries[new:]
            self._truncate(entries[0].index)
        self._entries.extend(entries)
        self.last_index, self.last_term = last, entries[-1].term
        self._note_memberships(entries)
        return last

    def find_conflict_by_term(self, index: int, term: int) -> tuple[int, int]:
        """The highest (index, its term) at or below `index` whose term is at most `term`; (index, 0) if not at hand.

        Both sides use it to skip a whole term per round trip when logs disagree (paper, end of section 5.3).
        """
        while True:
            own = self.term(index)
            if own is None:
                return index, 0
            if own <= term:
                return index, own
            index -= 1

    def commit_to(self, index: int) -> None:
        """Raise the commit index; a lower one is no news."""
        if index <= self.commit:
            return
        if index > self.last_index:
            told = f"told that {index} is committed, but the log ends at {self.last_index}"
            raise InvariantViolation(
                "R4",
                f"{told}, so it lacks what was acknowledged here: the disk holds an older state; format it anew",
            )
        self.commit = index
        self.memberships.commit_to(index)

    def check_held(self, index: int, term: int) -> None:
        """The leader says we acknowledged the entry of `term` at `index`. Another one means that the disk went back.

        Raises InvariantViolation.
        """
        held = self.term(index)
        if held is not None and held != term:
            raise InvariantViolation(
                "R4",
                f"told that {index} of term {term} is committed, which was acknowledged here, but the log holds "
                f"one of term {held}: the disk holds an older state; format it anew",
            )

    def begin_write(self) -> list[Entry]:
        """The entries that no write was issued for yet; that write becomes the youngest under way."""
        entries = self._entries[self.submitted - self._offset :] if self.submitted < self.last_index else []
        self.submitted = self.last_index
        self._writes.append(self.last_index)
        return entries

    def write_done(self) -> None:
        """The oldest write under way is durable."""
        self.stable = max(self.stable, self._writes.popleft())

    def deliver(self) -> list[Entry]:
        """The next committed and durable entries to apply, in order, at most MAX_ENTRIES_PER_MESSAGE."""
        # Not before it is durable here: the state machine's snapshot must not hold what our log could lose.
        high = min(self.commit, self.stable, self.delivered + MAX_ENTRIES_PER_MESSAGE)
        if high <= self.delivered:
            return []
        low, self.delivered = self.delivered + 1, high
        return self.slice(low, high)

    def applied_to(self, index: int) -> None:
        """The state machine has applied everything through `index`."""
        if not self.applied <= index <= self.delivered or index > self.commit:
            facts = f"applied {index} after {self.applied}, delivered {self.delivered}, commit {self.commit}"
            raise InvariantViolation("R5", facts)
        self.applied = index

    def snapshot_taken(self, snapshot: SnapshotId) -> None:
        """The own snapshot `snapshot` is durable; one that is not newer is no news."""
        if snapshot.index > self.snapshot.index:
            self.snapshot = snapshot

    def compact(self, keep_from: int) -> None:
        """Forget entries below `keep_from`; those that are not durable yet stay."""
        drop = min(keep_from, self.stable + 1) - self.first_index
        if drop > 0:
            self._offset_term = self._entries[drop - 1].term
            self._offset += drop
            del self._entries[:drop]

    def restore(self, snapshot: SnapshotId, voters: VotersRecord | None) -> None:
        """The state machine was restored from `snapshot`, and the log on disk restarted behind it: drop all entries.

        voters: the configuration in the snapshot.
        """
        if self.matches(snapshot.index, snapshot.term):
            raise InvariantViolation("R3", f"snapshot {snapshot} would drop entries that agree with it")
        self._entries.clear()
        self.snapshot = snapshot
        self._offset, self._offset_term = snapshot.index, snapshot.term
        self.last_index, self.last_term = snapshot.index, snapshot.term
        self.stable = self.submitted = snapshot.index
        self._writes = deque(min(end, snapshot.index) for end in self._writes)
        self.commit = self.applied = self.delivered = snapshot.index
        self.memberships.restart(snapshot.index, voters)

    def _note_memberships(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            if (record := read_voters(entry.data)) is not None:
                self.memberships.append(entry.index, record)

    def _first_new(self, entries: Sequence[Entry]) -> int:
        for position, entry in enumerate(entries):
            if self.term(entry.index) != entry.term:
                return position
        return len(entries)

    def _truncate(self, index: int) -> None:
        if index > self.last_index:
            return
        if index <= self.commit:
            raise InvariantViolation("R3", f"truncation at {index}, but {self.commit} is committed")
        del self._entries[index - self._offset - 1 :]
        self.memberships.truncate(index)
        # What is behind the cut is not durable any more, even if its write has ended or is under way.
        keep = index - 1
        self.stable, self.submitted = min(self.stable, keep), min(self.submitted, keep)
        self._writes = deque(min(end, keep) for end in self._writes)


def _check_run(prev_index: int, prev_term: int, entries: Sequence[Entry]) -> None:
    """Raise InvariantViolation unless the indexes rise one by one from `prev_index` and no term falls."""
    for index, entry in enumerate(entries, prev_index + 1):
        if entry.index != index:
            raise InvariantViolation("R4", f"entries after {prev_index} hold {entry.index} where {index} was due")
        if entry.term < prev_term:
            raise InvariantViolation("R1", f"entry {index} is of term {entry.term}, the one before it of {prev_term}")
        prev_term = entry.term


def _connected(snapshot: SnapshotId, entries: Sequence[Entry]) -> list[Entry]:
    """`entries` if they reach or follow `snapshot` and agree with it, else none: the snapshot has replaced them."""
    if not entries:
        return []
    first, last = entries[0].index, entries[-1].index
    if last - first + 1 != len(entries):
        raise ValueError(f"{len(entries)} entries from {first} to {last} are not contiguous")
    if first > snapshot.index + 1:
        raise ValueError(f"the log starts at {first}, but the snapshot covers only {snapshot.index}")
    if last < snapshot.index:
        return []
    if first <= snapshot.index and entries[snapshot.index - first].term != snapshot.term:
        return []
    return list(entries)
