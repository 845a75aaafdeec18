"""Answers of ZooKeeper that come late: behind a rollback, or in another leadership. What the simulator once found."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable
from typing import Any

from pidkeeper.controller.answers import Answer as Wanted
from pidkeeper.controller.migration.member_side import Migration
from pidkeeper.controller.migration.zookeeper import Cause, Failure, LiveBrokers, Znode
from pidkeeper.controller.state.decide import decide
from pidkeeper.controller.state.draft import Draft
from pidkeeper.controller.state.machine import StateMachine
from pidkeeper.controller.state.requests import AllocateProducerIds, OrderMigration, RegisterBroker, Request
from pidkeeper.protocol.errors import RequestError
from pidkeeper.protocol.messages import AllocateProducerIdsResponse
from pidkeeper.protocol.metadata_version import LATEST
from pidkeeper.protocol.migration import MigrationPhase, MigrationRecord
from pidkeeper.protocol.records import FeatureLevelRecord
from tests.support.memory_znode import MemoryAnswer

NAME = "pidkeeper/simulated-cluster/0"
SIZE = 10
MAX_EVENTS = 1_000


class Register:
    """A znode whose calls take effect at once; the answers wait for `answer`."""

    def __init__(self) -> None:
        self.znode = Znode(None, 0)
        self.answers: deque[Callable[[], None]] = deque()
        self.writes = 0

    def read(self, done: Callable[[Znode | Failure], None]) -> None:
        outcome = self.znode
        self.answers.append(lambda: done(outcome))

    def write(self, data: bytes | None, version: int, done: Callable[[Znode | Failure], None]) -> None:
        outcome: Znode | Failure = Failure(Cause.CONFLICT, "another version")
        if version == self.znode.version:
            self.writes += 1
            outcome = self.znode = Znode(data, version + 1)
        self.answers.append(lambda: done(outcome))

    def brokers(self, done: Callable[[LiveBrokers | Failure], None]) -> None:
        self.answers.append(lambda: done(LiveBrokers(())))

    def disconnected(self) -> str | None:
        return None

    @property
    def end(self) -> int:
        """The last ID that it keeps from old brokers."""
        return -1 if self.znode.data is None else int(json.loads(self.znode.data)["block_end"])


class Leader:
    """The member's part of the migration, with a quorum that commits at once."""

    def __init__(self) -> None:
        self.machine = StateMachine("simulated-cluster", SIZE)
        self.machine.replay([FeatureLevelRecord(LATEST)])
        self.register = Register()
        self.events: deque[Callable[[], None]] = deque()
        self.migration = Migration(self.machine, self.register, self, self.decide, bridge=True, new_name=lambda: NAME)
        self.enter(MigrationPhase.BRIDGE, MigrationPhase.IMPORT, MigrationPhase.DUAL_WRITE)
        self.epoch = self.ask(RegisterBroker(1, "one")).result().broker_epoch

    def create_future(self) -> MemoryAnswer:
        return MemoryAnswer()

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.events.append(callback)

    def decide(self, request: Request, answer: Wanted) -> None:
        draft = Draft(self.machine, 0)
        try:
            outcome: Any = decide(draft, request)
        except RequestError as refusal:
            answer.set_exception(refusal)
            return
        self.machine.replay(draft.records)
        answer.set_result(outcome)

    def ask(self, request: Request) -> MemoryAnswer:
        answer = self.migration.claim_for(request)
        if answer is None:
            answer = MemoryAnswer()
            self.decide(request, answer)
        return answer

    def enter(self, *phases: MigrationPhase) -> None:
        self.machine.replay([MigrationRecord(phase, NAME, -1, 0) for phase in phases])

    def run(self) -> None:
        """Until nothing is left to be answered."""
        for _ in range(MAX_EVENTS):
            if self.events:
                self.events.popleft()()
            elif self.register.answers:
                self.register.answers.popleft()()
            else:
                return
        raise AssertionError(f"{MAX_EVENTS} events were not enough")

    def roll_back(self) -> None:
        self.ask(OrderMigration(MigrationPhase.ROLLING_BACK))
        self.migration.tick()

    def check_block(self, answer: MemoryAnswer, first: int) -> None:
        assert answer.result() == AllocateProducerIdsResponse(0, first, SIZE)
        assert self.register.end >= first + SIZE - 1, "an old broker would be given the same IDs"


def test_what_is_left_of_a_claim_is_not_handed_out_after_a_rollback() -> None:
    leader = Leader()
    leader.ask(AllocateProducerIds(1, leader.epoch))
    leader.ask(AllocateProducerIds(1, leader.epoch + 100))  # refused, so its part of the claim is left
    leader.run()
    assert (leader.machine.producer_ids.next_producer_id, leader.register.end) == (SIZE, 2 * SIZE - 1)
    leader.roll_back()
    leader.run()
    assert (leader.machine.migration.phase, leader.register.end) == (MigrationPhase.ROLLED_BACK, SIZE - 1)
    answer = leader.ask(AllocateProducerIds(1, leader.epoch))
    leader.run()
    leader.check_block(answer, SIZE)


def test_a_claim_that_is_acknowledged_after_a_rollback_counts_for_nothing() -> None:
    leader = Leader()
    answer = leader.ask(AllocateProducerIds(1, leader.epoch))
    leader.events.popleft()()
    leader.register.answers.popleft()()  # of the read
    acknowledgement = leader.register.answers.popleft()
    assert leader.register.end == SIZE - 1
    leader.roll_back()
    leader.run()
    assert (leader.machine.migration.phase, leader.register.end) == (MigrationPhase.ROLLED_BACK, -1)
    acknowledgement()
    leader.run()
    leader.check_block(answer, 0)


def test_a_read_that_is_answered_after_a_rollback_counts_for_nothing() -> None:
    leader = Leader()
    leader.ask(AllocateProducerIds(1, leader.epoch + 100))
    leader.run()
    leader.migration.deposed()  # and elected again: what is left of the claim is read
    answer = leader.ask(AllocateProducerIds(1, leader.epoch))
    leader.events.popleft()()
    of_the_read = leader.register.answers.popleft()
    leader.roll_back()
    leader.run()
    assert (leader.machine.migration.phase, leader.register.end) == (MigrationPhase.ROLLED_BACK, -1)
    of_the_read()
    leader.run()
    leader.check_block(answer, 0)


def test_a_write_of_an_earlier_leadership_ends_no_step() -> None:
    leader = Leader()
    leader.roll_back()
    leader.register.answers.popleft()()  # of the read; the write is under way now
    assert leader.register.writes == 1
    leader.migration.deposed()
    # The next leader finished it, and another migration began and is rolled back.
    phases = (MigrationPhase.ROLLED_BACK, MigrationPhase.IMPORT, MigrationPhase.ROLLING_BACK)
    leader.enter(*phases)
    leader.register.answers.popleft()()
    assert leader.machine.migration.phase is MigrationPhase.ROLLING_BACK
