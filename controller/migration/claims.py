"""Claims of producer IDs in ZooKeeper: one conditional write of the znode for all requests that wait (KIP-730).

A request for IDs is decided only after the write that claims its range was acknowledged, so no broker that writes the
znode itself ever gets the same IDs. A claim whose outcome is unknown counts for nothing; the next one reads again.
Pure but for the calls that it is given.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from msgspec.structs import replace

from pidkeeper.controller.answers import Answer, Callback, Loop, not_controller, release
from pidkeeper.controller.migration.znode import ZnodeBlock, ZnodeError, claim, encode, next_free, parse, went_back
from pidkeeper.controller.migration.zookeeper import BlockZnode, Cause, Failure, Znode
from pidkeeper.controller.state.machine import StateMachine
from pidkeeper.controller.state.requests import AllocateProducerIds, Claimed, FillOwnIds, RaiseFloor, Request
from pidkeeper.protocol.errors import ErrorCode, RequestError
from pidkeeper.protocol.ids import MAX_PRODUCER_ID
from pidkeeper.protocol.migration import CLAIMING, CONTROLLER, MigrationRecord
from pidkeeper.protocol.records import MAX_BATCH_RECORDS

MAX_WAITING: Final = 8192
"""Requests that wait for a claim: as many as may wait to be decided."""

MAX_CLAIMED: Final = MAX_BATCH_RECORDS // 2
"""Requests of one claim. Each may take two records, and all of them shall fit into one batch."""

MAX_CONFLICTS: Final = 100
"""Conflicts that one claim survives. Whoever conflicts has written, so brokers got 100 blocks meanwhile."""

WantsIds = AllocateProducerIds | FillOwnIds | RaiseFloor


class ClaimQueue:
    """Requests for IDs on the leader, from their arrival until they are decided; one claim at a time.

    `submit` hands a request over to be decided, and raises RequestError if that cannot be.
    """

    def __init__(
        self, machine: StateMachine, znode: BlockZnode, loop: Loop, submit: Callable[[Request, Answer], None]
    ) -> None:
        self._machine = machine
        self._znode = znode
        self._loop = loop
        self._submit = submit
        self._waiting: deque[tuple[WantsIds, Answer]] = deque()
        # What the znode held when it was last written or read; a conditional write finds out if it no longer does.
        self._known: Znode | None = None
        # The phase in which the claim under way was begun. What was claimed or read before another one counts no more:
        # a rollback in between has set the znode back, and brokers are given what stood in the claim.
        self._begun_in: MigrationRecord | None = None
        self._busy = False
        # Answers to calls of an earlier leadership are not looked at.
        self._leadership = 0
        self._conflicts_in_a_row = 0
        self.claims = 0
        self.conflicts = 0
        self.failures = 0
        self.setbacks = 0
        self.zookeeper_next: int | None = None
        # Why the newest claim failed, until something shows that the next one might not.
        self.trouble: str | None = None
        self._looking = False

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, request: WantsIds, answer: Answer | None = None) -> Any:
        """Queue a request; `answer`, or else a future, gives its answer and is returned.

        Raises RequestError: THROTTLING_QUOTA_EXCEEDED if too many wait, ZOOKEEPER_UNAVAILABLE without a session.
        """
        if len(self._waiting) >= MAX_WAITING:
            raise RequestError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, f"{MAX_WAITING} requests wait already")
        if (trouble := self._znode.disconnected()) is not None:
            raise RequestError(ErrorCode.ZOOKEEPER_UNAVAILABLE, trouble)
        if answer is None:
            answer = self._loop.create_future()
        self._waiting.append((request, answer))
        if not self._busy:
            # Not at once: whatever else arrives in this turn of the event loop joins the claim.
            self._busy = True
            self._loop.call_soon(partial(self._begin, self._leadership))
        return answer

    def deposed(self) -> None:
        """This member leads no more: refuse what waits, and forget what was under way."""
        self._leadership += 1
        self._busy = self._looking = False
        self._known = self.trouble = None
        self._refuse(not_controller())

    def look(self) -> None:
        """After a claim that failed: see whether the next one might succeed. Nobody may ask for IDs for a long time."""
        if self.trouble is not None and not self._busy and not self._looking:
            self._looking = True
            self._znode.read(partial(self._looked, self._leadership))

    def _looked(self, leadership: int, outcome: Znode | Failure) -> None:
        if leadership != self._leadership:
            return
        self._looking = False
        self.trouble = self._unfit(outcome)

    @staticmethod
    def _unfit(outcome: Znode | Failure) -> str | None:
        if isinstance(outcome, Failure):
            return outcome.detail
        try:
            parse(outcome.data)
        except ZnodeError as error:
            return f"the znode cannot be used: {error}"
        return None

    def _begin(self, leadership: int) -> None:
        if leadership != self._leadership:
            return
        if not self._same_phase():
            self._begun_in, self._known = self._machine.migration.record, None
        if self._machine.migration.phase not in CLAIMING:
            # Nothing was written for them, so they are decided by the phase alone.
            self._hand_over(len(self._waiting), None)
        elif self._known is None:
            self._znode.read(partial(self._read, leadership))
        else:
            self._claim(self._known)

    def _read(self, leadership: int, outcome: Znode | Failure) -> None:
        if leadership != self._leadership:
            return
        if isinstance(outcome, Failure):
            self._fail(outcome)
        elif not self._same_phase():
            self._begin(leadership)
        else:
            self._claim(outcome)

    def _same_phase(self) -> bool:
        return self._machine.migration.record is self._begun_in

    def _claim(self, before: Znode) -> None:
        """Claim what the first requests need, above everything that the znode and the quorum know of."""
        try:
            block = parse(before.data)
        except ZnodeError as error:
            self._fail(Failure(Cause.UNAVAILABLE, f"the znode cannot be used: {error}"))
            return
        name, quorum_next = self._machine.migration.claimed_by, self._machine.producer_ids.next_producer_id
        assert name is not None, f"the quorum claims in {self._machine.migration.phase.name} without a name"
        self.setbacks += went_back(block, quorum_next)
        first = next_free(block, name, quorum_next)
        requests, end = (0, first) if block is not None and block.sealed else self._enough(first)
        if not requests:
            self._refuse(_nothing_left(block, first, name))
            self._done()
            return
        held = first if block is None or block.claimed_by != name else max(first, block.last + 1)
        owner = CONTROLLER if block is None else block.broker_id
        assert self._begun_in is not None, f"a claim in {self._machine.migration.phase.name} without a record"
        claimed = Claimed(first, max(end, held), before.version, owner, self._begun_in)
        if end <= held:
            self._hand_over(requests, claimed)
            return
        # Above everything that stands there: behind a leader that went below, brokers would be given IDs again.
        assert block is None or end - 1 > block.last, f"D7: a claim up to {end - 1} would lower the znode from {block}"
        data = encode(claim(first, end - 1, name))
        self._znode.write(data, before.version, partial(self._written, self._leadership, requests, claimed))

    def _enough(self, first: int) -> tuple[int, int]:
        """How many of the first requests can be granted from `first` on, and the ID after the last of theirs."""
        size, end, count = self._machine.block_size, first, 0
        for request, _ in self._waiting:
            after = max(end, request.at_least) if isinstance(request, RaiseFloor) else end + size
            if after > MAX_PRODUCER_ID or count == MAX_CLAIMED:
                break
            end, count = after, count + 1
        return count, end

    def _written(self, leadership: int, requests: int, claimed: Claimed, outcome: Znode | Failure) -> None:
        if leadership != self._leadership:
            return
        if isinstance(outcome, Znode):
            self.claims += 1
            self._conflicts_in_a_row = 0
            self._known = outcome
            self.zookeeper_next = claimed.end
            self.trouble = None
            if self._same_phase():
                self._hand_over(requests, claimed)
            else:
                self._begin(leadership)
        elif outcome.cause is Cause.CONFLICT and self._conflicts_in_a_row < MAX_CONFLICTS:
            self.conflicts += 1
            self._conflicts_in_a_row += 1
            self._known = None
            self._begin(leadership)
        else:
            self._fail(outcome)

    def _hand_over(self, requests: int, claimed: Claimed | None) -> None:
        """Have the first requests decided; the next claim waits for their answers, so that it knows what is left."""
        assert 0 < requests <= len(self._waiting), f"{requests} of {len(self._waiting)} requests cannot be handed over"
        ready = [self._waiting.popleft() for _ in range(requests)]
        undecided = requests

        def answered(leadership: int, answer: Answer, result: Any, refusal: RequestError | None) -> None:
            nonlocal undecided
            release(answer, result if refusal is None else refusal)
            undecided -= 1
            if not undecided and leadership == self._leadership:
                self._done()

        for request, answer in ready:
            reply = Callback(partial(answered, self._leadership, answer))
            try:
                self._submit(replace(request, claimed=claimed), reply)
            except RequestError as refusal:
                reply.set_exception(refusal)

    def _done(self) -> None:
        self._busy = False
        if self._waiting:
            self._busy = True
            self._loop.call_soon(partial(self._begin, self._leadership))

    def _fail(self, failure: Failure) -> None:
        self.failures += 1
        self.trouble = failure.detail
        self._known = None
        self._conflicts_in_a_row = 0
        self._refuse(RequestError(ErrorCode.ZOOKEEPER_UNAVAILABLE, failure.detail))
        self._done()

    def _refuse(self, refusal: RequestError) -> None:
        """Answer all that waits. What comes because of it waits for the next claim."""
        waiting, self._waiting = self._waiting, deque()
        for _, answer in waiting:
            release(answer, refusal)


def _nothing_left(block: ZnodeBlock | None, first: int, name: str) -> RequestError:
    if block is not None and block.sealed and block.claimed_by == name:
        # This member leads no more and has not heard of it: the agent shall look for the one that does.
        detail = "another leader of this quorum has sealed the znode: it hands out the IDs now; ask again"
        return RequestError(ErrorCode.MIGRATION_UNDER_WAY, detail)
    if block is not None and block.sealed:
        detail = f"the znode was sealed by {block.claimed_by}: that quorum hands out the IDs now"
    else:
        detail = f"the next producer ID is {first}: no block is left below {MAX_PRODUCER_ID}"
    return RequestError(ErrorCode.PRODUCER_IDS_EXHAUSTED, detail)
