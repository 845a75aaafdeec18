"""Groups of four libraries go on while agents and the leader are killed and members come and go.

Nothing that was written is passed over. Whoever is assigned a partition goes on where the group was told to have
committed, or behind. And no group hangs: members are known to the agent that coordinates next, and one that left while
nobody coordinated is waited for until its session ends.
"""

from __future__ import annotations

import gc
import itertools
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Final

import confluent_kafka
import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from pidkeeper.cli.local_cluster import LocalCluster
from tests.clients.group_members import SESSION_MS, Aiokafka, Confluent, Java, Joined, KafkaPython, Member
from tests.clients.java_witness import java_process, why_no_java
from tests.clients.record_witnesses import SECONDS
from tests.support.cluster import restart_leader, running_cluster, wait_until

TOPIC: Final = "t"
PARTITIONS: Final = 6
PACE_SECONDS: Final = 0.01
CALM_SECONDS: Final = 1.5
"""Between two faults: groups come together."""

STUCK_SECONDS: Final = SESSION_MS / 1000 + 20.0
"""A group that consumes nothing for so long, of what is written all the while, hangs: it may wait for the end of the
session of a member that left unheard, and comes together after it."""


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with running_cluster(
        tmp_path_factory.mktemp("groups"),
        agents=2,
        controller_options={"broker_session_timeout_ms": 2000},
        agent_options={"heartbeat_interval_ms": 200, "groups": {"initial_rebalance_delay_ms": 100}},
        data=True,
    ) as one:
        yield one


class Group:
    """`read`: offsets by partition. `acked`: what it was told to have committed, of each partition the highest.

    `wrong`: where a member did not go on as it should. `longest_pause`: seconds between two times that records came.
    """

    def __init__(self, name: str, joined: Joined, bootstrap: str) -> None:
        self.name = name
        self.read: defaultdict[int, set[int]] = defaultdict(set)
        self.acked: dict[int, int] = {}
        self.wrong: list[str] = []
        self.longest_pause = 0.0
        self._join = partial(joined, bootstrap, name, TOPIC)
        self._seen = time.monotonic()
        self._lock = threading.Lock()
        self._leaving: list[threading.Event] = []
        self._running: list[Future[None]] = []

    def add(self, pool: ThreadPoolExecutor) -> None:
        """One more member."""
        self._leaving.append(threading.Event())
        self._running.append(pool.submit(self._consume, self._leaving[-1]))

    def first_leaves(self) -> None:
        self._leaving[0].set()

    def all_leave(self) -> None:
        for one in self._leaving:
            one.set()

    def check(self) -> None:
        """Raises what a member raised that has ended."""
        for running in self._running:
            if running.done():
                running.result()

    def has_read_all(self, counts: list[int]) -> bool:
        """And committed it. Raises what a member raised that has ended."""
        self.check()
        ends = dict(enumerate(counts))
        with self._lock:
            return {one: len(offsets) for one, offsets in self.read.items()} == ends and self.acked == ends

    def _consume(self, leaving: threading.Event) -> None:
        with closing(self._join()) as member:
            floors: dict[int, int] = {}
            while not leaving.is_set():
                self._step(member, floors)

    def _step(self, member: Member, floors: dict[int, int]) -> None:
        assigned, records = member.poll()
        with self._lock:
            # Nobody but this member commits these from here on.
            floors |= {one: self.acked.get(one, 0) for one in assigned}
            for partition, offset in records:
                self._note(partition, offset, floors)
        offsets = {partition: offset + 1 for partition, offset in records}
        if offsets and member.commit(offsets):
            with self._lock:
                for partition, offset in offsets.items():
                    self.acked[partition] = max(offset, self.acked.get(partition, 0))

    def _note(self, partition: int, offset: int, floors: dict[int, int]) -> None:
        now = time.monotonic()
        self.longest_pause = max(self.longest_pause, now - self._seen)
        self._seen = now
        self.read[partition].add(offset)
        if offset < floors.get(partition, 0):
            self.wrong.append(f"{partition} at {offset}, and {floors[partition]} was committed when it was assigned")


