"""Transactional producers of four client libraries: pairs, fencing, and going on when leaders and coordinators die."""

from __future__ import annotations

import asyncio
import gc
import itertools
import json
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, Final, NamedTuple, Self

import pytest
from prometheus_client.parser import text_string_to_metric_families

from pidkeeper.broker_agent.coordinator.directory import weight
from pidkeeper.cli.local_cluster import Agent, LocalCluster
from pidkeeper.protocol.groups import OFFSETS_TOPIC, offsets_partition
from pidkeeper.protocol.transactions import MAX_TRANSACTIONAL_ID_LENGTH
from tests.clients.java_witness import JavaProcess, java_process, why_no_java
from tests.clients.transactional_witnesses import (
    AiokafkaWitness,
    ConfluentWitness,
    FencedError,
    GroupRefusedError,
    JavaWitness,
    KafkaPythonWitness,
    Opener,
    Pair,
    Witness,
)
from tests.support.cluster import bring_back, ledger, metrics, pidkeeper, running_cluster, wait_until
from tests.support.http_calls import call

# kafka-python leaves a socket that could not connect to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")

SESSION_TIMEOUT_MS: Final = 2000
HEARTBEAT_INTERVAL_MS: Final = 200

PYTHON: Final[dict[str, Opener]] = {
    witness.library: witness for witness in (AiokafkaWitness, ConfluentWitness, KafkaPythonWitness)
}

FAST_SECONDS: Final = 10.0
GROUP: Final = "group"
IDS_PER_LIBRARY: Final = 20
IDEMPOTENT_PER_LIBRARY: Final = 3
NULL_CLAIMS: Final = 50
IDS_DURING_KILL: Final = 8
AT_ONCE: Final = 4
"""Producers of one library that start side by side."""


class Library(NamedTuple):
    """A client library. Its name is part of the transactional ids, so that no two tests share one."""

    name: str
    open: Opener


@pytest.fixture(scope="module")
def _cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with running_cluster(
        tmp_path_factory.mktemp("transactional"),
        agents=3,
        controller_options={"broker_session_timeout_ms": SESSION_TIMEOUT_MS},
        agent_options={"heartbeat_interval_ms": HEARTBEAT_INTERVAL_MS},
    ) as cluster:
        yield cluster


@pytest.fixture
def cluster(_cluster: LocalCluster) -> LocalCluster:
    """Three controllers and three agents, all ready, and every agent known to every other one."""
    bring_back(_cluster)
    agents = _cluster.layout.agents
    wait_until(
        lambda: all(metrics(agent)["pidkeeper_agent_known_agents"] == len(agents) for agent in agents),
        "every agent to know the others",
    )
    return _cluster


@pytest.fixture(scope="module")
def java(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaProcess]:
    if (reason := why_no_java()) is not None:
        pytest.skip(reason)
    with java_process(tmp_path_factory.mktemp("java")) as process:
        yield process


@pytest.fixture(params=[*PYTHON, JavaWitness.library])
def library(request: pytest.FixtureRequest) -> Library:
    """One library at a time."""
    if request.param == JavaWitness.library:
        return Library(request.param, partial(JavaWitness, request.getfixturevalue("java")))
    return Library(request.param, PYTHON[request.param])


@pytest.fixture
def libraries(request: pytest.FixtureRequest) -> list[Library]:
    """All together. The Java client is left out where it cannot be had; the tests of one library say why."""
    found = [Library(*one) for one in PYTHON.items()]
    if why_no_java() is None:
        found.append(Library(JavaWitness.library, partial(JavaWitness, request.getfixturevalue("java"))))
    return found


