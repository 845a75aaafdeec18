"""`pidkeeper groups` against the real HTTP interface of a member in memory."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner, Result

from pidkeeper.cli import group_offsets as offsets_module
from pidkeeper.cli import groups as module
from pidkeeper.cli.failures import ExitCode
from pidkeeper.cli.group_offsets import PARTITIONS_AT_ONCE
from pidkeeper.cli.main import cli
from pidkeeper.controller.state.producer_ids import ProducerIdsState
from pidkeeper.controller.state.requests import (
    CommitGroup,
    CommitObject,
    CommitOffsets,
    CreateTopic,
    DeleteGroup,
    DeleteOffsets,
)
from pidkeeper.controller.state.transactions import TransactionsState
from pidkeeper.controller.state.transitions import TransactionStatus
from pidkeeper.protocol.errors import ErrorCode, RequestError
from pidkeeper.protocol.group_messages import DeleteGroupResponse, GroupDescription, OffsetsPage, OffsetsTransaction
from pidkeeper.protocol.groups import (
    OFFSETS_TOPIC,
    GroupMember,
    PartitionOffset,
    TopicOffsets,
    offsets_partition,
)
from pidkeeper.protocol.log_messages import OfferedBatch, PartitionDescription, TopicDescription, TopicPartitionsPage
from pidkeeper.protocol.logs import ObjectId
from pidkeeper.protocol.transactions import TopicPartitions, TransactionRecord
from tests.support.fetch_server import FetchServer
from tests.support.memory_member import FOUNDING_ID, MemoryMember
from tests.support.served_member import ServedMember
from tests.unit.cli.test_controllers import Server, problem

MEMBERS = (GroupMember("m-1", "static", "app", "/10.0.0.1"), GroupMember("m-2", None, "app", "/10.0.0.2"))
OFFSETS = ["TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "PENDING"]
RESETS = ["TOPIC", "PARTITION", "CURRENT-OFFSET", "NEW-OFFSET"]
ENDS = (6, 10, 0)
"""Of the partitions of `events`; the log of partition 1 begins at 4."""


def rows(*offsets: tuple[int, int], topic: str = "events") -> tuple[TopicOffsets, ...]:
    return (TopicOffsets(topic, tuple(PartitionOffset(*place, -1, "") for place in offsets)),)


def commit(member: MemoryMember, group: str, topics: tuple[TopicOffsets, ...], **more: Any) -> None:
    defaults: dict[str, Any] = {"generation": -1, "member_id": "", "instance_id": None, "transaction": None}
    codes = member.decide_on_logs(CommitOffsets((1, 1), group, topics, **defaults | more)).codes
    assert not any(codes), codes


def fill(member: MemoryMember) -> None:
    """A topic with records, `busy` with members and a transaction under way, and `idle` without."""
    member.epochs[1] = 1
    decide = member.decide_on_logs
    for number, name in enumerate(("events", "others")):
        decide(CreateTopic(uuid.UUID(int=number), name, 3, -1, -1, None, validate_only=False))
    batches = tuple(OfferedBatch(log, end, 100 * log, 100, -1, -1, -1, 5, False) for log, end in enumerate(ENDS) if end)
    decide(CommitObject(ObjectId(1, 1, 0), FOUNDING_ID, 200, batches))
    log = member.log_machine.logs.log(1)
    assert log is not None
    log.start = 4
    partitions = (TopicPartitions(OFFSETS_TOPIC, (offsets_partition("busy"),)),)
    record = TransactionRecord("tx", 4, 0, -1, -1, 60_000, TransactionStatus.ONGOING, 1, partitions, 1)
    member.log_machine.producer_ids = ProducerIdsState(1000)
    member.log_machine.transactions = TransactionsState([record])
    decide(CommitGroup((1, 1), "busy", -1, 7, "consumer", MEMBERS))
    commit(member, "busy", rows((0, 2), (1, 10)), generation=7, member_id="m-2")
    commit(member, "busy", rows((1, 10), (2, 0)), transaction=OffsetsTransaction("tx", 4, 0))
    commit(member, "idle", (*rows((0, 2), (1, 9)), *rows((2, 0), topic="others")))


@pytest.fixture
def served() -> Iterator[ServedMember]:
    one = ServedMember("groups", fill)
    yield one
    one.close()


def asked(served: ServedMember, *kinds: type[Any]) -> list[Any]:
    return [one for one in served.member.submitted if isinstance(one, kinds)]


def test_groups_are_listed_by_id(served: ServedMember, monkeypatch: pytest.MonkeyPatch) -> None:
    columns, *found = served.rows("list")
    assert columns == ["Group", "Type", "Coordinator", "Generation", "Members", "Offsets", "Pending"]
    assert found == [["busy", "consumer", "1", "7", "2", "2", "2"], ["idle", "-", "-", "-", "0", "3", "0"]]
    monkeypatch.setattr(module, "PAGE", 1)
    busy, idle = served.json("list")["items"]
    assert (busy["group_id"], idle["group_id"]) == ("busy", "idle")
    assert busy["members"][0] == {
        "member_id": "m-1",
        "instance_id": "static",
        "client_id": "app",
        "host": "/10.0.0.1",
        "session_timeout_ms": 45_000,
    }


def test_a_description_has_members_and_offsets(served: ServedMember, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offsets_module, "PAGE", 1)
    assert served.rows("describe", "busy") == [
        ["Group", "busy"],
        ["Type", "consumer"],
        ["Coordinator", "1"],
        ["Generation", "7"],
        ["MemberId", "InstanceId", "ClientId", "Host"],
        ["m-1", "static", "app", "/10.0.0.1"],
        ["m-2", "-", "app", "/10.0.0.2"],
        OFFSETS,
        ["events", "0", "2", "6", "4", "no"],
        ["events", "1", "10", "10", "0", "yes"],
        ["events", "2", "-", "0", "-", "yes"],
    ]
    described = served.json("describe", "idle")
    assert (described["group"]["version"], described["group"]["members"]) == (-1, [])
    last = described["offsets"][-1]
    committed_ms = last.pop("committed_ms")
    assert committed_ms > 0
    assert last == {
        "topic": "others",
        "partition": 2,
        "offset": 0,
        "leader_epoch": -1,
        "metadata": "",
        "pending": False,
        "end": 0,
        "lag": 0,
    }


@pytest.mark.parametrize("command", [["describe"], ["delete", "--yes"], ["delete-offsets", "--topic", "t", "--yes"]])
def test_an_unknown_group_is_refused(served: ServedMember, command: list[str]) -> None:
    result = served.run(*command, "no/such&group")
    assert result.exit_code == ExitCode.REFUSED
    assert "there is no group 'no/such&group'" in result.output


def test_a_group_is_deleted_when_that_was_confirmed(served: ServedMember) -> None:
    refused = served.run("delete", "idle", typed="n\n")
    assert refused.exit_code == ExitCode.FAILED
    assert "Delete group idle (offsets: 3)?" in refused.output
    assert not asked(served, DeleteGroup)
    deleted = served.run("delete", "idle", typed="y\n")
    assert deleted.output.endswith("group idle is deleted\n")
    assert asked(served, DeleteGroup) == [DeleteGroup(None, "idle")]
    assert [one["group_id"] for one in served.json("list")["items"]] == ["busy"]


def test_a_group_with_members_is_not_deleted(served: ServedMember) -> None:
    result = served.run("delete", "busy", "--yes")
    assert result.exit_code == ExitCode.REFUSED
    assert "has 2 members" in result.output


def test_a_group_that_is_gone_after_a_lost_answer_is_deleted() -> None:
    known = GroupDescription("g", -1, -1, "", [], -1, -1, 1, 0, 5)
    lost = problem(ErrorCode.REQUEST_TIMED_OUT)
    for answers, code in (
        ([lost, problem(ErrorCode.GROUP_ID_NOT_FOUND)], ExitCode.GOOD),
        ([lost, (200, DeleteGroupResponse("g"))], ExitCode.GOOD),
        ([problem(ErrorCode.NON_EMPTY_GROUP)], ExitCode.REFUSED),
    ):
        server = Server((200, known), *answers)
        try:
            result = CliRunner().invoke(cli, ["groups", "delete", "g", "--yes", "-c", server.url])
        finally:
            server.close()
        assert result.exit_code == code, result.output


def test_offsets_are_deleted_of_some_partitions(served: ServedMember) -> None:
    assert served.json("delete-offsets", "idle", "--topic", "events:0,2", "--yes") == {"deleted": 1}
    assert asked(served, DeleteOffsets) == [DeleteOffsets(None, "idle", (TopicPartitions("events", (0,)),))]
    result = served.run("delete-offsets", "idle", "--topic", "events", "--topic", "others", typed="y\n")
    assert "Delete offsets of group idle (partitions: 2)?" in result.output
    assert result.output.endswith("offsets of group idle deleted: 2\n")
    assert [one["group_id"] for one in served.json("list")["items"]] == ["busy"]


def reset(served: ServedMember, *options: str) -> list[list[str]]:
    columns, *found = served.rows("reset-offsets", *options)
    assert columns == RESETS
    return found


@pytest.mark.parametrize(
    ("way", "new"),
    [
        (["--to-earliest"], ["0", "4", "0"]),
        (["--to-latest"], ["6", "10", "0"]),
        (["--to-offset", "5"], ["5", "5", "0"]),
        (["--to-offset", "1"], ["1", "4", "0"]),
    ],
)
def test_a_reset_is_shown_and_not_done(served: ServedMember, way: list[str], new: list[str]) -> None:
    shown = reset(served, "idle", "--topic", "events", *way)
    assert shown == [
        ["events", str(number), current, after]
        for number, (current, after) in enumerate(zip(("2", "9", "-"), new, strict=True))
    ]
    told = served.run("reset-offsets", "idle", "--topic", "events", *way)
    assert told.stderr == "nothing was changed: --execute does it\n"
    assert served.member.submitted == []


@pytest.mark.parametrize(("by", "new"), [("1", ["3", "10"]), ("-3", ["0", "6"]), ("100", ["6", "10"])])
def test_a_group_is_shifted_within_its_partitions(served: ServedMember, by: str, new: list[str]) -> None:
    shown = reset(served, "idle", "--topic", "events:1,0", "--shift-by", by)
    assert [row[1:] for row in shown] == [["0", "2", new[0]], ["1", "9", new[1]]]


def test_what_was_never_committed_cannot_be_shifted(served: ServedMember) -> None:
    result = served.run("reset-offsets", "idle", "--topic", "events", "--shift-by", "1", "--execute")
    assert result.exit_code == ExitCode.REFUSED
    assert "no offset of events-2" in result.output
    assert served.member.submitted == []


def test_a_reset_is_done(served: ServedMember) -> None:
    done = served.json("reset-offsets", "idle", "--topic", "events:0", "--topic", "others", "--to-latest", "--execute")
    assert done["items"][0] == {"topic": "events", "partition": 0, "offset": 2, "new_offset": 6}
    (order,) = asked(served, CommitOffsets)
    assert (order.broker, order.topics) == (None, (*rows((0, 6)), *rows((0, 0), (1, 0), (2, 0), topic="others")))
    assert [one["offset"] for one in served.json("describe", "idle")["offsets"]] == [6, 9, 0, 0, 0]


def test_a_reset_makes_a_group_that_is_not_known(served: ServedMember) -> None:
    assert reset(served, "new", "--topic", "events:1", "--to-earliest", "--execute") == [["events", "1", "-", "4"]]
    assert served.json("describe", "new")["offsets"][0]["offset"] == 4


@pytest.mark.parametrize("execute", [[], ["--execute"]])
def test_a_group_with_members_is_not_reset(served: ServedMember, execute: list[str]) -> None:
    result = served.run("reset-offsets", "busy", "--topic", "events", "--to-latest", *execute)
    assert result.exit_code == ExitCode.REFUSED
    assert "group busy has members" in result.output
    assert served.member.submitted == []


def test_members_that_come_meanwhile_are_seen_by_the_quorum() -> None:
    known = GroupDescription("g", -1, -1, "", [], -1, -1, 0, 0, 5)
    topic = TopicDescription(uuid.UUID(int=1), "t", 1, 0, -1, -1)
    page = TopicPartitionsPage(topic, [PartitionDescription(0, 0, 0, 9, 9, 0, 0)], None)
    server = Server((200, known), (200, OffsetsPage([], None)), (200, page), problem(ErrorCode.NON_EMPTY_GROUP))
    try:
        asked_for = ["--topic", "t", "--to-latest", "--execute", "-c", server.url]
        result = CliRunner().invoke(cli, ["groups", "reset-offsets", "g", *asked_for])
    finally:
        server.close()
    assert result.exit_code == ExitCode.REFUSED, result.output
    assert server.asked[-1][:2] == ("POST", "/v1/groups/offsets/reset")


@pytest.mark.parametrize(
    ("topic", "said"),
    [("none", "there is no topic 'none'"), ("events:3", "topic events has no partition 3")],
)
def test_a_partition_that_there_is_not_cannot_be_reset(served: ServedMember, topic: str, said: str) -> None:
    result = served.run("reset-offsets", "idle", "--topic", topic, "--to-latest", "--execute")
    assert result.exit_code == ExitCode.REFUSED
    assert said in result.output


@pytest.mark.parametrize(
    "options",
    [
        ["--topic", "events"],
        ["--to-latest"],
        ["--topic", "events", "--to-latest", "--to-earliest"],
        ["--topic", "events", "--to-offset", "-1"],
        ["--topic", "events:", "--to-latest"],
        ["--topic", "events:a", "--to-latest"],
        ["--topic", ":1", "--to-latest"],
        ["--topic", "events", "--to-datetime", "yesterday"],
    ],
)
def test_a_reset_that_says_not_what_is_a_usage_error(served: ServedMember, options: list[str]) -> None:
    assert served.run("reset-offsets", "idle", *options).exit_code == ExitCode.USAGE


def test_many_partitions_take_several_requests(served: ServedMember) -> None:
    served.member.decide_on_logs(CreateTopic(uuid.UUID(int=5), "wide", 406, -1, -1, None, False))
    done = served.json("reset-offsets", "new", "--topic", "wide", "--topic", "events", "--to-latest", "--execute")
    assert len(done["items"]) == 409
    sizes = [[len(topic.partitions) for topic in one.topics] for one in asked(served, CommitOffsets)]
    assert sizes == [[PARTITIONS_AT_ONCE], [PARTITIONS_AT_ONCE], [6, 3]]
    assert served.json("delete-offsets", "new", "--topic", "wide", "--yes") == {"deleted": 406}


def test_the_longest_names_fit_into_a_request(served: ServedMember) -> None:
    names = [f"{number:0249}" for number in range(PARTITIONS_AT_ONCE)]
    for number, name in enumerate(names):
        served.member.decide_on_logs(CreateTopic(uuid.UUID(int=9 + number), name, 1, -1, -1, None, False))
    topics = [word for name in names for word in ("--topic", name)]
    assert len(served.json("reset-offsets", "new", *topics, "--to-offset", str(2**63 - 1), "--execute")["items"]) == 200
    assert served.json("delete-offsets", "new", *topics, "--yes") == {"deleted": PARTITIONS_AT_ONCE}


def test_a_bound_of_the_quorum_ends_a_reset_at_once(served: ServedMember) -> None:
    served.member.fault = RequestError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "no room for more")
    result = served.run("reset-offsets", "idle", "--topic", "events", "--to-latest", "--execute")
    assert (result.exit_code, "no room for more" in result.output) == (ExitCode.REFUSED, True)


@pytest.fixture
def listener(served: ServedMember) -> Iterator[FetchServer]:
    server = FetchServer()
    served.member.kafka = {1: server.address}
    yield server
    server.close()


def by_time(served: ServedMember, *options: str, time: str = "2026-01-31T12:00:00.250") -> Result:
    return served.run("reset-offsets", "idle", "--topic", "events", "--to-datetime", time, *options)


def test_an_agent_finds_offsets_by_time(served: ServedMember, listener: FetchServer) -> None:
    listener.since = {("events", 0): 3, ("events", 1): 7}
    result = by_time(served)
    assert result.exit_code == 0, result.output
    lines = [line.split() for line in result.stdout.splitlines() if line.startswith("events")]
    assert lines == [["events", "0", "2", "3"], ["events", "1", "9", "7"], ["events", "2", "-", "0"]]
    (request,) = listener.asked_for_offsets
    ((topic, partitions),) = [(one.topic, one.partitions) for one in request.topics]
    assert (topic, [one.partition for one in partitions]) == ("events", [0, 1, 2])
    assert {one.timestamp for one in partitions} == {1_769_860_800_250}
    for time, since_ms in (("2026-01-31T13:00:00+0100", 1_769_860_800_000), ("1960-01-01T00:00:00", 0)):
        by_time(served, time=time)
        assert listener.asked_for_offsets[-1].topics[0].partitions[0].timestamp == since_ms


def test_an_error_that_passes_is_waited_out(served: ServedMember, listener: FetchServer) -> None:
    listener.since, listener.errors = {("events", 0): 3}, [ErrorCode.REQUEST_TIMED_OUT.kafka_code]
    assert by_time(served).exit_code == 0
    assert len(listener.asked_for_offsets) == 2


@pytest.mark.parametrize(("code", "exit_code"), [(29, ExitCode.NOT_AUTHORISED), (42, ExitCode.REFUSED)])
def test_an_error_that_stays_ends_the_reset(
    served: ServedMember, listener: FetchServer, code: int, exit_code: ExitCode
) -> None:
    listener.errors = [code]
    assert by_time(served, "--execute").exit_code == exit_code
    assert served.member.submitted == []


def test_without_an_agent_nothing_is_found_by_time(served: ServedMember) -> None:
    assert by_time(served, "--agent", "kafka://127.0.0.1:1").exit_code == ExitCode.UNREACHABLE
