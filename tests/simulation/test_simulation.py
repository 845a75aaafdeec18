"""A slice of the simulation: fresh seeds, pinned ones, determinism, reach of the faults, and planted bugs as controls.

`python -m tests.simulation.run` runs as many seeds as there is time for.
"""

from __future__ import annotations

import gc
import os
import secrets
import subprocess
import sys
from collections.abc import Iterable

import pytest

from tests.simulation.cluster import Cluster, Result, simulate
from tests.simulation.data_plane import draw as draw_data
from tests.simulation.kill_points import CLAIM_POINTS, POINTS
from tests.simulation.kinds import KINDS, RAREST, THROWN, check_kinds
from tests.simulation.nemesis import Nemesis
from tests.simulation.producer import draw
from tests.simulation.run import pinned_seeds, run_seeds
from tests.simulation.swarm import draw_migrating
from tests.simulation.world import World
from tests.support.side_by_side import share

pytestmark = pytest.mark.timeout(800)
"""In a parallel run the known seeds have one core, half of it at worst, and machines differ by a factor of three."""

FRESH_SEEDS = 8
KNOWN_SEEDS = range(1, 21)
RARE_SEEDS = (54, 2010, 2016, 20014)
"""An entry is large in the first, a file is refused in the next two, and a copy restored in the last, as in few others;
every other kind of fault fires in more of the known seeds."""

DRAWN_SEEDS = range(1, 301)
CONTROL_SEEDS = range(1, 101)

TRANSACTIONAL = [seed for seed in DRAWN_SEEDS if draw(World(seed).stream("transactional")).ids]
WITH_DATA = [seed for seed in DRAWN_SEEDS if draw_data(World(seed).stream("data-load")).partitions]
MIGRATING = [seed for seed in DRAWN_SEEDS if draw_migrating(World(seed).stream("migrating")).present]


def run_good(seeds: Iterable[int]) -> dict[int, Result]:
    """The results by seed, none of which has a violation."""
    _, workers = share()
    jobs = max(1, (os.cpu_count() or 1) // workers)
    # Every seed collects garbage: it need not look through what thousands of other tests have left.
    gc.freeze()
    try:
        results = {result.seed: result for result, _ in run_seeds(seeds, jobs=jobs)}
    finally:
        gc.unfreeze()
    found = [f"seed {seed}: {result.violation}" for seed, result in results.items() if result.violation is not None]
    replay = "python -m tests.simulation.run --seed SEED --trace FILE"
    assert not found, f"of {len(results)} seeds, to be seen with `{replay}`:\n" + "\n".join(found)
    return results


@pytest.fixture(scope="module")
def known() -> dict[int, Result]:
    """The known seeds, with them the first with transactional producers, ZooKeeper and data, each run once."""
    return run_good(sorted({*KNOWN_SEEDS, *RARE_SEEDS, *TRANSACTIONAL[:10], *MIGRATING[:14], *WITH_DATA[:6]}))


def test_a_seed_leaves_nothing_behind() -> None:
    """Else each one slows those after it; and the product would keep what it has done with, too."""
    (seed,) = MIGRATING[1:2]
    assert simulate(seed).faults
    gc.collect()
    assert not [one for one in gc.get_objects() if isinstance(one, Cluster)]


def test_no_promise_is_broken_in_fresh_seeds() -> None:
    first = secrets.randbelow(2**40)
    assert len(run_good(range(first, first + FRESH_SEEDS))) == FRESH_SEEDS


def test_no_promise_is_broken_in_known_seeds_and_every_kind_of_fault_fires(known: dict[int, Result]) -> None:
    fired = {kind for result in known.values() for kind, _ in result.faults}
    assert KINDS - RAREST - fired == set()


def test_the_nemesis_throws_whatever_is_drawn_and_nothing_else() -> None:
    assert {name.removeprefix("_throw_") for name in dir(Nemesis) if name.startswith("_throw_")} == THROWN


def test_a_kind_of_fault_that_is_not_named_is_noticed() -> None:
    check_kinds(["kill", "all_disks_lost"])
    with pytest.raises(AssertionError, match=r"\['meteorite'\] fired, but .* does not name them"):
        check_kinds(["kill", "meteorite"])


def test_a_third_of_the_seeds_has_transactional_producers_and_they_are_answered(known: dict[int, Result]) -> None:
    assert 80 <= len(TRANSACTIONAL) <= 120
    assert sum(known[seed].transactional_answers_checked for seed in TRANSACTIONAL[:10]) > 1000


def test_two_of_five_seeds_have_zookeeper_and_leaders_are_lost_between_the_steps(known: dict[int, Result]) -> None:
    assert 100 <= len(MIGRATING) <= 140
    results = [known[seed] for seed in MIGRATING[:14]]
    lost = {point for result in results for point in result.leaders_lost}
    assert sum(result.old_blocks_checked for result in results) > 1_000
    assert set(CLAIM_POINTS) <= lost
    assert len(lost) > len(POINTS) / 2, lost


@pytest.mark.parametrize("seed", pinned_seeds())
def test_a_pinned_seed_stays_good(seed: int) -> None:
    assert simulate(seed).violation is None


def test_a_seed_takes_the_same_course_in_another_process() -> None:
    lines: list[str] = []
    result = simulate(7, trace=lines.append)
    again: list[str] = []
    assert simulate(7, trace=again.append).digest == result.digest
    assert again == lines
    program = "from tests.simulation.cluster import simulate; print(simulate(7).digest)"
    environment = {**os.environ, "PYTHONHASHSEED": "4711", "PYTHONPATH": os.pathsep.join(sys.path)}
    output = subprocess.run(
        [sys.executable, "-c", program], env=environment, check=True, capture_output=True, text=True
    )
    assert int(output.stdout) == result.digest


@pytest.mark.parametrize(
    ("bug", "rules"),
    [
        ("no-sync", {"refused-start", "disk-lost-entry", "disk-lost-vote", "committed-entry-changed", "lost"}),
        ("ack-before-write", {"ack-before-write", "vote-before-write"}),
        (
            "answer-at-propose",
            {
                "duplicate",
                "lost",
                "real-time-order",
                "block-rejected",
                "phase-answer",
                "voter-change-answer",
                "registration",
                "honest-evidence",
                "transaction-order",
            },
        ),
    ],
)
def test_a_planted_bug_is_found_within_a_hundred_seeds(bug: str, rules: set[str]) -> None:
    for seed in CONTROL_SEEDS:
        violation = simulate(seed, bug=bug).violation
        if violation is not None:
            assert violation.split(":")[0] in rules, violation
            return
    pytest.fail(f"{bug} was not found in {len(CONTROL_SEEDS)} seeds")
