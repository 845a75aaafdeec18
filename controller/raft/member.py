"""The state of one member, and what all roles share: terms, timers, what may leave now and what waits for a write."""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Sequence
from typing import Final, Protocol

import msgspec

from pidkeeper.controller.raft.invariants import InvariantViolation
from pidkeeper.controller.raft.log import RaftLog
from pidkeeper.controller.raft.membership import Memberships
from pidkeeper.controller.raft.messages import (
    MAX_CHUNK_BYTES,
    MAX_ENTRIES_PER_MESSAGE,
    MAX_NUMBER,
    Entry,
    HardState,
    InstallSnapshot,
    Message,
    SnapshotMeta,
)
from pidkeeper.controller.raft.progress import Progress
from pidkeeper.controller.raft.quorum import majority
from pidkeeper.controller.raft.ready import ChunkRequest

MAX_RECOVERY: Final = 2**31
"""Recoveries are numbered at random below this, so two of one member differ but once in two thousand million."""


class Role(enum.Enum):
    """Raft paper, figure 4, and the pre-vote phase of the dissertation's section 9.6."""

    FOLLOWER = "follower"
    PRE_CANDIDATE = "pre-candidate"
    CANDIDATE = "candidate"
    LEADER = "leader"


FOLLOWER = Role.FOLLOWER
PRE_CANDIDATE = Role.PRE_CANDIDATE
CANDIDATE = Role.CANDIDATE
LEADER = Role.LEADER


class Rng(Protocol):
    """The only source of chance; `random.Random` fits."""

    def randrange(self, start: int, stop: int, /) -> int:
        """An int in [start, stop)."""


class RaftConfig(msgspec.Struct, frozen=True):
    """Times are ticks of 10 ms. Raises ValueError if the values cannot work together.

    voters: the members of a blank cluster, this one included unless it is a `learner`. election_ticks: the timeout is
    drawn from [election_ticks, 2 x that).
    link_lost_ticks: when the links to the leader broke, the followers try to succeed it one after another, so far
    apart and a tick of jitter. max_append_bytes: payload of one AppendEntries, which always takes at least one entry.
    max_inflight_bytes: payload sent to one peer and not acknowledged. max_uncommitted_bytes: payload that was proposed
    and not committed, beyond which `propose` refuses. chunk_bytes: snapshot bytes in one InstallSnapshot.
    promotion_lag: the entries that a learner may be behind when it becomes a voter, by default what one message holds.
    """

    node_id: int
    voters: tuple[int, ...]
    heartbeat_ticks: int = 5
    election_ticks: int = 30
    link_lost_ticks: int = 3
    max_inflight_messages: int = 64
    max_append_bytes: int = 256 * 1024
    max_inflight_bytes: int = 4 * 1024 * 1024
    max_uncommitted_bytes: int = 16 * 1024 * 1024
    chunk_bytes: int = MAX_CHUNK_BYTES
    promotion_lag: int = MAX_ENTRIES_PER_MESSAGE
    learner: bool = False

    def __post_init__(self) -> None:
        if (self.node_id in self.voters) == self.learner or len(set(self.voters)) != len(self.voters):
            side = "not hold" if self.learner else "hold"
            raise ValueError(f"voters {self.voters} must {side} node {self.node_id}, and every id once")
        if not 0 < self.heartbeat_ticks < self.election_ticks or self.link_lost_ticks < 0:
            raise ValueError(
                f"ticks: 0 < heartbeat {self.heartbeat_ticks} < election {self.election_ticks} is required"
            )
        if not 0 < self.chunk_bytes <= MAX_CHUNK_BYTES:
            raise ValueError(f"chunk_bytes {self.chunk_bytes} is not in 1..{MAX_CHUNK_BYTES}")
        if min(self.max_inflight_messages, self.max_inflight_bytes, self.max_append_bytes) < 1:
            raise ValueError("the limits of one message and of the inflight window must be at least 1")


class Write:
    """A write under way, and the messages that rest on it. `hard`: it makes the newest hard state durable."""

    __slots__ = ("hard", "parked", "token")

    def __init__(self, token: int, hard: bool, parked: list[Message]) -> None:
        self.token = token
        self.hard = hard
        self.parked = parked


