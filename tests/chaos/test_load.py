"""The load and the witnesses on real clusters, whose leader and agents are hurt meanwhile: all go on."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

import pytest

from pidkeeper.cli.controllers import CERTIFICATES, dev_files
from pidkeeper.cli.dev_certificates import DevAuthority
from pidkeeper.cli.local_cluster import LocalCluster
from pidkeeper.service.certified import CertifiedName
from pidkeeper.service.throttle import Rate
from pidkeeper.service.tls import Tls
from pidkeeper.service.tls_files import TlsFiles
from tests.chaos.checker import check
from tests.chaos.ledgers import Coverage, LedgerKeeper, ledgers
from tests.chaos.load.allocators import Allocator, StaleAllocator
from tests.chaos.load.claimers import HttpClaimer, WireClaimer
from tests.chaos.load.journal import Entry, Outcome, claims, clock, entries
from tests.chaos.load.kafka_clients import KafkaClients
from tests.chaos.load.kafka_process import LIBRARIES
from tests.chaos.load.kinds import ALLOCATE, CHANGE, CLAIM, FENCED, FORBIDDEN, RAISE_FLOOR, ZOMBIE
from tests.chaos.load.malice import MALFORMED, MaliciousBroker
from tests.chaos.load.quorum_operator import QuorumOperator
from tests.clients.java_witness import why_no_java
from tests.support.cluster import CONTROLLER_OPTIONS, pause, quorum, resume, running_cluster

QUOTA: Final = Rate(30.0, 30)
OPTIONS: Final[dict[str, Any]] = {
    "limits": CONTROLLER_OPTIONS["limits"] | {"broker_allocations": {"per_second": 30.0, "burst": 30}},
}
RATE: Final = 500.0
PATIENCE_SECONDS: Final = 60.0

ALLOCATOR: Final = 1001
STALE: Final = 1002
MALICIOUS: Final = 1003


class Runs(Protocol):
    """Anybody of the load."""

    name: str

    def running(self) -> contextlib.AbstractAsyncContextManager[None]: ...


class Run:
    """What a run leaves behind, and when it was hurt."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.leader_killed = 0
        self.agents_hurt = 0
        self.voters_at_end: list[int] = []
        self.actors: list[str] = []

    def of(self, actor: str) -> list[Entry]:
        """The operations of one actor."""
        return [entry for entry in entries(self.directory) if entry.actor == actor]

    async def until(self, condition: Callable[[], object], what: str) -> None:
        """Raises AssertionError that says `what` did not come."""
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                while not condition():  # noqa: ASYNC110 - it is on disk that it shows
                    await asyncio.sleep(0.1)
        except TimeoutError:
            counted = Counter((one.actor, one.kind, one.outcome, one.code[:80]) for one in entries(self.directory))
            raise AssertionError(f"not within {PATIENCE_SECONDS:g} s: {what}; {counted}") from None

    def is_granted_since(self, time: int) -> bool:
        """Whether a block was asked for and given since then."""
        return any(entry.invoked > time and entry.outcome is Outcome.OK for entry in self.of("allocator"))


def controllers_of(cluster: LocalCluster) -> Callable[[], tuple[str, ...]]:
    return lambda: tuple(one.http for one in cluster.layout.controllers)


def always(address: str) -> Callable[[], tuple[str, ...]]:
    return lambda: (address,)


def everybody(cluster: LocalCluster, directory: Path, operator: QuorumOperator) -> Sequence[Runs]:
    controllers = controllers_of(cluster)
    agents = cluster.layout.agents
    libraries = [library for library in LIBRARIES if library != "Java" or why_no_java() is None]
    return [
        Allocator("allocator", directory, controllers, ALLOCATOR, several=0.5),
        StaleAllocator("stale", directory, controllers, STALE),
        MaliciousBroker("malicious", directory, controllers, MALICIOUS, QUOTA, interval=0.5),
        *(WireClaimer(f"wire-{one.id}", directory, one.id, always(one.kafka), RATE) for one in agents),
        *(HttpClaimer(f"http-{one.id}", directory, one.id, always(one.http)) for one in agents),
        *(
            KafkaClients(library, directory, library, lambda: tuple(one.kafka for one in agents), ids=1)
            for library in libraries
        ),
        # The last one to begin is the first one to be stopped.
        operator,
    ]


