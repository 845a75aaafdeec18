"""Whether groups copied each record once, and went on from what they had committed.

`FINAL_COPIES` is what the copiers have made when all was over, of what committed readers saw of the source then. What a
group has committed is known by what its members were told.
"""

from __future__ import annotations

import bisect
from collections import Counter, defaultdict
from collections.abc import Iterable
from itertools import accumulate, pairwise
from typing import NamedTuple

from tests.chaos.broken import Rules, none_of
from tests.chaos.load.groups_process import REFUSALS
from tests.chaos.load.journal import Entry, Outcome
from tests.chaos.load.kinds import COMMIT, FINAL_COPIES, FINAL_READ, FOUND
from tests.chaos.load.records_process import COMMITTED
from tests.chaos.records import Final


class Facts(NamedTuple):
    """What was found. `commits_refused`: those of members that could not commit any more."""

    copies_checked: int = 0
    copies_lost: int = 0
    copies_doubled: int = 0
    copies_reordered: int = 0
    commits_checked: int = 0
    commits_refused: int = 0
    commits_lost: int = 0
    commits_of_zombies: int = 0
    violations: tuple[str, ...] = ()


class GroupsCheck:
    """All checks of one run's groups, whatever the others find. `entries`: of all kinds."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        by_kind: dict[str, list[Entry]] = defaultdict(list)
        for entry in entries:
            if entry.kind in {FOUND, COMMIT, FINAL_COPIES} or _is_source(entry):
                by_kind[entry.kind].append(entry)
        self._commits, self._finds = by_kind[COMMIT], [one for one in by_kind[FOUND] if one.outcome is Outcome.OK]
        source, copies = Final(by_kind[FINAL_READ]), Final(by_kind[FINAL_COPIES])
        self._unread = {*copies.unread}
        self._were_read = bool(by_kind[FINAL_COPIES])
        self._source = _by_partition(source, {*source.unread} | self._unread)
        self._copies = _by_partition(copies, {*source.unread} | self._unread)
        self._rules = Rules()

    def facts(self) -> Facts:
        """What was found."""
        if not self._commits and not self._were_read:
            return Facts()
        count = self._rules.count
        for check in (self._not_read, self._foreign_copies, self._foreign_offsets):
            count(check)
        return Facts(
            copies_checked=sum(map(len, self._copies.values())),
            copies_lost=count(self._copies_lost) if self._were_read else 0,
            copies_doubled=count(self._copies_doubled),
            copies_reordered=count(self._copies_reordered),
            commits_checked=len(self._taken()),
            commits_refused=sum(one.code in REFUSALS for one in self._commits),
            commits_lost=count(self._commits_lost),
            commits_of_zombies=count(self._commits_of_zombies),
            violations=tuple(self._rules.violations),
        )

    # What copiers made.

    def _not_read(self) -> int:
        missing = [f"partition {one}" for one in sorted(self._unread)]
        return none_of(
            missing if self._were_read else ["nobody has read the copies when all was over"], "copies-unread"
        )

    def _copies_lost(self) -> int:
        """Whatever there is to read was copied."""
        lost = [
            f"{value} of partition {partition}"
            for partition, values in self._source.items()
            for value in sorted({*values} - {*self._copies[partition]})
        ]
        return none_of(lost, "copy-lost")

    def _copies_doubled(self) -> int:
        twice = [
            f"{value} of partition {partition}, {times} times"
            for partition, values in self._copies.items()
            for value, times in Counter(values).items()
            if times > 1
        ]
        return none_of(twice, "copy-doubled")

    def _copies_reordered(self) -> int:
        """The copies of a partition are in the order of what was copied."""
        wrong = []
        for partition, values in self._copies.items():
            places = {value: place for place, value in enumerate(self._source[partition])}
            known = [value for value in values if value in places]
            wrong += [f"{other} is behind {one}" for one, other in pairwise(known) if places[other] < places[one]]
        return none_of(wrong, "copy-reordered")

    def _foreign_copies(self) -> int:
        """There is no copy of anything else."""
        foreign = [
            f"{value} of partition {partition}"
            for partition, values in self._copies.items()
            for value in sorted({*values} - {*self._source[partition]})
        ]
        return none_of(foreign, "copy-foreign")

    # What groups committed.

    def _commits_lost(self) -> int:
        """Whoever asks is told of what had been committed before, or of more."""
        told: dict[tuple[str, int], list[tuple[int, int]]] = defaultdict(list)
        for commit in self._taken():
            for partition, offset in commit.arguments["offsets"]:
                told[commit.arguments["group"], partition].append((commit.returned or 0, offset))
        committed = {key: Highest(found) for key, found in told.items()}
        lost = []
        for one in self._finds:
            for partition, offset in one.result["offsets"]:
                highest = committed.get((one.arguments["group"], partition), Highest(())).before(one.invoked)
                if offset < highest:
                    lost.append(f"{one.actor} found {partition}:{offset}, and {highest} had been committed")
        return none_of(lost, "commit-lost")

    def _foreign_offsets(self) -> int:
        """Nobody is told of what nobody committed."""
        known = {
            (one.arguments["group"], partition, offset)
            for one in self._commits
            if one.outcome is not Outcome.REFUSED
            for partition, offset in one.arguments["offsets"]
        }
        foreign = [
            f"{one.actor} found {partition}:{offset}"
            for one in self._finds
            for partition, offset in one.result["offsets"]
            if offset and (one.arguments["group"], partition, offset) not in known
        ]
        return none_of(foreign, "offset-foreign")

    def _commits_of_zombies(self) -> int:
        """Nobody commits for a generation when a member of a later one has been told what is committed."""
        told: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for one in self._finds:
            told[one.arguments["group"]].append((one.returned or 0, one.arguments["generation"]))
        generations = {group: Highest(found) for group, found in told.items()}
        zombies = []
        for commit in self._taken():
            newest = generations.get(commit.arguments["group"], Highest(())).before(commit.invoked)
            if commit.arguments["generation"] < newest:
                zombies.append(f"{commit.actor} committed {commit.arguments}, and generation {newest} had begun")
        return none_of(zombies, "zombie-commit")

    def _taken(self) -> list[Entry]:
        return [one for one in self._commits if one.outcome is Outcome.OK]


class Highest:
    """The highest of numbers, each of which was told at some time; 0 before the first."""

    def __init__(self, told: Iterable[tuple[int, int]]) -> None:
        ordered = sorted(told)
        self._times = [time for time, _ in ordered]
        self._highest = [*accumulate((number for _, number in ordered), max)]

    def before(self, time: int) -> int:
        """Of those that were told before."""
        place = bisect.bisect_left(self._times, time)
        return self._highest[place - 1] if place else 0


def _is_source(entry: Entry) -> bool:
    return entry.kind == FINAL_READ and entry.arguments["isolation"] == COMMITTED


def _by_partition(final: Final, without: set[int]) -> defaultdict[int, list[str]]:
    """The values in their order."""
    found: defaultdict[int, list[str]] = defaultdict(list)
    for place in sorted(final.values):
        if place.partition not in without:
            found[place.partition].append(final.values[place])
    return found