class History:
    """Every pair that any client had, in the order of each transactional id, None for idempotent producers."""

    def __init__(self, cluster: LocalCluster) -> None:
        self._cluster = cluster
        self._agents = ",".join(agent.kafka for agent in cluster.layout.agents)
        self._pairs: dict[str | None, list[Pair]] = defaultdict(list)
        self._witnesses: list[Witness] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.gather(*(witness.close() for witness in self._witnesses))
        # Here, where their sockets may be left to it, and not amidst another test.
        gc.collect()

    async def start(self, library: Library, transactional_id: str | None) -> tuple[Witness, Pair]:
        """A new producer that knows all agents, and the pair that it got."""
        witness = library.open(self._agents, transactional_id)
        self._witnesses.append(witness)
        pair = await witness.init()
        self._pairs[transactional_id].append(pair)
        return witness, pair

    async def start_all(self, library: Library, transactional_ids: Sequence[str | None]) -> None:
        """One producer for each, AT_ONCE side by side."""
        gate = asyncio.Semaphore(AT_ONCE)

        async def start(transactional_id: str | None) -> None:
            async with gate:
                await self.start(library, transactional_id)

        await asyncio.gather(*(start(one) for one in transactional_ids))

    async def check(self, null_claims: Sequence[int] = ()) -> None:
        """No pair twice, no producer ID for two, epochs rise, all in the ledger, and the quorum has the last pair.

        Members that were killed are started again: the ledger is that of all of them.
        """
        await asyncio.to_thread(bring_back, self._cluster)
        by_id = {key: pairs for key, pairs in self._pairs.items() if key is not None}
        for key, pairs in by_id.items():
            assert len({pair.producer_id for pair in pairs}) == 1, f"{key} changed its producer ID: {pairs}"
            assert all(one.epoch < other.epoch for one, other in pairwise(pairs)), f"{key}: no rising epochs: {pairs}"
            assert pair_of(await described(self._cluster, key)) == pairs[-1]
        idempotent = self._pairs[None]
        assert {pair.epoch for pair in idempotent} <= {0}
        ids = [pairs[0].producer_id for pairs in by_id.values()]
        ids += [pair.producer_id for pair in idempotent] + list(null_claims)
        assert len(set(ids)) == len(ids), f"for two: {sorted(one for one, times in Counter(ids).items() if times > 1)}"
        blocks = await asyncio.to_thread(ledger, self._cluster)
        firsts = [block["first"] for block in blocks]
        for producer_id in ids:
            at = bisect_right(firsts, producer_id) - 1
            assert at >= 0 and producer_id <= blocks[at]["last"], f"{producer_id} is in no allocated block"


def look(cluster: LocalCluster, transactional_id: str) -> dict[str, Any] | None:
    """What the leader knows of a transactional id; None if nothing, or if it leads no more. Raises OSError."""
    path = f"/v1/transactions/describe?transactional_id={transactional_id}"
    answer = call(cluster.leader().http, "GET", path)
    return dict(answer.json()) if answer.status == 200 else None


async def described(cluster: LocalCluster, transactional_id: str) -> dict[str, Any]:
    found = await asyncio.to_thread(
        wait_until, lambda: look(cluster, transactional_id), f"a description of {transactional_id}"
    )
    assert found is not None
    return found


async def in_state(cluster: LocalCluster, transactional_id: str, state: str) -> dict[str, Any]:
    """Its description once it is in `state`: a transaction that was ended is complete a little later."""

    def reached() -> dict[str, Any] | None:
        description = look(cluster, transactional_id)
        return description if description is not None and description["state"] == state else None

    found = await asyncio.to_thread(wait_until, reached, f"{transactional_id} in {state}")
    assert found is not None
    return found


def pair_of(description: dict[str, Any]) -> Pair:
    return Pair(description["producer_id"], description["producer_epoch"])


async def begin_with_offsets(witness: Witness) -> None:
    """Begin a transaction and add the group's offsets to it, which the coordinator of the transaction grants."""
    await witness.begin()
    with pytest.raises(GroupRefusedError):
        await witness.add_offsets(GROUP)


async def begin(witness: Witness, cluster: LocalCluster, transactional_id: str) -> None:
    """Begin a transaction that the coordinator knows of, and the library can end."""
    if witness.remembers_offsets:
        await begin_with_offsets(witness)
    else:
        await witness.begin()
        await witness.add_partition()
    await in_state(cluster, transactional_id, "Ongoing")


