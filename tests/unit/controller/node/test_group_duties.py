"""The leader forgets offsets of groups without members that two looks found old, whatever a clock told one of them."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any, Final

from pidkeeper.controller.node import group_duties
from pidkeeper.controller.node.group_duties import GROUPS_A_TICK, OFFSETS_A_REQUEST, OFFSETS_A_TICK, GroupDuties
from pidkeeper.controller.state.decide import decide
from pidkeeper.controller.state.draft import Draft
from pidkeeper.controller.state.machine import StateMachine
from pidkeeper.controller.state.requests import (
    AddPartitionsToTxn,
    CommitGroup,
    CommitOffsets,
    CreateTopic,
    EndTxn,
    ExpireOffsets,
    InitProducerId,
    RegisterBroker,
    Request,
)
from pidkeeper.protocol.founding import FoundingRecord
from pidkeeper.protocol.group_messages import OffsetsTransaction
from pidkeeper.protocol.groups import (
    MAX_OFFSETS_BYTES,
    OFFSETS_TOPIC,
    GroupMember,
    PartitionOffset,
    TopicOffsets,
    offsets_partition,
)
from pidkeeper.protocol.metadata_version import LATEST
from pidkeeper.protocol.records import FeatureLevelRecord, decode_batch, encode_batch
from pidkeeper.protocol.transactions import TopicPartitions

WEEK_MS: Final = 7 * 24 * 3_600_000
CHECK_MS: Final = 600_000
NOW: Final = 1_700_000_000_000
OLD: Final = NOW - WEEK_MS - 1
MEMBER: Final = GroupMember("m", None, "", "")


class Led:
    """A state machine with a topic, and the duties of its leader. A tick is a millisecond."""

    def __init__(self) -> None:
        self.machine = StateMachine("c", 5000)
        self.machine.replay([FeatureLevelRecord(LATEST), FoundingRecord(uuid.UUID(int=1), 5000, False, 0)])
        self.broker = 1, self.decide(RegisterBroker(1, str(uuid.UUID(int=2))), 0).broker_epoch
        self.decide(CreateTopic(uuid.UUID(int=3), "t", 5000, -1, -1, None, validate_only=False), 0)
        self.asked: list[ExpireOffsets] = []
        self.duties = GroupDuties(self.machine, self._ask, ticks=lambda ms: ms, retention_ms=WEEK_MS, check_ms=CHECK_MS)
        self.duties.lead(0)

    def _ask(self, request: Request, _: Callable[[], None], /) -> None:
        assert isinstance(request, ExpireOffsets)
        self.asked.append(request)
        self.decide(request, NOW)

    def decide(self, request: Request, now_ms: int) -> Any:
        draft = Draft(self.machine, now_ms)
        answer = decide(draft, request)
        if draft.records:
            self.machine.replay(decode_batch(encode_batch(draft.records)))
        return answer

    def commit(self, group: str, *partitions: int, at_ms: int = OLD, **more: Any) -> None:
        rows = (TopicOffsets("t", tuple(PartitionOffset(number, 5, -1, "") for number in partitions)),)
        defaults: dict[str, Any] = {"generation": -1, "member_id": "", "instance_id": None, "transaction": None}
        self.decide(CommitOffsets(self.broker, group, rows, **defaults | more), at_ms)

    def join(self, group: str, *members: GroupMember, at_ms: int = OLD) -> None:
        known = self.machine.groups.get(group)
        after, generation = (
            (-1, 0) if known is None or known.record is None else (known.version, known.record.generation)
        )
        self.decide(CommitGroup(self.broker, group, after, generation, "consumer", members), at_ms)

    def look(self, number: int, now_ms: int = NOW) -> None:
        """The look of this number, as many ticks as it takes."""
        start = number * CHECK_MS
        self.duties.tick(start, now_ms)
        for tick in range(1, 100):
            self.duties.tick(start + tick, now_ms)

    def kept(self, group: str) -> list[int]:
        known = self.machine.groups.get(group)
        return [] if known is None else [number for _, number, _ in known.committed_after()]


def test_two_looks_find_offsets_old() -> None:
    led = Led()
    led.commit("g", 0, 1)
    led.commit("g", 2, at_ms=NOW)
    led.look(0)
    assert led.kept("g") == [0, 1, 2]
    led.look(1)
    assert led.kept("g") == [2]
    assert led.duties.expired == 2
    assert len(led.asked) == 1
    led.look(2)
    assert len(led.asked) == 1


def test_a_group_goes_with_its_last_offset() -> None:
    led = Led()
    led.commit("g", 0)
    led.look(0)
    led.look(1)
    assert led.machine.groups.get("g") is None


def test_what_is_committed_anew_between_the_looks_stays() -> None:
    led = Led()
    led.commit("g", 0, 1)
    led.look(0)
    # By a clock that is behind, even.
    led.commit("g", 1)
    led.look(1)
    assert led.kept("g") == [1]


def test_a_group_with_members_keeps_all() -> None:
    led = Led()
    led.join("g", MEMBER)
    led.commit("g", 0, generation=0, member_id="m")
    for number in range(3):
        led.look(number)
    assert led.asked == []
    led.join("g", at_ms=NOW)
    led.look(3)
    led.look(4)
    assert led.kept("g") == [0], "it is empty since now"
    led.look(5, NOW + WEEK_MS)
    led.look(6, NOW + WEEK_MS)
    assert led.machine.groups.get("g") is None


def test_offsets_that_came_after_the_last_member_left_are_kept_as_long() -> None:
    led = Led()
    led.join("g")
    led.commit("g", 0)
    led.commit("g", 1, at_ms=NOW)
    led.look(0)
    led.look(1)
    assert led.kept("g") == [1]


def test_a_group_that_went_on_between_the_looks_stays() -> None:
    led = Led()
    led.join("g")
    led.commit("g", 0)
    led.look(0)
    led.join("g", MEMBER)
    led.join("g")
    led.look(1)
    assert led.kept("g") == [0]
    led.look(2)
    assert led.machine.groups.get("g") is None


def test_a_group_of_which_nothing_else_is_left_is_forgotten() -> None:
    led = Led()
    led.join("gone", at_ms=NOW)
    led.join("busy", MEMBER, at_ms=NOW)
    led.look(0)
    assert led.machine.groups.get("gone") is not None
    led.look(1)
    assert led.machine.groups.get("gone") is None
    assert led.machine.groups.get("busy") is not None
    assert led.duties.expired == 0


def test_an_offset_that_a_transaction_is_about_to_replace_stays() -> None:
    """`OffsetMetadataManagerTest.testCleanupExpiredOffsetsWithPendingTransactionalOffsets`."""
    led = Led()
    led.commit("g", 0, 1)
    pair = led.decide(InitProducerId(*led.broker, "tx", 60_000, -1, -1, -1, may_take_block=True), OLD)
    producer = pair.producer_id, pair.producer_epoch
    joined = (TopicPartitions(OFFSETS_TOPIC, (offsets_partition("g"),)),)
    led.decide(AddPartitionsToTxn(*led.broker, "tx", *producer, joined), OLD)
    led.commit("g", 1, transaction=OffsetsTransaction("tx", *producer))
    led.look(0)
    led.look(1)
    assert led.kept("g") == [1]
    led.decide(EndTxn(*led.broker, "tx", *producer, committed=False), OLD)
    led.look(2)
    assert led.machine.groups.get("g") is None


def test_a_clock_that_was_ahead_once_expires_nothing() -> None:
    led = Led()
    led.commit("g", 0, at_ms=NOW)
    led.look(0)
    led.look(1, NOW + 2 * WEEK_MS)
    led.look(2)
    led.look(3)
    assert led.asked == []
    assert led.kept("g") == [0]


def test_a_new_leader_looks_twice_itself() -> None:
    led = Led()
    led.commit("g", 0)
    led.look(0)
    led.duties.lead(CHECK_MS)
    led.look(1)
    assert led.asked == []
    led.look(2)
    assert led.kept("g") == []


def test_a_tick_looks_at_some_groups_and_offsets_alone() -> None:
    led = Led()
    many = 2 * OFFSETS_A_TICK + 500
    for first in range(0, many, 500):
        led.commit("b-wide", *range(first, first + 500))
    names = [f"a{number:03}" for number in range(GROUPS_A_TICK)] + [f"c{number:03}" for number in range(3)]
    for name in names:
        led.commit(name, 0)
    led.look(0)
    spent = []
    for tick in range(12):
        before = len(led.asked)
        led.duties.tick(CHECK_MS + tick, NOW)
        spent.append([len(one.offsets) for one in led.asked[before:]])
    counts = [sum(one) for one in spent]
    assert counts == [GROUPS_A_TICK, OFFSETS_A_TICK, OFFSETS_A_TICK, 503, *[0] * 8]
    assert max(max(one, default=0) for one in spent) == OFFSETS_A_REQUEST
    assert led.duties.expired == many + len(names)
    assert len(led.machine.groups) == 0


def test_what_expires_together_fits_into_a_record() -> None:
    longest = TopicPartitions("t" * 249, (2**31 - 1,))
    assert OFFSETS_A_REQUEST * longest.encoded_bytes <= MAX_OFFSETS_BYTES
    assert group_duties.OFFSETS_A_TICK % OFFSETS_A_REQUEST == 0
