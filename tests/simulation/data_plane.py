"""The data plane of one seed: the store, a topic, those who write and read it, and what must have come of it."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from pidkeeper.broker_agent.kafka.wire.data.isolation import IsolationLevel
from pidkeeper.controller.raft.messages import Entry
from pidkeeper.protocol.ids import MAX_PRODUCER_ID
from pidkeeper.protocol.metadata_version import TRANSACTION_EPOCHS
from tests.simulation.agent import Agent
from tests.simulation.appending import Appender
from tests.simulation.appending_transactions import FIRST, Transaction, TransactionalAppender
from tests.simulation.consumer import Consumer
from tests.simulation.log_invariants import LogMonitor
from tests.simulation.log_model import ModelLog
from tests.simulation.object_store import SimStore, StoreFaults, draw_faults
from tests.simulation.sent_batches import STRANGE_IDS, Batches, Sent, Triple
from tests.simulation.world import MILLISECOND, SECOND, Violation

if TYPE_CHECKING:
    from tests.simulation.cluster import Cluster

SHARE: Final = 0.12
"""Of the seeds, which have data."""

QUIET: Final = 0.3
"""Of these. What an agent commits late is refused as soon as it has committed more, so in some seeds it has little."""

TOPIC: Final = "data"
SETTLING: Final = 40 * SECOND
"""Until all producers know what became of their batches, and all transactions have ended: a round of 16 s that waits
for a dead agent, some rounds that do not, and the longest transaction."""

APPENDING: Final = 30 * SECOND
APPENDED: Final = 3
"""So many batches must be acknowledged within so long, once all faults have ended; the quorum may have had to wait for
that before it could take any."""

READING: Final = 30 * SECOND
MAX_RECORDS: Final = 3
LATER: Final = 2 * SECOND
"""For which something is held at most."""


class DataLoad(msgspec.Struct, frozen=True):
    """Of one seed; times in microseconds. `plain`, `idempotent` and `transactional`: producers, and ids of the last.

    `partitions`: 0 for no data. `strangers`: share of a plain producer's batches with an id that nobody was given.
    `lost`: of the answers to producers. `late`: of all clients' requests to the quorum, and of their answers.
    `newest`: the quorum begins with the newest build, whatever else was drawn. `roll_rows`, `roll_age_ms`: with which a
    tail is rolled, and `segment_bytes` what a segment grows to; `garbage_ms`: until what no log needs may be deleted.
    `own_epochs`: share of the transactions with which a producer begins to have an epoch for each. `topics`: each of so
    many partitions. `expiration_ms`: of producers that are silent. The rest as `SegmentSettings`.
    """

    partitions: int
    plain: int
    idempotent: int
    transactional: int
    think_time: int
    instance_time: int
    timeouts_ms: tuple[int, ...]
    strangers: float
    lost: float
    late: float
    newest: bool
    faults: StoreFaults
    roll_rows: int
    roll_age_ms: int
    segment_bytes: int
    garbage_ms: int
    own_epochs: float
    topics: int = 1
    retention_check_ms: int = 300_000
    expiration_ms: int = 24 * 3_600_000


def draw(rng: random.Random) -> DataLoad:
    """The load of one seed."""
    present, quiet = rng.random() < SHARE, rng.random() < QUIET
    return DataLoad(
        partitions=rng.choice((1, 2, 4)) if present else 0,
        plain=1 if quiet else rng.randint(1, 4),
        idempotent=0 if quiet else rng.randint(1, 4),
        transactional=rng.choice((0, 1, 2)) if rng.random() < 0.7 else 3,
        think_time=rng.choice((1_000, 2_000) if quiet else (200, 500, 1_500)) * MILLISECOND,
        instance_time=rng.choice((5, 15, 40)) * SECOND,
        timeouts_ms=rng.choice(((5_000,), (800, 5_000))),
        strangers=rng.choice((0.0, 0.2, 0.5) if not quiet else (0.5, 0.7)),
        lost=rng.choice((0.0, 0.02, 0.1)),
        late=rng.choice((0.0, 0.1, 0.25)),
        newest=present and rng.random() < 0.8,
        faults=draw_faults(rng),
        roll_rows=rng.choice((2, 5, 20, 1000)),
        roll_age_ms=rng.choice((2_000, 20_000)),
        segment_bytes=rng.choice((500, 5_000, 1 << 20)),
        garbage_ms=rng.choice((500, 5_000)),
        own_epochs=rng.choice((0.0, 0.3, 1.0)),
    )


Answered = Callable[[int, int, int], None]
"""The place of a batch, Kafka's code, and the base offset."""


