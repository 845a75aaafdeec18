"""Runs seeds in the tree that it is started in until one shows a bug.

`python -m tests.mutants.hunt SCOPE FIRST COUNT SECONDS` prints one line of JSON, a `Hunt`; the scope is `simulation` or
`histories`. A seed may end with a violation that is reported, with an exception out of it, or not at all; each of them
is a bug found, and `found` begins with which.
"""

from __future__ import annotations

import gc
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Final, NoReturn

import msgspec

from tests.histories.history import Outcome, run_history
from tests.mutants.hunting import Hunt
from tests.simulation.cluster import Result, simulate

Run = Callable[[int], Result | Outcome]

SEED_SECONDS: Final = 60
"""A seed takes seconds of CPU time; one that takes so much longer is caught in a loop. By the clock, a machine with
other work would have bugs found that are none."""

MAX_SHOWN: Final = 300
"""Characters kept of a finding."""


class Stuck(BaseException):
    """A seed did not end. Not an Exception: the code under test must not handle it."""


def hunt(run: Run, first: int, count: int, seconds: float) -> Hunt:
    """Run `count` seeds from `first` on; fewer if one of them shows a bug, or if they took `seconds` of CPU."""
    signal.signal(signal.SIGPROF, _stuck)
    tried = 0
    for seed in range(first, first + count):
        if time.process_time() > seconds:
            break
        tried += 1
        signal.setitimer(signal.ITIMER_PROF, SEED_SECONDS)
        try:
            found = run(seed).violation
        except Stuck:
            found = f"endless: the seed did not end within {SEED_SECONDS} s"
        except Exception as error:  # noqa: BLE001 - whatever the planted bug made of it
            found = f"exception: {error!r}"
        signal.setitimer(signal.ITIMER_PROF, 0)
        if found is not None:
            return Hunt(tried, seed, found[:MAX_SHOWN])
    return Hunt(tried, None, None)


def _stuck(number: int, frame: FrameType | None) -> NoReturn:
    raise Stuck


def main() -> int:
    """The command."""
    import pidkeeper.controller.raft.core

    used = Path(pidkeeper.controller.raft.core.__file__)
    assert used.is_relative_to(Path.cwd()), f"this would test {used} instead of the code in {Path.cwd()}"
    gc.collect()
    gc.freeze()  # each seed collects garbage, and need not look again at what was imported
    run: Run = simulate if sys.argv[1] == "simulation" else run_history
    result = hunt(run, int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]))
    print(msgspec.json.encode(result).decode())
    return 0


if __name__ == "__main__":
    sys.exit(main())
