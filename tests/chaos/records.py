"""Whether records that were acknowledged are in their logs: once, in order, and transactions as a whole.

`FINAL_READ` is what was there when all was over; what producers were told and what consumers saw before goes with it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from tests.chaos.broken import Rules, none_of
from tests.chaos.load.journal import Entry, Outcome
from tests.chaos.load.kinds import FINAL_READ, READ, TRANSACTION, WRITE
from tests.chaos.load.records_process import COMMITTED, UNCOMMITTED


class Place(NamedTuple):
    """Of a record."""

    partition: int
    offset: int


class Facts(NamedTuple):
    """What was found. `violations`: in words, of each rule the first."""

    records_checked: int = 0
    transactions_checked: int = 0
    records_lost: int = 0
    records_doubled: int = 0
    records_reordered: int = 0
    transactions_torn: int = 0
    violations: tuple[str, ...] = ()


class Final:
    """What one isolation level sees in the end: the value at each place, and the places of each value."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        self.values: dict[Place, str] = {}
        self.places: dict[str, list[Place]] = defaultdict(list)
        self.unread: list[int] = []
        for entry in entries:
            if entry.outcome is not Outcome.OK:
                self.unread.append(entry.arguments["partition"])
            for place, value in _records(entry):
                self.values[place] = value
                self.places[value].append(place)

    @property
    def doubled(self) -> list[str]:
        """Values that are there more than once."""
        return [value for value, places in self.places.items() if len(places) > 1]


class RecordsCheck:
    """All checks of one run's records, whatever the others find. `entries`: of all kinds."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        by_kind: dict[str, list[Entry]] = defaultdict(list)
        for entry in entries:
            if entry.kind in {WRITE, TRANSACTION, READ, FINAL_READ}:
                by_kind[entry.kind].append(entry)
        self._writes, self._transactions = by_kind[WRITE], by_kind[TRANSACTION]
        self._reads = by_kind[READ]
        self._all, self._committed = (
            Final(one for one in by_kind[FINAL_READ] if one.arguments["isolation"] == isolation)
            for isolation in (UNCOMMITTED, COMMITTED)
        )
        self._read_in_the_end = bool(by_kind[FINAL_READ])
        self._unreadable = {*self._all.unread, *self._committed.unread}
        self._sent = Counter(value for value, _ in self._wanted())
        self._rules = Rules()

    def facts(self) -> Facts:
        """What was found."""
        if not self._sent:
            return Facts()
        if not self._read_in_the_end:
            return Facts(len(self._sent), violations=("unread: nobody has read the records when all was over",))
        checks = (self._lost, self._doubled, self._reordered, self._torn)
        lost, doubled, reordered, torn = map(self._rules.count, checks)
        for check in (self._unread, self._foreign, self._differing):
            self._rules.count(check)
        told = tuple(self._rules.violations)
        return Facts(len(self._sent), len(self._transactions), lost, doubled, reordered, torn, told)

    def _wanted(self) -> Iterator[tuple[str, int]]:
        """Each value that was sent, and its partition."""
        for entry in self._writes:
            yield entry.arguments["value"], entry.arguments["partition"]
        for entry in self._transactions:
            for partition, value in entry.arguments["records"]:
                yield value, partition

    def _acknowledged(self) -> Iterator[tuple[str, int, int | None]]:
        """Each value that has to be seen by all, its partition, and its offset if that was told."""
        for entry in self._writes:
            if entry.outcome is Outcome.OK:
                yield entry.arguments["value"], entry.arguments["partition"], entry.result["offset"]
        for entry in self._transactions:
            if entry.outcome is Outcome.OK and entry.result["committed"]:
                for partition, value in entry.arguments["records"]:
                    yield value, partition, None

    def _lost(self) -> int:
        """Whatever was acknowledged is where it was said to be, to both isolation levels."""
        lost = []
        for value, partition, offset in self._acknowledged():
            if partition in self._unreadable:
                continue
            for final in (self._all, self._committed):
                places = final.places.get(value, [])
                if not any(place.partition == partition and offset in {None, place.offset} for place in places):
                    lost.append(f"{value} was acknowledged at {partition}:{offset}, and is at {places}")
                    break
        return none_of(lost, "record-lost")

    def _doubled(self) -> int:
        return none_of(sorted({*self._all.doubled, *self._committed.doubled}), "record-doubled")

    def _reordered(self) -> int:
        """The records of one producer are in the order in which they were sent, partition by partition."""
        newest: dict[tuple[str, int], int] = {}
        wrong = []
        for place in sorted(self._all.values):
            producer, _, sequence = self._all.values[place].rpartition(".")
            key = producer, place.partition
            if (before := newest.get(key, -1)) > int(sequence):
                wrong.append(f"{producer}.{sequence} is at {place}, behind {before}")
            newest[key] = max(before, int(sequence))
        return none_of(wrong, "record-reordered")

    def _torn(self) -> int:
        """Committed readers see all of a transaction or nothing, and nothing of one that was aborted."""
        torn = []
        for entry in self._transactions:
            if any(partition in self._unreadable for partition, _ in entry.arguments["records"]):
                continue
            values = [value for _, value in entry.arguments["records"]]
            seen = sum(value in self._committed.places for value in values)
            aborted = entry.outcome is Outcome.OK and not entry.result["committed"]
            if seen not in {0, len(values)} or (aborted and seen):
                torn.append(f"{seen} of the {len(values)} records of {values} are there; aborted: {aborted}")
        return none_of(torn, "transaction-torn")

    def _unread(self) -> int:
        return none_of([f"partition {one}" for one in sorted(self._unreadable)], "unread")

    def _foreign(self) -> int:
        """There is nothing that nobody sent, and nothing is hidden from those who read everything."""
        foreign = [value for value in self._all.values.values() if value not in self._sent]
        hidden = [value for place, value in self._committed.values.items() if self._all.values.get(place) != value]
        return none_of(foreign + hidden, "record-foreign")

    def _differing(self) -> int:
        """What a consumer saw meanwhile is what is there in the end, and each went forward."""
        finals = {UNCOMMITTED: self._all, COMMITTED: self._committed}
        newest: dict[tuple[str, int], int] = {}
        wrong = []
        for entry in self._reads:
            if entry.arguments["partition"] in self._unreadable:
                continue
            final = finals[entry.arguments["isolation"]]
            for place, value in _records(entry):
                key = entry.actor, place.partition
                if final.values.get(place) != value or newest.get(key, -1) >= place.offset:
                    wrong.append(f"{entry.actor} saw {value} at {place}, where {final.values.get(place)} is")
                newest[key] = place.offset
        return none_of(wrong, "read-differs")


def _records(entry: Entry) -> Iterator[tuple[Place, str]]:
    for offset, value in entry.result.get("records", ()):
        yield Place(entry.arguments["partition"], offset), value
