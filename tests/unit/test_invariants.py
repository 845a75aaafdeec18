"""docs/invariants.md numbers what the code asserts: each number that an assertion names is on the page, and once."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ["broker_agent", "controller", "disk", "protocol", "service", "snapshots"]
NUMBERED = re.findall(
    r"^\| ([A-Z]\d+) \| ", (ROOT / "docs" / "invariants.md").read_text(encoding="utf-8"), re.MULTILINE
)


def asserted(package: str) -> set[str]:
    """The numbers with which messages of its assertions begin."""
    files = (ROOT / package).rglob("*.py")
    return {number for file in files for number in re.findall(r'"([A-Z]\d+): ', file.read_text(encoding="utf-8"))}


def test_each_number_is_on_the_page_once_and_in_order() -> None:
    assert len(NUMBERED) > 50
    assert len(NUMBERED) == len(set(NUMBERED))
    for letter in {number[0] for number in NUMBERED}:
        numbers = [int(number[1:]) for number in NUMBERED if number[0] == letter]
        assert numbers == list(range(1, len(numbers) + 1)), letter


def test_what_an_assertion_names_is_on_the_page() -> None:
    assert {number for package in PACKAGES for number in asserted(package)} <= set(NUMBERED)


def test_what_the_page_says_of_the_replicated_state_is_asserted_there() -> None:
    """F5 is asserted of what the leader proposes."""
    of_state = {number for number in NUMBERED if number[0] in "STFMLG" and number != "F5"}
    assert of_state - asserted("controller/state") == set()
