"""Transactional producers: several instances for each transactional id, of which the older ones may live on as zombies.

An instance knows what it was told and nothing else. It asks through any agent, comes again with the pair that it has or
had when no answer came, and sometimes when one did; it ends transactions that are over; and once fenced it goes on for
a while as if it had not heard. In a part the end of a transaction gives the next pair (KIP-890), and ends come late.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec.structs import replace

from pidkeeper.broker_agent.controllers.client import CALL_SECONDS
from pidkeeper.broker_agent.coordinator.requests import AddPartitionsToTxn, EndTxn
from pidkeeper.controller.state import transitions
from pidkeeper.protocol.errors import ErrorCode, RequestError
from pidkeeper.protocol.messages import InitProducerIdRequest, TransactionTopic
from pidkeeper.protocol.metadata_version import TRANSACTION_EPOCHS
from tests.simulation.agent import Agent, TransactionalRequest
from tests.simulation.transaction_model import NOBODY, Pair
from tests.simulation.world import MILLISECOND, SECOND

if TYPE_CHECKING:
    from tests.simulation.cluster import Cluster

PARTITIONS: Final = 4
PATIENCE: Final = int(CALL_SECONDS * SECOND) + SECOND
"""An agent that dies never answers; one that lives does so within the deadline of its call."""

SHARE: Final = 1 / 3
"""Of the seeds, which have transactional producers."""

FAT: Final = 3_000
"""Partitions that join with one request in a few seeds: with four times as many a transaction is near its limit."""

FAT_IDS: Final = 16
FAT_FIRST: Final = 70_000
"""From here on a number takes five bytes in the log."""

TOGETHER: Final = 500 * MILLISECOND
"""Then the producers all ask at the same moments: entries of the log become as large as any may be."""

LATE: Final = 0.2
"""Of the ends that give a pair, those with the pair before."""

ENDED: Final = 6
"""Of these moments, one at which all transactions end."""

WEEK_MS: Final = 7 * 24 * 3_600_000
_FENCED: Final = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING})
_AGAIN: Final = frozenset({ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS})


class Transactional(msgspec.Struct, frozen=True):
    """The settings of one seed about transactions; times in microseconds but for those in ms.

    `ids`: transactional ids, 0 for none. `max_epoch`: the highest epoch of a producer, few in some seeds, so that IDs
    are used up. `marker_delay`: longest time that markers take.
    `fresh`: share of instances that come with an id of their own; `init_share`: of requests that ask for a new pair.
    `late`: share of all clients' requests, and of their answers, that come late where there are transactional ids.
    `liars`: share of the agents that name foreign IDs as candidates; `old_agents`: of those of the build before.
    `at_once`: partitions that join with one request. `own_epochs`: share of instances whose transactions each have an
    epoch of their own.
    """

    ids: int
    think_time: int
    instance_time: int
    timeouts_ms: tuple[int, ...]
    max_epoch: int
    marker_delay: int
    abort_check_ms: int
    forget_check_ms: int
    expiration_ms: int
    fresh: float
    init_share: float
    late: float
    at_once: int
    liars: float
    old_agents: float
    own_epochs: float


def draw(rng: random.Random) -> Transactional:
    """Settings for one seed."""
    forgetful = rng.random() < 0.3
    drawn = Transactional(
        ids=rng.randint(2, 4) if rng.random() < SHARE else 0,
        think_time=rng.choice((200, 300, 600)) * MILLISECOND,
        instance_time=rng.choice((2, 5, 10)) * SECOND,
        timeouts_ms=rng.choice(((5_000,), (300, 5_000), (1_000, 5_000))),
        max_epoch=rng.choice((2, 4, transitions.MAX_EPOCH)),
        marker_delay=rng.choice((0, 100, 2_000)) * MILLISECOND,
        abort_check_ms=rng.choice((100, 1_000)),
        forget_check_ms=1_000 if forgetful else 3_600_000,
        expiration_ms=2_000 if forgetful else WEEK_MS,
        fresh=rng.choice((0.0, 0.2, 0.6)),
        init_share=rng.choice((0.2, 0.2, 0.6)),
        late=rng.choice((0.0, 0.05, 0.2)),
        at_once=rng.choice((1, 1, 1, 1, 1, 1, 30, FAT)),
        liars=rng.choice((0.0, 0.3, 1.0)),
        old_agents=rng.choice((0.0, 0.3, 1.0)),
        own_epochs=rng.choice((0.0, 0.5, 1.0)),
    )
    return _fat(drawn) if drawn.ids and drawn.at_once == FAT else drawn


def _fat(drawn: Transactional) -> Transactional:
    """Of a few ids that stay and keep their pairs, so that their transactions grow together."""
    steady = replace(drawn, ids=FAT_IDS, fresh=0.0, init_share=0.05, own_epochs=0.0)
    return replace(steady, think_time=100 * MILLISECOND, timeouts_ms=(5_000,))


class Producers:
    """All instances of all transactional ids."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.rng = cluster.world.stream("producers")
        self.started = 0

    def start(self) -> None:
        """The first instance of every id comes soon."""
        for number in range(self.cluster.transactional.ids):
            self.cluster.world.at(self.rng.randrange(SECOND), self._start, f"tx-{number}")

    def _start(self, name: str) -> None:
        if not self.cluster.loaded:
            return
        settings = self.cluster.transactional
        # Those before it go on for a while, or until they are fenced; some have stopped before it came.
        life = int(settings.instance_time * self.rng.choice((0.5, 1.0, 2.0, 4.0)))
        used = f"{name}-{self.started}" if self.rng.random() < settings.fresh else name
        Producer(self, used, self.started, self.rng.choice(settings.timeouts_ms), life).act()
        self.started += 1
        self.cluster.world.at(int(settings.instance_time * (0.2 + self.rng.random())), self._start, name)


