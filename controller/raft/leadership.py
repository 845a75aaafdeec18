"""The leader's side: what it knows of each member, what it commits, whom it hands over to (Raft paper, section 5.3).

How it conducts the recovery of members that lost data is explained in `elections.py`, what it checks before a change
of the quorum is in `membership_change.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from pidkeeper.controller.raft.commitment import Commitment
from pidkeeper.controller.raft.config import MISSED_HEARTBEATS, RaftConfig
from pidkeeper.controller.raft.durability_lag import DurabilityLag
from pidkeeper.controller.raft.election_tally import LossCause
from pidkeeper.controller.raft.hard_state import HardStateKeeper
from pidkeeper.controller.raft.invariants import InvariantViolation
from pidkeeper.controller.raft.log import RaftLog
from pidkeeper.controller.raft.messages import (
    MAX_ENTRY_BYTES,
    AppendEntriesReply,
    Entry,
    HeartbeatReply,
    InstallSnapshotReply,
)
from pidkeeper.controller.raft.outbox import Outbox
from pidkeeper.controller.raft.progress import REPLICATE, SNAPSHOT, Progress
from pidkeeper.controller.raft.quorum import majority
from pidkeeper.controller.raft.refusals import ProposalRefused
from pidkeeper.controller.raft.replication import Replication

NEARLY_CAUGHT_UP: Final = 16
"""Entries that may be on their way to a voter that keeps up. One whose disk stalls is further behind in a tenth of a
second, if anything is asked for."""


class LeadershipTransfer:
    """A handover under way (dissertation, section 3.10). Exists until it is given up or the leadership ends."""

    __slots__ = ("elapsed", "target", "why")

    def __init__(self, target: int, why: LossCause) -> None:
        # The voter that is to lead; it was not recovering when the handover began.
        self.target = target
        # Ticks since the handover began. After an election timeout it is given up, and proposals are taken again.
        self.elapsed = 0
        # TRANSFER or STALLED_DISK: who asked for it.
        self.why = why

    def tick(self) -> int:
        """A tick has passed; how many have by now."""
        self.elapsed += 1
        return self.elapsed


class Leadership:
    """Leads one term. Exists from the election until the member steps down, so nothing of it can be out of date."""

    __slots__ = (
        "_commitment",
        "_config",
        "_hard",
        "_heartbeat_elapsed",
        "_lag",
        "_leader_change_data",
        "_log",
        "_node_id",
        "_outbox",
        "_own",
        "_peers",
        "_replication",
        "_transfer",
        "_yielded_to",
        "memberships_version",
        "noop_index",
        "now",
        "progress",
    )

    def __init__(
        self, config: RaftConfig, hard: HardStateKeeper, log: RaftLog, outbox: Outbox, leader_change_data: bytes
    ) -> None:
        """`begin` does the rest. leader_change_data: the payload of our empty entries."""
        self._config = config
        self._node_id = config.node_id
        self._hard = hard
        self._log = log
        self._outbox = outbox
        self._leader_change_data = leader_change_data
        self._replication = Replication(config, hard, log, outbox)
        self._commitment = Commitment(hard, log)
        # The ticks since the election. Every tick in a `Progress` is one of this clock.
        self.now = 0
        # Ticks since the last heartbeats; below `heartbeat_ticks` after each tick.
        self._heartbeat_elapsed = 0
        # The index of the first entry, with which the term begins. Once it is applied, so is all that earlier leaders
        # committed, and we serve (paper, section 8). Valid after `begin`.
        self.noop_index = 0
        # Our own progress: its `match` is what is durable here. It is among the others' even while we are being
        # removed, as we lead until the removal is committed (R18).
        self._own = self._new_progress()
        # The progress of everybody and of ourselves, by id; never of others. What a member sends that is not in it is
        # ignored (R9).
        self.progress: dict[int, Progress] = {self._node_id: self._own}
        # Everybody but ourselves, by id: who is sent to. Like the lists in `Commitment` it follows `Memberships`;
        # `memberships_version` says up to which of its changes.
        self._peers: tuple[int, ...] = ()
        self.memberships_version = 0
        # The handover under way, None if there is none. While there is one, nothing is proposed, so that the log stops
        # growing and the target can catch up.
        self._transfer: LeadershipTransfer | None = None
        # How far our own disk is behind those of the others.
        self._lag = DurabilityLag(config.election_ticks)
        # Who was last asked to lead because of our disk, 0: nobody. The next one to be asked is another.
        self._yielded_to = 0

    @property
    def transferring(self) -> int | None:
        """The member that is to lead, None if no handover is under way."""
        return None if self._transfer is None else self._transfer.target

    @property
    def end_by_newer_term(self) -> LossCause:
        """Why a newer term ends this leadership: we hand over, or we were deposed."""
        return LossCause.HIGHER_TERM if self._transfer is None else self._transfer.why

    @property
    def voters(self) -> frozenset[int]:
        """The voters by whom we count."""
        return self._commitment.voters

    @property
    def is_removed(self) -> bool:
        """Whether a configuration without us as a voter is committed, so that we may not lead (R18)."""
        return self._node_id not in self._commitment.voters and self._log.memberships.committed

    # The course of a term.

    def begin(self, first: bytes, recoveries: Mapping[int, int]) -> None:
        """Append the first entry of the term and send it: an empty one, or the voters where the log does not say yet.

        first: its payload. recoveries: the number of each voter's that has one.
        """
        self._track_members()
        self._own.store_own(self._log.stable, counts=False)
        self.noop_index = self._append(first)
        if self.memberships_version != self._log.memberships.version:
            self._track_members()
        for voter, recovery in recoveries.items():
            if voter != self._node_id:
                # It lost its data before it voted, so before the no-op, which can be its barrier.
                self.progress[voter].note_recovery(recovery, self.noop_index)
        self._settle()
        self._broadcast_append()

    def tick(self) -> bool:
        """10 ms have passed; False if the leadership is over, as a majority was not heard for an election timeout."""
        if self.is_removed:
            raise InvariantViolation("R18", f"{self._node_id} leads, but the voters are {sorted(self.voters)}")
        self.now += 1
        if not self._hears_quorum():
            return False
        if self._transfer is not None and self._transfer.tick() >= self._config.election_ticks:
            self._transfer = None
        faster = self._lag.tick(self.now, self._log, self.progress)
        if faster and self._transfer is None:
            self._yield_to(faster)
        self._heartbeat_elapsed += 1
        if self._heartbeat_elapsed >= self._config.heartbeat_ticks:
            self._heartbeat_elapsed = 0
            for peer in self._peers:
                progress = self.progress[peer]
                self._replication.send_heartbeat(peer, progress)
                if progress.state is SNAPSHOT:
                    self._replication.nudge_snapshot(peer, progress, self.now)
        return True

    def written(self, hard: bool) -> None:
        """A write is durable: our own acknowledgement. `hard`: it carried a hard state."""
        counts = not self._hard.recovering and self._outbox.hard_state_durable
        self._own.store_own(self._log.stable, counts=counts)
        if hard:
            self._settle()
        self._maybe_commit(self._log.stable)

    def link_lost(self, peer: int) -> None:
        """What was sent to `peer` may be lost."""
        if peer in self._peers:
            self.progress[peer].become_probe()

    def link_up(self, peer: int) -> None:
        """A connection to `peer` exists: probe it at once."""
        if peer in self._peers:
            self.progress[peer].allow_probe()
            self._send_append(peer, self.progress[peer])

    @property
    def needed_from(self) -> int:
        """The first entry that still has to be sent to somebody who was heard within an election timeout."""
        since = self.now - self._config.election_ticks
        heard = (progress for progress in self.progress.values() if progress.heard > since)
        return min([progress.held for progress in heard], default=self._log.last_index) + 1

    def is_heard(self, progress: Progress) -> bool:
        """Whether a member answers, and has said in our term that it does not recover from a loss."""
        return progress.counted > 0 and self.now - progress.heard < self._config.election_ticks

    def _hears_quorum(self) -> bool:
        """Whether a majority was heard within an election timeout (dissertation, section 6.2)."""
        # A leader that is cut off steps down, so that clients do not wait for what it cannot commit.
        limit, own, progress = self.now - self._config.election_ticks, self._node_id, self.progress
        voters = self._commitment.voters
        heard = 0
        for voter in voters:
            if voter == own or progress[voter].heard >= limit:
                heard += 1
        return heard >= majority(len(voters))

    # What is appended, and to whom it goes.

    def propose(self, data: bytes) -> int:
        """Append `data` and send it; its index. Raises as `RaftCore.propose` does."""
        size = len(data)
        if size > MAX_ENTRY_BYTES:
            raise ValueError(f"an entry of {size} bytes passes the limit of {MAX_ENTRY_BYTES}: split the batch")
        if self._transfer is not None:
            self.refuse_while_transferring()
        waiting = self._commitment.uncommitted_bytes
        if waiting and waiting + size > self._config.max_uncommitted_bytes:
            raise ProposalRefused(f"{waiting} bytes wait to be committed: retry later")
        index = self._append(data)
        self._broadcast_append()
        return index

    def append_configuration(self, data: bytes) -> int:
        """Append a configuration, which is in force from now on, and send it; its index."""
        index = self._append(data)
        self.adopt_memberships()
        self._broadcast_append()
        return index

    def adopt_memberships(self) -> None:
        """Count and send by the configurations that the log holds now."""
        for peer in sorted(self.progress.keys() - self._log.memberships.everybody - {self._node_id}):
            # Its removal is committed, and this is the last message to it, so that it learns of the removal. It is sent
            # even if a probe is on its way.
            progress = self.progress.pop(peer)
            progress.allow_probe()
            self._send_append(peer, progress)
        self._track_members()
        self._settle()

    def _track_members(self) -> None:
        """Keep a progress for everybody, and for ourselves; which of them count where."""
        memberships = self._log.memberships
        for member in sorted(memberships.everybody - self.progress.keys()):
            self.progress[member] = self._new_progress()
        self._peers = memberships.peers_of(self._node_id)
        self._commitment.count_by(memberships.newest.voters, memberships.everybody, self.progress)
        self.memberships_version = memberships.version

    def _new_progress(self) -> Progress:
        config = self._config
        return Progress(self._log.last_index + 1, self.now, config.max_inflight_messages, config.max_inflight_bytes)

    def _append(self, data: bytes) -> int:
        """Add an entry of our term to our own log; its index."""
        index = self._log.last_index + 1
        self._log.append(Entry(self._hard.term, index, data))
        self._commitment.appended(len(data))
        self._own.append_own(index)
        return index

    def _broadcast_append(self) -> None:
        replication, now = self._replication, self.now
        for peer in self._peers:
            replication.send_append(peer, self.progress[peer], now)

    def _send_append(self, peer: int, progress: Progress) -> None:
        self._replication.send_append(peer, progress, self.now)

    # What the members answer.

    def on_append_reply(self, message: AppendEntriesReply) -> None:
        """An acknowledgement or a refusal of entries."""
        peer = message.sender
        progress = self.progress.get(peer)
        if progress is None:
            return
        # A learner says that it may bear a used id. It does if our log knows a voter, or a former one, by that id.
        progress.hear_append_reply(self.now, message.learner and self._log.memberships.may_campaign(peer))
        if message.recovery != progress.recovery:
            self._note_recovery(progress, message.recovery)
        if message.rejected:
            self._on_rejection(peer, progress, message)
            return
        index = message.match_index
        if index > self._log.last_index:
            raise InvariantViolation("R9", f"{peer} acknowledged {index}, but our log ends at {self._log.last_index}")
        news = progress.acknowledge(index)
        # A weak acknowledgement moves `agreed` alone, so it matters to the unanimous rule, and may reach the barrier.
        if message.recovery == 0 and index > progress.counted:
            progress.count(index)
            self._maybe_commit(index)
        elif news and message.recovery:
            self._maybe_commit(index)
            self._tell_recovered()
        if progress.state is SNAPSHOT and progress.match >= self._log.first_index - 1:
            # It holds the entry before our first one after all, so entries can go on from there.
            progress.become_probe()
        if progress.next <= self._log.last_index:
            self._replication.send_append(peer, progress, self.now)
        if self._transfer is not None and peer == self._transfer.target:
            self._hand_over_if_caught_up()

    def on_heartbeat_reply(self, message: HeartbeatReply) -> None:
        """The member follows us. The end of its log acknowledges nothing: what is there may differ from our log."""
        peer = message.sender
        progress = self.progress.get(peer)
        if progress is None:
            return
        progress.hear_heartbeat_reply(self.now)
        # An append asks for what only its reply can tell: where the logs agree, whether entries were lost (then the log
        # ends before `match`), and whether the member still recovers (then it was not counted through `match`).
        behind = progress.match < self._log.last_index or message.last_log_index < progress.match
        if behind or progress.counted < progress.match or progress.state is not REPLICATE:
            self._send_append(peer, progress)
        if self._transfer is not None and peer == self._transfer.target:
            self._hand_over_if_caught_up()

    def on_snapshot_reply(self, message: InstallSnapshotReply) -> None:
        """A member wants the next chunk, or has installed the snapshot."""
        peer = message.sender
        progress = self.progress.get(peer)
        if progress is None:
            return
        progress.hear(self.now)
        # The reply may be to a transfer that was given up, of another snapshot or before entries went on.
        if progress.state is not SNAPSHOT or progress.snapshot != message.snapshot:
            return
        if message.installed:
            progress.installed(message.snapshot.index)
            self._send_append(peer, progress)
        elif message.next_offset != progress.offset:
            # A repeated reply asks for what is on its way already.
            progress.move(self.now)
            self._replication.request_chunk(peer, progress, message.next_offset, self.now)

    def _on_rejection(self, peer: int, progress: Progress, message: AppendEntriesReply) -> None:
        rejected = message.rejected_index
        if message.recovery and rejected <= progress.match:
            # It refuses what it once acknowledged, so it has lost entries since, not merely received a late message.
            progress.forget_match(rejected + 1)
        hint = message.hint_index
        if message.hint_term:
            # Both sides skip a whole term, so one round trip is needed per term in which the logs differ (section 5.3).
            hint, _ = self._log.find_conflict_by_term(hint, message.hint_term)
        if progress.reject(rejected, hint):
            self._send_append(peer, progress)

    # Commits, and the recovery of members that lost data.

    def _maybe_commit(self, index: int) -> None:
        """Commit what may be after an acknowledgement through `index`; that may end recoveries, our own included."""
        commitment = self._commitment
        # At or below the commit index it cannot complete a majority above that. The unanimous rule counts `agreed`.
        if index <= self._log.commit and not commitment.weak:
            return
        if commitment.advance() and commitment.weak:
            if self._hard.recovering:
                self._hard.end_recovery()
            self._tell_recovered()

    def _note_recovery(self, progress: Progress, recovery: int) -> None:
        """A member says that it recovers (a new `recovery`) or has recovered (0)."""
        if recovery:
            progress.forget_match(progress.next)
            # Not before its answer: the reply at hand says where to go on.
            progress.await_reply()
            # Another number is another loss, within a term too, and needs a barrier that comes after it.
            progress.note_recovery(recovery, self._append(self._leader_change_data))
        else:
            progress.note_recovery(0, 0)
        self._settle()
        if recovery:
            self._broadcast_append()

    def _settle(self) -> None:
        """Find out anew whether anybody's acknowledgements are weak, our own included."""
        # While the end of our own recovery is not durable, a restart would make us weak again.
        own_weak = self._hard.recovering or not self._outbox.hard_state_durable
        if not own_weak:
            self._own.store_own(self._log.stable, counts=True)
        self._commitment.set_weak(own_weak or any(progress.recovery for progress in self.progress.values()))

    def _tell_recovered(self) -> None:
        for peer in self._peers:
            if self._replication.may_end_recovery(self.progress[peer]):
                self._replication.send_heartbeat(peer, self.progress[peer])

    # The end of a leadership.

    def transfer_to(self, target: int | None, why: LossCause = LossCause.TRANSFER) -> None:
        """Hand over to `target`, or to whom `_successor` says. Raises as `RaftCore.transfer_leadership` does."""
        others = sorted(self.voters - {self._node_id})
        if target is not None and target not in others:
            raise ValueError(f"{target} is not one of the other voters {others}")
        fit = [peer for peer in others if not self.progress[peer].recovery]
        if target is None:
            target = self._successor(fit)
        if target not in fit or target is None:
            raise ProposalRefused("no member can take over: it lost data and has not caught up yet")
        if target != self.transferring:
            self._transfer = LeadershipTransfer(target, why)
            self._send_append(target, self.progress[target])
            self._hand_over_if_caught_up()

    def _successor(self, fit: Sequence[int]) -> int | None:
        """Who is to lead where nobody is named, of `fit` in ascending order; None if that is nobody."""
        # Members are restarted one after the other, down or up their ids. So leadership moves twice at most: the lowest
        # id is restarted last, or was restarted before.
        for peer in fit:
            if self._keeps_up(self.progress[peer]):
                return peer
        return max(fit, key=lambda peer: (self.progress[peer].match, self.progress[peer].heard, -peer), default=None)

    def _keeps_up(self, progress: Progress) -> bool:
        silent = self.now - progress.heard > MISSED_HEARTBEATS * self._config.heartbeat_ticks
        return progress.counted > 0 and not silent and progress.match >= self._log.last_index - NEARLY_CAUGHT_UP

    def _yield_to(self, faster: Sequence[int]) -> None:
        """Our disk stalls: hand over to one of `faster`, if one can lead at once; else lead on."""
        # It takes a majority of them: the successor's election, and all that it commits, rest on their disks, not ours.
        voters = [peer for peer in faster if peer in self.voters]
        fit = [peer for peer in voters if self._can_lead_at_once(self.progress[peer])]
        if fit and len(voters) >= majority(len(self.voters)):
            self._yielded_to = next((peer for peer in fit if peer > self._yielded_to), fit[0])
            self.transfer_to(self._yielded_to, LossCause.STALLED_DISK)

    def _can_lead_at_once(self, progress: Progress) -> bool:
        return not progress.recovery and progress.match == self._log.last_index and self.is_heard(progress)

    def refuse_while_transferring(self) -> None:
        """Raise ProposalRefused if a handover is under way."""
        if self._transfer is not None:
            raise ProposalRefused(f"leadership is being transferred to {self._transfer.target}: retry there")

    def name_successor(self) -> None:
        """The configuration without us is committed: let a voter of it stand at once (dissertation, section 4.2.2)."""
        fit = [voter for voter in sorted(self.voters) if not self.progress[voter].recovery]
        if fit:
            self._replication.send_timeout_now(
                max(fit, key=lambda voter: (self.progress[voter].match, self.progress[voter].heard))
            )

    def _hand_over_if_caught_up(self) -> None:
        transfer = self._transfer
        if transfer is not None and self.progress[transfer.target].match == self._log.last_index:
            self._replication.send_timeout_now(transfer.target)
