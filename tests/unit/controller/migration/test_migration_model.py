"""Random interleavings of brokers, requests, operators, failing calls and changing leaders: no ID is given twice."""

from __future__ import annotations

import contextlib
import itertools

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from pidkeeper.controller.state.requests import AllocateProducerIds, RaiseFloor, Request
from pidkeeper.protocol.errors import ErrorCode, RequestError
from pidkeeper.protocol.messages import AllocateProducerIdsResponse
from pidkeeper.protocol.migration import MigrationPhase
from tests.support.memory_leader import ALLOCATE, SIZE, STALE, MemoryLeader, MemoryQuorum
from tests.support.memory_znode import MemoryAnswer

REFUSALS = {
    ErrorCode.MIGRATION_UNDER_WAY,
    ErrorCode.NOT_CONTROLLER,
    ErrorCode.STALE_BROKER_EPOCH,
    ErrorCode.ZOOKEEPER_UNAVAILABLE,
}


class MigrationModel(RuleBasedStateMachine):
    """Both worlds: `taken` are the blocks that anybody was given, brokers from the znode or the quorum's clients."""

    def __init__(self) -> None:
        super().__init__()
        self.quorum = MemoryQuorum(bridge=True)
        self.before: list[MemoryLeader] = []
        self.asked: list[MemoryAnswer] = []
        self.taken: list[range] = []

    @initialize(blocks=st.integers(0, 2))
    def begin(self, blocks: int) -> None:
        for _ in range(blocks):
            self.taken.append(self.quorum.znode.allocate(size=SIZE))
        self.quorum.run()

    @rule(who=st.sampled_from([ALLOCATE, ALLOCATE, STALE]), count=st.integers(1, 4), first=st.booleans())
    def ask(self, who: AllocateProducerIds, count: int, first: bool) -> None:
        leader = self.before[0] if first and self.before else self.quorum.leader
        for _ in range(count):
            self._ask(leader, who)

    @rule(above=st.integers(-5, 25))
    def floor(self, above: int) -> None:
        leader = self.quorum.leader
        self._ask(leader, RaiseFloor(max(0, leader.machine.producer_ids.next_producer_id + above)))

    @rule(size=st.sampled_from([SIZE, 25]))
    def broker(self, size: int) -> None:
        with contextlib.suppress(ArithmeticError):
            self.taken.append(self.quorum.znode.allocate(size=size))

    @rule()
    def serve(self) -> None:
        self.quorum.znode.carry_out()

    @precondition(lambda self: self.quorum.znode.calls)
    @rule(times=st.integers(1, 3))
    def answer(self, times: int) -> None:
        for _ in range(min(times, len(self.quorum.znode.calls))):
            self.quorum.znode.answer()

    @precondition(lambda self: self.quorum.znode.calls)
    @rule()
    def lose(self) -> None:
        self.quorum.znode.fail()

    @precondition(lambda self: self.quorum.znode.lost)
    @rule()
    def land(self) -> None:
        self.quorum.znode.land()

    @rule()
    def tick(self) -> None:
        self.quorum.leader.migration.tick()

    @rule(order=st.sampled_from(["start", MigrationPhase.FINALIZING, MigrationPhase.ROLLING_BACK]))
    def order(self, order: str | MigrationPhase) -> None:
        orders = self.quorum.leader.migration.orders
        if isinstance(order, MigrationPhase):
            orders.order(order)
        else:
            orders.start()

    @rule()
    def run_callbacks(self) -> None:
        self.quorum.leader.loop.run()
        for leader in self.before:
            leader.loop.run()

    @rule()
    def commit(self) -> None:
        self.quorum.leader.commit()

    @rule()
    def settle(self) -> None:
        self.quorum.settle()

    @precondition(lambda self: len(self.before) < 4)
    @rule(aware=st.booleans())
    def succeed(self, aware: bool) -> None:
        self.before.append(self.quorum.succeed(aware=aware))

    @precondition(lambda self: self.before)
    @rule()
    def learn(self) -> None:
        """The first that did not know hears that it is deposed."""
        self.before.pop(0).depose()

    @rule(which=st.integers(0, 100))
    def hang_up(self, which: int) -> None:
        if self.asked:
            answer = self.asked[which % len(self.asked)]
            if not answer.done():
                answer.cancel()

    @invariant()
    def nothing_is_given_twice(self) -> None:
        answered = [answer for answer in self.asked if answer.done()]
        self.asked = [answer for answer in self.asked if not answer.done()]
        for answer in answered:
            if answer.refusal is not None:
                assert answer.refusal.code in REFUSALS, answer.refusal
            elif isinstance(given := answer._result, AllocateProducerIdsResponse):
                self.taken.append(range(given.producer_id_start, given.producer_id_start + given.producer_id_len))
        blocks = sorted(self.taken, key=lambda block: block.start)
        for one, other in itertools.pairwise(blocks):
            assert one.stop <= other.start, f"{one} and {other}"

    def teardown(self) -> None:
        """Once all is quiet, both worlds go on."""
        while self.quorum.znode.lost:
            self.quorum.znode.land()
        for _ in range(3):
            self.quorum.run()
            for leader in self.before:
                leader.depose()
        self.nothing_is_given_twice()
        assert not self.asked, "somebody waits for ever"
        self.broker(SIZE)
        answer = self._ask(self.quorum.leader, ALLOCATE)
        self.quorum.settle()
        assert answer is not None
        assert answer.refusal is None
        self.broker(SIZE)
        self.nothing_is_given_twice()

    def _ask(self, leader: MemoryLeader, request: Request) -> MemoryAnswer | None:
        try:
            answer = leader.ask(request)
        except RequestError as refusal:
            if refusal.code not in REFUSALS:
                raise
            return None
        self.asked.append(answer)
        return answer


MigrationModel.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestMigrationModel = MigrationModel.TestCase