async def go_on(cluster: LocalCluster, witness: Witness, pair: Pair, transactional_id: str) -> None:
    """A whole transaction with the pair that the producer has."""
    await begin(witness, cluster, transactional_id)
    await witness.end(committed=False)
    assert pair_of(await in_state(cluster, transactional_id, "CompleteAbort")) == pair


def transactional_samples(agent: Agent, kind: str | None = None) -> float:
    """Transactional requests that the agent has put to the controllers, answered or not; of one kind, answered."""
    text = call(agent.http, "GET", "/metrics").body.decode()
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    answered = [one for one in samples if one.name == "pidkeeper_agent_transactional_requests_total"]
    if kind is not None:
        return sum(one.value for one in answered if one.labels["kind"] == kind)
    under_way = [one for one in samples if one.name == "pidkeeper_agent_transactional_requests_under_way"]
    return sum(one.value for one in answered + under_way)


def coordinated_by(agent: Agent, agents: Sequence[Agent], prefix: str) -> str:
    """A transactional id that `agent` coordinates as long as all of `agents` live."""
    names = (f"{prefix}-{number}" for number in itertools.count())
    return next(name for name in names if max(agents, key=lambda one: weight(one.id, name.encode())) is agent)


def null_claims(agents: Sequence[Agent]) -> list[int]:
    answers = [call(agent.http, "POST", "/v1/init-producer-id", {}) for agent in agents for _ in range(NULL_CLAIMS)]
    return [answer.json()["producer_id"] for answer in answers]


async def test_init_gives_the_pair_that_the_quorum_has(cluster: LocalCluster, library: Library) -> None:
    key = f"init-{library.name}"
    async with History(cluster) as history:
        _, first = await history.start(library, key)
        assert first.epoch == 0
        description = await described(cluster, key)
        assert (pair_of(description), description["state"], description["timeout_ms"]) == (first, "Empty", 60_000)
        _, second = await history.start(library, key)
        assert second.producer_id == first.producer_id and second.epoch >= 1
        members = ",".join(controller.http for controller in cluster.layout.controllers)
        command = ("transactions", "describe", key, "--controllers", members, "--output", "json")
        shown = await asyncio.to_thread(pidkeeper, *command)
        assert shown.returncode == 0, shown.stderr
        assert pair_of(json.loads(shown.stdout)) == second
        await history.check()


async def test_a_second_instance_fences_the_first(cluster: LocalCluster, library: Library) -> None:
    key = f"fenced-{library.name}"
    async with History(cluster) as history:
        old, _ = await history.start(library, key)
        new, _ = await history.start(library, key)
        await old.begin()
        with pytest.raises(FencedError):
            await old.add_offsets(GROUP)
        assert (await described(cluster, key))["state"] == "Empty", "a fenced producer began a transaction"
        await begin_with_offsets(new)
        description = await described(cluster, key)
        assert description["state"] == "Ongoing"
        assert description["topics"] == [{"topic": OFFSETS_TOPIC, "partitions": [offsets_partition(GROUP)]}]
        await history.check()


async def test_a_second_instance_aborts_the_transaction_of_the_first(cluster: LocalCluster, library: Library) -> None:
    key = f"aborted-{library.name}"
    async with History(cluster) as history:
        old, first = await history.start(library, key)
        await begin(old, cluster, key)
        _, second = await history.start(library, key)
        # One epoch fences, aborts and is the new producer's; one more for each answer that was lost.
        assert second.producer_id == first.producer_id and second.epoch >= 1
        assert (await described(cluster, key))["state"] == "Empty"
        with pytest.raises(FencedError):
            await old.end(committed=False)
        await history.check()


