"""A minute of chaos, as `make chaos` plays it: every promise is kept, and the checker finds what is planted."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Final
from xml.etree import ElementTree as ET

import pytest

from tests.chaos.controls import PLANTED
from tests.chaos.shim.build import why_no_shim

MINUTES: Final = 1.0
SECONDS: Final = 900.0
"""When the test gives up: the last act is played to its end, and the check of it all takes its time."""

REPOSITORY: Final = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a run: its figures, its picture, what it said."""
    if (reason := why_no_shim()) is not None:
        pytest.skip(reason)
    directory = tmp_path_factory.mktemp("chaos")
    keeping = ["--directory", str(directory / "run"), "--out", str(directory / "chaos.json")]
    with (directory / "said").open("wb") as said:
        subprocess.run(
            [sys.executable, "-m", "tests.chaos.run", "--minutes", str(MINUTES), *keeping],
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
            timeout=SECONDS,
            check=False,
            cwd=REPOSITORY,
        )
    return directory


@pytest.fixture
def report(kept: Path) -> dict[str, Any]:
    """The figures. How long things took is no matter of a test: others want the processors as well."""
    figures = kept / "chaos.json"
    assert figures.exists(), (kept / "said").read_text(errors="replace")[-4000:]
    told: dict[str, Any] = json.loads(figures.read_text())
    return told


@pytest.mark.timeout(SECONDS + 60)
def test_no_promise_is_broken(report: dict[str, Any]) -> None:
    assert report["broken"] == [], f"seed {report['seed']}"
    assert (report["duplicates"], report["lost"], report["fatal_client_errors"]) == (0, 0, 0)
    assert report["minutes"] >= MINUTES


def test_there_was_something_to_check(report: dict[str, Any]) -> None:
    assert report["ids_checked"] > 1000
    assert report["blocks_checked"] > 100
    assert min(report["copies_checked"], report["commits_checked"]) > 10


def test_faults_were_injected_and_most_were_seen_to_bite(report: dict[str, Any]) -> None:
    tallies = report["faults_by_kind"].values()
    injected, bitten = (sum(tally[name] for tally in tallies) for name in ("injected", "bitten"))
    assert len(tallies) >= 5
    assert bitten >= injected * 0.8, report["faults_by_kind"]


def test_the_checker_finds_fault_with_an_allocator_that_repeats_ids_and_with_every_lie(report: dict[str, Any]) -> None:
    assert report["negative_control_flagged"] is True
    names = {control["name"] for control in report["controls"]}
    assert "librdkafka's mock cluster" in names
    assert len(names & {lie.__name__ for lie in PLANTED}) >= len(PLANTED) - 3, "the run had too little to lie about"


def test_what_the_machine_cannot_do_is_named(report: dict[str, Any]) -> None:
    assert all(report["missing"].values())
    assert not set(report["missing"]) & set(report["faults_by_kind"])


def test_the_picture_names_who_was_struck(kept: Path, report: dict[str, Any]) -> None:
    words = {element.text for element in ET.parse(kept / "chaos.svg").iter() if element.text}
    struck = {kind for kind, tally in report["faults_by_kind"].items() if tally["injected"]}
    assert struck <= words


def test_a_run_that_was_kept_can_be_judged_again(kept: Path, report: dict[str, Any]) -> None:
    command = [sys.executable, "-m", "tests.chaos.checker", str(kept / "run" / "journal")]
    judged = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, cwd=REPOSITORY)
    assert judged.returncode == 0, judged.stderr
    assert json.loads(judged.stdout)["ids_checked"] == report["ids_checked"]
