"""`pidkeeper topics` against the real HTTP interface of a member in memory."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from pidkeeper.cli import topics as module
from pidkeeper.cli.failures import ExitCode
from pidkeeper.cli.main import cli
from pidkeeper.controller.state.producer_ids import ProducerIdsState
from pidkeeper.controller.state.requests import CommitObject, CreateTopic, DeleteTopic
from pidkeeper.controller.state.transactions import TransactionsState
from pidkeeper.controller.state.transitions import TransactionStatus
from pidkeeper.protocol.errors import ErrorCode
from pidkeeper.protocol.log_messages import (
    DeleteTopicResponse,
    OfferedBatch,
    PartitionDescription,
    TopicDescription,
    TopicPartitionsPage,
)
from pidkeeper.protocol.logs import ObjectId
from pidkeeper.protocol.transactions import TopicPartitions, TransactionRecord
from tests.support.memory_member import FOUNDING_ID, MemoryMember
from tests.support.served_member import ServedMember
from tests.unit.cli.test_controllers import Server, problem

ID = uuid.UUID(int=7)
EVENTS = TopicDescription(ID, "events", 1, 0, -1, -1)


@pytest.fixture
def served() -> Iterator[ServedMember]:
    one = ServedMember("topics", lambda _: None)
    yield one
    one.close()


def fill(member: MemoryMember) -> None:
    """Log 1 has three batches; the last one is of a transaction that is open."""
    member.epochs[1] = 1
    decide = member.decide_on_logs
    decide(CreateTopic(ID, "events", 2, 60_000, -1, None, False))
    partitions = (TopicPartitions("events", (1,)),)
    record = TransactionRecord("tx", 4, 0, -1, -1, 60_000, TransactionStatus.ONGOING, 1, partitions, 1)
    member.log_machine.producer_ids = ProducerIdsState(1000)
    member.log_machine.transactions = TransactionsState([record])
    batches = (
        OfferedBatch(1, 3, 0, 100, -1, -1, -1, 5, False),
        OfferedBatch(1, 1, 100, 80, -1, -1, -1, 6, False),
        OfferedBatch(1, 2, 180, 90, 4, 0, 0, 7, True),
    )
    decide(CommitObject(ObjectId(1, 1, 0), FOUNDING_ID, 270, batches))


@pytest.fixture
def filled() -> Iterator[ServedMember]:
    one = ServedMember("topics", fill)
    yield one
    one.close()


def test_a_topic_is_created_with_what_was_asked_for(served: ServedMember) -> None:
    result = served.run("create", "events", "--partitions", "3", "--retention-ms", "60000", "--retention-bytes", "9")
    assert result.exit_code == 0, result.output
    assert result.output.startswith("topic events has the id ")
    (asked,) = [one for one in served.member.submitted if isinstance(one, CreateTopic)]
    assert (asked.name, asked.partitions, asked.retention_ms, asked.retention_bytes) == ("events", 3, 60_000, 9)
    assert served.json("create", "kept", "--partitions", "1")["retention_ms"] == -1


def test_a_topic_that_is_there_is_refused(served: ServedMember) -> None:
    assert served.run("create", "events", "--partitions", "1").exit_code == 0
    again = served.run("create", "events", "--partitions", "1")
    assert again.exit_code == ExitCode.REFUSED
    assert "there is a topic 'events' already" in again.output
    for name in ("a/b", ".."):
        assert served.run("create", name, "--partitions", "1").exit_code == ExitCode.REFUSED


def test_an_attempt_after_a_lost_answer_asks_for_the_same_topic() -> None:
    server = Server(problem(ErrorCode.REQUEST_TIMED_OUT), (200, EVENTS))
    try:
        asked = ["topics", "create", "events", "--partitions", "1", "-c", server.url]
        assert CliRunner().invoke(cli, asked).exit_code == 0
        first, second = (json.loads(body)["topic_id"] for _, _, body, _ in server.asked)
        assert first == second
        assert CliRunner().invoke(cli, asked).exit_code == 0
        assert json.loads(server.asked[-1][2])["topic_id"] != first
    finally:
        server.close()


@pytest.mark.parametrize("options", [[], ["--partitions", "0"], ["--partitions", "10001"], ["--partitions", "x"]])
def test_a_number_of_partitions_that_no_topic_has_is_a_usage_error(served: ServedMember, options: list[str]) -> None:
    assert served.run("create", "events", *options).exit_code == ExitCode.USAGE
    assert not served.member.submitted


def test_topics_are_listed_by_name(served: ServedMember, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, more in (("b", ["--retention-bytes", "5"]), ("a", []), ("c", ["--retention-ms", "7"])):
        assert served.run("create", name, "--partitions", "2", *more).exit_code == 0
    columns, *rows = served.rows("list")
    assert columns == ["Topic", "Partitions", "RetentionMs", "RetentionBytes", "TopicId"]
    assert [row[:4] for row in rows] == [["a", "2", "-", "-"], ["b", "2", "-", "5"], ["c", "2", "7", "-"]]
    monkeypatch.setattr(module, "PAGE", 2)
    assert [one["name"] for one in served.json("list")["items"]] == ["a", "b", "c"]


def test_a_description_has_each_partition(filled: ServedMember) -> None:
    rows = filled.rows("describe", "events")
    assert rows[:5] == [
        ["Topic", "events"],
        ["TopicId", str(ID)],
        ["Partitions", "2"],
        ["RetentionMs", "60000"],
        ["RetentionBytes", "-"],
    ]
    assert rows[5:] == [
        ["Partition", "Log", "Start", "End", "LastStable", "Bytes", "Segments", "Batches", "HeldBy"],
        ["0", "0", "0", "0", "0", "0", "0", "0", "-"],
        ["1", "1", "0", "6", "4", "270", "0", "3", "tx"],
    ]
    described = filled.json("describe", "events")
    assert described["topic"]["topic_id"] == str(ID)
    assert described["partitions"][1] == {
        "partition": 1,
        "log": 1,
        "start": 0,
        "end": 6,
        "last_stable": 4,
        "bytes": 270,
        "batches": 3,
        "held_by": "tx",
        "held_since_ms": 1,
        "segments": 0,
    }


def test_a_description_takes_as_many_pages_as_there_are(served: ServedMember, monkeypatch: pytest.MonkeyPatch) -> None:
    assert served.run("create", "wide", "--partitions", "5").exit_code == 0
    for page in (1, 2, 5):
        monkeypatch.setattr(module, "PAGE", page)
        assert [one["partition"] for one in served.json("describe", "wide")["partitions"]] == [0, 1, 2, 3, 4]


def test_pages_of_two_topics_of_one_name_are_no_description() -> None:
    page = TopicPartitionsPage(EVENTS, [PartitionDescription(0, 0, 0, 0, 0, 0, 0)], 0)
    other = msgspec.structs.replace(page, topic=msgspec.structs.replace(EVENTS, topic_id=uuid.UUID(int=8)))
    server = Server((200, page), (200, other))
    try:
        result = CliRunner().invoke(cli, ["topics", "describe", "events", "-c", server.url])
    finally:
        server.close()
    assert result.exit_code == ExitCode.FAILED
    assert "created anew" in result.output


@pytest.mark.parametrize("command", [["describe"], ["delete", "--yes"]])
def test_an_unknown_topic_is_refused_at_once(served: ServedMember, command: list[str]) -> None:
    result = served.run(*command, "no/such&topic")
    assert result.exit_code == ExitCode.REFUSED
    assert "there is no topic 'no/such&topic'" in result.output


def test_a_topic_is_deleted_when_that_was_confirmed(filled: ServedMember) -> None:
    refused = filled.run("delete", "events", typed="n\n")
    assert refused.exit_code == ExitCode.FAILED
    assert "Delete topic events (partitions: 2)" in refused.output
    assert not any(isinstance(one, DeleteTopic) for one in filled.member.submitted)
    deleted = filled.run("delete", "events", typed="y\n")
    assert deleted.exit_code == 0
    assert deleted.output.endswith(f"topic events with the id {ID} is deleted\n")
    assert filled.member.submitted[-1] == DeleteTopic("events", ID, None)
    assert filled.json("list")["items"] == []


def test_a_deletion_without_a_question_prints_its_answer(filled: ServedMember) -> None:
    assert filled.json("delete", "events", "--yes") == {"topic_id": str(ID), "name": "events"}


@pytest.mark.parametrize(
    ("answers", "exit_code"),
    [
        ([problem(ErrorCode.REQUEST_TIMED_OUT), problem(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)], ExitCode.GOOD),
        ([problem(ErrorCode.REQUEST_TIMED_OUT), (200, DeleteTopicResponse(ID, "events"))], ExitCode.GOOD),
        ([problem(ErrorCode.UNSUPPORTED_VERSION)], ExitCode.REFUSED),
        ([problem(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)], ExitCode.NOT_AUTHORISED),
    ],
)
def test_a_topic_that_is_gone_after_a_lost_answer_is_deleted(answers: list[Any], exit_code: ExitCode) -> None:
    server = Server((200, TopicPartitionsPage(EVENTS, [], None)), *answers)
    try:
        result = CliRunner().invoke(cli, ["topics", "delete", "events", "--yes", "-c", server.url])
    finally:
        server.close()
    assert result.exit_code == exit_code, result.output
    assert server.asked[1][:2] == ("DELETE", f"/v1/topics?name=events&topic_id={ID}")
