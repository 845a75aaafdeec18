"""franz-go's own tests of groups: chains of three groups that copy, with members that join, leave and quit.

Each record must come through each group once, in `TestGroupETL` by what is committed when partitions are revoked, in
`TestTxnEtl` by transactions (KIP-447). Both are built as they are, and told by variables how much to copy.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.witnesses.judgement import Known, Outcome, Outcomes, failed, passed
from tests.witnesses.places import Place
from tests.witnesses.programs import EndedError, run

WITNESS: Final = "franz-go 1.22.2"
DIRECTORY: Final = Path(__file__).resolve().parents[2] / ".tools" / "franz-go"
TRANSACTIONAL: Final = "TestTxnEtl"
TESTS: Final = ("TestGroupETL", TRANSACTIONAL)
RECORDS: Final = 20_000
"""Of each chain, for 500,000: with more than 10,000 the producer begins a second transaction."""

SECONDS: Final = 300.0
"""When a test gives up by itself."""

_NEXT_PROTOCOL: Final = ("range/848", "sticky/848", "sticky/848/static")
KNOWN: Final = {
    f"{test}/{case}": Known("agents serve the classic protocol of groups alone", "KIP-848")
    for test in TESTS
    for case in _NEXT_PROTOCOL
}
_RESULT: Final = re.compile(r"^ *--- (PASS|FAIL|SKIP): (\S+)", re.MULTILINE)
_SAID: Final = re.compile(r"testConsumer sendErr.*|\w+_test\.go:\d+: .*|panic: .*")


def why_unavailable() -> str | None:
    """None if its tests are built, else what is missing."""
    if (DIRECTORY / "kgo.test").exists():
        return None
    return "no tests of franz-go: .tools/franz-go is empty; tools/fetch-franz-go fills it with Go"


def command(test: str) -> list[str]:
    """What runs one of TESTS."""
    return ["./kgo.test", "-test.v", f"-test.run=^{test}$", f"-test.timeout={SECONDS:g}s"]


def variables(place: Place) -> Mapping[str, str]:
    """What it is told: topics with one replica, and a transaction that is begun while the last one ends."""
    return {
        "KGO_SEEDS": place.bootstrap,
        "KGO_TEST_RF": "1",
        "KGO_TEST_RECORDS": str(RECORDS),
        "KGO_TEST_UNSAFE": "1",
        "KGO_LOG_LEVEL": "none",
    }


def outcomes(place: Place) -> Outcomes:
    """Of each test and of each of its chains, one for a balancer."""
    found: dict[str, Outcome] = {}
    for test in TESTS:
        try:
            text = run(command(test), seconds=2 * SECONDS, directory=DIRECTORY, variables=variables(place))
        except EndedError as error:
            text = str(error)
        found |= told(text) or {test: failed(text)}
    return found


def told(text: str) -> Outcomes:
    """What Go printed of tests that were to say everything (`-test.v`). One that was passed over has failed."""
    return {name: _outcome(text, state, name) for state, name in _RESULT.findall(text)}


def _outcome(text: str, state: str, name: str) -> Outcome:
    if state == "PASS":
        return passed()
    if state == "FAIL":
        return failed("\n".join(_SAID.findall(text)))
    reason = re.search(rf"^=== (?:RUN|NAME) +{re.escape(name)}\n *\S+: (.*)", text, re.MULTILINE)
    return failed("skipped" if reason is None else f"skipped: {reason[1]}")