async def hurt(cluster: LocalCluster, run: Run) -> None:
    """All of them at work, the leader killed amidst, and later an agent."""
    spare = cluster.add_controller()
    cluster.start(spare)
    operator = QuorumOperator(run.directory, lambda: cluster.layout.controllers, seed=1, interval=0.3, spare=spare)
    async with contextlib.AsyncExitStack() as stack:
        for actor in everybody(cluster, run.directory, operator):
            await stack.enter_async_context(actor.running())
            run.actors.append(actor.name)
        await run.until(lambda: _all_answered(run), "an answer for every actor")
        leader = await asyncio.to_thread(cluster.leader)
        run.leader_killed = clock()
        await asyncio.to_thread(cluster.kill, leader)
        await run.until(lambda: run.is_granted_since(run.leader_killed), "a block after the leader was killed")
        cluster.start(leader)
        dead, paused = cluster.layout.agents
        run.agents_hurt = clock()
        await asyncio.to_thread(cluster.kill, dead)
        await asyncio.to_thread(pause, cluster, paused)
        await run.until(lambda: _refused(run, dead.id) and _unanswered(run, paused.id), "claims that failed")
        before = {agent.id: _claimed(run, agent.id) for agent in (dead, paused)}
        cluster.start(dead)
        resume(cluster, paused)
        await run.until(lambda: all(_claimed(run, one) > ids for one, ids in before.items()), "IDs of both agents")
        await run.until(
            lambda: any(one.kind == ZOMBIE and one.code == FENCED for one in entries(run.directory)), "a zombie"
        )
        await run.until(lambda: {"add", "remove"} <= _changes(run), "changes of the voters")
        await run.until(lambda: any(one.kind == RAISE_FLOOR for one in run.of("operator")), "a floor")
        await run.until(lambda: spare.id in voters(cluster), "the spare among the voters")
    run.voters_at_end = voters(cluster)
    await asyncio.to_thread(LedgerKeeper(cluster, run.directory).finish)


def voters(cluster: LocalCluster) -> list[int]:
    return [voter["id"] for voter in quorum(cluster.leader())["voters"]]


def _all_answered(run: Run) -> bool:
    seen = {entry.actor for entry in entries(run.directory) if entry.outcome is not Outcome.UNKNOWN}
    seen |= {one.actor for one in claims(run.directory) if len(one.ids)}
    return set(run.actors) <= seen


def _has_fenced(run: Run) -> bool:
    return any(one.kind == ZOMBIE and one.code == FENCED for one in entries(run.directory))


def _failures(run: Run, agent: int) -> list[Entry]:
    return [one for one in entries(run.directory) if one.kind == CLAIM and one.arguments["agent"] == agent]


def _refused(run: Run, agent: int) -> bool:
    return any(one.code.startswith("not connected") for one in _failures(run, agent))


def _unanswered(run: Run, agent: int) -> bool:
    failed = _failures(run, agent)
    return any(one.code == "no answer in time" and one.outcome is Outcome.UNKNOWN for one in failed)


def _claimed(run: Run, agent: int) -> int:
    return sum(len(one.ids) for one in claims(run.directory) if one.agent == agent)


