"""What this leader has appended and not applied yet, by (term, index), and the answers that rest on it.

The one way from a decision to the log: whoever wants an entry committed, be it the decider's batch or a change of the
voters, proposes it here together with what is to be answered then. Pure: no I/O, and time is an argument.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from pidkeeper.controller.answers import Answer, not_controller, release
from pidkeeper.controller.raft.messages import Entry
from pidkeeper.controller.raft.refusals import NotLeader, ProposalRefused
from pidkeeper.protocol.errors import RequestError
from pidkeeper.protocol.records import LeaderChangeRecord, Record, VotersRecord, encode_batch
from pidkeeper.service.histogram import durations

Outcomes = Sequence[tuple[Answer, Any]]
"""Who is to be answered, and with what; a RequestError is a refusal."""


class Log(Protocol):
    """The part of the consensus core that appends. `RaftCore` is one."""

    @property
    def node_id(self) -> int:
        """This member."""

    @property
    def applied(self) -> int:
        """The highest index that was applied."""

    @property
    def last_index(self) -> int:
        """The end of the log."""

    def propose(self, data: bytes) -> tuple[int, int]:
        """Append an entry; its (term, index). Raises NotLeader, ProposalRefused."""

    def change_members(self, record: VotersRecord) -> tuple[int, int]:
        """Append a configuration; its (term, index). Raises NotLeader, ProposalRefused."""


class Proposal:
    """An entry under way. `pending` turns false once, when its outcomes were released.

    `outlives`: whether it is waited for after leadership was lost. Whoever asks for a block asks the next leader at
    once. But a leader whose own removal is committed may lead no more before it has applied it, and the operator is
    told what came of it. `since_ns`: when it was proposed.
    """

    __slots__ = ("index", "outcomes", "outlives", "pending", "records", "since_ns", "term")

    def __init__(
        self, position: tuple[int, int], records: list[Record], outcomes: Outcomes, since_ns: int, *, outlives: bool
    ) -> None:
        self.term, self.index = position
        self.since_ns = since_ns
        self.records = records
        self.outcomes = outcomes
        self.outlives = outlives
        self.pending = True


class Proposals:
    """Appends entries, and releases their outcomes when the entry at (term, index) is applied.

    An outcome is given only if that very entry was applied. If another one came in its place, the answer is
    NOT_CONTROLLER. So it is when leadership is lost meanwhile, though the entry may be committed nevertheless (KIP-730,
    "Idempotent RPC"). `clock_ns`: a monotonic clock, by default one that stands still. `commit_duration`: from the
    proposal of each entry until it was committed and applied. `unknown`: how many were not, as far as this member could
    wait for it; `refused`: how many could not be appended, changes of the members aside, which are asked for again.
    `on_commit` gets each proposal that is applied, just before it is answered, and the nanoseconds since it was made.
    """

    def __init__(self, log: Log, clock_ns: Callable[[], int] = int) -> None:
        self._log = log
        self._clock_ns = clock_ns
        self.commit_duration = durations()
        self.unknown = 0
        self.refused = 0
        self.on_commit: Callable[[Proposal, int], None] = _tell_nobody
        # Ascending by index, for they are appended in order.
        self._pending: deque[Proposal] = deque()

    def settled(self) -> bool:
        """Whether the whole log is applied. An entry of the core's own in between would shift the records' offsets."""
        return self._log.applied == self._log.last_index

    def propose(self, records: list[Record], outcomes: Outcomes) -> Proposal:
        """Append `records` as one entry. Raises RequestError (NOT_CONTROLLER) if this member cannot."""
        since_ns = self._clock_ns()
        try:
            position = self._log.propose(encode_batch(records))
        except (NotLeader, ProposalRefused) as error:
            self.refused += 1
            raise not_controller() from error
        return self._wait(Proposal(position, records, outcomes, since_ns, outlives=False))

    def confirm(self, outcomes: Outcomes) -> Proposal:
        """Append an entry that changes nothing. Applied, it shows that nobody else led meanwhile. As `propose`."""
        return self.propose([LeaderChangeRecord(self._log.node_id)], outcomes)

    def change_members(self, record: VotersRecord, outcomes: Outcomes) -> Proposal:
        """Append the configuration `record`. Raises RequestError (NOT_CONTROLLER), ProposalRefused."""
        since_ns = self._clock_ns()
        try:
            position = self._log.change_members(record)
        except NotLeader as error:
            raise not_controller() from error
        return self._wait(Proposal(position, [record], outcomes, since_ns, outlives=True))

    def _wait(self, proposal: Proposal) -> Proposal:
        while self._pending and self._pending[-1].index >= proposal.index:  # its entry was truncated
            self._give_up(self._pending.pop(), not_controller())
        self._pending.append(proposal)
        return proposal

    def records_of(self, entry: Entry) -> list[Record] | None:
        """The decoded records of `entry` if it was proposed here, which saves decoding them again."""
        for proposal in self._pending:
            if proposal.index == entry.index:
                return proposal.records if proposal.term == entry.term else None
        return None

    def applied(self, entry: Entry) -> None:
        """`entry` is committed and applied: release what rests on it."""
        while self._pending and self._pending[0].index <= entry.index:
            proposal = self._pending.popleft()
            same = (proposal.term, proposal.index) == (entry.term, entry.index)
            if same:
                took_ns = self._clock_ns() - proposal.since_ns
                self.commit_duration.observe(took_ns)
                self.on_commit(proposal, took_ns)
                _release(proposal, None)
            else:
                self._give_up(proposal, not_controller())

    def deposed(self) -> None:
        """Leadership is lost: what is in the log may still take effect, but nobody is given its blocks."""
        before, self._pending = self._pending, deque(one for one in self._pending if one.outlives)
        for proposal in before:
            if not proposal.outlives:
                self._give_up(proposal, not_controller())

    def fail(self, refusal: RequestError) -> None:
        """This member stops: answer everything with `refusal`."""
        while self._pending:
            self._give_up(self._pending.popleft(), refusal)

    def _give_up(self, proposal: Proposal, refusal: RequestError) -> None:
        self.unknown += 1
        _release(proposal, refusal)


def _tell_nobody(_: Proposal, __: int) -> None:
    """By name: the explorer copies a whole member, and a function without one cannot be copied."""


def _release(proposal: Proposal, refusal: RequestError | None) -> None:
    proposal.pending = False
    for answer, outcome in proposal.outcomes:
        release(answer, outcome if refusal is None else refusal)
