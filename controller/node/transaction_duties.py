"""What the leader does about transactions by itself: complete, abort in time, forget.

Soft state of the leader; every outcome is a record in the log. Pure: ticks, applied records and the wall clock come in
as arguments, and requests go out through `Ask`.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from typing import Final, Protocol

import msgspec

from pidkeeper.controller.node.markers import Markers, MarkerWriter
from pidkeeper.controller.state.machine import StateMachine
from pidkeeper.controller.state.requests import (
    AbortTransaction,
    CompleteTransaction,
    ForgetTransactionalId,
    Request,
)
from pidkeeper.controller.state.transitions import IDLE, PREPARED, TransactionStatus
from pidkeeper.protocol.records import MAX_BATCH_RECORDS, Record
from pidkeeper.protocol.transactions import AddPartitionsRecord, ForgetTransactionRecord, TransactionRecord

logger = logging.getLogger(__name__)

FORGET_CHECK_MS: Final = 3_600_000
"""Between two looks for idle ids, or less where they expire sooner; Kafka's
`transaction.remove.expired.transaction.cleanup.interval.ms`."""

MAX_FORGETTING: Final = 1000
"""Ids that are being forgotten at once: a quarter of a batch, so that requests of brokers find room beside them."""

LOOKED_AT: Final = 2000
"""Ids that one tick looks at. All 200,000 at once would hold the event loop for 100 ms."""

MAX_ABORTED: Final = MAX_BATCH_RECORDS
"""Transactions aborted at one look: a batch, which is half of what may wait to be decided."""


class Ask(Protocol):
    """Has the leader decide a request."""

    def __call__(self, request: Request, refused: Callable[[], None], /) -> None:
        """Ask; `refused` is called if the answer is a refusal, at once or later. An answer is nobody's concern."""


class Begun(msgspec.Struct, frozen=True, gc=False):
    """A transaction under way: its producer's epoch, and the number of the look that finds its time up."""

    producer_epoch: int
    due: int


class Look(msgspec.Struct):
    """A look for idle ids, over several ticks. `unseen`: those to come. `old`: found old; `idle`: a second time."""

    unseen: Iterator[str]
    old: dict[str, TransactionRecord] = {}
    idle: list[TransactionRecord] = []