class Producer:
    """One instance. `pair` is what it was given last, `before` with what it asked for that."""

    def __init__(self, producers: Producers, name: str, number: int, timeout_ms: int, life: int) -> None:
        self.cluster = producers.cluster
        self.world = producers.cluster.world
        self.rng = producers.rng
        self.name = name
        self.number = number
        self.timeout_ms = timeout_ms
        self.ends = self.world.now + life
        self.init_share = producers.cluster.transactional.init_share
        self.pair: Pair = NOBODY
        self.before: Pair = NOBODY
        self.ongoing = False
        share = producers.cluster.transactional.own_epochs
        self._own_epochs = bool(share) and self.rng.random() < share
        self._asked = 0
        self._again: TransactionalRequest | None = None

    def act(self) -> None:
        """Ask for one thing, and come again."""
        if not self.cluster.loaded or self.world.now > self.ends:
            return
        agents = [agent for agent in (*self.cluster.agents, *self.cluster.gone[-1:]) if agent.broker_epoch is not None]
        if not agents:
            self._rest()
            return
        agent = self.rng.choice(agents)
        wanted, self._again = self._again or self._choose(), None
        self._asked += 1
        self._ask(agent, wanted)
        self.world.at(PATIENCE, self._given_up, self._asked, wanted)

    def _choose(self) -> TransactionalRequest:
        if self.pair == NOBODY:
            return self._init(NOBODY)
        chance = self.rng.random()
        if self.cluster.transactional.at_once == FAT and self.ongoing:
            # Nothing ends for a while, then all do.
            chance = 0.99 if self.world.now // TOGETHER % ENDED else self.init_share + 0.06
        if chance < self.init_share:
            return self._init(self.pair)
        if chance < self.init_share + 0.05:
            return self._init(self.before)
        if chance < self.init_share + 0.08 or (self.ongoing and chance < self.init_share + 0.4):
            return self._end()
        at_once = self.cluster.transactional.at_once
        first = self.rng.randrange(PARTITIONS) * at_once + (FAT_FIRST if at_once == FAT else 0)
        topic = TransactionTopic("t", list(range(first, first + at_once)))
        return AddPartitionsToTxn(self.name, *self.pair, [topic])

    def _end(self) -> EndTxn:
        committed = self.rng.random() < 0.7
        if not self._own_epochs or self.cluster.metadata_version() < TRANSACTION_EPOCHS:
            return EndTxn(self.name, *self.pair, committed)
        if self.before == NOBODY or self.rng.random() >= LATE:
            return EndTxn(self.name, *self.pair, committed, new_epoch=True)
        self.world.fault("transaction_comes_late")
        return EndTxn(self.name, *self.before, committed, new_epoch=True)

    def _init(self, supplied: Pair) -> InitProducerIdRequest:
        return InitProducerIdRequest(self.name, self.timeout_ms, *supplied)

    def _ask(self, agent: Agent, wanted: TransactionalRequest) -> None:
        number = self._asked

        def done(answer: Any, error: RequestError | None) -> None:
            if number == self._asked:
                self._told(wanted, answer, error)

        agent.ask(wanted, done, self.number)

    def _given_up(self, number: int, wanted: TransactionalRequest) -> None:
        if number == self._asked:
            self._told(wanted, None, RequestError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))

    def _told(self, wanted: TransactionalRequest, answer: Any, error: RequestError | None) -> None:
        self._asked += 1
        if error is None:
            self._granted(wanted, answer)
        elif error.code in _FENCED and not self._is_late(wanted):
            # It ought to stop. Not every program does.
            self.ends = min(self.ends, self.world.now + self.rng.choice((0, 2 * SECOND, 10 * SECOND)))
        elif error.code is ErrorCode.INVALID_TXN_STATE:
            self.ongoing = False
        elif error.code not in _AGAIN or self.rng.random() < 0.9:
            self._again = wanted
        self._rest()

    def _is_late(self, wanted: TransactionalRequest) -> bool:
        """Whether it is about a transaction of its own before."""
        return isinstance(wanted, EndTxn) and (wanted.producer_id, wanted.producer_epoch) != self.pair

    def _granted(self, wanted: TransactionalRequest, answer: Any) -> None:
        if isinstance(wanted, InitProducerIdRequest) or (isinstance(wanted, EndTxn) and wanted.new_epoch):
            self.before = (wanted.producer_id, wanted.producer_epoch)
            self.pair = (answer.producer_id, answer.producer_epoch)
            self.ongoing = False
        else:
            self.ongoing = isinstance(wanted, AddPartitionsToTxn)

    def _rest(self) -> None:
        settings = self.cluster.transactional
        rest = int(settings.think_time * (0.2 + 1.6 * self.rng.random()))
        if settings.at_once == FAT:
            rest += -(self.world.now + rest) % TOGETHER
        self.world.at(rest, self.act)
