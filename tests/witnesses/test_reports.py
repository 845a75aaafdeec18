"""What witnesses print, as it is understood."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.witnesses import franz_go, kafka_python, librdkafka, verifiable_consumer
from tests.witnesses import run as witnesses
from tests.witnesses.places import PARTITIONS
from tests.witnesses.programs import EndedError, refusal, run
from tests.witnesses.verifiable_producer import Written, checked

SUBTEST_PASSED = (
    "\x1b[0m\x1b[36m[0103_transactions / 0.2s] \x1b[32m[ do_test_misuse_txn:596: PASS (0.22s) ]\n"
    "\x1b[0m\x1b[36m[0103_transactions] \x1b[32m[ do_test_basic_producer_txn:130: with compression: PASS (18.0s) ]\n"
)
SUBTEST_FAILED = (
    "\x1b[36m[0103 / 1.1s] TEST FAILURE\n"
    '\x1b[0m\x1b[31m### Test "0103_transactions (do_test_fenced_txn:760: produce after fence)" failed at test.c ###\n'
    'the reason\n[<MAIN>] TEST FAILURE\n### Test "<MAIN>" failed at test.c:1798 ###\n'
)
SUMMARY = (
    "|\x1b[32m <MAIN>                    |     PASSED |   5.001s \x1b[0m|\n"
    "|\x1b[32m 0090_idempotence          |     PASSED |   4.137s \x1b[0m|\n"
    "|\x1b[31m 0129_fetch_aborted_msgs   |     FAILED |   4.137s \x1b[0m|\n"
)
REPORT = """<testsuites><testsuite>
<testcase classname="test.integration.test_producer_integration" name="test_end_to_end[None]"/>
<testcase classname="test.integration.test_admin_integration" name="test_x">
<failure message="KeyError: 1">trace</failure></testcase>
<testcase classname="test.integration.test_admin_integration" name="test_y"><skipped message="no codec"/></testcase>
</testsuite></testsuites>"""

GO = """=== RUN   TestGroupETL
=== RUN   TestGroupETL/range/848
    helpers_test.go:861: broker does not support KIP-848
    testConsumer sendErr group=x: EOF
=== NAME  TestGroupETL
    helpers_test.go:470: no topic
--- FAIL: TestGroupETL (34.46s)
    --- PASS: TestGroupETL/range (7.48s)
    --- SKIP: TestGroupETL/range/848 (0.00s)