async def test_a_producer_ends_one_transaction_after_the_other(cluster: LocalCluster, library: Library) -> None:
    key = f"ended-{library.name}"
    async with History(cluster) as history:
        witness, pair = await history.start(library, key)
        for _ in range(2):
            await go_on(cluster, witness, pair, key)
            if witness.adds_partitions:
                await witness.begin()
                await witness.add_partition()
                await witness.end(committed=True)
                assert pair_of(await in_state(cluster, key, "CompleteCommit")) == pair
        await history.check()


async def test_an_id_that_is_too_long_fails_at_once(cluster: LocalCluster, library: Library) -> None:
    async with History(cluster) as history:
        with pytest.raises(Exception, match=r"(?i)transactional_?id_?authorization"):
            await asyncio.wait_for(history.start(library, "x" * (MAX_TRANSACTIONAL_ID_LENGTH + 1)), FAST_SECONDS)


async def test_no_id_comes_twice_with_and_without_transactions(cluster: LocalCluster, libraries: list[Library]) -> None:
    async with History(cluster) as history:
        claiming = asyncio.create_task(asyncio.to_thread(null_claims, cluster.layout.agents))
        await asyncio.gather(
            *(history.start_all(one, [f"many-{one.name}-{n}" for n in range(IDS_PER_LIBRARY)]) for one in libraries),
            *(history.start_all(one, [None] * IDEMPOTENT_PER_LIBRARY) for one in libraries),
        )
        await history.check(await claiming)


async def test_transactions_go_on_when_the_leader_is_killed(cluster: LocalCluster, libraries: list[Library]) -> None:
    async with History(cluster) as history:
        keys = [f"led-{library.name}" for library in libraries]
        started = await asyncio.gather(*map(history.start, libraries, keys))
        await asyncio.to_thread(lambda: cluster.kill(cluster.leader()))
        await asyncio.gather(*(go_on(cluster, *one, key) for one, key in zip(started, keys, strict=True)))
        await history.check()


async def test_producers_start_while_the_leader_is_killed(cluster: LocalCluster, libraries: list[Library]) -> None:
    agents = cluster.layout.agents
    begun = sum(map(transactional_samples, agents))
    leader = cluster.leader()

    def kill_amidst() -> None:
        wait_until(lambda: sum(map(transactional_samples, agents)) > begun, "a producer to be initialised")
        cluster.kill(leader)

    async with History(cluster) as history:
        starting = asyncio.gather(
            *(history.start_all(one, [f"amidst-{one.name}-{n}" for n in range(IDS_DURING_KILL)]) for one in libraries)
        )
        await asyncio.to_thread(kill_amidst)
        assert not starting.done(), "all producers were there before the leader was killed"
        await starting
        # Every one of them has a successor, which the new leader serves.
        await asyncio.gather(*(history.start(one, f"amidst-{one.name}-0") for one in libraries))
        await history.check()


async def test_producers_find_another_coordinator_when_theirs_is_killed(
    cluster: LocalCluster, libraries: list[Library]
) -> None:
    agents = cluster.layout.agents
    dying = agents[0]
    keys = [coordinated_by(dying, agents, f"moved-{one.name}") for one in libraries]
    late = [coordinated_by(dying, agents, f"late-{one.name}") for one in libraries]
    served = transactional_samples(dying, "init_producer_id")
    async with History(cluster) as history:
        started = await asyncio.gather(*map(history.start, libraries, keys))
        assert transactional_samples(dying, "init_producer_id") - served >= len(libraries), "another agent coordinated"
        await asyncio.to_thread(cluster.kill, dying)
        # All side by side: they look for a coordinator until the session of the dead agent is over.
        await asyncio.gather(
            *(
                go_on(cluster, witness, pair, key)
                for (witness, pair), key in zip(started, keys, strict=True)
                if witness.survives_dead_coordinator
            ),
            *(
                history.start(library, key)
                for library, (witness, _), key in zip(libraries, started, late, strict=True)
                if witness.survives_dead_coordinator
            ),
        )
        await asyncio.gather(*map(history.start, libraries, keys))
        await history.check()
