"""What must be on a member's disk after a crash, by what was acknowledged before it."""

from __future__ import annotations

import msgspec

from pidkeeper.controller.raft.messages import Entry, HardState
from pidkeeper.snapshots.image import StateImage
from pidkeeper.snapshots.snapshot_id import SnapshotId
from tests.crash.facts import Broken, Facts


class View(msgspec.Struct, frozen=True):
    """The log as it may be found: the entries after index `start`, without a gap, up to `last`."""

    hard_state: HardState
    start: int
    last: int
    entries: dict[int, Entry]

    def with_append(self, entries: list[Entry], hard_state: HardState | None) -> View:
        """This log after one append, which may replace its end."""
        kept = self.entries
        if entries:
            kept = {index: entry for index, entry in kept.items() if index < entries[0].index}
            kept.update((entry.index, entry) for entry in entries)
        last = entries[-1].index if entries else self.last
        return View(hard_state or self.hard_state, self.start, last, kept)

    def reaches(self, snapshot: SnapshotId) -> bool:
        """Whether this log goes on from `snapshot`."""
        if snapshot.index <= self.start:
            return True
        entry = self.entries.get(snapshot.index)
        return entry is not None and entry.term == snapshot.term

    def behind(self, snapshot: SnapshotId) -> View:
        """What a start makes of this log when it does not reach `snapshot`: an empty one behind it, recovering."""
        commit = max(self.hard_state.commit, snapshot.index)
        hard_state = msgspec.structs.replace(self.hard_state, commit=commit, recovering=True)
        if hard_state.term < snapshot.term:
            hard_state = msgspec.structs.replace(hard_state, term=snapshot.term, vote=None)
        return View(hard_state, snapshot.index, snapshot.index, {})


class Hole(msgspec.Struct, frozen=True):
    """The allocations of the offsets `first` to before `end` went with the snapshot of a leader at `index`."""

    index: int
    first: int
    end: int


class Oracle:
    """`durable`: the log as acknowledged; `wanted`: the same after the call that is running.

    `snapshot`: the newest acknowledged one; `images`: what each snapshot that was ever begun holds; `keep_from`: from
    this index on the log keeps everything; `covered_to`, `owners_to`: the acknowledged ends of the two archives;
    `needed`: the acknowledged allocations and owners, by timestamp; `offsets`: their offsets; `labels`: timestamps of
    those in an entry's data.
    """

    def __init__(self) -> None:
        self.durable = View(HardState(recovering=True), 0, 0, {})
        self.wanted = self.durable
        self.snapshot = SnapshotId(0, 0)
        self.images: dict[SnapshotId, StateImage] = {}
        self.keep_from = 1
        self.covered_to = 0
        self.owners_to = 0
        self.needed: frozenset[int] = frozenset()
        self.offsets: dict[int, int] = {}
        self.labels: dict[bytes, list[int]] = {}
        self.holes: list[Hole] = []
        self.may_recover = False
        """Whether a cut-off end was found before, so that the member may count as recovering."""

    def check(self, facts: Facts) -> None:
        """Raises Broken."""
        self._check_snapshot(facts)
        differences = [self._difference(view, facts) for view in (self.durable, self.wanted)]
        if all(differences):
            raise Broken(f"the log is neither as acknowledged nor as wanted: {differences[0]}; {differences[1]}")
        self._check_allocations(facts)

    def settle(self, facts: Facts) -> None:
        """A start found this and went on from it: from now on it counts as acknowledged."""
        entries = {entry.index: entry for entry in facts.entries}
        last = facts.next_index - 1
        start = facts.entries[0].index - 1 if facts.entries else last
        self.durable = self.wanted = View(facts.hard_state, start, last, entries)
        self.snapshot = facts.snapshot
        self.keep_from = max(self.keep_from, start + 1)
        self.covered_to = facts.covered_to
        self.owners_to = facts.owners_to

    def _check_snapshot(self, facts: Facts) -> None:
        if facts.snapshot.index < self.snapshot.index:
            raise Broken(f"the newest snapshot is {facts.snapshot}, {self.snapshot} was acknowledged")
        expected = self.images.get(facts.snapshot)
        if facts.snapshot.index and facts.image != expected:
            raise Broken(f"snapshot {facts.snapshot} holds {facts.image}, not {expected}")
        if facts.covered_to < self.covered_to:
            raise Broken(f"the archive ends at offset {facts.covered_to}, {self.covered_to} was acknowledged")
        if facts.owners_to < self.owners_to:
            raise Broken(f"the owners end at offset {facts.owners_to}, {self.owners_to} was acknowledged")

    def _difference(self, view: View, facts: Facts) -> str | None:
        """Why `facts` is not what a start makes of `view`."""
        reached = view.reaches(facts.snapshot)
        expected = view if reached else view.behind(facts.snapshot)
        if facts.next_index != expected.last + 1:
            return f"the log ends at {facts.next_index - 1}, not {expected.last}"
        if problem := self._hard_state_difference(expected, facts):
            return problem
        for entry in facts.entries:
            if expected.entries.get(entry.index) != entry:
                return f"{entry} is there, not {expected.entries.get(entry.index)}"
        first = facts.entries[0].index if facts.entries else facts.next_index
        lasting = min(self.keep_from, facts.snapshot.index + 1) if facts.entries else facts.snapshot.index + 1
        if first > max(lasting, expected.start + 1):
            return f"the log starts at {first}, not at {lasting}"
        return None

    def _hard_state_difference(self, expected: View, facts: Facts) -> str | None:
        wanted = expected.hard_state
        if facts.truncated or (self.may_recover and facts.hard_state.recovering):
            wanted = msgspec.structs.replace(wanted, recovering=True)
        if not facts.entries and facts.hard_state.commit == facts.snapshot.index:
            wanted = msgspec.structs.replace(wanted, commit=max(wanted.commit, facts.snapshot.index))
        if facts.hard_state != wanted:
            return f"the hard state is {facts.hard_state}, not {wanted}"
        return None

    def _check_allocations(self, facts: Facts) -> None:
        """A member replays what is behind its snapshot; what is before has to be in the archive."""
        found = set(facts.labels)
        for entry in facts.entries:
            if entry.index > facts.snapshot.index:
                found.update(self.labels[entry.data])
        missing = {label for label in self.needed - found if not self._excused(label, facts)}
        if missing:
            raise Broken(f"what was given at offsets {sorted(self.offsets[label] for label in missing)} is nowhere")

    def _excused(self, label: int, facts: Facts) -> bool:
        offset = self.offsets[label]
        return any(hole.first <= offset < hole.end and facts.snapshot.index >= hole.index for hole in self.holes)
