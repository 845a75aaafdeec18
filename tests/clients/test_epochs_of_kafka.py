"""Transactions of KIP-890 are answered as by a real Kafka broker: call by call, in each state, and as seeds draw it."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Final

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.support.cluster import running_cluster
from tests.support.kafka_broker import KafkaBroker, why_unavailable
from tests.support.transactional_wire import NO_PAIR, SECONDS, Pair, Told, TransactionalWire

SEEDS: Final = 8
STEPS: Final = 40
TOPIC: Final = "t"
GROUP: Final = "g"
UNKNOWN_ID: Final = 1_000_000
"""Above all that a test is given."""

Call = Callable[[TransactionalWire, Pair], Told]

CALLS: Final[dict[str, Call]] = {
    "init": lambda wire, pair: wire.init(pair),
    "commit": lambda wire, pair: wire.end(pair, committed=True),
    "abort": lambda wire, pair: wire.end(pair, committed=False),
    "commit4": lambda wire, pair: wire.end(pair, committed=True, version=4),
    "abort4": lambda wire, pair: wire.end(pair, committed=False, version=4),
    "write": lambda wire, pair: wire.produce(pair),
    "elsewhere": lambda wire, pair: wire.produce(pair, partition=1),
    "write11": lambda wire, pair: wire.produce(pair, version=11),
    "gap": lambda wire, pair: wire.produce(pair, skipped=1),
    "add": lambda wire, pair: wire.add(pair),
    "offsets": lambda wire, pair: wire.offsets(pair, GROUP),
    "offsets4": lambda wire, pair: wire.offsets(pair, GROUP, version=4),
    "offsets3": lambda wire, pair: wire.offsets(pair, GROUP, version=3),
}

SCRIPTS: Final = {
    "nothing is committed, and nothing aborted": "init commit abort abort@-1 abort@-1 commit@-1 abort abort@-1",
    "a commit is asked for again": "init write commit commit@-1 abort@-1 commit abort abort@-1 commit@-1",
    "an abort is asked for again": "init write abort abort@-1 commit@-1 commit abort abort@-1",
    "late, once the next has begun": "init write commit write commit@-1 abort@-1 write@-1 offsets@-1 write commit",
    "late after an abort": "init offsets abort write abort@-1 commit@-1 offsets@-1 offsets commit",
    "late where it has not written yet": "init write commit elsewhere@-1 write elsewhere@-1 elsewhere commit@-1 commit",
    "two transactions late": "init write commit write commit write@-2 offsets@-2 commit@-2 abort@-2 init@-2 add@-2",
    "an epoch above any": "init commit@+1 abort@+1 write@+1 write commit@+1 write@+1 offsets@+1 commit",
    "an ID that nobody has": "init commit@? write@? offsets@? add@? write commit@? abort@? write@? offsets@? init@?",
    "a batch is missing": "init gap gap write gap write commit gap write write commit",
    "a group joins": "init offsets write offsets commit offsets@-1 offsets abort commit@-1",
    "partitions are added beside": "init add write elsewhere commit add@-1 add write elsewhere abort add commit",
    "versions below join nothing": "init write11 offsets4 offsets3 write write11 commit write11 offsets4 abort",
    "version 4 keeps the pair": "init add write commit4 commit4 commit write commit commit4 abort4 commit4@-1",
    "version 4 aborts": "init add abort4 abort4 abort abort@-1 add abort4 write commit",
    "initialised again": "init init write@-1 commit@-1 write commit init init@-1 init@0 init@-1 write commit",
    "initialised again with its pair": "init write commit init@0 init@-1 init@-1 commit write@-1 write init@-1",
    "the answer of its end was lost": "init write commit init@-1 write commit",
    "initialised in the midst": "init write init@0 commit write@-1 write commit",
    "fenced by another instance": "init write init commit@-1 abort@-1 write@-1 offsets@-1 commit write commit",
}
"""Calls, by the newest pair that was given: @-1 is by the one before, @+1 by a newer epoch, @? by another ID. Without
one, InitProducerId names none."""

ENDS: Final = frozenset({"commit", "abort", "commit4", "abort4"})

DIFFERENCES: Final = {
    # A broker of Kafka aborts the transaction under way before it looks at the epoch: whoever is late ends what it
    # must not touch.
    "initialised late": ("init write commit write init@-1 commit", "0/0 0 0/1 0 90 48", "0/0 0 0/1 0 90 0/2"),
    # A broker of Kafka takes for the pair before whatever is one epoch lower, and finds the same outcome.
    "version 4, and then the pair before": ("init init add abort4 abort@-1", "0/0 0/1 0 0 0/1", "0/0 0/1 0 0 90"),
    # Where nothing was aborted the id is Empty here, and there is nothing for version 4 to abort again.
    "version 4 where nothing was aborted": ("init abort abort4", "0/0 0/1 0", "0/0 0/1 48"),
    # A batch that is refused has joined nothing here.
    "a batch is missing, and nothing came": ("init gap commit", "0/0 45 0/1", "0/0 45 48"),
    # The pair is that of the producer that asked for the next one. Nothing is changed.
    "late after it was initialised": ("init init@0 commit@-1 abort@-1", "0/0 0/1 90 90", "0/0 0/1 48 0/1"),
}
"""What is said otherwise: calls, what Kafka says to them, and what is said here."""


@pytest.fixture(scope="module")
def bootstraps(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """A broker of Kafka, and an agent."""
    if (reason := why_unavailable()) is not None:
        pytest.skip(reason)
    broker = KafkaBroker(tmp_path_factory.mktemp("kafka"))
    try:
        broker.start()
        with running_cluster(tmp_path_factory.mktemp("epochs"), agents=1, data=True) as cluster:
            both = broker.bootstrap, cluster.layout.agents[0].kafka
            for one in both:
                admin = AdminClient({"bootstrap.servers": one, "log_level": 0})
                admin.create_topics([NewTopic(TOPIC, 2, 1)])[TOPIC].result(SECONDS)
                with closing(TransactionalWire(one, GROUP, TOPIC)) as wire:
                    wire.find_coordinators()
            yield both
    finally:
        broker.close()


@pytest.mark.parametrize("script", SCRIPTS)
def test_the_same_is_said(bootstraps: tuple[str, str], script: str) -> None:
    both = [closing(Producer(one, script)) for one in bootstraps]
    with both[0] as kafka, both[1] as ours:
        for call in SCRIPTS[script].split():
            assert ours.say(call) == kafka.say(call), call


@pytest.mark.parametrize("seed", range(SEEDS))
def test_the_same_is_said_to_calls_that_are_drawn(bootstraps: tuple[str, str], seed: int) -> None:
    rng = random.Random(seed)
    both = [closing(Producer(one, f"seed-{seed}")) for one in bootstraps]
    with both[0] as kafka, both[1] as ours:
        course = ["init"]
        for _ in range(STEPS):
            assert ours.say(course[-1]) == kafka.say(course[-1]), course
            course.append(next(call for call in iter(lambda: _drawn(rng), "") if not ours.is_said_otherwise(call)))


@pytest.mark.parametrize("difference", DIFFERENCES)
def test_something_else_is_said_and_we_know_why(bootstraps: tuple[str, str], difference: str) -> None:
    calls, *expected = DIFFERENCES[difference]
    said = []
    for one in bootstraps:
        with closing(Producer(one, difference)) as producer:
            said.append(" ".join(producer.say(call) for call in calls.split()))
    assert said == expected


class Producer:
    """One that makes calls by their names."""

    def __init__(self, bootstrap: str, transactional_id: str) -> None:
        self._wire = TransactionalWire(bootstrap, transactional_id, TOPIC)
        self._writes = self._initialised = False
        self.close = self._wire.close

    def say(self, call: str) -> str:
        """The code, and which of the pairs that it was given it is told, if it is."""
        what, _, by = call.partition("@")
        pair = self._pair(by) if by or what != "init" else NO_PAIR
        told = CALLS[what](self._wire, pair)
        if told.code == 0:
            self._writes, self._initialised = what not in ENDS and what != "init", what == "init"
            # Until then a broker of Kafka writes markers, and takes what it takes no more afterwards.
            assert what not in ENDS or CALLS[what](self._wire, pair) == told
        return f"{told.code}" if told.pair == NO_PAIR else f"{told.code}/{self._wire.pairs.index(told.pair)}"

    def is_said_otherwise(self, call: str) -> bool:
        """Whether that is one of DIFFERENCES."""
        what, _, by = call.partition("@")
        return by.startswith("-") and (self._writes if what == "init" else self._initialised and what in ENDS)

    def _pair(self, by: str) -> Pair:
        pairs = self._wire.pairs
        if by == "?":
            return pairs[-1][0] + UNKNOWN_ID, 0
        if by == "+1":
            return pairs[-1][0], pairs[-1][1] + 1
        return pairs[max(0, len(pairs) - 1 + int(by or 0))]


def _drawn(rng: random.Random) -> str:
    # Clients end a producer's transactions by one version: what comes of two is in the scripts.
    return (
        rng.choice([one for one in CALLS if one not in {"commit4", "abort4", "gap"}])
        + rng.choices(["", "@-1", "@-2"], [7, 2, 1])[0]
    )
