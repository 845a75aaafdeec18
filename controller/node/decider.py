"""The leader's decide loop: group commit with one batch in flight. Pure: no event loop, and time is an argument.

All requests that wait are decided as one batch on the applied state, proposed as one entry, and answered when that
entry is applied. The next batch gathers in the meantime. So no two requests ever see the same next ID, and there is no
speculative state to roll back (docs/decisions/0003).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from pidkeeper.controller.answers import Answer, release
from pidkeeper.controller.node.proposals import Proposal, Proposals
from pidkeeper.controller.raft.messages import MAX_ENTRY_BYTES
from pidkeeper.controller.state.commit_decisions import MAX_COMMIT_BYTES
from pidkeeper.controller.state.decide import decide, most_bytes, most_records, must_be_confirmed
from pidkeeper.controller.state.draft import Draft
from pidkeeper.controller.state.machine import StateMachine
from pidkeeper.controller.state.requests import CommitObject, GroupRequest, Request
from pidkeeper.protocol.errors import ErrorCode, RequestError
from pidkeeper.protocol.groups import GROUP_BYTES, MAX_GROUP_ID_LENGTH, MAX_MEMBERS_BYTES, MAX_PROTOCOL_TYPE_LENGTH
from pidkeeper.protocol.records import MAX_BATCH_RECORDS, Record
from pidkeeper.service.histogram import Histogram

BATCH_BOUNDS: Final = tuple(2**power for power in range(14))
"""Upper bounds of the buckets for the requests of a batch: 1 to MAX_WAITING."""

MAX_WAITING: Final = 8192
"""Requests waiting for the next batch: two full batches. Above it a caller is told to slow down."""


MAX_WAITING_COMMITS: Final = 1024
"""Objects waiting likewise: an agent has one commit under way."""

MAX_WAITING_GROUPS: Final = 4096
"""Requests about consumer groups waiting likewise: a consumer has one under way."""

MAX_GROUP_BYTES: Final = GROUP_BYTES + 4 * (MAX_GROUP_ID_LENGTH + MAX_PROTOCOL_TYPE_LENGTH) + MAX_MEMBERS_BYTES
"""Of one entry, for consumer groups: the largest one, as many offsets as one record has, or some 600 commits of one
offset, which take 10 ms likewise. What is neither an object's nor a group's has the rest, nearly a half."""


class Waiting(msgspec.Struct, frozen=True):
    """A request and whoever waits for its answer."""

    request: Request
    answer: Answer


class Batch(msgspec.Struct, frozen=True):
    """Requests that were decided together. `confirm`: no answer may leave before an entry behind them is committed."""

    draft: Draft
    outcomes: list[tuple[Answer, Any]]
    confirm: bool


class Decider:
    """Gathers requests and decides them batch by batch.

    `wall_clock()`: seconds since the epoch, a label in records. `prepared(request)`: the request, with what the leader
    knows and the state cannot; it raises RequestError to refuse one. `checked(records)`: raises AssertionError if what
    was decided is not to be proposed.
    """

    def __init__(
        self,
        machine: StateMachine,
        proposals: Proposals,
        *,
        wall_clock: Callable[[], float],
        prepared: Callable[[Request], Request],
        checked: Callable[[Sequence[Record]], None],
    ) -> None:
        self._machine = machine
        self._proposals = proposals
        self._wall_clock = wall_clock
        self._prepared = prepared
        self._checked = checked
        self._waiting: deque[Waiting] = deque()
        self._commits: deque[Waiting] = deque()
        self._groups: deque[Waiting] = deque()
        self._in_flight: Proposal | None = None
        self.batches = 0
        self.requests = 0
        self.batch_requests = Histogram(BATCH_BOUNDS)

    def add(self, request: Request, answer: Answer) -> None:
        """Let `request` join the next batch; `answer` is given once it is committed and applied.

        Raises RequestError (THROTTLING_QUOTA_EXCEEDED) if too many wait. `answer` is refused with NOT_CONTROLLER when
        leadership is lost meanwhile: the outcome is then unknown, and a retry takes a fresh block (KIP-730,
        "Idempotent RPC").
        """
        queue, most = self._waiting, MAX_WAITING
        if type(request) is CommitObject:
            queue, most = self._commits, MAX_WAITING_COMMITS
        elif isinstance(request, GroupRequest):
            queue, most = self._groups, MAX_WAITING_GROUPS
        if len(queue) >= most:
            raise RequestError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, f"{most} requests wait already")
        queue.append(Waiting(request, answer))

    def waiting(self) -> int:
        """Requests not decided yet."""
        return len(self._waiting) + len(self._commits) + len(self._groups)

    def idle(self) -> bool:
        """Whether nothing waits and nothing is in flight."""
        return not self.waiting() and not self._busy()

    def decide(self) -> bool:
        """Decide all that waits as one batch, unless one is in flight; whether that appended an entry."""
        if not self.waiting() or self._busy() or not self._proposals.settled():
            return False
        batch = self._next_batch()
        self.requests += len(batch.outcomes)
        self.batch_requests.observe(len(batch.outcomes))
        if not batch.draft.records and not batch.confirm:
            _release_all(batch.outcomes)
            return False
        try:
            self._in_flight = self._propose(batch)
        except RequestError as refusal:  # leadership was lost, or is being handed over
            _release_all([(answer, refusal) for answer, _ in batch.outcomes])
            return False
        self.batches += 1
        return True

    def fail(self, refusal: RequestError) -> None:
        """Answer whatever waits to be decided with `refusal`."""
        for queue in (self._waiting, self._commits, self._groups):
            while queue:
                release(queue.popleft().answer, refusal)

    def _busy(self) -> bool:
        return self._in_flight is not None and self._in_flight.pending

    def _propose(self, batch: Batch) -> Proposal:
        if batch.draft.records:
            self._checked(batch.draft.records)
            return self._proposals.propose(batch.draft.records, batch.outcomes)
        return self._proposals.confirm(batch.outcomes)

    def _next_batch(self) -> Batch:
        """Decide what waits, up to what one entry holds. Objects and groups have a share each, and take no other's."""
        draft = Draft(self._machine, int(self._wall_clock() * 1000))
        outcomes: list[tuple[Answer, Any]] = []
        commits = MAX_COMMIT_BYTES if self._commits else 0
        groups = MAX_GROUP_BYTES if self._groups else 0
        rest = MAX_ENTRY_BYTES - commits - groups
        confirm = self._decide_queue(self._waiting, draft, outcomes, rest, bool(commits) + bool(groups))
        confirm |= self._decide_queue(self._commits, draft, outcomes, commits, bool(groups))
        confirm |= self._decide_queue(self._groups, draft, outcomes, groups, 0)
        return Batch(draft, outcomes, confirm)

    def _decide_queue(
        self, queue: deque[Waiting], draft: Draft, outcomes: list[tuple[Answer, Any]], room: int, spared: int
    ) -> bool:
        """Decide the first of a queue that fit into `room` bytes, with so many records to spare; as `Batch.confirm`."""
        confirm = False
        while queue:
            # Not when it came: what was applied while it waited may have changed what the leader knows.
            try:
                request = self._prepared(queue[0].request)
            except RequestError as refusal:
                outcomes.append((queue.popleft().answer, refusal))
                continue
            room -= most_bytes(draft, request)
            if room < 0 or len(draft.records) + most_records(request) > MAX_BATCH_RECORDS - spared:
                break
            outcomes.append((queue.popleft().answer, _outcome(draft, request)))
            confirm = confirm or must_be_confirmed(request)
        return confirm


def _outcome(draft: Draft, request: Request) -> Any:
    try:
        return decide(draft, request)
    except RequestError as refusal:
        return refusal


def _release_all(outcomes: list[tuple[Answer, Any]]) -> None:
    for answer, outcome in outcomes:
        release(answer, outcome)
