"""Decide and replay together, against a naive model; then every replay assertion by itself."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from pidkeeper.controller.state import id_decisions, requests
from pidkeeper.controller.state.decide import decide, most_bytes, most_records
from pidkeeper.controller.state.draft import Draft
from pidkeeper.controller.state.machine import StateMachine, UnsupportedMetadataVersion, allocations
from pidkeeper.protocol.errors import ErrorCode, RequestError
from pidkeeper.protocol.ids import MAX_FLOOR_JUMP, MAX_PRODUCER_ID
from pidkeeper.protocol.messages import HeldIds, RegisterBrokerResponse
from pidkeeper.protocol.metadata_version import BASE, LATEST, MEMBERSHIP, TRANSACTIONS
from pidkeeper.protocol.records import (
    AllocateProducerIdsRecord,
    BrokerEndpointRecord,
    BrokerRegistrationChangeRecord,
    FeatureLevelRecord,
    LeaderChangeRecord,
    ProducerIdFloorRecord,
    QuorumMember,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
    VotersRecord,
    encode_batch,
)

SIZE = 10
NEAR_THE_END = [MAX_PRODUCER_ID - 35, MAX_PRODUCER_ID - 29]
brokers = st.integers(1, 3)
incarnations = st.sampled_from("abcd")


class NaiveBroker:
    """What the model knows of one broker id."""

    def __init__(self) -> None:
        self.epoch: int | None = None
        self.incarnation = ""
        self.fenced = False
        self.former: list[str] = []


class DecideAndReplay(RuleBasedStateMachine):
    """Decides against a draft, checks each answer against lists and counters, and replays the batch now and then."""

    def __init__(self) -> None:
        super().__init__()
        self.machine = StateMachine("c", SIZE)
        self.draft: Draft | None = None
        self.next_id = 0
        self.offset = 0
        self.brokers: dict[int, NaiveBroker] = {}
        self.given: set[int] = set()
        self.before = self.machine.image(0, 0)

    @initialize(start=st.sampled_from([0, *NEAR_THE_END]))
    def set_start(self, start: int) -> None:
        image = msgspec.structs.replace(self.machine.image(0, 0), next_producer_id=start)
        self.machine.restore(image)
        self.next_id, self.before = start, image

    def decide(self, request: requests.Request) -> Any:
        """The answer, or the error code of a refusal; a refusal adds no record."""
        if self.draft is None:
            self.draft = Draft(self.machine, timestamp_ms=77)
        records = list(self.draft.records)
        try:
            return decide(self.draft, request)
        except RequestError as refusal:
            assert self.draft.records == records
            return refusal.code

    def check_known(self, broker_id: int, epoch: int) -> ErrorCode | None:
        known = self.brokers.get(broker_id)
        if known is None:
            return ErrorCode.BROKER_ID_NOT_REGISTERED
        return None if known.epoch == epoch else ErrorCode.STALE_BROKER_EPOCH

    def some_epoch(self, data: st.DataObject, broker_id: int) -> int:
        known = self.brokers.get(broker_id)
        right = known.epoch if known is not None and known.epoch is not None else 0
        return data.draw(st.sampled_from([right, right, right, right + 1, max(right - 1, 0)]))

    @rule(broker_id=brokers, incarnation=incarnations)
    def register(self, broker_id: int, incarnation: str) -> None:
        answer = self.decide(requests.RegisterBroker(broker_id, incarnation))
        known = self.brokers.setdefault(broker_id, NaiveBroker())
        if known.incarnation == incarnation:
            assert answer == RegisterBrokerResponse(known.epoch or 0, "c")
        elif incarnation in known.former:
            assert answer is ErrorCode.DUPLICATE_BROKER_REGISTRATION
        else:
            assert answer == RegisterBrokerResponse(self.offset, "c")
            if known.incarnation:
                known.former.append(known.incarnation)
            known.epoch, known.incarnation, known.fenced = self.offset, incarnation, False
            self.offset += 1

    @rule(broker_id=brokers, data=st.data())
    def allocate(self, broker_id: int, data: st.DataObject) -> None:
        epoch = self.some_epoch(data, broker_id)
        answer = self.decide(requests.AllocateProducerIds(broker_id, epoch))
        if (refusal := self.check_known(broker_id, epoch)) is not None:
            assert answer is refusal
        elif self.next_id + SIZE > MAX_PRODUCER_ID:
            assert answer is ErrorCode.PRODUCER_IDS_EXHAUSTED
        else:
            block = range(answer.producer_id_start, answer.producer_id_start + answer.producer_id_len)
            assert block == range(self.next_id, self.next_id + SIZE)
            assert not self.given & set(block)
            assert block[-1] < MAX_PRODUCER_ID
            self.given |= set(block)
            self.next_id += SIZE
            self.offset += 1

    @rule(step=st.integers(-20, 25))
    def raise_floor(self, step: int) -> None:
        at_least = min(max(self.next_id + step, 0), MAX_PRODUCER_ID)
        answer = self.decide(requests.RaiseFloor(at_least))
        if at_least > self.next_id and at_least > MAX_PRODUCER_ID - SIZE:
            assert answer is ErrorCode.INVALID_REQUEST
            return
        assert answer.raised == (at_least > self.next_id)
        self.offset += answer.raised
        self.next_id = max(self.next_id, at_least)
        assert answer.next_producer_id == self.next_id

    @rule(broker_id=brokers, fenced=st.booleans(), data=st.data())
    def fence_or_heartbeat(self, broker_id: int, fenced: bool, data: st.DataObject) -> None:
        epoch = self.some_epoch(data, broker_id)
        kind = requests.FenceBroker if fenced else requests.BrokerHeartbeat
        answer = self.decide(kind(broker_id, epoch))
        if (refusal := self.check_known(broker_id, epoch)) is not None:
            assert answer is refusal
            return
        assert answer.fenced == fenced
        self.offset += self.brokers[broker_id].fenced != fenced
        self.brokers[broker_id].fenced = fenced

    @rule(broker_id=brokers, data=st.data())
    def unregister(self, broker_id: int, data: st.DataObject) -> None:
        epoch = self.some_epoch(data, broker_id)
        answer = self.decide(requests.UnregisterBroker(broker_id, epoch))
        if (refusal := self.check_known(broker_id, epoch)) is not None:
            assert answer is refusal
            return
        assert answer.broker_id == broker_id
        del self.brokers[broker_id]
        self.offset += 1

    @precondition(lambda self: self.draft is not None)
    @rule()
    def commit(self) -> None:
        assert self.draft is not None
        self.machine.replay(self.draft.records)
        self.draft = None
        self.before = self.machine.image(0, 0)
        assert self.machine.next_offset == self.offset
        assert self.machine.producer_ids.next_producer_id == self.next_id
        found = {b.broker_id: (b.broker_epoch, b.incarnation_id, b.fenced) for b in self.machine.brokers.all()}
        assert found == {key: (b.epoch, b.incarnation, b.fenced) for key, b in self.brokers.items()}

    @precondition(lambda self: self.draft is None)
    @rule()
    def restart_from_an_image(self) -> None:
        image = self.machine.image(9, 2)
        fresh = StateMachine("c", SIZE)
        fresh.restore(msgspec.msgpack.decode(msgspec.msgpack.encode(image), type=type(image)))
        assert fresh.image(9, 2) == image
        self.machine = fresh

    @precondition(lambda self: self.draft is None)
    @rule()
    def another_leader(self) -> None:
        self.machine.replay([LeaderChangeRecord(2)])
        self.offset += 1
        self.before = self.machine.image(0, 0)

    @invariant()
    def a_draft_changes_nothing(self) -> None:
        assert self.machine.image(0, 0) == self.before


TestDecideAndReplay = DecideAndReplay.TestCase
TestDecideAndReplay.settings = settings(max_examples=120, stateful_step_count=40, deadline=None)


def registered() -> StateMachine:
    """Broker 1 has epoch 0, and the first block is given."""
    machine = StateMachine("c", SIZE)
    machine.replay([RegisterBrokerRecord(1, 0, "a"), AllocateProducerIdsRecord(1, 0, 9, 0, 10, 5)])
    return machine


def refused(machine: StateMachine, request: requests.Request) -> ErrorCode:
    draft = Draft(machine, 0)
    with pytest.raises(RequestError) as error:
        decide(draft, request)
    assert draft.records == []
    return error.value.code


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (AllocateProducerIdsRecord(1, 0, 9, 0, 10, 0), "S1: offset 2 allocates from 0, .* is 10"),
        (AllocateProducerIdsRecord(1, 0, 29, 20, 10, 0), "S1: offset 2 allocates from 20, .* is 10"),
        (AllocateProducerIdsRecord(1, 0, 20, 10, 10, 0), "S2: offset 2 ends at 20, .* at 19"),
        (ProducerIdFloorRecord(10, 0), "S3: offset 2 lowers .* from 10 to 10"),
        (RegisterBrokerRecord(2, 7, "b"), "S4: the registration at offset 2 carries broker epoch 7"),
        (AllocateProducerIdsRecord(1, 1, 19, 10, 10, 0), "S5: offset 2 allocates for epoch 1 of broker 1"),
        (AllocateProducerIdsRecord(4, 0, 19, 10, 10, 0), "S5: offset 2 allocates for epoch 0 of broker 4"),
        (UnregisterBrokerRecord(2, 0), "S5: offset 2 is about broker 2"),
        (BrokerRegistrationChangeRecord(1, 3, True), "S5: offset 2 names epoch 3 of broker 1"),
    ],
)
def test_replay_stops_at_a_record_that_cannot_be(record: Any, message: str) -> None:
    machine = registered()
    before = machine.image(0, 0)
    with pytest.raises(AssertionError, match=message):
        machine.replay([record])
    assert machine.image(0, 0) == before


def test_s6_an_older_image_stops_the_process() -> None:
    old = registered().image(5, 1)
    machine = registered()
    machine.replay([AllocateProducerIdsRecord(1, 0, 19, 10, 10, 0)])
    with pytest.raises(AssertionError, match=r"S6: a snapshot at index 5 would move the next .* from 20 to 10"):
        machine.restore(old)
    assert machine.producer_ids.next_producer_id == 20


def test_an_image_that_carries_the_blocks_start_is_caught_by_the_next_record() -> None:
    """KAFKA-15552: the snapshot held the current block where the next ID was meant, so IDs went out twice."""
    machine = registered()
    image = machine.image(1, 1)
    assert image.last_block is not None
    assert image.next_producer_id == image.last_block.first + image.last_block.length
    wrong = msgspec.structs.replace(image, next_producer_id=image.last_block.first, last_block=None)
    restarted = StateMachine("c", SIZE)
    restarted.restore(wrong)
    with pytest.raises(AssertionError, match="S1: offset 2 allocates from 10, but the next producer ID is 0"):
        restarted.replay([AllocateProducerIdsRecord(1, 0, 19, 10, 10, 0)])
    # And the format itself refuses an image that contradicts its own last block.
    with pytest.raises(ValueError, match="reaches above the next producer ID 0"):
        msgspec.structs.replace(image, next_producer_id=0)


def test_a_registration_and_its_first_block_fit_into_one_batch() -> None:
    machine = registered()
    draft = Draft(machine, 33)
    decide(draft, requests.AllocateProducerIds(1, 0))
    answer = decide(draft, requests.RegisterBroker(1, "b"))
    assert answer.broker_epoch == 3
    with contextlib.suppress(RequestError):
        decide(draft, requests.AllocateProducerIds(1, 0))
    block = decide(draft, requests.AllocateProducerIds(1, 3))
    assert (block.error_code, block.producer_id_start, block.producer_id_len) == (0, 20, 10)
    machine.replay(draft.records)
    assert machine.producer_ids.next_producer_id == 30
    assert [offset for offset, _ in allocations(draft.records, 2)] == [2, 4]
    assert all(record.timestamp_ms == 33 for _, record in allocations(draft.records, 2))


def test_the_same_incarnation_registers_again_without_a_record() -> None:
    draft = Draft(registered(), 0)
    assert decide(draft, requests.RegisterBroker(1, "a")).broker_epoch == 0
    assert draft.records == []


def test_the_kafka_address_of_a_broker_is_recorded_once_and_when_it_changes() -> None:
    machine = registered()
    machine.replay([FeatureLevelRecord(TRANSACTIONS)])
    draft = Draft(machine, 0)
    for kafka in (None, "one:9092", "one:9092", None):
        assert decide(draft, requests.RegisterBroker(1, "a", kafka)).broker_epoch == 0
    assert draft.records == [BrokerEndpointRecord(1, 0, "one:9092")]
    machine.replay(draft.records)
    assert [broker.kafka for broker in machine.brokers.all()] == ["one:9092"]
    again = Draft(machine, 0)
    epoch = again.next_offset
    decide(again, requests.RegisterBroker(1, "a", "one:9092"))
    decide(again, requests.RegisterBroker(1, "b", "two:9092"))
    assert again.records == [RegisterBrokerRecord(1, epoch, "b"), BrokerEndpointRecord(1, epoch, "two:9092")]


def test_no_kafka_address_is_recorded_before_all_members_read_it() -> None:
    machine = registered()
    machine.replay([FeatureLevelRecord(TRANSACTIONS - 1)])
    draft = Draft(machine, 0)
    decide(draft, requests.RegisterBroker(1, "a", "one:9092"))
    assert draft.records == []


def test_refusals_have_kafkas_names() -> None:
    machine = registered()
    machine.replay([RegisterBrokerRecord(1, 2, "b")])
    assert refused(machine, requests.AllocateProducerIds(1, 0)) is ErrorCode.STALE_BROKER_EPOCH
    assert refused(machine, requests.AllocateProducerIds(9, 0)) is ErrorCode.BROKER_ID_NOT_REGISTERED
    assert refused(machine, requests.RegisterBroker(1, "a")) is ErrorCode.DUPLICATE_BROKER_REGISTRATION


@pytest.mark.parametrize("left", [0, 1, SIZE - 1])
def test_exhaustion_is_an_error_and_never_a_wrap(left: int) -> None:
    machine = registered()
    machine.replay([ProducerIdFloorRecord(MAX_PRODUCER_ID - SIZE - left, 0)])
    draft = Draft(machine, 0)
    assert decide(draft, requests.AllocateProducerIds(1, 0)).producer_id_start == MAX_PRODUCER_ID - SIZE - left
    with pytest.raises(RequestError) as error:
        decide(draft, requests.AllocateProducerIds(1, 0))
    assert error.value.code is ErrorCode.PRODUCER_IDS_EXHAUSTED
    machine.replay(draft.records)
    assert machine.producer_ids.next_producer_id == MAX_PRODUCER_ID - left
    assert refused(machine, requests.AllocateProducerIds(1, 0)) is ErrorCode.PRODUCER_IDS_EXHAUSTED


@pytest.mark.parametrize("forced", [False, True])
@pytest.mark.parametrize("at_least", [MAX_PRODUCER_ID - SIZE + 1, MAX_PRODUCER_ID])
def test_no_floor_leaves_nothing(at_least: int, forced: bool) -> None:
    machine = registered()
    machine.replay([ProducerIdFloorRecord(MAX_PRODUCER_ID - 2 * SIZE, 0)])
    assert refused(machine, requests.RaiseFloor(at_least, forced=forced)) is ErrorCode.INVALID_REQUEST
    draft = Draft(machine, 0)
    decide(draft, requests.RaiseFloor(MAX_PRODUCER_ID - SIZE))
    assert decide(draft, requests.AllocateProducerIds(1, 0)).producer_id_len == SIZE


def test_a_floor_far_above_takes_force() -> None:
    machine = registered()
    machine.replay([ProducerIdFloorRecord(5000, 0)])
    far = 5000 + MAX_FLOOR_JUMP + 1
    assert refused(machine, requests.RaiseFloor(far)) is ErrorCode.INVALID_REQUEST
    for request in (requests.RaiseFloor(far - 1), requests.RaiseFloor(far, forced=True)):
        draft = Draft(machine, 0)
        assert decide(draft, request).next_producer_id == request.at_least
    # In one batch, too: what counts is what the request itself would skip.
    draft = Draft(machine, 0)
    decide(draft, requests.RaiseFloor(far - 1))
    assert decide(draft, requests.RaiseFloor(far)).raised
    # One that is passed already changes nothing, however far off it is.
    assert not decide(draft, requests.RaiseFloor(1)).raised


def test_registrations_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(id_decisions, "MAX_BROKERS", 3)
    machine = registered()
    draft = Draft(machine, 0)
    decide(draft, requests.RegisterBroker(2, "x"))
    decide(draft, requests.RegisterBroker(3, "x"))
    with pytest.raises(RequestError, match="3 brokers are registered already, and all of them are heard") as error:
        decide(draft, requests.RegisterBroker(4, "x"))
    assert error.value.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert decide(draft, requests.RegisterBroker(1, "new")).broker_epoch == 4


def test_a_new_broker_takes_the_place_of_the_oldest_that_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(id_decisions, "MAX_BROKERS", 3)
    machine = registered()
    draft = Draft(machine, 0)
    epochs = {one: decide(draft, requests.RegisterBroker(one, "x")).broker_epoch for one in (3, 2)}
    for one, epoch in epochs.items():
        decide(draft, requests.FenceBroker(one, epoch))
    decide(draft, requests.RegisterBroker(4, "x"))
    assert UnregisterBrokerRecord(3, epochs[3]) in draft.records
    machine.replay(draft.records)
    assert [one.broker_id for one in machine.brokers.all()] == [1, 2, 4]
    # Who is refused takes nobody's place.
    draft = Draft(machine, 0)
    decide(draft, requests.RaiseMetadataVersion(LATEST))
    machine.replay(draft.records)
    draft = Draft(machine, 0)
    liar = requests.RegisterBroker(3, "x", None, HeldIds(uuid.UUID(int=1), MAX_PRODUCER_ID))
    with pytest.raises(RequestError) as refused:
        decide(draft, liar)
    assert refused.value.code is ErrorCode.EVIDENCE_REFUSED
    assert draft.records == []
    # All that a registration can add.
    most = msgspec.structs.replace(
        liar,
        incarnation_id="\U0001f600" * 64,
        kafka="a" * 255 + ":65535",
        held=HeldIds(uuid.UUID(int=1), 500),
        store_id=uuid.UUID(int=2),
    )
    bound = most_bytes(draft, most)
    decide(draft, most)
    assert len(draft.records) == most_records(most) == 5
    assert len(encode_batch(draft.records)) <= bound
    draft = Draft(machine, 0)
    # It comes back, in the place of the other one; a broker that is heard keeps its own.
    draft = Draft(machine, 0)
    decide(draft, requests.RegisterBroker(3, "x"))
    machine.replay(draft.records)
    assert [one.broker_id for one in machine.brokers.all()] == [1, 3, 4]


@pytest.mark.parametrize("build", [lambda: StateMachine("c", SIZE), registered])
def test_two_members_that_replay_the_same_hold_the_same(build: Callable[[], StateMachine]) -> None:
    one, other = build(), build()
    draft = Draft(one, 5)
    decide(draft, requests.RegisterBroker(2, "x"))
    decide(draft, requests.RaiseFloor(500))
    for machine in (one, other):
        machine.replay(draft.records)
    assert one.image(7, 3) == other.image(7, 3)


VOTERS = VotersRecord((QuorumMember(1, None, "h:1", "http://h:2", True),))


def test_a_configuration_is_kept_and_goes_into_the_image() -> None:
    machine = StateMachine("c", 10)
    machine.replay([FeatureLevelRecord(MEMBERSHIP)])
    assert (machine.image(1, 1).version, machine.image(1, 1).voters) == (MEMBERSHIP, None)
    machine.replay([VOTERS])
    assert machine.next_offset == 2
    image = machine.image(2, 1)
    assert (image.version, image.voters) == (MEMBERSHIP, VOTERS)
    other = StateMachine("c", 10)
    other.restore(image)
    assert (other.voters, other.metadata_version) == (VOTERS, MEMBERSHIP)


def test_the_metadata_version_is_raised_once_and_never_falls() -> None:
    machine = StateMachine("c", 10)
    assert machine.image(1, 1).version == BASE
    draft = Draft(machine, 5)
    assert [decide(draft, requests.RaiseMetadataVersion(version)) for version in (2, 2, 1)] == [2, 2, 2]
    assert draft.records == [FeatureLevelRecord(2)]
    assert machine.metadata_version == BASE, "nothing is in force before it is committed"
    old = machine.image(1, 1)
    machine.replay(draft.records)
    assert machine.metadata_version == 2
    again = Draft(machine, 6)
    assert decide(again, requests.RaiseMetadataVersion(2)) == 2
    assert again.records == []
    with pytest.raises(AssertionError, match="S8: the metadata version would fall from 2 to 1"):
        machine.replay([FeatureLevelRecord(1)])
    with pytest.raises(AssertionError, match="S8"):
        machine.restore(old)


def test_a_record_that_is_newer_than_the_metadata_version_stops_the_member() -> None:
    machine = StateMachine("c", 10)
    with pytest.raises(AssertionError, match=r"S7: offset 0 holds VotersRecord.*but the metadata version is 1"):
        machine.replay([VOTERS])


def test_a_build_that_is_too_old_says_so_and_takes_nothing() -> None:
    newest = StateMachine("c", 10)
    newest.replay([FeatureLevelRecord(LATEST)])
    older = StateMachine("c", 10, supported=LATEST - 1)
    reason = f"has the metadata version {LATEST}, this build reads {LATEST - 1} at most"
    with pytest.raises(UnsupportedMetadataVersion, match=reason):
        older.replay([FeatureLevelRecord(LATEST)])
    with pytest.raises(UnsupportedMetadataVersion, match=reason):
        older.restore(newest.image(1, 1))
    assert (older.metadata_version, older.next_offset) == (BASE, 0)


def test_a_hundred_blocks_for_four_brokers_follow_one_another() -> None:
    """ProducerIdControlManagerTest.testGenerateProducerIds."""
    machine = StateMachine("c")
    draft = Draft(machine, 1)
    epochs = [decide(draft, requests.RegisterBroker(broker, "a")).broker_epoch for broker in range(4)]
    machine.replay(draft.records)
    for number in range(100):
        draft = Draft(machine, 1)
        answer = decide(draft, requests.AllocateProducerIds(number % 4, epochs[number % 4]))
        assert (answer.producer_id_start, answer.producer_id_len) == (1000 * number, 1000)
        machine.replay(draft.records)
    block = machine.producer_ids.last_block
    assert block is not None
    assert (machine.producer_ids.next_producer_id, block.broker_id) == (100_000, 3)


def test_the_newest_block_counts_and_every_image_on_the_way_leads_there() -> None:
    """ProducerIdsImageTest.testEmptyImageRoundTrip, testImage1RoundTrip, testImage2RoundTrip, testApplyDelta1."""
    records = [
        AllocateProducerIdsRecord(broker, broker, 10 * n + 9, 10 * n, 10, 1) for n, broker in enumerate((0, 1, 0, 1))
    ]
    machine = StateMachine("c", SIZE)
    machine.replay([RegisterBrokerRecord(0, 0, "a"), RegisterBrokerRecord(1, 1, "a")])
    images = [machine.image(1, 1)]
    assert (images[0].next_producer_id, images[0].last_block) == (0, None)
    for record in records:
        machine.replay([record])
        images.append(machine.image(1, 1))
    for number, image in enumerate(images):
        again = StateMachine("c", SIZE)
        again.restore(image)
        assert again.image(1, 1) == image
        again.replay(records[number:])
        assert again.image(1, 1) == images[-1]
        assert again.producer_ids.next_producer_id == 40
