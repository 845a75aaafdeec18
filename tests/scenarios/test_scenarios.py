"""Every transcript, run again: what it prints now must be what it printed when somebody understood it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.scenarios.quorum_runner import run_quorum
from tests.scenarios.runner import run_scenario
from tests.scenarios.transcript import ScenarioError, difference, parse

HERE = Path(__file__).parent
SCENARIOS = sorted(HERE.glob("*.txt"))
QUORUM = sorted((HERE / "quorum").glob("*.txt"))
README = (HERE / "README.md").read_text()


def compare(path: Path, actual: str, rewrite: bool) -> None:
    """Fail with a diff, or write the traces anew."""
    if rewrite:
        path.write_text(actual)
    changed = difference(path.read_text(), actual)
    assert not changed, f"{path.name} prints something else now (README.md says how to rewrite it):\n{changed}"


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_scenario(path: Path, rewrite: bool) -> None:
    compare(path, run_scenario(path.read_text()), rewrite)


@pytest.mark.parametrize("path", QUORUM, ids=lambda path: path.stem)
def test_quorum(path: Path, rewrite: bool) -> None:
    compare(path, run_quorum(path.read_text()), rewrite)


@pytest.mark.parametrize("path", SCENARIOS + QUORUM, ids=lambda path: path.stem)
def test_a_transcript_begins_with_what_it_establishes_and_is_listed(path: Path) -> None:
    assert not parse(path.read_text())[0].is_command
    assert f"`{path.stem}`" in README


def test_a_changed_trace_is_shown_as_a_diff() -> None:
    golden = run_scenario("> voters 1\n> start 1\n")
    assert golden == "> voters 1\n> start 1\n    1       starts in term 0, no vote, commit 0; log: nothing\n"
    actual = run_scenario(golden.replace("> start 1", "> start 1 log=1"))
    assert "+    1       starts in term 1, no vote, commit 0; log: 1@1" in difference(golden, actual)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("prose\n    1 appends\n", "line 2: a trace without a command above it"),
        ("> voters 1\n> fly 1\n", "line 2, '> fly 1': unknown command 'fly'"),
        ("> voters 1\n> start 1 speed=3\n", "start has no option speed"),
        ("> voters 1\n> start 2\n", "there is no member 2"),
        ("> voters 1\n> start 1\n> deliver\n", "line 3, '> deliver': no such message is on its way"),
        ("> voters 1\n> tick 1\n", "1 is not started"),
        ("> voters 1\n> start\n", "start needs members"),
        ("> voters 1\n> start 1\n> set-timeout 1\n", "set-timeout needs a member and a number"),
        ("> voters 1 spare=2\n> start 1\n> elect 1\n> join 1 2\n", "it did not get that far: "),
        ("> voters 1 spare=2\n> start 1\n> promote 1\n", "promote needs a member and a number"),
        ("> voters one\n", "'one' is not a number"),
    ],
)
def test_a_transcript_that_cannot_be_run_says_why(text: str, complaint: str) -> None:
    with pytest.raises(ScenarioError, match=complaint.replace("(", r"\(")):
        run_scenario(text)