FAIL
"""


def test_subtests_of_librdkafka_that_passed_and_failed() -> None:
    told = librdkafka.told(SUBTEST_PASSED + SUBTEST_FAILED, "do_test")
    assert {name: one.state for name, one in told.items()} == {
        "0103 do_test_misuse_txn": "passed",
        "0103 do_test_basic_producer_txn: with compression": "passed",
        "0103 do_test_fenced_txn: produce after fence": "failed",
    }
    assert "the reason" in told["0103 do_test_fenced_txn: produce after fence"].shown


def test_tests_of_librdkafka() -> None:
    told = librdkafka.told(SUMMARY, None)
    assert {name: one.state for name, one in told.items()} == {
        "0090_idempotence": "passed",
        "0129_fetch_aborted_msgs": "failed",
    }


def test_tests_of_kafka_python() -> None:
    told = kafka_python.told(REPORT)
    assert {name: (one.state, one.shown) for name, one in told.items()} == {
        "producer::test_end_to_end[None]": ("passed", ""),
        "admin::test_x": ("failed", "failure: KeyError: 1"),
        "admin::test_y": ("failed", "skipped: no codec"),
    }


def test_tests_of_franz_go() -> None:
    told = franz_go.told(GO)
    assert {name: (one.state, one.shown) for name, one in told.items()} == {
        "TestGroupETL": ("failed", "\n".join(line.strip() for line in GO.splitlines()[2:6] if line[0] == " ")),
        "TestGroupETL/range": ("passed", ""),
        "TestGroupETL/range/848": ("failed", "skipped: broker does not support KIP-848"),
    }


def event(value: str, offset: int, name: str = "producer_send_success") -> str:
    return json.dumps({"name": name, "value": value, "partition": 0, "offset": offset}) + "\n"


@pytest.mark.parametrize(
    ("there", "printed", "state", "shown"),
    [
        ([("0", 0), ("1", 1)], event("0", 0) + event("1", 1), "passed", "2 acknowledged"),
        ([("0", 0)], event("0", 0) + event("1", 1), "failed", "not where it was told"),
        ([("0", 0), ("1", 2)], event("0", 0) + event("1", 1), "failed", "not where it was told"),
        ([("0", 0), ("1", 1), ("1", 2)], event("0", 0) + event("1", 1), "failed", "more than once"),
        ([("0", 0), ("1", 1), ("2", 2)], event("0", 0) + event("1", 1), "failed", "2 were acknowledged"),
        ([("0", 0)], event("0", 0), "failed", "1 of 2 messages"),
        ([("0", 0)], event("0", 0) + event("1", -1, "producer_send_error"), "failed", "1 messages failed"),
    ],
)
def test_what_was_acknowledged_is_there_exactly_once(
    there: list[tuple[str, int]], printed: str, state: str, shown: str
) -> None:
    outcome = checked("noise\n" + printed, [Written(0, offset, value) for value, offset in there], 2)
    assert outcome.state == state
    assert shown in outcome.shown


def consumed(*spans: tuple[int, int]) -> str:
    """What is printed where each of `spans` is consumed of each partition."""
    parts = [
        {"topic": "t", "partition": one, "count": last - first + 1, "minOffset": first, "maxOffset": last}
        for first, last in spans
        for one in range(PARTITIONS)
    ]
    return json.dumps({"name": "records_consumed", "count": 1, "partitions": parts}) + "\n"


@pytest.mark.parametrize(
    ("printed", "once", "state", "shown"),
    [
        (consumed((0, 4), (5, 9)), True, "passed", "each once"),
        (consumed((0, 4), (4, 9)), True, "failed", "more than once"),
        (consumed((0, 4), (4, 9)), False, "passed", "all consumed"),
        (consumed((0, 4), (6, 9)), False, "failed", "1 records of partition 0 were not consumed, as 5"),
        ("", False, "failed", "10 records of partition 0 were not consumed, as 0"),
    ],
)
def test_what_was_written_is_consumed(printed: str, once: bool, state: str, shown: str) -> None:
    outcome = verifiable_consumer.checked("noise\n" + printed, 10, once=once)
    assert outcome.state == state
    assert shown in outcome.shown


def test_a_refusal_is_the_exceptions_name_or_the_first_line() -> None:
    trace = "Error while executing\n12:00 main ERROR org.apache.kafka.common.errors.TopicExistsException: there\n"
    assert refusal(trace) == "TopicExistsException"
    assert refusal("\nTopic 'x' does not exist\n at org.x.Y") == "Topic 'x' does not exist"


def test_a_program_that_ends_otherwise_or_not_is_told_with_what_it_printed() -> None:
    assert run(["sh", "-c", "cat; echo warned >&2; exit 3"], stdin="read\n", code=3) == "read\nwarned"
    with pytest.raises(EndedError, match="ended with 3, not 0: lost"):
        run(["sh", "-c", "echo lost; exit 3"])
    with pytest.raises(EndedError, match=r"within 0\.1 s"):
        run(["sleep", "60"], seconds=0.1)


def test_a_witness_that_is_not_here_is_missing_and_starts_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(librdkafka, "DIRECTORY", tmp_path)
    report = witnesses.run(["librdkafka"], tmp_path / "none")
    assert "tools/fetch-witnesses" in report.missing["librdkafka"]
    assert not report.verdicts
    assert not (tmp_path / "none").exists()
