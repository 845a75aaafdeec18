"""Whatever is asked, in whatever batches: what is decided can be replayed, and no pair is given to two producers."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from pidkeeper.controller.node.markers import RecordedMarkers
from pidkeeper.controller.node.transaction_duties import TransactionDuties
from pidkeeper.controller.state import requests
from pidkeeper.controller.state.decide import decide
from pidkeeper.controller.state.draft import Draft
from pidkeeper.controller.state.machine import StateMachine
from pidkeeper.controller.state.transitions import IDLE, MAX_EPOCH, NO_PAIR, TransactionStatus
from pidkeeper.protocol.errors import RequestError
from pidkeeper.protocol.metadata_version import ADDED_PARTITIONS, ENDS_AT_ONCE, TRANSACTION_EPOCHS, TRANSACTIONAL_BLOCKS
from pidkeeper.protocol.records import (
    FeatureLevelRecord,
    ProducerIdFloorRecord,
    Record,
    RegisterBrokerRecord,
    decode_batch,
    encode_batch,
)
from pidkeeper.protocol.transactions import ForgetTransactionRecord, TopicPartitions, TransactionRecord

S = TransactionStatus
NEXT_ID = 12
SIZE = 3
NAMES = ["a", "b"]
Pair = tuple[int, int]
names = st.sampled_from(NAMES)
producer_ids = st.integers(-1, NEXT_ID)
pairs = st.one_of(
    st.just(NO_PAIR),
    st.tuples(producer_ids, st.sampled_from([-1, 0, 1, 2, MAX_EPOCH - 1, MAX_EPOCH, MAX_EPOCH + 1])),
)
topics = st.lists(st.integers(0, 3), min_size=1, max_size=2).map(
    lambda numbers: (TopicPartitions("t", tuple(numbers)),)
)
asked = st.one_of(
    st.builds(lambda name, pair, candidate: ("init", name, pair, candidate), names, pairs, producer_ids),
    # What a client that goes by the rules asks: with the newest pair, whatever it is.
    st.builds(lambda name, candidate: ("bump", name, None, candidate), names, producer_ids),
    st.builds(lambda name, pair, topics: ("add", name, pair, topics), names, st.none() | pairs, topics),
    st.builds(lambda name, pair, committed: ("end", name, pair, committed), names, st.none() | pairs, st.booleans()),
    st.builds(
        lambda name, pair, committed: ("end anew", name, pair, committed), names, st.none() | pairs, st.booleans()
    ),
    st.builds(lambda name, pair, late: ("abort", name, pair, late), names, st.none() | pairs, st.booleans()),
    st.builds(lambda name: ("forget", name, None, None), names),
    st.just(("fill", "", None, None)),
)


def request_of(machine: StateMachine, kind: str, name: str, pair: Pair | None, value: Any) -> requests.Request:
    record = machine.transactions.get(name)
    newest = NO_PAIR if record is None else (record.producer_id, record.producer_epoch)
    producer = newest if pair is None else pair
    match kind:
        case "init" | "bump":
            # Where the candidate is an even number, the leader would take a block as well.
            return requests.InitProducerId(1, 2, name, 1000, *producer, value, value % 2 == 0)
        case "fill":
            return requests.FillOwnIds()
        case "add":
            return requests.AddPartitionsToTxn(1, 2, name, *producer, value)
        case "end":
            return requests.EndTxn(1, 2, name, *producer, value)
        case "end anew":
            return requests.EndTxn(1, 2, name, *producer, value, new_epoch=True, may_take_block=True)
        case "abort":
            return requests.AbortTransaction(name, *producer, timed_out=bool(value))
    return requests.ForgetTransactionalId(name, *producer)


class World:
    """One leader whose duties are answered in the next batch, and a follower that reads what it wrote."""

    def __init__(self, epoch: int, version: int) -> None:
        self.machine, self.follower = StateMachine("c", SIZE), StateMachine("c", SIZE)
        self.given: dict[Pair, tuple[str, Pair]] = {}
        # Pairs that new instances were given, which brought none.
        self.fresh: set[Pair] = set()
        self.own: list[requests.Request] = []
        for machine in (self.machine, self.follower):
            machine.replay([FeatureLevelRecord(version), ProducerIdFloorRecord(NEXT_ID, 0)])
            machine.replay([RegisterBrokerRecord(1, 2, "a")])
            old = TransactionRecord("a", 0, epoch, *NO_PAIR, 1000, S.EMPTY, 0)
            machine.restore(replace(machine.image(1, 1), transactions=[old]))
        self.duties = TransactionDuties(
            self.machine,
            RecordedMarkers(),
            lambda request, _: self.own.append(request),
            ticks=lambda milliseconds: milliseconds,
            abort_check_ms=1,
            expiration_ms=10**9,
        )
        self.duties.lead(1, 0)

    def batch(self, wanted: list[requests.Request]) -> None:
        """Decide, encode, replay on both."""
        draft = Draft(self.machine, 5)
        for request in [*self.own, *wanted]:
            before = len(draft.records)
            try:
                answer = decide(draft, request)
            except RequestError:
                assert len(draft.records) == before, f"{request} was refused and changed something"
                continue
            if (
                isinstance(request, requests.InitProducerId | requests.EndTxn)
                and getattr(answer, "producer_id", -1) >= 0
            ):
                self.check_pair(request, (answer.producer_id, answer.producer_epoch))
        self.own = []
        if not draft.records:
            return
        payload = encode_batch(draft.records)
        self.machine.replay(draft.records)
        self.follower.replay(decode_batch(payload))
        assert self.machine.image(1, 1) == self.follower.image(1, 1)
        self.duties.applied(draft.records, 0)
        if self.machine.metadata_version < TRANSACTIONAL_BLOCKS:
            self.let_go(draft.records)

    def check_pair(self, request: requests.InitProducerId | requests.EndTxn, pair: Pair) -> None:
        """A pair is given again only to whoever repeats the request that it was given to before."""
        assert pair[1] <= MAX_EPOCH
        asker = (request.transactional_id, (request.producer_id, request.producer_epoch))
        first = self.given.setdefault(pair, asker)
        assert first == asker, f"{pair} was given to {first} and to {asker}"
        assert first[1] != NO_PAIR or pair not in self.fresh, f"{pair} was given to two new instances"
        if first[1] == NO_PAIR:
            self.fresh.add(pair)

    def let_go(self, records: list[Record]) -> None:
        """Once an id is forgotten nobody knows its pairs; that an ID is not used again is up to the agents."""
        for record in records:
            if isinstance(record, ForgetTransactionRecord):
                self.given = {pair: who for pair, who in self.given.items() if who[0] != record.transactional_id}
                self.fresh &= set(self.given)


@settings(max_examples=300, deadline=None)
@given(
    epoch=st.sampled_from([0, MAX_EPOCH - 1, MAX_EPOCH]),
    version=st.sampled_from([ADDED_PARTITIONS, TRANSACTIONAL_BLOCKS, ENDS_AT_ONCE, TRANSACTION_EPOCHS]),
    batches=st.lists(st.lists(asked, min_size=1, max_size=5), max_size=25),
)
def test_whatever_is_asked_can_be_replayed_and_ends(epoch: int, version: int, batches: list[list[Any]]) -> None:
    world = World(epoch, version)
    for batch in batches:
        world.batch([request_of(world.machine, *one) for one in batch])
    for tick in range(1, 6):
        world.duties.tick(2000 * tick, 5)
        world.batch([])
    assert all(record.status in IDLE for record in world.machine.transactions.all())
