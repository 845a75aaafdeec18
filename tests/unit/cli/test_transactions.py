"""`pidkeeper transactions` against the real HTTP interface of a member in memory."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import get_args

import pytest

from pidkeeper.cli import transactions as module
from pidkeeper.cli.failures import ExitCode
from pidkeeper.controller.api.models import TransactionState
from pidkeeper.controller.state.transactions import TransactionsState
from pidkeeper.controller.state.transitions import TransactionStatus
from pidkeeper.protocol.transactions import TopicPartitions, TransactionRecord
from tests.support.memory_member import MemoryMember
from tests.support.served_member import ServedMember

S = TransactionStatus
MINUTE_MS = 60_000
LONG_NAME = "x" * 249


def record(name: str, producer_id: int, status: TransactionStatus, minutes_ago: int | None = None) -> TransactionRecord:
    if minutes_ago is None:
        return TransactionRecord(name, producer_id, 4, -1, -1, 60_000, status, 1)
    start = time.time_ns() // 1_000_000 - minutes_ago * MINUTE_MS - 1000
    partitions = (TopicPartitions("t", (0, 3)), TopicPartitions("u", (1,)))
    return TransactionRecord(name, producer_id, 4, -1, -1, 60_000, status, start + 5, partitions, start)


def serve(*records: TransactionRecord) -> ServedMember:
    def prepare(member: MemoryMember) -> None:
        member.next_id = 1000
        member.machine.transactions = TransactionsState(records)

    return ServedMember("transactions", prepare)


@pytest.fixture
def served() -> Iterator[ServedMember]:
    one = serve(
        record("a", 1, S.EMPTY),
        record("b", 2, S.ONGOING, minutes_ago=20),
        record("c", 3, S.ONGOING, minutes_ago=2),
        record("d", 4, S.PREPARE_ABORT, minutes_ago=40),
        record(LONG_NAME, 5, S.COMPLETE_COMMIT),
    )
    yield one
    one.close()


COLUMNS = ["TransactionalId", "Coordinator", "ProducerId", "TransactionState"]


def test_a_list_has_kafkas_columns(served: ServedMember) -> None:
    assert served.rows("list") == [
        COLUMNS,
        ["a", "1", "1", "Empty"],
        ["b", "1", "2", "Ongoing"],
        ["c", "1", "3", "Ongoing"],
        ["d", "1", "4", "PrepareAbort"],
        [LONG_NAME, "1", "5", "CompleteCommit"],
    ]


def test_a_list_takes_as_many_pages_as_there_are(served: ServedMember, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PAGE", 2)
    assert [one["transactional_id"] for one in served.json("list")["items"]] == ["a", "b", "c", "d", LONG_NAME]


@pytest.mark.parametrize(
    ("options", "names"),
    [
        (["--state", "Ongoing"], ["b", "c"]),
        (["--state", "prepareabort"], ["d"]),
        (["--producer-id", "3"], ["c"]),
        (["--producer-id", "3", "--state", "Empty"], []),
        (["--duration-filter", "0"], ["b", "c", "d"]),
        (["--duration-filter", str(5 * MINUTE_MS)], ["b", "d"]),
        (["--duration-filter", str(60 * MINUTE_MS)], []),
    ],
)
def test_a_list_is_filtered(served: ServedMember, options: list[str], names: list[str]) -> None:
    assert [one["transactional_id"] for one in served.json("list", *options)["items"]] == names
    assert [row[0] for row in served.rows("list", *options)[1:]] == names


def test_a_description_has_kafkas_names(served: ServedMember) -> None:
    rows = dict(served.rows("describe", "b"))
    assert list(rows) == [
        "CoordinatorId",
        "TransactionalId",
        "ProducerId",
        "ProducerEpoch",
        "TransactionState",
        "TransactionTimeoutMs",
        "CurrentTransactionStartTimeMs",
        "TransactionDurationMs",
        "TopicPartitions",
    ]
    assert [rows[name] for name in ("CoordinatorId", "TransactionalId", "ProducerEpoch")] == ["1", "b", "4"]
    assert (rows["TransactionState"], rows["TopicPartitions"]) == ("Ongoing", "t-0,t-3,u-1")
    assert 20 * MINUTE_MS <= int(rows["TransactionDurationMs"]) < 30 * MINUTE_MS
    described = served.json("describe", "b")
    assert described["start_ms"] == int(rows["CurrentTransactionStartTimeMs"])
    assert described["topics"][1] == {"topic": "u", "partitions": [1]}


def test_an_idle_id_has_no_times(served: ServedMember) -> None:
    output = served.run("describe", "a").output
    assert [line.split()[1:] for line in output.splitlines()[6:9]] == [["-"], ["-"], []]


def test_an_unknown_id_is_refused(served: ServedMember) -> None:
    for command in ("describe", "abort"):
        result = served.run(command, "no/such&id")
        assert result.exit_code == ExitCode.REFUSED
        assert "'no/such&id'" in result.output


def test_a_transaction_is_aborted(served: ServedMember) -> None:
    assert served.run("abort", "b", "--producer-id", "2", "--producer-epoch", "3").exit_code == ExitCode.REFUSED
    result = served.run("abort", "b", "--producer-id", "2", "--producer-epoch", "4")
    assert (result.exit_code, result.output) == (0, "the transaction of b is aborted, and its producer is fenced\n")
    described = served.json("describe", "b")
    assert (described["state"], described["producer_epoch"]) == ("PrepareAbort", 5)
    assert served.json("abort", "c") == {"error_code": 0}
    again = served.run("abort", "c")
    assert again.exit_code == ExitCode.REFUSED
    assert "PREPARE_ABORT" in again.output


def test_what_takes_longer_than_allowed_hangs(served: ServedMember) -> None:
    columns, *rows = served.rows("find-hanging")
    assert columns == [
        "Topic",
        "Partition",
        "ProducerId",
        "ProducerEpoch",
        "CoordinatorEpoch",
        "StartOffset",
        "LastTimestamp",
        "Duration(min)",
    ]
    # Whose time is up, and whose markers are not written.
    assert [(row[:6], row[7]) for row in rows] == [
        (["t", "0", "2", "4", "1", "-"], "20"),
        (["t", "3", "2", "4", "1", "-"], "20"),
        (["u", "1", "2", "4", "1", "-"], "20"),
        (["t", "0", "4", "4", "1", "-"], "40"),
        (["t", "3", "4", "4", "1", "-"], "40"),
        (["u", "1", "4", "4", "1", "-"], "40"),
    ]
    for minutes, names in (("1", ["b", "c", "d"]), ("30", ["d"]), ("60", [])):
        found = served.json("find-hanging", "--max-transaction-timeout", minutes)["items"]
        assert [one["transactional_id"] for one in found] == names


def test_states_are_those_of_the_interface() -> None:
    assert get_args(TransactionState) == module.STATES
