"""All that both isolation levels see of a topic, and whether a restored one has what a backup holds of it."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from confluent_kafka import Producer

from tests.chaos.load.crew import RECORDS, RECORDS_LIBRARY
from tests.chaos.load.journal import Entry, Outcome, entries
from tests.chaos.load.kafka_process import Spec
from tests.chaos.load.kinds import FINAL_READ, TRANSACTION, WRITE
from tests.chaos.load.records_process import COMMITTED, PARTITIONS, UNCOMMITTED, Reader
from tests.chaos.records import Final as FinalRead

SETTLE_SECONDS: Final = 60.0
"""For a transaction to be ended."""


class Reading(NamedTuple):
    """What both isolation levels see, from the first offset to the last."""

    everything: FinalRead
    committed: FinalRead


def reading_of(told: Iterable[Entry]) -> Reading:
    """Of the last reads of a journal."""
    finals = [entry for entry in told if entry.kind == FINAL_READ]
    by_level = (
        FinalRead(one for one in finals if one.arguments["isolation"] == level) for level in (UNCOMMITTED, COMMITTED)
    )
    return Reading(*by_level)


def read(bootstrap: str, topic: str, folder: Path) -> Reading:
    """Read a topic now, in whose logs no transaction is open any more: its producer is replaced. `folder`: a new one.

    Raises AssertionError if it cannot be read to its end.
    """
    settle(bootstrap)
    spec = Spec(RECORDS, str(folder), RECORDS_LIBRARY, bootstrap, [], topic=topic)
    for level in (UNCOMMITTED, COMMITTED):
        reader = Reader(spec, level, threading.Event())
        with reader.journal:
            reader.read_all()
    found = reading_of(entries(folder))
    unread = [*found.everything.unread, *found.committed.unread]
    assert not unread, f"partitions {unread} of {topic} cannot be read to their ends"
    return found


def settle(bootstrap: str) -> None:
    """End the transaction that the transactional producer may have left open."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"{RECORDS}-transactor", "log_level": 0})
    producer.init_transactions(SETTLE_SECONDS)


class Held(NamedTuple):
    """What a backup holds of a topic. `ends`: of each partition, the offset at which its log ended; none if that is not
    known. `values`: those that were acknowledged before it was taken."""

    ends: dict[int, int]
    values: frozenset[str]


def acknowledged(told: Iterable[Entry]) -> frozenset[str]:
    """Values that have to be seen by all, as far as producers were told by now."""
    values: set[str] = set()
    for entry in told:
        if entry.outcome is Outcome.OK and entry.kind == WRITE:
            values.add(entry.arguments["value"])
        elif entry.outcome is Outcome.OK and entry.kind == TRANSACTION and entry.result["committed"]:
            values.update(value for _, value in entry.arguments["records"])
    return frozenset(values)


def differs(before: Reading, after: Reading, held: Held, transactions: list[list[str]]) -> Iterator[str]:
    """What a restored topic lacks of a backup, has beside it, or has elsewhere than before, in words."""
    for number in range(PARTITIONS):
        there = {place: value for place, value in after.everything.values.items() if place.partition == number}
        end = held.ends.get(number, max((place.offset for place in there), default=-1) + 1)
        wanted = {
            place: value
            for place, value in before.everything.values.items()
            if place.partition == number and place.offset < end
        }
        if there != wanted:
            places = sorted(there.items() ^ wanted.items())
            yield f"partition {number}, which the backup has up to {end}, differs at {places[:3]}"
    visible = after.committed.values
    if odd := [place for place in visible if before.committed.values.get(place) != visible[place]]:
        yield f"what is seen at {odd[0]} was not committed before"
    if lost := sorted(held.values - set(visible.values())):
        yield f"{lost[0]} was acknowledged before the backup was taken, and is gone; {len(lost)} in all"
    yield from _torn(after, transactions)


def _torn(after: Reading, transactions: list[list[str]]) -> Iterator[str]:
    for values in transactions:
        seen = [value for value in values if value in after.committed.places]
        if seen and len(seen) < len(values):
            yield f"{len(seen)} of the records of the transaction {values} are seen"
    alone = set(after.everything.places) - {value for values in transactions for value in values}
    if hidden := sorted(alone - set(after.committed.places)):
        yield f"{hidden[0]}, which is of no transaction, is hidden"
