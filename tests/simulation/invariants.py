"""What must hold at every moment, looked at from outside: none of it trusts what a member says of itself.

- a term has one leader, who holds whatever was committed in earlier terms;
- the entry at a committed index never changes, on no member; equal indexes give equal states;
- an entry is committed only once a majority has held it on disk;
- a member votes once in a term, by what is on its disk; no vote, acknowledgement or candidacy leaves before its write;
- a part of a snapshot, whose reading takes its time, leaves only while its sender still leads in that term;
- the quorum changes by one voter at a time, each configuration committed before the next is begun; who becomes
  a voter has caught up as a learner; who is no voter neither stands nor leads nor counts;
- whoever leads has who the voters are in its log, once all members can read that, before any block;
- no member is given a record that its build cannot read;
- terms, commit and applied indexes never fall; a disk that was not damaged brings back all that was acknowledged.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from pidkeeper.controller.raft.core import Role
from pidkeeper.controller.raft.messages import (
    MAX_ENTRY_BYTES,
    AppendEntriesReply,
    Entry,
    HardState,
    InstallSnapshot,
    Message,
    RequestVote,
    RequestVoteReply,
)
from pidkeeper.controller.state.machine import Allocation, StateMachine
from pidkeeper.protocol.metadata_version import LATEST, MEMBERSHIP
from pidkeeper.protocol.migration import MigrationRecord
from pidkeeper.protocol.records import Record, VotersRecord, decode_batch, needed_version, read_voters
from pidkeeper.snapshots.image import IdRange, StateImage
from pidkeeper.snapshots.snapshot_id import SnapshotId
from tests.simulation.history import History
from tests.simulation.world import Violation, World

if TYPE_CHECKING:
    from tests.simulation.member import Member
    from tests.simulation.process import Process

ANY_TERM = -1
LARGE_ENTRY_BYTES = MAX_ENTRY_BYTES // 2


_State = tuple[int, int, MigrationRecord | None, tuple[IdRange, ...]]
"""The next offset, the next producer ID, the newest record of the migration, what is left of own blocks."""


class _Disk:
    """What was seen to become durable at one member since its disk was last damaged."""

    def __init__(self) -> None:
        self.votes: dict[int, int] = {}
        self.term = 0
        self.recovering = False
        self.last = SnapshotId(0, 0)


class Configuration:
    """Who the members are, from the entry at `index` on. `record` is None for what the first files say."""

    __slots__ = ("index", "members", "record", "voters")

    def __init__(
        self, index: int, voters: frozenset[int], members: frozenset[int], record: VotersRecord | None
    ) -> None:
        self.index = index
        self.voters = voters
        self.members = members
        self.record = record

    @classmethod
    def of(cls, index: int, record: VotersRecord) -> Configuration:
        """The one in the entry at `index`."""
        members = frozenset(member.id for member in record.members)
        return cls(index, frozenset(member.id for member in record.members if member.voting), members, record)

    def has_majority(self, nodes: Iterable[int]) -> bool:
        """Whether more than half of the voters are among `nodes`."""
        return 2 * len(self.voters.intersection(nodes)) > len(self.voters)


class Monitor:
    """Watches all members. Raises Violation in the event in which a promise was broken."""

    def __init__(self, world: World, history: History, voters: tuple[int, ...], machines: Iterable[int]) -> None:
        self.world = world
        self.history = history
        self.elections = 0
        self.snapshots_installed = 0
        self.committed: list[tuple[int, bytes]] = []
        self.next_id = 0
        self.on_commit: list[Callable[[list[Record]], None]] = []
        self._readable_since: int | None = None
        """The term in which all members could read a VotersRecord first."""
        self._commit_terms: list[int] = []
        """For every committed index the highest term in which it can have been committed."""
        self._states: list[_State] = []
        self._leaders: dict[int, int] = {}
        first = frozenset(voters)
        self._configurations = [Configuration(0, first, first, None)]
        """The committed ones."""
        self._begun: dict[tuple[int, int], Configuration] = {}
        """Those that leaders appended, by term and index."""
        self._votes: dict[int, set[tuple[int, int]]] = {}
        """By term: (voter, candidate), as they became durable."""
        self._disks = {node: _Disk() for node in machines}
        self._held: dict[int, dict[int, int]] = {node: {} for node in self._disks}

    @property
    def configuration(self) -> Configuration:
        """The newest one that is committed."""
        return self._configurations[-1]

    def opened(self, process: Process) -> None:
        """A member came up from its disk."""
        member, storage = process.member, process.storage
        log, disk = storage.log, self._disks[process.node_id]
        if not member.damaged or (not log.hard_state.recovering and member.forgot is None):
            self._check_nothing_lost(process, disk)
        if member.damaged:
            self._disks[process.node_id] = disk = _Disk()
            member.damage_is_latent = False
            end = SnapshotId(process.core.last_index, process.core.log.last_term)
            self._look_for_recovery(member, log.hard_state.recovering, end)
        disk.recovering = log.hard_state.recovering
        if log.truncated is not None:
            self.world.fault("tail_torn", f"member {process.node_id}: {log.truncated}")
        self._note_hard_state(member, disk, log.hard_state)
        held = self._held[process.node_id]
        for entry in log.entries:
            held[entry.index] = entry.term
        process.seen_term, process.seen_commit = process.core.term, process.core.commit
        self.world.mix(process.node_id, process.core.term, storage.wal.next_index)
        if self.world.trace is not None:
            self.world.note(
                f"member {process.node_id} starts: {log.hard_state}, snapshot {storage.snapshot}, "
                f"log to {storage.wal.next_index - 1}, damaged {member.damaged}"
            )

    def _check_readable(self, process: Process, entries: list[Entry]) -> None:
        for entry in entries:
            for record in decode_batch(entry.data):
                if needed_version(record) > process.build:
                    facts = f"member {process.node_id} is of build {process.build}: {record} at {entry.index}"
                    raise Violation("upgrade", facts)

    def wrote(self, process: Process, entries: list[Entry], hard_state: HardState | None) -> None:
        """A write of the log returned."""
        node = process.node_id
        if process.build < LATEST and not process.taken_back:
            self._check_readable(process, entries)
        disk = self._disks[node]
        if entries:
            held = self._held[node]
            for entry in entries:
                held[entry.index] = entry.term
            disk.last = SnapshotId(entries[-1].index, entries[-1].term)
            process.member.top = max(process.member.top, disk.last.index)
        member = process.member
        if hard_state is not None:
            self._note_hard_state(member, disk, hard_state)
            disk.recovering = hard_state.recovering
        if member.damaged and not member.damage_is_latent and (hard_state is not None or member.forgot is not None):
            self._look_for_recovery(member, disk.recovering, disk.last)

    def _look_for_recovery(self, member: Member, recovering: bool, end: SnapshotId) -> None:
        """A damaged disk may be as good as any by now."""
        if member.forgot is not None and (end.term, end.index) >= (member.forgot.term, member.forgot.index):
            member.forgot = None
        if not recovering and member.forgot is None:
            member.damaged = False
            self.world.note(f"member {member.node_id} has recovered")

    def interrupted(self, process: Process, entries: list[Entry]) -> None:
        """A write of `entries` may be durable, although it never returned: what it replaces may be gone."""
        disk = self._disks[process.node_id]
        if process.core.installing is not None:
            disk.last = SnapshotId(0, ANY_TERM)
        elif entries and entries[0].index <= disk.last.index:
            disk.last = SnapshotId(entries[0].index - 1, ANY_TERM)

    def changed(self, process: Process) -> None:
        """Term, role or commit index differ from the last look."""
        core, node = process.core, process.node_id
        if process.node.gate.founding is None:
            raise Violation("took-part-while-blank", f"member {node} is in term {core.term}, {core.role}")
        if core.term < process.seen_term or core.commit < process.seen_commit:
            raise Violation(
                "monotone", f"member {node}: term {core.term}, commit {core.commit} after {process.seen_term}"
            )
        if core.role is not process.seen_role or core.term != process.seen_term:
            self._became(process)
        process.seen_term, process.seen_role, process.seen_commit = core.term, core.role, core.commit
        if core.role is Role.LEADER and len(self._configurations) > 1:
            known = self._committed_by(core.commit)
            if node not in known.voters and known.index == self._in_force(process).index:
                raise Violation(
                    "removed-leader", f"{node} leads term {core.term}, the voters are {sorted(known.voters)}"
                )

    def _became(self, process: Process) -> None:
        """The role of a member is another one, or it has the same one in another term."""
        core, node = process.core, process.node_id
        if self.world.trace is not None:
            self.world.note(f"member {node} is {core.role.value} of term {core.term}, log to {core.last_index}")
        if core.role is Role.LEADER:
            self._elected(process)
        # Not when its requests leave: until its vote is on the disk it may have lost both the election and its place.
        elif core.role is Role.CANDIDATE and not any(node in one.voters for one in self._history_of(process)):
            raise Violation("stranger-stands", f"member {node} stands in term {core.term}, but is no voter")

    def reconfigured(self, process: Process) -> None:
        """The log of a member may hold other configurations than at the last look."""
        core, member = process.core, process.member
        process.seen_memberships = core.memberships_version
        history = self._history_of(process)
        member.counts_by.update(one.voters for one in history)
        member.newest = [one.members for one in history[-2:]]
        if core.voters != history[-1].voters:
            facts = f"member {process.node_id} counts by {sorted(core.voters)}, not by {sorted(history[-1].voters)}"
            raise Violation("counts-by-another", facts)
        if core.role is not Role.LEADER or not history[-1].index or core.term_at(history[-1].index) != core.term:
            return
        newest = history[-1]
        if self._begun.setdefault((core.term, newest.index), newest) is newest:
            self._check_begun(process, history)

    def sends(self, process: Process, messages: list[Message]) -> None:
        """Whatever leaves rests on a write that returned; a part of a snapshot leaves while its sender leads."""
        for message in messages:
            kind = type(message)
            if kind is AppendEntriesReply:
                assert isinstance(message, AppendEntriesReply)
                if message.match_index > process.durable_last:
                    raise Violation(
                        "ack-before-write", f"{message} leaves, but the disk ends at {process.durable_last}"
                    )
            elif kind is RequestVoteReply or kind is RequestVote:
                self._check_vote(process, message)
            elif kind is InstallSnapshot:
                self._check_leads(process, message)

    @staticmethod
    def _check_leads(process: Process, message: Message) -> None:
        core = process.core
        if core.role is not Role.LEADER or message.term != core.term:
            facts = f"member {process.node_id}, {core.role.value} in term {core.term}"
            raise Violation("snapshot-of-no-leader", f"{facts}, sends a part of a snapshot in term {message.term}")

    def applied(self, process: Process, entry: Entry) -> None:
        """A member applied an entry."""
        machine = process.machine
        state = (
            machine.next_offset,
            machine.producer_ids.next_producer_id,
            machine.migration.record,
            machine.own_ids.ranges,
        )
        index, known = entry.index, len(self.committed)
        if index <= known:
            if self.committed[index - 1] != (entry.term, entry.data) or self._states[index - 1] != state:
                raise Violation(
                    "committed-entry-changed",
                    f"member {process.node_id} applied {entry} at state {state}, but {self.committed[index - 1]} "
                    f"was applied before, to state {self._states[index - 1]}",
                )
            return
        self._first_applied(process, entry, machine, state)

    def installed(self, process: Process, snapshot: SnapshotId, image: StateImage) -> None:
        """A member takes over the state of a received snapshot."""
        self.snapshots_installed += 1
        disk, member = self._disks[process.node_id], process.member
        disk.last = snapshot
        member.top = max(member.top, snapshot.index)
        if member.forgot is not None:
            self._look_for_recovery(member, disk.recovering, snapshot)
        state = (image.next_offset, image.next_producer_id, image.migration, image.own_ids)
        if image.voters != self._committed_by(snapshot.index).record:
            raise Violation("snapshot", f"member {process.node_id} installs {snapshot} with {image.voters}")
        if snapshot.index > len(self.committed) or self._states[snapshot.index - 1] != state:
            raise Violation("snapshot", f"member {process.node_id} installs {snapshot} with state {state}")
        if self.world.trace is not None:
            self.world.note(f"member {process.node_id} installs the snapshot {snapshot}")

    def _first_applied(self, process: Process, entry: Entry, machine: StateMachine, state: _State) -> None:
        if entry.index != len(self.committed) + 1:
            raise Violation("apply-gap", f"member {process.node_id} applies {entry.index} after {len(self.committed)}")
        holders = [node for node, held in self._held.items() if held.get(entry.index) == entry.term]
        record = read_voters(entry.data)
        if record is not None:
            self._check_next(entry.index, record)
        # A leader counts by the newest configuration of its log, which may stand behind the entry.
        counted = [self.configuration, *(one for _, one in self._begun.items() if one.index > entry.index)]
        if not any(one.has_majority(holders) for one in counted[: None if record is None else 1]):
            raise Violation("commit-without-majority", f"entry {entry.index} of {entry.term}, held by {holders} alone")
        self._check_named(entry, machine)
        self.committed.append((entry.term, entry.data))
        if len(entry.data) > LARGE_ENTRY_BYTES:
            self.world.fault("large_entry")
        before = self._commit_terms[-1] if self._commit_terms else 0
        self._commit_terms.append(max(before, process.core.term))
        self._states.append(state)
        self.next_id = state[1]
        records = decode_batch(entry.data)
        self.history.commit(machine.next_offset - len(records), records)
        for told in self.on_commit:
            told(records)
        self.world.mix(entry.index, entry.term, state[1])
        if self.world.trace is not None:
            self.world.note(f"member {process.node_id} applies {entry.index} first, of term {entry.term}: {records}")

    def _check_named(self, entry: Entry, machine: StateMachine) -> None:
        """Once a term has begun in which all can read who the voters are, no block is committed before that."""
        if self._readable_since is None and machine.metadata_version >= MEMBERSHIP:
            self._readable_since = entry.term
        if self.configuration.index or self._readable_since in {None, entry.term}:
            return
        if blocks := [record for record in decode_batch(entry.data) if isinstance(record, Allocation)]:
            raise Violation("unnamed-voters", f"entry {entry.index} of {entry.term} has {blocks}")

    def _elected(self, process: Process) -> None:
        core, node = process.core, process.node_id
        self.elections += 1
        before = self._leaders.setdefault(core.term, node)
        if before != node:
            raise Violation("two-leaders", f"members {before} and {node} both lead term {core.term}")
        last = bisect.bisect_left(self._commit_terms, core.term)
        if last and (core.last_index < last or core.term_at(last) not in {None, self.committed[last - 1][0]}):
            raise Violation(
                "leader-completeness",
                f"member {node} leads term {core.term} with a log to {core.last_index}, but {last} is committed",
            )
        voters = [voter for voter, candidate in self._votes.get(core.term, ()) if candidate == node]
        if not self._in_force(process).has_majority(voters):
            raise Violation("election-without-majority", f"member {node} leads term {core.term} by votes of {voters}")

    # Configurations.

    def _committed_by(self, index: int) -> Configuration:
        """The newest committed one at or below `index`."""
        return next(one for one in reversed(self._configurations) if one.index <= index)

    def _history_of(self, process: Process) -> list[Configuration]:
        """What a member's log holds: the last one that it knows to be committed, and those behind it."""
        core = process.core
        log = core.log
        known = max(core.commit, core.snapshot.index)
        entries = log.slice(core.first_index, core.last_index)
        found = [(entry.index, record) for entry in entries if (record := read_voters(entry.data)) is not None]
        base = [Configuration.of(index, record) for index, record in found if index <= known][-1:]
        if not base:
            below = self._committed_by(core.first_index - 1)
            base = [below] if below.index else [self._configured(process)]
        return base + [Configuration.of(index, record) for index, record in found if index > known]

    def _configured(self, process: Process) -> Configuration:
        voters = process.member.founding or frozenset(process.core.config.voters)
        return Configuration(0, voters, voters, None)

    def _in_force(self, process: Process) -> Configuration:
        return self._history_of(process)[-1]

    def _check_begun(self, process: Process, history: list[Configuration]) -> None:
        """A leader begins a change: the one before is committed, and so is an entry of its term; who votes is fit."""
        core, newest = process.core, history[-1]
        facts = f"member {process.node_id} in term {core.term}, at {newest.index}, commit {core.commit}"
        if len(history) != 2:
            raise Violation("two-changes", f"{facts}: after {[one.index for one in history[:-1]]}")
        if not history[0].index:
            # No change: the log says from now on by whom everybody counts already.
            if (history[0].voters, history[0].members) != (newest.voters, newest.members):
                raise Violation("named-others", f"{facts}: {sorted(newest.members)}, not {sorted(history[0].members)}")
            return
        if core.term_at(core.commit) != core.term:
            raise Violation("change-too-early", f"{facts}, of term {core.term_at(core.commit)}")
        if len(history[-2].voters ^ newest.voters) > 1:
            raise Violation("change-of-many", f"{facts}: from {sorted(history[-2].voters)} to {sorted(newest.voters)}")
        for node in newest.voters - history[-2].voters:
            member = process.member.cluster.members[node]
            if not member.ready or member.top < newest.index - 1 - core.config.promotion_lag:
                raise Violation(
                    "promoted-unfit", f"{facts}: {node} votes, which held {member.top}, ready {member.ready}"
                )

    def _check_next(self, index: int, record: VotersRecord) -> None:
        """A configuration is committed for the first time."""
        before, new = self.configuration, Configuration.of(index, record)
        if len(before.voters ^ new.voters) > 1 or not new.voters <= before.members:
            raise Violation("configurations", f"{record} at {index} follows {sorted(before.voters)}")
        self._configurations.append(new)
        if self.world.trace is not None:
            self.world.note(f"the voters are {sorted(new.voters)}, the learners {sorted(new.members - new.voters)}")

    def _check_vote(self, process: Process, message: Message) -> None:
        if isinstance(message, RequestVoteReply) and not message.granted:
            return
        candidate = message.to if isinstance(message, RequestVoteReply) else message.sender
        vote = self._disks[message.sender].votes.get(message.term)
        if vote != candidate:
            raise Violation("vote-before-write", f"{message} leaves, but the vote on disk is for {vote}")

    def remembers(self, node: int, term: int) -> bool:
        """Whether the disk of a member knows of `term`."""
        return self._disks[node].term == term

    def _note_hard_state(self, member: Member, disk: _Disk, state: HardState) -> None:
        node = member.node_id
        if not state.recovering:
            member.ready = True
        if state.vote is not None:
            self._votes.setdefault(state.term, set()).add((node, state.vote))
        if state.term < disk.term:
            raise Violation("term-fell", f"member {node} writes {state} after term {disk.term}")
        disk.term = state.term
        if state.vote is not None and disk.votes.setdefault(state.term, state.vote) != state.vote:
            raise Violation("two-votes", f"member {node} writes {state} after a vote for {disk.votes[state.term]}")

    def _check_nothing_lost(self, process: Process, disk: _Disk) -> None:
        storage, last = process.storage, disk.last
        log = storage.log
        first = log.entries[0].index if log.entries else 0
        if last.index > storage.snapshot.index:
            position = last.index - first
            term = log.entries[position].term if log.entries and 0 <= position < len(log.entries) else None
            if term is None or last.term not in {term, ANY_TERM}:
                raise Violation(
                    "disk-lost-entry", f"member {process.node_id} had {last} on disk, and finds term {term}"
                )
        state = log.hard_state
        if state.term < disk.term or (state.term in disk.votes and state.vote != disk.votes[state.term]):
            raise Violation("disk-lost-vote", f"member {process.node_id} finds {state}, had {disk.term} {disk.votes}")
