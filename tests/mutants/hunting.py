"""Plants every bug of the catalogue in a copy of the tree, and sees who catches it: the simulator or a test."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import msgspec

from tests.mutants.planted import ROOT, Planted, copy_tree, plant, why_unseen

FIRST_SEED: Final = 1
MAX_SEEDS: Final = 500
CONTROL: Final = Planted("no-bug", "nothing", "the control: the code as it is", ())
HUNT_SECONDS: Final = 1800
"""500 seeds take some minutes on one core; beyond this the hunt itself hangs."""

CPU_SECONDS: Final = 20.0
"""Of a hunt for a bug that directed tests show anyway, so that all of them together end in a quarter of an hour."""

TEST_SECONDS: Final = 300


class Hunt(msgspec.Struct, frozen=True):
    """What came of it. `tried`: seeds run, the last one included; `found` is None if none of them showed anything."""

    tried: int
    seed: int | None
    found: str | None


class Caught(msgspec.Struct, frozen=True):
    """What happened to one planted bug. `seeds`: until the simulator saw it, None if it did not; `tried`: all of them.

    `unseen`: why it cannot. `directed`: whether the directed tests failed, None if they were not asked.
    """

    name: str
    breaks: str
    source: str
    seeds: int | None
    tried: int
    seed: int | None
    found: str | None
    unseen: str
    directed: bool | None
    seconds: float

    @property
    def caught(self) -> bool:
        """Whether anything noticed."""
        return self.seeds is not None or self.directed is True


def run_planted(
    bugs: Sequence[Planted], *, jobs: int, seeds: int = MAX_SEEDS, first: int = FIRST_SEED
) -> Iterator[Caught]:
    """The outcome of every bug, in order, as they come. Raises PatchError, RuntimeError if a hunt itself fails."""
    with tempfile.TemporaryDirectory(prefix="planted-") as base, ThreadPoolExecutor(jobs) as pool:
        pristine = Path(base) / "pristine"
        copy_tree(ROOT, pristine)
        yield from pool.map(lambda bug: _outcome(bug, pristine, Path(base) / bug.name, first, seeds), bugs)


def _outcome(bug: Planted, pristine: Path, tree: Path, first: int, seeds: int) -> Caught:
    started = time.monotonic()
    copy_tree(pristine, tree)
    plant(bug, tree)
    unseen = why_unseen(bug, tree)
    result = Hunt(0, None, None) if unseen else _hunt(bug, tree, first, seeds)
    directed = _tests_fail(bug, tree) if result.found is None and bug.directed else None
    return Caught(
        name=bug.name,
        breaks=bug.breaks,
        source=bug.source,
        seeds=result.tried if result.found is not None else None,
        tried=result.tried,
        seed=result.seed,
        found=result.found,
        unseen=unseen,
        directed=directed,
        seconds=round(time.monotonic() - started, 1),
    )


def _environment() -> dict[str, str]:
    """Nothing but the copy on the path, and one order of hashing."""
    return {**os.environ, "PYTHONHASHSEED": "0", "PYTHONPATH": ""}


def _hunt(bug: Planted, tree: Path, first: int, seeds: int) -> Hunt:
    seconds = CPU_SECONDS if bug.directed or bug is CONTROL else HUNT_SECONDS
    scope = "histories" if bug.histories else "simulation"
    command = [sys.executable, "-m", "tests.mutants.hunt", scope, str(first), str(seeds), str(seconds)]
    done = subprocess.run(
        command, cwd=tree, env=_environment(), capture_output=True, text=True, timeout=HUNT_SECONDS, check=False
    )
    if done.returncode != 0:
        raise RuntimeError(f"{bug.name}: the hunt ended with {done.returncode}:\n{done.stderr[-2000:]}")
    return msgspec.json.decode(done.stdout, type=Hunt)


def _tests_fail(bug: Planted, tree: Path) -> bool:
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *bug.directed]
    done = subprocess.run(
        command, cwd=tree, env=_environment(), capture_output=True, text=True, timeout=TEST_SECONDS, check=False
    )
    if done.returncode not in {0, 1}:
        raise RuntimeError(f"{bug.name}: pytest ended with {done.returncode}:\n{done.stdout[-2000:]}")
    return done.returncode == 1
