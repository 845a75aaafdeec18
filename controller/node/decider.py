"""The leader's decide loop: group commit with one batch in flight.

All requests that wait are decided as one batch on the applied state, proposed as one entry, and answered when that
entry is applied. The next batch gathers in the meantime. So no two requests ever see the same next ID, and there is no
speculative state to roll back (docs/decisions/0003).
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final, Protocol

import msgspec

from pidkeeper.controller.answers import Answer, Loop, not_controller, release
from pidkeeper.controller.raft.messages import MAX_ENTRY_BYTES, Entry
from pidkeeper.controller.state.decide import decide, most_bytes, most_records, must_be_confirmed
from pidkeeper.controller.state.draft import Draft
from pidkeeper.controller.state.machine import StateMachine
from pidkeeper.controller.state.requests import Request
from pidkeeper.protocol.errors import ErrorCode, RequestError
from pidkeeper.protocol.records import MAX_BATCH_RECORDS, Record, encode_batch

MAX_WAITING: Final = 8192
"""Requests waiting for the next batch: two full batches. Above it a caller is told to slow down."""


class Proposer(Protocol):
    """The part of the driver that the decider needs."""

    def serving(self) -> bool:
        """Whether this member leads, has applied its own no-op, and is not handing over."""

    def settled(self) -> bool:
        """Whether the whole log is applied: an entry of the core's own in between would shift the offsets."""

    def propose(self, data: bytes) -> tuple[int, int]:
        """Append an entry; returns its (term, index). Raises RequestError if this member cannot."""

    def confirm(self) -> tuple[int, int]:
        """Append an entry that changes nothing, as `propose`: applied, it shows that nobody else led meanwhile."""

    def pump(self) -> None:
        """Call `decide`, then carry out what follows from it."""


class Waiting(msgspec.Struct, frozen=True, gc=False):
    """A request and whoever waits for its answer."""

    request: Request
    answer: Answer


class Batch(msgspec.Struct, frozen=True):
    """The batch in flight: the entry that must be applied at (term, index) before `outcomes` are released."""

    term: int
    index: int
    records: list[Record]
    outcomes: list[tuple[Answer, Any]]


class Decider:
    """Gathers requests and decides them batch by batch."""

    def __init__(
        self,
        proposer: Proposer,
        machine: StateMachine,
        wall_clock: Callable[[], float] = time.time,
        loop: Loop | None = None,
    ) -> None:
        self._proposer = proposer
        self._machine = machine
        self._wall_clock = wall_clock
        self._loop: Loop = asyncio.get_running_loop() if loop is None else loop
        self._waiting: deque[Waiting] = deque()
        self._scheduled = False
        self._in_flight: Batch | None = None
        self.batches = 0
        self.requests = 0

    def submit(self, request: Request, answer: Answer | None = None) -> Any:
        """Queue a request; `answer`, or else the returned future, gets its answer once it is committed and applied.

        Raises RequestError: NOT_CONTROLLER if this member does not serve, THROTTLING_QUOTA_EXCEEDED if too many wait.
        The future raises NOT_CONTROLLER when leadership is lost meanwhile: the outcome is then unknown, and a retry
        takes a fresh block (KIP-730, "Idempotent RPC").
        """
        if not self._proposer.serving():
            raise not_controller()
        if len(self._waiting) >= MAX_WAITING:
            raise RequestError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, f"{MAX_WAITING} requests wait already")
        answer = self._loop.create_future() if answer is None else answer
        self._waiting.append(Waiting(request, answer))
        if self._in_flight is None and not self._scheduled:
            # Not at once: whatever else arrived in this turn of the event loop joins the batch.
            self._scheduled = True
            self._loop.call_soon(self._wake)
        return answer

    def _wake(self) -> None:
        self._scheduled = False
        self._proposer.pump()

    def waiting(self) -> int:
        """Requests not decided yet."""
        return len(self._waiting)

    def idle(self) -> bool:
        """Whether nothing waits and nothing is in flight."""
        return self._in_flight is None and not self._waiting

    def decide(self) -> None:
        """Decide all that waits as one batch, unless one is in flight."""
        if self._in_flight is not None or not self._waiting:
            return
        if not self._proposer.serving():
            self.fail(not_controller())
            return
        if not self._proposer.settled():
            return
        draft = Draft(self._machine, int(self._wall_clock() * 1000))
        outcomes: list[tuple[Answer, Any]] = []
        room = MAX_ENTRY_BYTES
        confirm = False
        while self._waiting:
            request = self._waiting[0].request
            room -= most_bytes(draft, request)
            if room < 0 or len(draft.records) + most_records(request) > MAX_BATCH_RECORDS:
                break
            waiting = self._waiting.popleft()
            try:
                outcome = decide(draft, request)
            except RequestError as refusal:
                outcome = refusal
            outcomes.append((waiting.answer, outcome))
            confirm = confirm or must_be_confirmed(request)
        self.requests += len(outcomes)
        if not draft.records and not confirm:
            _release_all(outcomes)
            return
        self.batches += 1
        try:
            if draft.records:
                term, index = self._proposer.propose(encode_batch(draft.records))
            else:
                term, index = self._proposer.confirm()
        except RequestError as refusal:
            _release_all([(answer, refusal) for answer, _ in outcomes])
            return
        self._in_flight = Batch(term, index, draft.records, outcomes)

    def records_of(self, entry: Entry) -> list[Record] | None:
        """The decoded records of `entry` if it is the batch in flight, which saves decoding them again."""
        batch = self._in_flight
        if batch is not None and batch.index == entry.index and batch.term == entry.term:
            return batch.records
        return None

    def applied(self, entry: Entry) -> None:
        """`entry` is committed and applied: release the answers that rest on it."""
        batch = self._in_flight
        if batch is None or entry.index < batch.index:
            return
        self._in_flight = None
        if entry.index == batch.index and entry.term == batch.term:
            _release_all(batch.outcomes)
        else:
            _release_all([(answer, not_controller()) for answer, _ in batch.outcomes])

    def fail(self, refusal: RequestError) -> None:
        """Answer everything with `refusal`. What is in flight may still take effect: nobody is given its blocks."""
        outcomes = [] if self._in_flight is None else self._in_flight.outcomes
        self._in_flight = None
        _release_all([(answer, refusal) for answer, _ in outcomes])
        _release_all([(waiting.answer, refusal) for waiting in self._waiting])
        self._waiting.clear()


def _release_all(outcomes: list[tuple[Answer, Any]]) -> None:
    for answer, outcome in outcomes:
        release(answer, outcome)