class Member:
    """State and basics. The rules are in the subclasses, one subject each; `RaftCore` is the one to use."""

    __slots__ = (
        "_chunk_requests",
        "_chunks",
        "_elapsed",
        "_everybody",
        "_hard_dirty",
        "_hard_durable",
        "_hard_writes",
        "_last_written",
        "_membership_version",
        "_now",
        "_outbox",
        "_parked",
        "_peers",
        "_persisted_commit",
        "_recovery",
        "_rng",
        "_timeout",
        "_verified",
        "_voters",
        "_writes",
        "config",
        "leader_id",
        "log",
        "majority",
        "node_id",
        "progress",
        "recovering",
        "role",
        "snapshot",
        "term",
        "vote",
    )

    def __init__(
        self,
        config: RaftConfig,
        rng: Rng,
        hard_state: HardState,
        snapshot: SnapshotMeta,
        entries: Sequence[Entry],
        memberships: Memberships,
    ) -> None:
        self.config = config
        self.node_id = config.node_id
        self._rng = rng
        self.role = FOLLOWER
        self.leader_id: int | None = None
        self.term = hard_state.term
        self.vote = hard_state.vote
        self.recovering = hard_state.recovering
        self._recovery = rng.randrange(1, MAX_RECOVERY) if self.recovering else 0
        self.snapshot = snapshot
        self.log = RaftLog(snapshot, entries, memberships)
        if self.log.last_term > self.term:
            raise InvariantViolation("R1", f"term {self.term}, but the log holds an entry of term {self.log.last_term}")
        # A member that lost the tail of its log has also lost committed entries; they come back from the leader.
        self.log.commit_to(min(hard_state.commit, self.log.last_index) if self.recovering else hard_state.commit)
        self.progress: dict[int, Progress] = {}
        self._now = self._elapsed = self._timeout = 0
        self._verified = 0
        self._hard_dirty = False
        self._hard_durable = True
        self._persisted_commit = hard_state.commit
        self._last_written = 0
        self._writes: deque[Write] = deque()
        self._outbox: list[Message] = []
        self._parked: list[Message] = []
        self._chunks: list[InstallSnapshot] = []
        self._chunk_requests: list[ChunkRequest] = []
        self._reset_timer()
        self._adopt_memberships()

    def _adopt_memberships(self) -> None:
        """Count and send by the configurations that the log holds now.

        `_voters` make majorities. `_everybody`, to whom all is sent, must agree where a weak voice is to count.
        """
        memberships = self.log.memberships
        self._membership_version = memberships.version
        self._voters = memberships.newest.voters
        self._everybody = memberships.everybody
        self._peers = tuple(sorted(self._everybody - {self.node_id}))
        self.majority = majority(len(self._voters))

    def _send_when_durable(self, message: Message, index: int = 0) -> None:
        """Send `message` once the hard state and the log through `index` are durable here."""
        if index <= self.log.stable and self._hard_durable:
            self._outbox.append(message)
        else:
            self._parked.append(message)

    def _release(self, write: Write) -> None:
        """Send what rested on `write`, but nothing of a term that has passed: its promise would be an old one."""
        if write.token > self._last_written:
            raise InvariantViolation("R11", f"release of write {write.token}, but {self._last_written} is durable")
        self._outbox.extend(message for message in write.parked if message.term >= self.term)

    def _hard_changed(self) -> None:
        self._hard_dirty = True
        self._hard_durable = False

    def _set_term(self, term: int) -> None:
        if term < self.term:
            raise InvariantViolation("R1", f"term {self.term} cannot fall to {term}")
        if term >= MAX_NUMBER:  # a pre-vote asks about the term after ours, which must be a number as well
            raise InvariantViolation("R1", f"after term {self.term} comes {term}, and none is left after that")
        if term > self.term:
            self.term = term
            self.vote = None
            self._hard_changed()

    def _set_vote(self, candidate: int) -> None:
        if self.vote == candidate:
            return
        if self.vote is not None:
            raise InvariantViolation("R2", f"vote for {candidate} in term {self.term} after one for {self.vote}")
        self.vote = candidate
        self._hard_changed()

    @property
    def _learns(self) -> bool:
        """Whether this member recovers, its file calls it a learner, and its log does not know it as one.

        Then what a stale leader or candidate has, who knows a voter of this id, is about somebody else.
        """
        known = self.log.memberships.newest
        return self.recovering and self.config.learner and self.node_id not in known.members - known.voters

    def _leave_recovery(self) -> None:
        self.recovering = False
        self._recovery = 0
        self._hard_changed()

    def _become_follower(self, term: int, leader: int | None) -> None:
        self._set_term(term)
        self.role = FOLLOWER
        self.leader_id = leader
        self.progress = {}
        self._verified = 0
        self._reset_timer()

    def _follow(self, leader: int) -> None:
        """`leader` leads our term: it has sent what only a leader sends."""
        if self.role is LEADER or self.leader_id not in {None, leader}:
            raise InvariantViolation("R14", f"{leader} and {self.leader_id} both lead term {self.term}")
        self._become_follower(self.term, leader)

    def _reset_timer(self) -> None:
        self._elapsed = 0
        base = self.config.election_ticks
        self._timeout = self._rng.randrange(base, 2 * base)

    def _hears_leader(self) -> bool:
        """Whether a leader was heard within the minimum election timeout (dissertation, section 4.2.3)."""
        return self.role is LEADER or (self.leader_id is not None and self._elapsed < self.config.election_ticks)