def write(bootstrap: str, stop: threading.Event) -> list[int]:
    """Until told to stop, one record after the other. How many each partition has in the end."""
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "log_level": 0})
    counts = [0] * PARTITIONS
    for number in itertools.count():
        if stop.wait(PACE_SECONDS):
            break
        producer.produce(TOPIC, b"x", partition=number % PARTITIONS)
        counts[number % PARTITIONS] += 1
        producer.poll(0)
    assert producer.flush(2 * SECONDS) == 0
    return counts


def harm(cluster: LocalCluster, come: Callable[[], None], go: Callable[[], None]) -> None:
    """Kill the agents and the leader, one after the other, while members `come` and `go`. All run again at the end."""
    first, second = cluster.layout.agents
    for agent, change in ((first, come), (second, go)):
        time.sleep(CALM_SECONDS)
        cluster.kill(agent)
        change()
        cluster.start(agent)
        cluster.wait_ready(agent)
    time.sleep(CALM_SECONDS)
    restart_leader(cluster)
    time.sleep(CALM_SECONDS)


def kinds(java: Joined | None) -> dict[str, Joined]:
    """Groups by what their members are."""
    numbers = itertools.count()

    def static(bootstrap: str, group: str, topic: str) -> Member:
        settings = {"partition.assignment.strategy": "range", "group.instance.id": f"member-{next(numbers)}"}
        return Confluent(settings, bootstrap, group, topic)

    return {
        "eager": partial(Confluent, {"partition.assignment.strategy": "range"}),
        "cooperative": partial(Confluent, {"partition.assignment.strategy": "cooperative-sticky"}),
        "static": static,
        "aiokafka": Aiokafka,
        "kafka-python": KafkaPython,
        **({} if java is None else {"java": java}),
    }


@pytest.fixture
def java(tmp_path: Path) -> Iterator[Joined | None]:
    """None where there is no Java client."""
    if why_no_java() is not None:
        yield None
        return
    with java_process(tmp_path, "GroupWitness") as process:
        yield partial(Java, process)


# Sockets of kafka-python that could not connect are left to the garbage collector: it comes here, and not later.
@pytest.mark.timeout(300)
@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
def test_groups_go_on_from_where_they_committed(cluster: LocalCluster, java: Joined | None) -> None:
    bootstrap = ",".join(agent.kafka for agent in cluster.layout.agents)
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(SECONDS)
    groups = [Group(name, joined, bootstrap) for name, joined in kinds(java).items()]
    written = threading.Event()
    with ThreadPoolExecutor(64) as pool:
        source = pool.submit(write, bootstrap, written)
        try:
            for group in groups * 2:
                group.add(pool)
            harm(cluster, partial(_each, lambda one: one.add(pool), groups), partial(_each, Group.first_leaves, groups))
            written.set()
            counts = source.result(2 * SECONDS)
            for group in groups:
                wait_until(partial(group.has_read_all, counts), f"that {group.name} reads all {counts}")
        finally:
            written.set()
            _each(Group.all_leave, groups)
    _each(Group.check, groups)
    gc.collect()
    for group in groups:
        assert group.wrong == [], group.name
        assert group.longest_pause < STUCK_SECONDS, group.name
        assert _committed(admin, group.name) == counts, group.name


def _each(change: Callable[[Group], None], groups: list[Group]) -> None:
    for group in groups:
        change(group)


def _committed(admin: AdminClient, group: str) -> list[int]:
    asked = [ConsumerGroupTopicPartitions(group, [TopicPartition(TOPIC, one) for one in range(PARTITIONS)])]
    told = admin.list_consumer_group_offsets(asked)[group].result(SECONDS).topic_partitions
    return [one.offset for one in told]
