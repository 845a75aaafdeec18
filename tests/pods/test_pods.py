"""The chart's pods, run as processes: what a kubelet would make of the templates holds under load."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pidkeeper.cli.failures import ExitCode
from tests.pods.namespaces import why_not
from tests.pods.run import MOST_MOVES

ROOT = Path(__file__).resolve().parents[2]
NO_PODS = why_not()
pytestmark = pytest.mark.skipif(NO_PODS is not None, reason=f"no pods: {NO_PODS}")
RUN_SECONDS = 400.0
NOT_HERE = 2
OF_THE_IMAGE = {"bin", "dev", "etc", "lib", "lib64", "opt", "proc", "usr", "var", Path(sys.base_prefix).parts[1]}


def run(module: str, *arguments: str | Path) -> Any:
    """The JSON document that a module prints, in a network of its own. Skips what it says cannot be had here."""
    command = [sys.executable, "-m", f"tests.pods.{module}", *map(str, arguments)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=RUN_SECONDS, check=False)
    if done.returncode == NOT_HERE:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return json.loads(done.stdout)


def test_a_container_sees_what_its_specification_says_and_no_more(tmp_path: Path) -> None:
    seen = run("looking_around", tmp_path)
    assert seen["ids"] == [10001, 10001, [10001]]
    assert seen["pid"] == 1
    assert set(seen["capabilities"]) == {"0" * 16}
    assert seen["no_new_privileges"] == "1"
    assert (seen["host"], seen["directory"]) == ("looks-3", "/var/lib/pidkeeper")
    assert {name for name, answer in seen["writable"].items() if answer == "yes"} == {"/tmp", "/data"}
    assert set(seen["root"]) <= OF_THE_IMAGE | {"settings", "data", "tmp"}
    assert seen["settings"] == "a setting"
    assert seen["environment"] == {"MY_NAME": "looks-3", "MY_URL": "http://looks-3.svc", "MY_INDEX": "3"}
    assert seen["argument"] == "looks-3"
    assert seen["me"].startswith("10.244.")


def test_the_composition_is_founded_once_and_hands_out_ids(tmp_path: Path) -> None:
    told = run("composed", tmp_path)
    codes = told["codes"]
    assert codes.pop("found again") == ExitCode.REFUSED, "with each `up` it is tried again"
    assert set(codes.values()) == {ExitCode.GOOD}, codes
    assert len(codes) == 5
    assert len(set(told["ids"].values())) == 2


def test_a_production_release_is_founded_tested_and_rolled_under_load(tmp_path: Path) -> None:
    """TLS alone, with certificates as cert-manager makes them; three rolls of a member each, and no claim fails."""
    told = run("run", "production", "--rolls", "1", "--directory", tmp_path)
    assert "Healthy           yes" in told["test"]
    assert told["test"].count(" 2147483647 ") == 2, "the blocks of `helm test`"
    assert "voters 1, 2, 3 are among 1, 2, 3" in told["upgrade"]
    assert "ended with 5" in told["refused"]
    assert "the quorum would count 2, 3 for ever" in told["refused"].replace("\n", " ")
    (roll,) = told["rolls"]
    assert sorted(roll["ends"]) == [f"pidkeeper-controller-{number}" for number in (1, 2, 3)]
    assert 1 <= roll["moves"] <= MOST_MOVES, "the leader was rolled, too"
    assert (told["twice"], told["failed"]) == (0, [])
    assert told["ids"] > 1000
