"""librdkafka's own tests of idempotence and transactions; new_topics.c says what is changed under them."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.witnesses.judgement import Known, Outcome, Outcomes, failed, passed
from tests.witnesses.places import Place
from tests.witnesses.programs import EndedError, run

WITNESS: Final = "librdkafka 2.12.1"
DIRECTORY: Final = Path(__file__).resolve().parents[2] / ".tools" / "witnesses" / "librdkafka"
BROKER_VERSION: Final = "4.3.0"
"""What the tests believe to talk to: it decides what they expect."""

SECONDS: Final = 420.0
"""Three times what the longest of them takes on two cores."""

WHOLE: Final = ("0090_idempotence", "0098_consumer_txn", "0129_fetch_aborted_msgs")
SUBTESTS: Final = (
    "do_test_txn_local",
    "do_test_misuse_txn",
    "do_test_basic_producer_txn",
    "do_test_consumer_producer_txn",
    "do_test_fenced_txn",
    "do_test_fatal_idempo_error_without_kip360",
    "do_test_empty_txn",
    "do_test_wmark_isolation_level",
    "do_test_txn_abort_control_message_leader_epoch",
)
"""Of 0103_transactions."""

KNOWN: Final[Mapping[str, Known]] = {}
_SUBTEST: Final = re.compile(r"\[ (do_test_\w+?):\d+(?:: (.*?))?: (PASS|FAIL)")
_TEST: Final = re.compile(r"^\|\S* (\w+)\s+\|\s+(PASSED|FAILED|SKIPPED) \|", re.MULTILINE)
_COLOUR: Final = re.compile(r"\x1b[\[(][0-9;]*[A-Za-z]")
_FAILURE: Final = re.compile(r'### Test "(?:\w+ \((do_test_\w+?):\d+(?:: (.*))?\)|\w+)" failed at')


def why_unavailable() -> str | None:
    """None if its tests are built, else what is missing."""
    if (DIRECTORY / "tests" / "test-runner").exists():
        return None
    return "no tests of librdkafka: .tools/witnesses is empty; tools/fetch-witnesses fills it with cargo and a compiler"


def outcomes(place: Place) -> Outcomes:
    """Of each test, and of each subtest of 0103."""
    found: dict[str, Outcome] = {}
    for test in WHOLE:
        found |= _ran(place, test, None)
    for subtest in SUBTESTS:
        found |= _ran(place, "0103", subtest)
    return found


def _ran(place: Place, test: str, subtest: str | None) -> Outcomes:
    with tempfile.TemporaryDirectory() as name:
        settings = Path(name) / "test.conf"
        settings.write_text(f"bootstrap.servers={place.bootstrap}\ntest.topic.prefix=witness\n")
        variables = {
            "TESTS": test[:4],
            "RDKAFKA_TEST_CONF": str(settings),
            "TEST_KAFKA_VERSION": BROKER_VERSION,
            "BROKERS": place.bootstrap,
            "KAFKA_PATH": str(DIRECTORY / "kafka"),
            "LD_LIBRARY_PATH": os.pathsep.join(str(DIRECTORY / one) for one in ("src", "src-cpp")),
            "LD_PRELOAD": str(DIRECTORY / "new_topics.so"),
        } | ({"SUBTESTS": subtest} if subtest else {})
        try:
            # One test at a time, and the next one where one fails.
            text = run(
                ["./test-runner", "-p1", "-K"], seconds=SECONDS, directory=DIRECTORY / "tests", variables=variables
            )
        except EndedError as error:
            text = str(error)
    return told(text, subtest) or {subtest or test: failed(text)}


def told(text: str, subtest: str | None) -> Outcomes:
    """What the runner printed: of the subtests if one was asked for, else of the tests."""
    text = _COLOUR.sub("", text)
    if subtest is None:
        return {
            name: passed() if state == "PASSED" else failed(_reason(text))
            for name, state in _TEST.findall(text)
            if name != "MAIN"
        }
    found = {_name(name, what): passed() for name, what, state in _SUBTEST.findall(text) if state == "PASS"}
    for name, what in _FAILURE.findall(text):
        if name:
            found[_name(name, what)] = failed(_reason(text))
    return found


def _name(name: str, what: str) -> str:
    return f"0103 {name}: {what}" if what else f"0103 {name}"


def _reason(text: str) -> str:
    """From the first failure on: what follows it are its consequences."""
    _, found, rest = text.partition("TEST FAILURE\n")
    return rest[:600] if found else text