def _changes(run: Run) -> set[str]:
    return {one.arguments["what"] for one in run.of("operator") if one.kind == CHANGE and one.outcome is Outcome.OK}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run in plaintext, over by now."""
    run = Run(tmp_path_factory.mktemp("journal"))
    with running_cluster(
        tmp_path_factory.mktemp("cluster"),
        agents=2,
        controller_options=OPTIONS | {"broker_session_timeout_ms": 2000},
        agent_options={"heartbeat_interval_ms": 200},
    ) as cluster:
        asyncio.run(hurt(cluster, run))
    return run


def test_all_that_was_told_goes_together(run: Run) -> None:
    verdict = check(run.directory)
    assert verdict.violations == []
    assert (verdict.duplicates, verdict.lost, verdict.fatal_client_errors) == (0, 0, 0)
    assert min(verdict.ids_checked, verdict.blocks_checked, verdict.stale_refused, verdict.zombies_fenced) > 0
    assert verdict.claim_errors >= 2, "an agent was killed"


def test_blocks_are_given_before_and_after_the_death_of_the_leader(run: Run) -> None:
    given = [one for one in run.of("allocator") if one.kind == ALLOCATE and one.outcome is Outcome.OK]
    members = {one.arguments["member"] for one in given}
    assert min(one.invoked for one in given) < run.leader_killed
    assert len(members) > 1, "one member alone has given blocks"
    assert any(one.result["more"] for one in given), "nobody was given several"


def test_claims_fail_while_their_agent_is_dead_or_paused_and_say_so(run: Run) -> None:
    dead, paused = 1, 2
    assert min(one.invoked for one in _failures(run, dead)) > run.agents_hurt
    assert _refused(run, dead)
    assert _unanswered(run, paused)


def test_the_malicious_broker_is_granted_its_quota_and_nothing_else(run: Run) -> None:
    acts = run.of("malicious")
    codes = Counter(one.code for one in acts if one.kind == ALLOCATE)
    assert codes["THROTTLING_QUOTA_EXCEEDED"] > 0
    assert any(one.outcome is Outcome.OK for one in acts if one.kind == ALLOCATE)
    forbidden = [one for one in acts if one.kind == FORBIDDEN]
    assert len(forbidden) > len(MALFORMED)
    assert {"STALE_BROKER_EPOCH", "EVIDENCE_REFUSED", "INVALID_REQUEST"} <= {one.code for one in forbidden}


def test_the_voters_are_the_old_ones_after_the_operator(run: Run) -> None:
    assert {"add", "remove"} <= _changes(run)
    assert run.voters_at_end == [1, 2, 3]


class Certified:
    """Whose certificates a secure cluster knows."""

    def __init__(self, cluster: LocalCluster) -> None:
        operator = dev_files(cluster.directory, "operator")
        assert operator is not None, "the cluster is secure"
        self.operator = operator
        name = f"broker-{MALICIOUS}"
        DevAuthority(cluster.directory / CERTIFICATES).issue(
            name, [CertifiedName(cluster.layout.cluster_id, "broker", str(MALICIOUS))], (), 1
        )
        malicious = dev_files(cluster.directory, name)
        assert malicious is not None, "it was just made"
        self.malicious = malicious


async def secured(cluster: LocalCluster, run: Run) -> None:
    """The malicious broker with a certificate of its own, the true epochs of others, and its lie that stops all."""
    certified = Certified(cluster)
    controllers = controllers_of(cluster)

    def tls(files: TlsFiles) -> Tls:
        return Tls(files)

    operator = QuorumOperator(
        run.directory, lambda: cluster.layout.controllers, seed=2, interval=0.3, tls=certified.operator
    )
    (agent,) = cluster.layout.agents
    actors: list[Runs] = [
        operator,
        Allocator("allocator", run.directory, controllers, ALLOCATOR, tls=tls(certified.operator)),
        MaliciousBroker(
            "malicious",
            run.directory,
            controllers,
            MALICIOUS,
            QUOTA,
            tls=tls(certified.malicious),
            dismissal=operator.dismiss,
            interval=0.5,
        ),
        WireClaimer("wire", run.directory, agent.id, always(agent.kafka), RATE),
    ]
    async with contextlib.AsyncExitStack() as stack:
        for actor in actors:
            await stack.enter_async_context(actor.running())
        keeper, member = LedgerKeeper(cluster, run.directory), cluster.layout.controllers[0]
        await run.until(lambda: "dismiss evidence" in _changes(run), "evidence that is dismissed")
        await asyncio.to_thread(keeper.look, member)
        time = clock()
        await run.until(lambda: run.is_granted_since(time), "a block after that")
        await asyncio.to_thread(keeper.look, member)
    await asyncio.to_thread(keeper.finish)


def test_certificates_keep_the_malicious_broker_from_being_others(tmp_path: Path) -> None:
    run = Run(tmp_path / "journal")
    with running_cluster(
        tmp_path / "cluster",
        agents=1,
        secure=True,
        controller_options=OPTIONS,
        agent_options={"security": "optional"},
    ) as cluster:
        asyncio.run(secured(cluster, run))
    forbidden = Counter(one.code for one in run.of("malicious") if one.kind == FORBIDDEN)
    assert forbidden["CLUSTER_AUTHORIZATION_FAILED"] > 0
    assert forbidden["EVIDENCE_OPEN"] > 0
    early, late, *_ = sorted(ledgers(run.directory), key=lambda kept: kept.through)
    assert not set(early.blocks) & set(late.blocks)
    assert Coverage([early, late]).has(0, late.through)
    assert check(run.directory).violations == []
    assert sum(len(one.ids) for one in claims(run.directory)) > 0
