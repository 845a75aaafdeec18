"""Producers that append batches through any agent, without a transactional id: idempotent ones, and plain ones.

As real clients do: up to five batches of a partition under way in order, all on one connection; what was not answered,
or may be tried again, is sent again in that order, through this agent or another one. An idempotent producer never
sends a batch under a new epoch while it may be there under an old one (KIP-360): it gives such a batch up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from pidkeeper.broker_agent.ids.reserve import NO_ID
from pidkeeper.protocol.errors import ErrorCode
from tests.simulation.sent_batches import STRANGE_IDS, Sent, Triple
from tests.simulation.world import MILLISECOND, SECOND, Violation
from tests.support.segment_builder import NO_PRODUCER

if TYPE_CHECKING:
    from tests.simulation.data_plane import DataPlane

IN_FLIGHT: Final = 5
ROUNDS: Final = 4
"""How often a batch is sent at most."""

TIMEOUTS_MS: Final = (1_500, 6_000, 15_000)
"""The last two outlive a call to the quorum, which an agent then makes again."""

PATIENCE: Final = SECOND
"""Beyond the time of a request, for an answer that may not come: agents die."""

UNANSWERED: Final = -1
OUT_OF_ORDER: Final = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER.kafka_code
OPEN: Final = frozenset(
    {
        UNANSWERED,
        ErrorCode.REQUEST_TIMED_OUT.kafka_code,
        ErrorCode.KAFKA_STORAGE_ERROR.kafka_code,
    }
)
"""What these batches became is not known."""

AGAIN: Final = OPEN | {
    ErrorCode.NOT_ENOUGH_REPLICAS.kafka_code,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.kafka_code,
}
STRANGE_EPOCH: Final = 7
LAST_EPOCH: Final = 3
"""Where a producer begins anew with another id, as others do at 32,767."""

Codes = list[int]


class Delivery:
    """Some batches of one partition on their way, one round after another, until all are settled or given up.

    `codes`: the newest answer to each. `doubtful`: those of which some attempt may have taken effect unheard. `then()`
    is called at the end. `joining`: their partition joins the transaction with them. While they are on their way their
    producer sends nothing else to their partition: those of them that are in the log are among its last five there.
    """

    def __init__(
        self,
        plane: DataPlane,
        batches: Sequence[tuple[Sent, Triple]],
        transactional_id: str | None,
        then: Callable[[Delivery], None],
        *,
        joining: bool = False,
    ) -> None:
        self.plane = plane
        self.batches = batches
        self.codes: Codes = [UNANSWERED] * len(batches)
        self.doubtful: set[Sent] = set()
        self._transactional_id = transactional_id
        self._then = then
        self._joining = joining
        self._rounds = 0
        self._there: dict[int, int] = {}
        self._asked = 0
        self._generation = plane.generation
        self._round()

    def unsettled(self) -> list[int]:
        """The places of those that are to be sent again, in their order."""
        found: list[int] = []
        for place, code in enumerate(self.codes):
            if code in AGAIN or (code == OUT_OF_ORDER and found):
                found.append(place)
        return found

    def _round(self) -> None:
        plane, places = self.plane, self.unsettled()
        if self._transactional_id is not None and plane.generation != self._generation:
            return  # its producer is gone
        agent = plane.any_agent()
        if agent is None or self._rounds == ROUNDS:
            # Also whoever finds no agent: as if it had died at once.
            self._then(self)
            return
        self._rounds += 1
        number, timeout_ms = self._rounds, plane.rng.choice(TIMEOUTS_MS)
        waiting = set(places)
        self._asked = plane.world.now
        held = {place: plane.monitor.holder(self.batches[place][0]) for place in places}
        self._there = {place: log for place, log in held.items() if log is not None}

        def answered(place: int, code: int, offset: int) -> None:
            if place not in waiting or number != self._rounds:
                return
            waiting.discard(place)
            self._settle(place, code, offset)
            if not waiting:
                self.plane.world.at(plane.rng.randrange(200) * MILLISECOND, self._next, number)

        for place in places:
            sent, triple = self.batches[place]
            self.codes[place] = UNANSWERED
            plane.produce(
                agent, sent, triple, self._transactional_id, timeout_ms, place, answered, joining=self._joining
            )
        plane.world.at(timeout_ms * MILLISECOND + PATIENCE, self._given_up, number, waiting)

    def _given_up(self, number: int, waiting: set[int]) -> None:
        if number == self._rounds and waiting:
            self.doubtful.update(self.batches[place][0] for place in waiting)
            waiting.clear()
            self._next(number)

    def _next(self, number: int) -> None:
        if number == self._rounds:
            if self.unsettled():
                self._round()
            else:
                self._then(self)

    def _settle(self, place: int, code: int, offset: int) -> None:
        sent = self.batches[place][0]
        self.codes[place] = code
        if code == OUT_OF_ORDER and place in self._there and self.plane.monitor.holder(sent) == self._there[place]:
            raise Violation("duplicate-refused", f"{sent}, at {sent.offsets} when it was sent again, is out of order")
        if code == 0:
            if sent.acknowledged is None:
                sent.acknowledged = offset
            self.plane.acknowledged(sent, offset, self._asked)
        elif code in OPEN:
            self.doubtful.add(sent)


class Appender:
    """One producer without a transactional id. `pair` is none of a plain one, or before it has an id."""

    def __init__(self, plane: DataPlane, name: str, *, idempotent: bool) -> None:
        self.plane = plane
        self.name = name
        self.busy = False
        self._idempotent = idempotent
        self._producer_id = NO_ID
        self._epoch = 0
        self._next: dict[int, int] = {}
        self._again: list[Sent] = []

    def act(self) -> None:
        """Send some batches to one partition, and come again."""
        plane = self.plane
        if plane.draining:
            return
        if not self._idempotent and plane.rng.random() < plane.strangers():
            self._send_as_nobody()
        elif self._idempotent and not self._has_id():
            self._rest()
        else:
            place = plane.rng.randrange(plane.places)
            batches = [one for one in self._again if one.place == place]
            self._again = [one for one in self._again if one.place != place]
            while len(batches) < plane.rng.randint(1, IN_FLIGHT):
                batches.append(plane.make(self.name, place))
            self._deliver(batches)

    def _deliver(self, batches: list[Sent]) -> None:
        self.busy = True
        Delivery(self.plane, [(one, self._triple(one)) for one in batches], None, self._delivered)

    def _has_id(self) -> bool:
        if self._producer_id == NO_ID:
            agent = self.plane.any_agent()
            self._producer_id = NO_ID if agent is None else agent.claim()
            self._epoch, self._next = 0, {}
        return self._producer_id != NO_ID

    def _triple(self, sent: Sent) -> Triple:
        if not self._idempotent:
            return NO_PRODUCER
        sequence = self._next.get(sent.place, 0)
        self._next[sent.place] = sequence + sent.records
        return self._producer_id, self._epoch, sequence

    def _delivered(self, delivery: Delivery) -> None:
        failed = [one for (one, _), code in zip(delivery.batches, delivery.codes, strict=True) if code]
        if self._idempotent and failed:
            self._bump(delivery)
            self._again += [one for one in failed if one not in delivery.doubtful]
        self.busy = False
        self._rest()

    def _bump(self, delivery: Delivery) -> None:
        """Begin anew, with the next epoch, or with another id if this one is strange to the quorum."""
        strange = {ErrorCode.INVALID_PRODUCER_EPOCH.kafka_code, ErrorCode.INVALID_PRODUCER_ID_MAPPING.kafka_code}
        if self._epoch == LAST_EPOCH or strange.intersection(delivery.codes):
            self._producer_id = NO_ID
        else:
            self._epoch, self._next = self._epoch + 1, {}

    def _send_as_nobody(self) -> None:
        """An id that nobody was given yet; a client of another cluster may come with one."""
        plane = self.plane
        plane.world.fault("id_of_nobody")
        sent = plane.make(self.name, plane.rng.randrange(plane.places))
        producer_id = plane.cluster.next_id_seen() + plane.rng.randrange(STRANGE_IDS)
        self.busy = True
        Delivery(plane, [(sent, (producer_id, STRANGE_EPOCH, 0))], None, self._refused)

    def _refused(self, delivery: Delivery) -> None:
        note_refusals(delivery)
        self.busy = False
        self._rest()

    def _rest(self) -> None:
        plane = self.plane
        plane.world.at(int(plane.load.think_time * (0.2 + 1.6 * plane.rng.random())), self.act)


def note_refusals(delivery: Delivery) -> None:
    """What was refused each time is not there, and never will be."""
    for (sent, _), code in zip(delivery.batches, delivery.codes, strict=True):
        if code and code not in AGAIN and sent not in delivery.doubtful:
            sent.refused = True
            if delivery.plane.monitor.holder(sent) is not None:
                raise Violation("refused-yet-there", f"{sent} was refused with {code}, and is at {sent.offsets}")
