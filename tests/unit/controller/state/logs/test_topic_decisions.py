"""Decisions about topics: names, repetitions, bounds, and what a batch sees of its own topics."""

from __future__ import annotations

import uuid

import pytest
from msgspec.structs import replace

from pidkeeper.controller.state import requests
from pidkeeper.controller.state.decide import must_be_confirmed
from pidkeeper.controller.state.logs import limits
from pidkeeper.controller.state.machine import StateMachine
from pidkeeper.protocol.errors import ErrorCode
from pidkeeper.protocol.log_messages import DeleteTopicResponse, TopicDescription
from pidkeeper.protocol.logs import MAX_INT64, MAX_PARTITIONS
from pidkeeper.protocol.metadata_version import ENDS_AT_ONCE
from pidkeeper.protocol.records import FeatureLevelRecord
from pidkeeper.protocol.transactions import MAX_TOPIC_LENGTH
from tests.support.log_state import EPOCHS, batch, commit, data, drop, log_of, make, one, outcomes, topic


@pytest.fixture
def machine() -> StateMachine:
    return make()


def test_a_topic_has_the_next_logs(machine: StateMachine) -> None:
    first, second = topic("a", 3), replace(topic("b", 2), retention_ms=5, retention_bytes=MAX_INT64)
    assert batch(machine, first, second) == [
        TopicDescription(first.topic_id, "a", 3, 0, -1, -1),
        TopicDescription(second.topic_id, "b", 2, 3, 5, MAX_INT64),
    ]
    assert [log_of(machine, number).topic.name for number in range(5)] == ["a", "a", "a", "b", "b"]
    assert [log_of(machine, number).partition for number in range(5)] == [0, 1, 2, 0, 1]
    assert machine.logs.log(5) is None


@pytest.mark.parametrize("name", ["a", "...", "a.b_c-9", "x" * MAX_TOPIC_LENGTH])
def test_names_that_kafka_allows(machine: StateMachine, name: str) -> None:
    assert one(machine, topic(name)).name == name


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "a/b", "a\n", "é", "x" * (MAX_TOPIC_LENGTH + 1)])
def test_names_that_kafka_refuses(machine: StateMachine, name: str) -> None:
    assert one(machine, topic(name)) is ErrorCode.INVALID_TOPIC_EXCEPTION


def test_the_same_request_is_answered_alike(machine: StateMachine) -> None:
    wanted = topic("a", 3)
    described = one(machine, wanted)
    offset = machine.next_offset
    assert batch(machine, wanted, replace(wanted, partitions=9)) == [described, described]
    assert machine.next_offset == offset


def test_a_name_or_an_id_is_one_topics(machine: StateMachine) -> None:
    one(machine, topic("a", number=7))
    assert batch(machine, topic("a", number=8), topic("b", number=7)) == [
        ErrorCode.TOPIC_ALREADY_EXISTS,
        ErrorCode.INVALID_REQUEST,
    ]
    assert batch(machine, topic("c", number=9), topic("c", number=10), topic("d", number=9))[1:] == [
        ErrorCode.TOPIC_ALREADY_EXISTS,
        ErrorCode.INVALID_REQUEST,
    ]


def test_only_validated_it_is_not_created(machine: StateMachine) -> None:
    wanted, offset = replace(topic("a"), validate_only=True), machine.next_offset
    assert one(machine, wanted).name == "a"
    assert machine.next_offset == offset
    assert one(machine, replace(topic("."), validate_only=True)) is ErrorCode.INVALID_TOPIC_EXCEPTION


