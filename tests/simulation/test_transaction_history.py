"""The checker of transactions itself: a good history passes, and each kind of broken one is found."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from pidkeeper.controller.node.markers import Markers
from pidkeeper.controller.state.requests import AddPartitionsToTxn, EndTxn, InitProducerId
from pidkeeper.protocol.errors import ErrorCode, RequestError
from pidkeeper.protocol.logs import ObjectId, ObjectRecord
from pidkeeper.protocol.messages import InitProducerIdResponse, TransactionResponse
from pidkeeper.protocol.metadata_version import TRANSACTION_EPOCHS
from pidkeeper.protocol.records import FeatureLevelRecord
from pidkeeper.protocol.transactions import (
    AddPartitionsRecord,
    ForgetTransactionRecord,
    TopicPartitions,
    TransactionalBlockRecord,
    TransactionRecord,
)
from tests.simulation.history import AgentClaims, History, Operation
from tests.simulation.own_blocks import OwnBlocks
from tests.simulation.transaction_history import TransactionChecker, Written
from tests.simulation.transaction_model import (
    COMMITTED_EPOCH,
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    EMPTY,
    NOBODY,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    Pair,
)
from tests.simulation.world import SECOND, Violation, World

MAX_EPOCH = 3
TOPICS = (TopicPartitions("t", (1,)),)


class Story:
    """A history told line by line; every line takes a second."""

    def __init__(self) -> None:
        self.world = World(0)
        self.history = History(self.world)
        self.claims = AgentClaims("agent 1")
        self.claims.candidates |= {7, 9}
        self.written: list[Written] = []
        self.newest = TransactionRecord("tx", 7, 0, *NOBODY, 60_000, EMPTY, 0)

    def ask(self, request: InitProducerId | AddPartitionsToTxn | EndTxn, producer: int = 1) -> Operation:
        self.world.now += SECOND
        return self.history.invoke(request, producer)

    def commit(self, **changes: object) -> None:
        self.world.now += SECOND
        self.newest = replace(self.newest, **changes)
        self.history.commit(len(self.history.commits), [self.newest])

    def told(self, operation: Operation, answer: Pair | ErrorCode = ErrorCode.NONE) -> None:
        self.world.now += SECOND
        if isinstance(answer, tuple):
            response = TransactionResponse if isinstance(operation.request, EndTxn) else InitProducerIdResponse
            self.history.acknowledge(operation, response(0, *answer))
        elif answer is ErrorCode.NONE:
            self.history.acknowledge(operation, TransactionResponse(0))
        else:
            operation.refused = answer is not ErrorCode.CONCURRENT_TRANSACTIONS
            self.history.refuse(operation, RequestError(answer))

    def complete(self, *, committed: bool = True) -> None:
        self.world.now += SECOND
        now, newest = self.world.now, self.newest
        markers = Markers("tx", newest.producer_id, newest.producer_epoch, 1, committed, newest.partitions)
        self.written.append(Written(now, now, markers))
        self.commit(status=COMPLETE_COMMIT if committed else COMPLETE_ABORT, partitions=())

    def bump(self, supplied: Pair, given: Pair, *, producer: int = 1) -> None:
        """An init that takes effect."""
        operation = self.ask(init(supplied), producer)
        self.become(given, supplied, status=EMPTY)
        self.told(operation, given)

    def become(self, pair: Pair, last: Pair, **changes: object) -> None:
        """The record that has the pair, and the one before."""
        before = {"last_producer_id": last[0], "last_producer_epoch": last[1]}
        self.commit(producer_id=pair[0], producer_epoch=pair[1], **before, **changes)

    def write(self, pair: Pair) -> None:
        """A batch with which its partition joins."""
        joined = AddPartitionsRecord("tx", *pair, TOPICS, 0)
        self.world.now += SECOND
        self.history.commit(len(self.history.commits), [joined, ObjectRecord(ObjectId(0, 0, 1), 9, (0,), (), 0)])
        self.newest = replace(self.newest, status=ONGOING, partitions=TOPICS)

    def check(self) -> int:
        own_blocks = OwnBlocks(self.history.commits, bridge=False, hears=False)
        checker = TransactionChecker(
            self.history.commits, self.history.transactional, self.written, MAX_EPOCH, own_blocks
        )
        return checker.check([self.claims])


def init(supplied: Pair, candidate: int = 9) -> InitProducerId:
    return InitProducerId(0, 0, "tx", 60_000, *supplied, candidate)


def add(pair: Pair) -> AddPartitionsToTxn:
    return AddPartitionsToTxn(0, 0, "tx", *pair, TOPICS)


def end(pair: Pair, *, committed: bool = True, new_epoch: bool = False) -> EndTxn:
    return EndTxn(0, 0, "tx", *pair, committed, new_epoch)


def end_anew(pair: Pair, *, committed: bool = True) -> EndTxn:
    return end(pair, committed=committed, new_epoch=True)


def begun() -> Story:
    """Producer 1 got (7, 0), bumped it, asked again for that, and has a transaction under way; then comes a retry."""
    story = Story()
    first = story.ask(init(NOBODY, candidate=7))
    story.commit()
    story.told(first, (7, 0))
    story.bump((7, 0), (7, 1))
    again = story.ask(init((7, 0)))
    story.told(again, (7, 1))
    joined = story.ask(add((7, 1)))
    story.commit(status=ONGOING, partitions=TOPICS)
    story.told(joined)
    story.told(story.ask(add((7, 1))))
    return story


def good() -> Story:
    """... which commits, and is followed by a second producer, whose answer was lost once."""
    story = begun()
    story.told(story.ask(end((7, 0))), ErrorCode.PRODUCER_FENCED)
    ended = story.ask(end((7, 1)))
    story.commit(status=PREPARE_COMMIT)
    story.told(ended)
    story.told(story.ask(init(NOBODY), 2), ErrorCode.CONCURRENT_TRANSACTIONS)
    story.complete()
    story.told(story.ask(end((7, 1))))
    story.ask(init(NOBODY), 2)
    story.commit(producer_epoch=2, status=EMPTY, last_producer_id=-1, last_producer_epoch=-1)
    story.bump(NOBODY, (7, 3), producer=2)
    return story


def own() -> Story:
    """Producer 1 got the quorum's ID 7; each of its transactions has an epoch of its own. The second one is under way,
    and the end of the first came twice."""
    story = Story()
    story.claims.candidates.clear()
    story.history.commit(0, [FeatureLevelRecord(TRANSACTION_EPOCHS), TransactionalBlockRecord(7, 9, 0)])
    first = story.ask(init(NOBODY, candidate=-1))
    story.commit()
    story.told(first, (7, 0))
    story.write((7, 0))
    ended = story.ask(end_anew((7, 0)))
    story.become((7, 1), (7, 0), status=COMPLETE_COMMIT, partitions=())
    story.told(ended, (7, 1))
    story.told(story.ask(end_anew((7, 0))), (7, 1))
    story.told(story.ask(end_anew((7, 0), committed=False)), ErrorCode.INVALID_TXN_STATE)
    story.write((7, 1))
    story.told(story.ask(end_anew((7, 0))), ErrorCode.PRODUCER_FENCED)
    return story


def used_up(*, committed: bool) -> Story:
    """... which is aborted; then nothing is, and the transaction of the last epoch ends so."""
    story = own()
    ended = story.ask(end_anew((7, 1), committed=False))
    story.become((7, 2), (7, 1), status=COMPLETE_ABORT, partitions=())
    story.told(ended, (7, 2))
    story.told(story.ask(end_anew((7, 2))), ErrorCode.INVALID_TXN_STATE)
    nothing = story.ask(end_anew((7, 2), committed=False))
    story.become((7, 3), (7, 2), status=EMPTY)
    story.told(nothing, (7, 3))
    story.write((7, 3))
    last = story.ask(end_anew((7, 3), committed=committed))
    story.commit(status=COMPLETE_COMMIT if committed else COMPLETE_ABORT, partitions=())
    story.world.now -= SECOND
    story.become((8, 0), (7, COMMITTED_EPOCH if committed else 3), status=EMPTY)
    story.told(last, (8, 0))
    story.told(story.ask(end_anew((7, 3), committed=committed)), (8, 0))
    story.told(story.ask(end_anew((7, 3), committed=not committed)), ErrorCode.INVALID_TXN_STATE)
    return story


@pytest.mark.parametrize("committed", [True, False])
def test_an_epoch_for_each_transaction_passes(committed: bool) -> None:
    assert own().check() == 5
    assert used_up(committed=committed).check() == 11


def epoch_left(story: Story) -> None:
    operation = story.ask(end_anew((7, 1)))
    story.commit(status=COMPLETE_COMMIT, partitions=())
    story.told(operation, (7, 1))


def ended_by_the_one_before(story: Story) -> None:
    story.ask(end_anew((7, 0)))
    story.become((7, 2), (7, 1), status=COMPLETE_COMMIT, partitions=())


def told_though_another_has_begun(story: Story) -> None:
    story.told(story.ask(end_anew((7, 0))), (7, 1))


def bumped_again(story: Story) -> None:
    story.told(story.ask(end_anew((7, 1))), (7, 2))
    story.become((7, 2), (7, 1), status=COMPLETE_COMMIT, partitions=())
    operation = story.ask(end_anew((7, 1)))
    story.become((7, 3), (7, 1), status=EMPTY)
    story.told(operation, (7, 3))


def other_outcome(story: Story) -> None:
    operation = story.ask(end_anew((7, 1)))
    story.become((7, 2), (7, 1), status=COMPLETE_COMMIT, partitions=())
    story.told(operation, (7, 2))
    story.told(story.ask(end_anew((7, 1), committed=False)), (7, 2))


def joined_with_the_pair_before(story: Story) -> None:
    operation = story.ask(end_anew((7, 1)))
    story.become((7, 2), (7, 1), status=COMPLETE_COMMIT, partitions=())
    story.told(operation, (7, 2))
    story.write((7, 1))


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        (epoch_left, "transaction-order"),
        (ended_by_the_one_before, "transaction-unexplained"),
        (told_though_another_has_begun, "transaction-order"),
        (bumped_again, "retry-differs"),
        (other_outcome, "transaction-order"),
        (joined_with_the_pair_before, "transaction-unexplained"),
    ],
)
def test_a_broken_epoch_is_found(change: Callable[[Story], None], rule: str) -> None:
    story = own()
    change(story)
    with pytest.raises(Violation) as caught:
        story.check()
    assert caught.value.rule == rule


def test_a_good_history_passes() -> None:
    assert good().check() == 10


def test_what_the_leader_does_by_itself_is_explained_when_its_time_has_come() -> None:
    story = begun()
    story.world.now += 60 * SECOND
    fence = {"producer_epoch": 2, "status": PREPARE_ABORT, "last_producer_id": 7, "last_producer_epoch": 1}
    story.commit(**fence)
    story.complete(committed=False)
    story.history.commit(len(story.history.commits), [ForgetTransactionRecord("tx")])
    story.told(story.ask(end((7, 1))), ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    assert story.check() == 6
    early = begun()
    early.commit(**fence)
    for_good = begun()
    for_good.world.now += 60 * SECOND
    for_good.commit(**fence | {"last_producer_id": -1, "last_producer_epoch": -1})
    for unexplained in (early, for_good):
        with pytest.raises(Violation, match="transaction-unexplained"):
            unexplained.check()


def zombie_aborts(story: Story) -> None:
    story.told(story.ask(init((7, 1)), 1), ErrorCode.CONCURRENT_TRANSACTIONS)


def granted_to_the_older(story: Story) -> None:
    story.told(story.ask(end((7, 1))))


def live_one_fenced(story: Story) -> None:
    story.told(story.ask(add((7, 3)), 2), ErrorCode.PRODUCER_FENCED)


def pair_twice(story: Story) -> None:
    story.told(story.ask(init((7, 2)), 3), (7, 3))


def never_written(story: Story) -> None:
    story.told(story.ask(init(NOBODY), 3), (9, 0))


def epoch_kept(story: Story) -> None:
    operation = story.ask(init(NOBODY), 3)
    story.commit(update_ms=1)
    story.told(operation, (7, 3))


def last_pair_lost(story: Story) -> None:
    operation = story.ask(init((7, 3), candidate=9), 2)
    story.commit(producer_id=9, producer_epoch=0)
    story.told(operation, (9, 0))


def retry_bumps(story: Story) -> None:
    story.bump((7, 3), (9, 0), producer=2)
    story.bump((7, 3), (9, 1), producer=2)


def nobody_asked(story: Story) -> None:
    story.commit(status=ONGOING, partitions=TOPICS)


def reversed_outcome(story: Story) -> None:
    story.told(story.ask(add((7, 3)), 2), ErrorCode.NONE)
    story.commit(status=PREPARE_COMMIT)
    story.complete(committed=False)


def without_markers(story: Story) -> None:
    story.commit(status=PREPARE_ABORT, partitions=TOPICS)
    story.commit(status=COMPLETE_ABORT, partitions=())


def claimed_too(story: Story) -> None:
    story.claims.claimed(7)


def nobodys_candidate(story: Story) -> None:
    story.claims.candidates.remove(7)


def of_another(story: Story) -> None:
    other = replace(story.newest, transactional_id="other", producer_epoch=0)
    story.history.commit(len(story.history.commits), [other])


def two_for_one_record(story: Story) -> None:
    one, two = story.ask(init(NOBODY), 4), story.ask(init(NOBODY), 4)
    story.commit(producer_id=9, producer_epoch=0)
    story.told(one, (9, 0))
    story.told(two, (9, 0))


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        (zombie_aborts, "transaction-order"),
        (granted_to_the_older, "two-unfenced"),
        (live_one_fenced, "transaction-order"),
        (pair_twice, "pair-twice"),
        (never_written, "pair-not-in-the-log"),
        (epoch_kept, "pair-twice"),
        (last_pair_lost, "transaction-order"),
        (retry_bumps, "retry-differs"),
        (nobody_asked, "transaction-unexplained"),
        (reversed_outcome, "outcome-reversed"),
        (without_markers, "completed-without-markers"),
        (claimed_too, "producer-id-twice"),
        (nobodys_candidate, "foreign-id"),
        (of_another, "producer-id-twice"),
        (two_for_one_record, "transaction-unexplained"),
    ],
)
def test_a_broken_history_is_found(change: Callable[[Story], None], rule: str) -> None:
    story = good()
    change(story)
    with pytest.raises(Violation) as caught:
        story.check()
    assert caught.value.rule == rule
