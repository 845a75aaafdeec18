"""Transactional producers that append: several instances for each id, of which the older ones may write on.

A transaction is committed only when each of its batches was acknowledged. After any failure it is aborted, and the
producer asks for its next epoch (KIP-360), as a client does that cannot know what is still under way. Some are hasty:
they send before they have heard that a partition joined. Some write on although they were fenced.

In a part, sooner or later, each transaction has an epoch of its own (KIP-890): partitions join with their batches, and
the end gives the next pair. What comes late of a transaction is of no other then, and some of it does come late.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from pidkeeper.broker_agent.coordinator.requests import AddPartitionsToTxn, EndTxn
from pidkeeper.protocol.errors import ErrorCode, RequestError
from pidkeeper.protocol.messages import InitProducerIdRequest, TransactionTopic
from tests.simulation.agent import TransactionalRequest
from tests.simulation.appending import IN_FLIGHT, Delivery, note_refusals
from tests.simulation.producer import PATIENCE
from tests.simulation.sent_batches import Sent
from tests.simulation.transaction_model import NOBODY, Pair
from tests.simulation.world import MILLISECOND, SECOND

if TYPE_CHECKING:
    from tests.simulation.data_plane import DataPlane

FIRST: Final = 2_000_000
"""Numbers of these producers are from here on."""

ATTEMPTS: Final = 5
COMMITTED: Final = 0.7
HASTY: Final = 0.2
"""Of the partitions that join, to which batches are sent before the answer."""

ZOMBIE_ROUNDS: Final = 3
"""For which an instance writes on at most that was fenced."""

LATE: Final = 0.2
"""Of the transactions that have an epoch of their own, of which something comes late."""

LATE_MS: Final = 1_000
"""For which an agent has such a batch wait."""

_FENCED: Final = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH})
_AGAIN: Final = frozenset(
    {ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.REQUEST_TIMED_OUT}
)
Told = Callable[[Any, RequestError | None], None]


class Transaction:
    """One of a producer. `first`: of its pair, as is each that has one of its own. `committed`: as it was told; None if
    that is not known."""

    def __init__(self, *, first: bool) -> None:
        self.first = first
        self.batches: list[Sent] = []
        self.committed: bool | None = None


class TransactionalAppender:
    """One instance, from its first request until it is fenced or its time is up."""

    def __init__(self, plane: DataPlane, name: str, number: int, timeout_ms: int, life: int) -> None:
        self.plane = plane
        self.name = name
        self.number = number
        self.busy = False
        self._timeout_ms = timeout_ms
        self._ends = plane.world.now + life
        self._own_epochs = False
        self._pair: Pair = NOBODY
        self._next: dict[int, int] = {}
        self._left: list[int] = []
        self._transaction = Transaction(first=False)
        self._ended = 0
        self._zombie = 0
        self._asked = 0
        self._retired = False

    def retire(self) -> None:
        """It is gone, and so is all that it has under way."""
        self._retired, self.busy = True, False
        self._asked += 1

    def act(self) -> None:
        """Begin anew, or a transaction."""
        plane = self.plane
        if self._retired or plane.draining or plane.world.now > self._ends:
            self.busy = False
            return
        self.busy = True
        if self._pair == NOBODY:
            self._initialise()
            return
        if plane.gives_epochs() and plane.rng.random() < plane.load.own_epochs:
            self._own_epochs = True
        self._transaction = Transaction(first=not self._ended)
        plane.transactions.append(self._transaction)
        self._left = plane.rng.sample(range(plane.places), min(plane.places, plane.rng.choice((1, 1, 2))))
        self._join()

    # Step by step.

    def _initialise(self) -> None:
        self._ask(InitProducerIdRequest(self.name, self._timeout_ms, *self._pair), self._initialised)

    def _initialised(self, answer: Any, error: RequestError | None) -> None:
        if error is None:
            self._begin_epoch((answer.producer_id, answer.producer_epoch))
        elif error.code in _FENCED:
            self._fenced()
        else:
            if error.code is ErrorCode.INVALID_PRODUCER_ID_MAPPING:
                self._pair = NOBODY
            self._rest()

    def _begin_epoch(self, pair: Pair) -> None:
        self._pair, self._next, self._ended = pair, {}, 0
        self._rest()

    def _join(self) -> None:
        """The next partition joins, and batches are sent to it."""
        if not self._left:
            self._end(committed=self.plane.rng.random() < COMMITTED)
            return
        place = self._left.pop()
        if self._own_epochs:
            self._send(place)
            return
        topic, partition = self.plane.place(place)
        wanted = AddPartitionsToTxn(self.name, *self._pair, [TransactionTopic(topic, [partition])])
        if self.plane.rng.random() < HASTY:
            self.plane.world.fault("sent_before_it_joined")
            self._ask(wanted, lambda answer, error: None)
            self._send(place)
            return

        def joined(answer: Any, error: RequestError | None) -> None:
            if error is None:
                self._send(place)
            elif error.code in _FENCED:
                self._fenced()
            else:
                self._end(committed=False)

        self._ask(wanted, joined)

    def _send(self, place: int) -> None:
        if self._retired:
            return
        plane, batches = self.plane, []
        for _ in range(plane.rng.randint(1, IN_FLIGHT)):
            sent = plane.make(self.name, place, transaction=len(plane.transactions))
            sequence = self._next.get(place, 0)
            self._next[place] = sequence + sent.records
            batches.append((sent, (*self._pair, sequence)))
            self._transaction.batches.append(sent)
        Delivery(plane, batches, self.name, self._delivered, joining=self._own_epochs)

    def _delivered(self, delivery: Delivery) -> None:
        if self._retired:
            return
        note_refusals(delivery)
        # Whatever the first request to join may still come to is not waited for any more.
        self._asked += 1
        codes = set(delivery.codes) - {0}
        if not codes:
            self._join()
        elif codes & {code.kafka_code for code in _FENCED} and self._zombie:
            self._fenced()
        else:
            self._end(committed=False)

    def _end(self, *, committed: bool) -> None:
        transaction = self._transaction
        wanted = EndTxn(self.name, *self._pair, committed, self._own_epochs)
        self._ended += 1

        def ended(answer: Any, error: RequestError | None) -> None:
            if error is None:
                transaction.committed = committed
            elif error.code in _FENCED:
                self._fenced()
                return
            if error is None and wanted.new_epoch:
                self._come_late(wanted)
                self._begin_epoch((answer.producer_id, answer.producer_epoch))
            elif error is None and committed and self._attempts == 1:
                self._rest()
            else:
                # Something of it may be under way still, and must not come into the next one.
                self._initialise()

        self._ask(wanted, ended)

    def _come_late(self, ended: EndTxn) -> None:
        """Of a transaction that has ended its end comes once more or another one, or a batch does, or a new one."""
        plane, batches = self.plane, [sent for sent in self._transaction.batches if sent.times]
        if not batches or plane.rng.random() >= LATE:
            return
        plane.world.fault("transaction_comes_late")
        if plane.rng.random() < 0.5:
            again = replace(ended, committed=plane.rng.random() < 0.5)
            plane.later(lambda agent: agent.ask(again, lambda answer, error: None, self.number))
            return
        sent = batches[-1]
        (triple,) = sent.forms.values()
        if plane.rng.random() < 0.5:
            sent, triple = plane.make(self.name, sent.place, sent.transaction), (*self._pair, self._next[sent.place])
        plane.later(
            lambda agent: plane.produce(agent, sent, triple, self.name, LATE_MS, 0, lambda *told: None, joining=True)
        )

    def _fenced(self) -> None:
        """It ought to stop. Not every program does."""
        self._zombie += 1
        if self._zombie > ZOMBIE_ROUNDS or self.plane.rng.random() < 0.3 or self.plane.draining:
            self.busy = False
            return
        self.plane.world.fault("zombie_writes_on")
        self._left = []
        self._transaction = Transaction(first=False)
        self.plane.world.at(self.plane.rng.randrange(SECOND), self._send, self.plane.rng.randrange(self.plane.places))

    def _rest(self) -> None:
        think = self.plane.load.think_time
        self.plane.world.at(int(think * (0.2 + 1.6 * self.plane.rng.random())), self.act)

    # One request to the coordinator.

    def _ask(self, wanted: TransactionalRequest, told: Told) -> None:
        self._attempts = 0
        self._attempt(wanted, told)

    def _attempt(self, wanted: TransactionalRequest, told: Told) -> None:
        if self._retired:
            return
        self._attempts += 1
        self._asked += 1
        number, plane, agent = self._asked, self.plane, self.plane.any_agent()

        def done(answer: Any, error: RequestError | None) -> None:
            if number != self._asked:
                return
            if error is not None and error.code in _AGAIN and self._attempts < ATTEMPTS:
                plane.world.at(plane.rng.randrange(50, 500) * MILLISECOND, self._once_more, number, wanted, told)
                return
            self._asked += 1
            told(answer, error)

        if agent is not None:
            agent.ask(wanted, done, self.number)
        plane.world.at(PATIENCE, done, None, RequestError(ErrorCode.REQUEST_TIMED_OUT))

    def _once_more(self, number: int, wanted: TransactionalRequest, told: Told) -> None:
        if number == self._asked:
            self._attempt(wanted, told)