class DataPlane:
    """Everything of a seed that has to do with partition logs.

    `draining`: nothing new is begun. `closed`: all is read and checked, and whatever comes then is of no concern.
    `generation`: how often a copy of the quorum took its place.
    A place is a partition of one of the topics, by its number among all `places`; those below `consumed` are read.
    """

    soon = 3 * SECOND
    """Until all clients have begun."""

    def __init__(self, cluster: Cluster, load: DataLoad) -> None:
        self.cluster = cluster
        self.world = cluster.world
        self.load = load
        self.rng = self.world.stream("data")
        self.draining = self.closed = False
        self.generation = 0
        self.batches = Batches()
        self.transactions: list[Transaction] = []
        self.store = SimStore(self.world, load.faults)
        slowest = min(cluster.swarm.clock_rates)
        garbage = int(load.garbage_ms * MILLISECOND * slowest)
        self.monitor = LogMonitor(self.store, self.batches, garbage=garbage, expiration_ms=load.expiration_ms)
        self.places = self.consumed = load.partitions * load.topics
        self.checked = 0
        self._acknowledged = 0
        self._appenders: list[Appender | TransactionalAppender] = []
        self._consumers: list[Consumer] = []
        self._instances = 0
        self._topic_ids = [uuid.UUID(int=self.rng.getrandbits(128)) for _ in range(load.topics)]

    # What producers and consumers ask.

    def gives_epochs(self) -> bool:
        """Whether the quorum gives each transaction an epoch of its own (KIP-890); agents may not have heard of it."""
        return self.cluster.metadata_version() >= TRANSACTION_EPOCHS

    def any_agent(self) -> Agent | None:
        """One that lives and has registered once; sometimes one that has lost its place since."""
        everybody = (*self.cluster.agents, *self.cluster.gone[-1:])
        agents = [one for one in everybody if one.alive and one.broker_epoch is not None]
        return self.rng.choice(agents) if agents else None

    def place(self, number: int) -> tuple[str, int]:
        """The topic and the partition of a place."""
        topic, partition = divmod(number, self.load.partitions)
        return (f"{TOPIC}-{topic}" if topic else TOPIC), partition

    def log(self, place: int) -> ModelLog | None:
        """The log of a place, while there is one."""
        return self.monitor.model.log_of(*self.place(place))

    def logs_since(self, place: int, since: int) -> list[ModelLog]:
        """The logs that a place had at a moment and later, the newest first."""
        return self.monitor.model.logs_since(*self.place(place), since)

    def strangers(self) -> float:
        """The share of plain batches that come with an id that nobody was given, as long as there are such ids."""
        left = self.cluster.next_id_seen() + STRANGE_IDS <= MAX_PRODUCER_ID
        return self.load.strangers if left and not self.store.healed and not self.generation else 0.0

    def make(self, name: str, place: int, transaction: int = -1) -> Sent:
        """A new batch."""
        topic, partition = self.place(place)
        records, now_ms = self.rng.randint(1, MAX_RECORDS), self.monitor.now_ms
        return self.batches.make(name, topic, partition, records, transaction, place=place, timestamp_ms=now_ms)

    def produce(
        self,
        agent: Agent,
        sent: Sent,
        triple: Triple,
        transactional_id: str | None,
        timeout_ms: int,
        place: int,
        answered: Answered,
        *,
        joining: bool = False,
    ) -> None:
        """Send a batch; its answer may be lost. `joining`: its partition joins the transaction with it."""

        def done(code: int, offset: int) -> None:
            if not self.draining and self.rng.random() < self.load.lost:
                self.world.fault("produce_answer_lost")
                return
            answered(place, code, offset)

        assert agent.data is not None, "every agent has data"
        data = self.batches.encode(sent, triple)
        agent.data.produce(sent, data, transactional_id, timeout_ms, done, joining=joining)

    def later(self, come: Callable[[Agent], None]) -> None:
        """Have something come to an agent a while later, as what a network held; from one quorum to no other."""
        generation = self.generation

        def arrive() -> None:
            agent = self.any_agent()
            if agent is not None and generation == self.generation and not self.closed:
                come(agent)

        self.world.at(self.rng.randrange(LATER), arrive)

    def acknowledged(self, sent: Sent, offset: int, asked: int) -> None:
        """A producer that asked at the moment `asked` was told so."""
        self.monitor.acknowledged(sent, offset, asked)
        self._acknowledged += 1

    # The run.

    def start(self) -> None:
        """Create the topic, and begin to write and read."""
        self.store.start()
        self.world.at(self.rng.randrange(SECOND), self._create)
        self.start_clients()

    def start_clients(self) -> None:
        """Begin to write and read."""
        load = self.load
        self._appenders += [Appender(self, f"plain-{one}", idempotent=False) for one in range(load.plain)]
        self._appenders += [Appender(self, f"idempotent-{one}", idempotent=True) for one in range(load.idempotent)]
        for appender in self._appenders:
            self.world.at(self.rng.randrange(self.soon), appender.act)
        for number in range(load.transactional):
            self.world.at(self.rng.randrange(self.soon), self._start_instance, f"data-tx-{number}")
        self._consume()

    def go_back(self, last: int, entries: Sequence[Entry]) -> None:
        """A copy of the quorum took its place, which ends with these entries and that index.

        What was acknowledged since is lost. Transactional producers are started anew, for nothing fences them.
        """
        self.generation += 1
        self.monitor = self.monitor.rewound(last, entries)
        self.transactions.clear()
        for appender in self._appenders:
            if isinstance(appender, TransactionalAppender):
                appender.retire()

    def finish(self) -> None:
        """Once all faults have ended: settle everything, read everything, and check. Raises Violation."""
        self.append_again()
        self.settle()
        self.read_again()
        self.check()

    def append_again(self) -> None:
        """Producers get on. Raises Violation."""
        self._acknowledged = 0
        self.world.run(self.world.now + APPENDING, self._appended)
        if not self._appended():
            raise Violation("nothing-appended", f"{self._acknowledged} batches in {APPENDING // SECOND} s")

    def settle(self) -> None:
        """Nothing new is begun, and all that is under way ends. Raises Violation."""
        self.draining = True
        self.world.run(self.world.now + SETTLING, self._settled)
        if not self._settled():
            busy = [one.name for one in self._appenders if one.busy]
            raise Violation("data-unsettled", f"{busy} wait, {self.monitor.model.ends()} in {SETTLING // SECOND} s")

    def read_again(self) -> None:
        """All that there is is read from its beginning. Raises Violation."""
        self._consume()
        self.world.run(self.world.now + READING, self._read)
        if not self._read():
            left = [(one.isolation.name, one.place, one.offset) for one in self._consumers if not one.at_the_end]
            raise Violation("unread", f"{left} of {self.monitor.model.ends()}")

    def check(self) -> None:
        """All that was acknowledged is there, and all that is there is in the store. Raises Violation."""
        self.closed = True
        self.store.on_delete = lambda name: None
        self.monitor.references.check()
        for sent in self.batches:
            if sent.acknowledged is not None and not sent.offsets:
                raise Violation("acknowledged-lost", f"{sent} was said to be at {sent.acknowledged}")
            self.checked += sent.acknowledged is not None
        self._check_transactions()

    def _check_transactions(self) -> None:
        """What a producer was told of its transaction is so of each of its batches.

        But for KIP-98's exception: a commit that comes late may commit a part of the next transaction of its pair.
        """
        outcomes: dict[bytes, set[bool | None]] = {}
        for log in self.monitor.model.logs.values():
            for row in log.rows:
                found = outcomes.setdefault(row.covered, set())
                # A topic that was deleted takes what is undecided along.
                if log.removed is None or row.committed is not None:
                    found.add(row.committed)
        for transaction in self.transactions:
            for sent in transaction.batches:
                found = set().union(*(outcomes.get(form, ()) for form in sent.forms))
                told_for_sure = transaction.committed or (transaction.committed is False and transaction.first)
                if told_for_sure and not found <= {transaction.committed}:
                    raise Violation("transaction-outcome", f"{sent}: told {transaction.committed}, it is {found}")
                if transaction.committed and not sent.forms.keys() & outcomes.keys():
                    raise Violation("transaction-outcome", f"{sent} is missing in a transaction that was committed")

    def _create(self) -> None:
        agent = self.any_agent()
        if self.log(0) is None and not self.draining:
            if agent is not None and agent.data is not None:
                agent.data.create_topic(self._topic_ids[0], TOPIC, self.load.partitions)
            self.world.at(SECOND, self._create)

    def _start_instance(self, name: str) -> None:
        if self.draining:
            return
        life = int(self.load.instance_time * self.rng.choice((0.5, 1.0, 3.0)))
        self._instances += 1
        instance = TransactionalAppender(
            self, name, FIRST + self._instances, self.rng.choice(self.load.timeouts_ms), life
        )
        self._appenders.append(instance)
        instance.act()
        self.world.at(int(self.load.instance_time * (0.3 + self.rng.random())), self._start_instance, name)

    def _consume(self) -> None:
        self._consumers = [
            Consumer(self, place, isolation) for place in range(self.consumed) for isolation in IsolationLevel
        ]
        for consumer in self._consumers:
            self.world.at(self.rng.randrange(100 * MILLISECOND), consumer.act)

    def _appended(self) -> bool:
        return self._acknowledged >= APPENDED

    def _settled(self) -> bool:
        leader = self.cluster.leader()
        open_logs = any(log.open for log in self.monitor.model.logs.values())
        return not open_logs and leader is not None and not any(one.busy for one in self._appenders)

    def _read(self) -> bool:
        return all(one.at_the_end for one in self._consumers)
