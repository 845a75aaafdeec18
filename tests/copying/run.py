"""`make copies`: Kafka's system test of KIP-447, COUNT courses at Kafka's broker and then at agents; zombies at both.

At agents the courses of zombies are also run with bugs that are planted in the quorum, and have to be found.
"""

from __future__ import annotations

import argparse
import itertools
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from tests.copying import zombies
from tests.copying.course import Copied, Course, Size
from tests.copying.zombies import Zombie
from tests.crash.run import exit_on_sigterm
from tests.support.kafka_broker import why_unavailable
from tests.witnesses import places

PLACES: Final = {"kafka": places.kafka, "pidkeeper": places.ours}
ZOMBIES: Final = {"kafka": zombies.kafka, "pidkeeper": zombies.ours}
PLANTED: Final = {"kafka": (False,), "pidkeeper": (False, True)}
"""Whether there are bugs."""

COUNT: Final = 10
OUTPUT: Final = Path("build/copies.json")
LOGS: Final = Path("build/copies")
"""What copiers print, of the last run."""


class Copies(msgspec.Struct):
    """What came of all courses at one place."""

    courses: list[Copied] = []
    zombies: list[Zombie] = []

    @property
    def as_expected(self) -> bool:
        return not any(one.wrong for one in self.courses) and all(one.as_expected for one in self.zombies)


def main() -> int:
    """Run from the command line; the exit code: 0 if each message was copied once, and each planted bug found; 1 if
    not, 2 if nothing could run."""
    exit_on_sigterm()
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--at", choices=PLACES, help="one of the two alone")
    parser.add_argument("--count", type=int, default=COUNT, help="courses at each")
    parser.add_argument("--seed", type=int, help="of the first; the time by default")
    options = parser.parse_args()
    if (reason := why_unavailable()) is not None:
        print(reason, file=sys.stderr)
        return 2
    first = int(time.time()) if options.seed is None else options.seed
    copies = {name: Copies() for name in ([options.at] if options.at else PLACES)}
    OUTPUT.parent.mkdir(exist_ok=True)
    for name, ones in copies.items():
        for _ in _run(name, ones, range(first, first + options.count)):
            # After each: whatever ends a run, what came before it is known.
            OUTPUT.write_bytes(msgspec.json.format(msgspec.json.encode(copies)))
        print(f"{name}: {_summary(ones.courses)}", flush=True)
    return 0 if all(ones.as_expected for ones in copies.values()) else 1


def _run(name: str, copies: Copies, seeds: range) -> Iterator[None]:
    """All courses at one place, each told of when it is over."""
    for copied in _copy(name, seeds):
        copies.courses.append(copied)
        _print(f"{name}, seed {copied.seed}", copied)
        yield
    for planted, late in itertools.product(PLANTED[name], zombies.LATE):
        with tempfile.TemporaryDirectory(prefix="pidkeeper-zombie-") as directory:
            copies.zombies.append(zombies.zombie(ZOMBIES[name], late, Path(directory), planted=planted))
        one = copies.zombies[-1]
        bug = f"with {one.planted}, " if one.planted else ""
        _print(f"{name}, a zombie sends {late.name}, {bug}{'' if one.as_expected else 'NOT '}as expected", one.copied)
        yield


def _copy(name: str, seeds: range) -> Iterator[Copied]:
    """Courses at one place: those that follow one in which something was wrong too."""
    logs = LOGS / name
    shutil.rmtree(logs, ignore_errors=True)
    logs.mkdir(parents=True)
    with tempfile.TemporaryDirectory(prefix="pidkeeper-copies-") as directory, PLACES[name](Path(directory)) as place:
        for seed in seeds:
            copied = Course(place, seed, Size(), logs).copied()
            yield copied
            if copied.wrong:
                place.mend()


def _print(title: str, one: Copied) -> None:
    # The file has all of it, which may be the end of a log.
    told = "; ".join(each.partition("\n")[0] for each in one.wrong) or "each once and in order"
    print(f"{title}, {one.seconds:g} s: {one.messages} messages, {told}", flush=True)
    print(f"    {_transactions([one])}, {one.starts} starts; {', '.join(one.faults) or 'no faults'}", flush=True)


def _summary(copied: list[Copied]) -> str:
    return (
        f"{len(copied)} courses, {sum(bool(one.wrong) for one in copied)} of them wrong; "
        f"{sum(one.messages for one in copied)} messages, {_transactions(copied)}, "
        f"{sum(len(one.faults) for one in copied)} faults, {sum(one.starts for one in copied)} starts of copiers, "
        f"{sum(one.seconds for one in copied):.0f} s"
    )


def _transactions(copied: list[Copied]) -> str:
    """How they ended, and how many copies were withdrawn with them."""
    ended = [one.transactions for one in copied]
    refused: Counter[str] = Counter()
    for one in ended:
        refused.update(one.refused)
    causes = "".join(f", {number} by {cause}" for cause, number in refused.most_common())
    return (
        f"{sum(one.committed for one in ended)} transactions committed, {sum(one.chosen for one in ended)} aborted "
        f"by choice{causes}, {sum(one.left for one in ended)} left open; "
        f"{sum(one.withdrawn or 0 for one in copied)} copies withdrawn"
    )


if __name__ == "__main__":
    sys.exit(main())