def test_more_partitions_than_are_kept_are_refused(machine: StateMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    assert one(machine, topic("a", MAX_PARTITIONS + 1)) is ErrorCode.INVALID_PARTITIONS
    monkeypatch.setattr(limits, "MAX_PARTITIONS", 5)
    assert one(machine, topic("a", 6)) is ErrorCode.INVALID_PARTITIONS
    full, granted = batch(machine, topic("a", 3), topic("b", 3), topic("c", 2))[1:]
    assert full is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert granted.first_log == 3
    assert batch(machine, topic("d"), drop("a"), topic("d", 3))[0] is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert machine.logs.topics.partitions == 5, "what was deleted makes room at once"


def test_a_deleted_topic_is_gone_and_so_are_its_logs(machine: StateMachine) -> None:
    first = topic("a", 2)
    batch(machine, first, commit(1, data(0), data(1)))
    assert one(machine, drop("a")) == DeleteTopicResponse(first.topic_id, "a")
    assert (machine.logs.log(0), machine.logs.log(1), machine.logs.rows) == (None, None, 0)
    assert machine.logs.objects.collectable(9) == [0]
    assert one(machine, drop("a")) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert outcomes(machine, commit(2, data(0))) == [-3]
    assert one(machine, first).first_log == 2, "the numbers are never given again"


def test_only_the_topic_that_was_meant_is_deleted(machine: StateMachine) -> None:
    wanted = topic("a", number=7)
    one(machine, wanted)
    other = requests.DeleteTopic("a", uuid.UUID(int=8), None)
    assert one(machine, other) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert one(machine, replace(other, topic_id=wanted.topic_id)).topic_id == wanted.topic_id


def test_created_written_to_and_deleted_in_one_batch(machine: StateMachine) -> None:
    wanted = topic("a", 2)
    answers = batch(machine, wanted, commit(1, data(1)), drop("a"), commit(2, data(1)), wanted, commit(3, data(3)))
    assert answers[1].outcomes == [0]
    assert answers[3].outcomes == [-3]
    assert answers[4].first_log == 2
    assert answers[5].outcomes == [0]
    assert (machine.logs.rows, log_of(machine, 3).end, machine.logs.log(1)) == (1, 1, None)


def test_a_topic_that_comes_back_in_the_batch_that_deletes_it_is_there_once(machine: StateMachine) -> None:
    """A creation whose answer was lost may be asked for again at any time."""
    wanted = topic("a", 2)
    one(machine, wanted)
    answers = batch(machine, drop("a"), wanted, wanted, commit(1, data(0), data(2)), replace(topic("a"), partitions=1))
    assert answers[1] == answers[2]
    assert answers[3].outcomes == [-3, 0]
    assert answers[4] == answers[1], "it has the same id"
    assert batch(machine, drop("a"), wanted, drop("a"), drop("a"))[3] is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_brokers_epoch_is_checked(machine: StateMachine) -> None:
    for request in (topic("a"), drop("a")):
        assert one(machine, replace(request, broker=(1, 99))) is ErrorCode.STALE_BROKER_EPOCH
        assert one(machine, replace(request, broker=(9, 3))) is ErrorCode.BROKER_ID_NOT_REGISTERED
    for broker_id, epoch in EPOCHS.items():
        assert one(machine, replace(topic(f"of-{broker_id}"), broker=(broker_id, epoch))).partitions == 1


def test_nothing_of_it_before_all_members_read_it() -> None:
    machine = StateMachine("c")
    machine.replay([FeatureLevelRecord(ENDS_AT_ONCE)])
    for request in (topic("a"), drop("a"), commit(1, data()), requests.ExpireProducers(((0, 1, 2),))):
        assert one(machine, request) is ErrorCode.UNSUPPORTED_VERSION
        assert must_be_confirmed(request)
    assert one(machine, requests.ConfirmState()) is None


def test_pages_of_topics(machine: StateMachine) -> None:
    batch(machine, *(topic(name) for name in "dbac"))
    topics = machine.logs.topics
    assert [found.name for found in topics.after("", 9)] == list("abcd")
    assert [found.name for found in topics.after("a", 2)] == ["b", "c"]
    batch(machine, drop("b"), topic("bb"))
    assert [found.name for found in topics.after("a", 2)] == ["bb", "c"]
    assert [found.name for found in topics.all()] == ["d", "a", "c", "bb"]