class TransactionDuties:
    """The duties of one member while it leads.

    `ticks(ms)` converts milliseconds to ticks. `abort_check_ms`: between two checks for transactions that timed out.
    `expiration_ms`: after which an idle id is removed, by the wall clock. That may be wrong, or may have been when the
    id was used, so two looks must find it old and unused since, and time passes between them by ticks. Counters of what
    happened while this member led: `fenced`, the transactions that were aborted with their producer fenced;
    `timed_out`, those of them that had timed out; `forgotten`, the ids that were removed.
    """

    def __init__(
        self,
        machine: StateMachine,
        markers: MarkerWriter,
        ask: Ask,
        *,
        ticks: Callable[[int], int],
        abort_check_ms: int,
        expiration_ms: int,
    ) -> None:
        self._machine = machine
        self._markers = markers
        self._ask = ask
        self._ticks = ticks
        self._abort_check_ticks = ticks(abort_check_ms)
        self._expiration_ms = expiration_ms
        self._term = 0
        self._begun: dict[str, Begun] = {}
        # Those of them whose time will be up, by the number of the look that finds that, and those whose time is up.
        # Dictionaries stand for sets whose order is the same in every run.
        self._due: dict[int, dict[str, None]] = {}
        self._late: dict[str, None] = {}
        # Completions that were refused: they are asked for again at the next tick.
        self._again: dict[str, CompleteTransaction] = {}
        # The look under way, what the last one found old, what it was the second one to find, and ids of which it is
        # not known yet whether they are forgotten.
        self._look: Look | None = None
        self._old: dict[str, TransactionRecord] = {}
        self._idle: deque[TransactionRecord] = deque()
        self._forgetting: dict[str, None] = {}
        self._next_abort = 0
        self._next_forget = 0
        self.fenced = 0
        self.timed_out = 0
        self.forgotten = 0

    # Inputs.

    def lead(self, term: int, tick: int) -> None:
        """This member leads `term` from now on and has applied all that was before.

        It gives every transaction its full timeout: it does not know when each began.
        """
        self._term = term
        self._begun.clear()
        self._due.clear()
        self._late.clear()
        self._again.clear()
        self._look = None
        self._old.clear()
        self._idle.clear()
        self._forgetting.clear()
        self._next_abort = self._next_forget = (tick // self._abort_check_ticks + 1) * self._abort_check_ticks
        for record in self._machine.transactions.under_way():
            self._watch(record, tick)

    def applied(self, records: Iterable[Record], tick: int) -> None:
        """These were committed and applied while this member leads."""
        for record in records:
            if type(record) is TransactionRecord:
                self._watch(record, tick)
            elif type(record) is AddPartitionsRecord:
                newest = self._machine.transactions.get(record.transactional_id)
                assert newest is not None, f"{record} is applied, and its id is unknown"
                self._begin(record.transactional_id, record.producer_epoch, newest.timeout_ms, tick)
            elif type(record) is ForgetTransactionRecord:
                self.forgotten += 1
                self._forgetting.pop(record.transactional_id, None)

    def tick(self, tick: int, now_ms: int) -> None:
        """Time has passed while this member leads. `now_ms`: its wall clock, for which ids are old and nothing else."""
        again, self._again = self._again, {}
        for request in again.values():
            self._complete(request, self._term)
        if tick >= self._next_abort:
            look = tick // self._abort_check_ticks
            self._next_abort = (look + 1) * self._abort_check_ticks
            self._abort_late(look)
        if tick >= self._next_forget and self._look is None:
            self._next_forget = tick + self._ticks(min(FORGET_CHECK_MS, self._expiration_ms))
            self._look = Look(iter(self._machine.transactions.names()))
        if self._look is not None:
            self._find_idle(self._look, now_ms)
        self._forget_idle(now_ms)

    # Duties.

    def _watch(self, record: TransactionRecord, tick: int) -> None:
        name = record.transactional_id
        if record.status == TransactionStatus.ONGOING:
            self._begin(name, record.producer_epoch, record.timeout_ms, tick)
            return
        if (begun := self._begun.pop(name, None)) is not None:
            fenced = record.producer_epoch != begun.producer_epoch
            self.fenced += fenced
            self.timed_out += fenced and name in self._late
            self._late.pop(name, None)
            self._due.get(begun.due, {}).pop(name, None)
        if record.status in PREPARED:
            self._write_markers(record)

    def _begin(self, name: str, producer_epoch: int, timeout_ms: int, tick: int) -> None:
        """A transaction is under way. Its time counts from the first that is heard of it."""
        if name not in self._begun:
            due = -(-(tick + self._ticks(timeout_ms)) // self._abort_check_ticks)
            self._begun[name] = Begun(producer_epoch, due)
            self._due.setdefault(due, {})[name] = None

    def _write_markers(self, record: TransactionRecord) -> None:
        name, producer_id, epoch = record.transactional_id, record.producer_id, record.producer_epoch
        committed = record.status == TransactionStatus.PREPARE_COMMIT
        markers = Markers(name, producer_id, epoch, self._term, committed, record.partitions)
        completion = CompleteTransaction(name, producer_id, epoch)
        self._markers.write(markers, partial(self._complete, completion, self._term))

    def _complete(self, completion: CompleteTransaction, term: int) -> None:
        # Markers of an older term: the same producer may be in its next transaction by now, whose are not written.
        if term == self._term:
            self._ask(completion, partial(self._refused, completion, term))

    def _refused(self, completion: CompleteTransaction, term: int) -> None:
        if term == self._term:
            self._again[completion.transactional_id] = completion

    def _abort_late(self, look: int) -> None:
        for due in [due for due in self._due if due <= look]:
            self._late.update(self._due.pop(due))
        late = list(islice(self._late, MAX_ABORTED))
        if late:
            logger.info("aborting %d transactions whose time is up, the first of them of %r", len(late), late[0])
        for name in late:
            record = self._machine.transactions.get(name)
            assert record is not None, f"{name!r} is unknown, but its transaction is under way"
            self._ask(AbortTransaction(name, record.producer_id, record.producer_epoch, timed_out=True), _nothing)

    def _find_idle(self, look: Look, now_ms: int) -> None:
        oldest = now_ms - self._expiration_ms
        names = list(islice(look.unseen, LOOKED_AT))
        for name in names:
            record = self._machine.transactions.get(name)
            if record is not None and _is_idle(record, oldest):
                look.old[name] = record
                if self._old.get(name) is record:
                    look.idle.append(record)
        if len(names) < LOOKED_AT:
            self._look, self._old = None, look.old
            self._idle = deque(look.idle)
            if look.idle:
                first = look.idle[0].transactional_id
                logger.info("forgetting %d idle transactional ids, the first of them %r", len(look.idle), first)

    def _forget_idle(self, now_ms: int) -> None:
        """As fast as the log carries it: the next ones as soon as those before are out of the way."""
        oldest = now_ms - self._expiration_ms
        while self._idle and len(self._forgetting) < MAX_FORGETTING:
            record = self._idle.popleft()
            name = record.transactional_id
            # It may have been used, or forgotten, since the look; or the clock was set right.
            unused = self._machine.transactions.get(name) is record and _is_idle(record, oldest)
            if unused and name not in self._forgetting:
                self._forgetting[name] = None
                request = ForgetTransactionalId(name, record.producer_id, record.producer_epoch)
                self._ask(request, partial(self._not_forgotten, name, self._term))

    def _not_forgotten(self, name: str, term: int) -> None:
        """Refused: it is in use again, or another member leads. The next look finds it if it is still there."""
        if term == self._term:
            self._forgetting.pop(name, None)


def _is_idle(record: TransactionRecord, oldest: int) -> bool:
    return record.status in IDLE and record.update_ms < oldest


def _nothing() -> None:
    """Refused: it is over, or another member leads. The next look finds it if it is still there."""
