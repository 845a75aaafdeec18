"""Every fault of a link bites in a real cluster, is healed, and does to the members what it is meant to do."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from pidkeeper.cli.local_cluster import member_name
from tests.chaos.fault import Fault, FaultKind
from tests.chaos.faults.links import KINDS, attributes, cut, cut_one_way, is_felt
from tests.chaos.links.laying import Links, best_proxies
from tests.chaos.links.probe import Outcome, Seen, ask
from tests.chaos.links.proxies import PortKind, ProxyError, Stream, Toxic, ToxicKind
from tests.chaos.plan import Planned, Target
from tests.chaos.shim.build import why_no_shim
from tests.chaos.shim.preload import Shim
from tests.chaos.stage import ChaosCluster, Stage
from tests.support.cluster import CONTROLLER_OPTIONS, bring_back, labelled, new_leader, quorum, wait_until
from tests.support.waiting import stop_process

pytestmark = [
    pytest.mark.skipif(why_no_shim() is not None, reason=str(why_no_shim())),
    pytest.mark.asyncio(loop_scope="module"),
]

PATIENCE_SECONDS = 15.0
"""Until an effect is seen: the longest probe takes a tenth of it."""

MISSED_SECONDS = 1.0
"""Several of the longest election timeouts: who hears its leader for so long starts no election."""

BY_NAME = {kind.name: kind for kind in KINDS}
TOXICS = [f"{kind}_{stream}" for kind in ToxicKind for stream in Stream]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stage(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stage]:
    """Three controllers and an agent, and one client in this process."""
    directory = tmp_path_factory.mktemp("hurt")
    proxies, shim = best_proxies(), Shim(directory / "shim")
    await proxies.start()
    # As late as can be: nobody else may listen on its ports before its members do.
    cluster = ChaosCluster(directory, (shim,), controllers=3, agents=1, controller_options=CONTROLLER_OPTIONS)
    try:
        links = Links(cluster, shim, proxies)
        await links.lay(["client-1"])
        await asyncio.to_thread(bring_back, cluster)
        yield Stage(cluster, links)
    finally:
        cluster.kill(*[member for member in cluster.members() if cluster.running(member)])
        await proxies.close()


@pytest_asyncio.fixture(loop_scope="module")
async def healthy(stage: Stage) -> Stage:
    """The stage, and who leads on it."""
    await asyncio.to_thread(bring_back, stage.cluster)
    stage.leader_id = (await asyncio.to_thread(stage.cluster.leader)).id
    return stage


def links_of(stage: Stage) -> Links:
    assert stage.links is not None
    return stage.links


def fault(stage: Stage, name: str, target: Target, *, strength: float = 0.0, pick: int = 0) -> Fault:
    return BY_NAME[name].make(stage, Planned(name, target, 0.0, 1.0, pick, strength, alone=True))


@contextlib.asynccontextmanager
async def biting(one: Fault) -> AsyncIterator[Fault]:
    """The fault from the moment on that an effect was seen. It is healed at the end of the block."""
    await one.begin()
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not await one.bites():  # noqa: ASYNC110 - another task counts
                await asyncio.sleep(0.01)
        yield one
    finally:
        await one.end()


@pytest.mark.parametrize("name", TOXICS)
async def test_every_toxic_is_felt_when_it_is_weakest_and_no_more_once_it_is_healed(healthy: Stage, name: str) -> None:
    async with biting(fault(healthy, name, Target.FOLLOWER)) as hurt:
        pass
    for link in links_of(healthy).all():
        if hurt.victims[0] in {link.source, link.target}:
            assert (await ask(link.listen, link.port, None)).outcome is Outcome.ANSWERED


async def test_the_strongest_toxics_hurt_all_links_that_are_in_use(healthy: Stage) -> None:
    async with biting(fault(healthy, "reset_peer_upstream", Target.FOLLOWER, strength=1.0)) as hurt:
        mine = links_of(healthy).of(hurt.victims[0])
        assert all(links_of(healthy).connects(link) > 0 for link in mine)
        seen = await asyncio.gather(*(ask(link.listen, link.port, None) for link in mine))
    assert [one.outcome for one in seen] == [Outcome.ENDED, Outcome.ENDED]


JUDGED = {kind: Toxic(kind, Stream.UPSTREAM, attributes(kind, 0.0)) for kind in ToxicKind} | {None: None}
AROUND = Seen(Outcome.ANSWERED, 0.004, 258, 109)
"""As a healthy link is seen, and as every link is around its proxy."""

FELT_IF_LATER = {ToxicKind.LATENCY, ToxicKind.BANDWIDTH, ToxicKind.SLICER}
FELT_IF_ENDED = {ToxicKind.RESET_PEER, ToxicKind.LIMIT_DATA, ToxicKind.TIMEOUT, None}


@pytest.mark.parametrize("kind", [kind for kind in JUDGED if kind is not ToxicKind.SLOW_CLOSE])
async def test_what_is_seen_of_a_link_is_told_from_what_is_seen_around_it(kind: ToxicKind | None) -> None:
    toxic = JUDGED[kind]
    later = Seen(Outcome.ANSWERED, 0.004 + 0.1, 258, 109)
    ends, silence = Seen(Outcome.ENDED, 0.004, 258, 0), Seen(Outcome.SILENT, 1.5, 258, 0)
    assert not is_felt(toxic, AROUND, AROUND)
    assert is_felt(toxic, later, AROUND) == (kind in FELT_IF_LATER)
    assert is_felt(toxic, ends, AROUND) == (kind in FELT_IF_ENDED)
    assert is_felt(toxic, silence, AROUND) == (kind in {*FELT_IF_LATER, ToxicKind.TIMEOUT})
    assert not any(is_felt(toxic, seen, silence) or is_felt(toxic, seen, ends) for seen in (later, ends, silence))


async def test_a_healthy_link_answers_as_its_target_does(healthy: Stage) -> None:
    for link in links_of(healthy).all():
        through, around = await asyncio.gather(ask(link.listen, link.port, None), ask(link.upstream, link.port, None))
        assert through.outcome is around.outcome is Outcome.ANSWERED
        assert (through.sent, through.received) == (around.sent, around.received)


async def test_a_target_that_stands_still_is_not_taken_for_a_link_that_does(healthy: Stage) -> None:
    follower = next(one for one in healthy.cluster.layout.controllers if one.id != healthy.leader_id)
    link = next(one for one in links_of(healthy).to(member_name(follower)) if one.port is PortKind.PEER)
    stop_process(follower.pid)
    try:
        through, around = await asyncio.gather(ask(link.listen, link.port, None), ask(link.upstream, link.port, None))
    finally:
        healthy.cluster.signal(follower, signal.SIGCONT)
    toxic = Toxic(ToxicKind.TIMEOUT, Stream.UPSTREAM, {"timeout": 0})
    assert through.outcome is Outcome.SILENT
    assert not is_felt(toxic, through, around)


async def test_a_leader_without_its_links_is_replaced_and_follows_once_it_has_them_again(healthy: Stage) -> None:
    old = healthy.cluster.leader()
    async with biting(fault(healthy, "partition", Target.LEADER)) as hurt:
        assert hurt.victims == (member_name(old),)
        new = await asyncio.to_thread(new_leader, healthy.cluster, old)
    await asyncio.to_thread(wait_until, lambda: healthy.cluster.ready(old), "the old leader to be ready again")
    assert quorum(old)["leader_id"] == quorum(new)["leader_id"] != old.id


async def test_a_deaf_follower_knows_no_leader_any_more(healthy: Stage) -> None:
    async with biting(fault(healthy, "deaf", Target.FOLLOWER)) as hurt:
        follower = healthy.cluster.member(hurt.victims[0])
        await asyncio.to_thread(
            wait_until, lambda: not quorum(follower)["leader_id"], "the follower to miss its leader"
        )


async def test_a_mute_follower_hears_its_leader_which_does_not_hear_it(healthy: Stage) -> None:
    async with biting(fault(healthy, "mute", Target.FOLLOWER)) as hurt:
        follower = healthy.cluster.member(hurt.victims[0])

        def missed_and_following() -> bool:
            leader = healthy.cluster.leader()
            contacts = labelled(leader, "pidkeeper_raft_peer_last_contact_seconds")
            description = quorum(follower)
            follows = (description["role"], description["leader_id"]) == ("follower", leader.id)
            return follows and contacts[(str(follower.id),)] >= MISSED_SECONDS

        await asyncio.to_thread(wait_until, missed_and_following, "the leader to miss a follower that hears it")


async def test_a_partitioned_agent_hears_no_controller_and_hands_out_what_it_has(healthy: Stage) -> None:
    (agent,) = healthy.cluster.layout.agents
    async with biting(fault(healthy, "partition", Target.AGENT)):
        mine = links_of(healthy).of("agent-1")
        seen = await asyncio.gather(*(ask(link.listen, link.port, None) for link in mine))
        status = json.loads((await asyncio.to_thread(healthy.cluster.get, agent, "/v1/status"))[1])
    assert {one.outcome for one in seen} == {Outcome.SILENT}
    assert status["reserve_ids"] > 0


@pytest.mark.parametrize("name", ["cut", "cut_one_way"])
async def test_a_cut_bites_between_the_two_that_are_meant(healthy: Stage, name: str) -> None:
    async with biting(fault(healthy, name, Target.FOLLOWER)):
        pass


@pytest.mark.parametrize("pick", range(4))
async def test_a_cut_is_of_all_links_between_two_and_no_other(stage: Stage, pick: int) -> None:
    planned = Planned("cut", Target.AGENT, 0.0, 1.0, pick, 0.0, alone=True)
    wounds = cut(links_of(stage), "agent-1", planned)
    pairs = {frozenset((link.source, link.target)) for link, _ in wounds}
    (pair,) = pairs
    assert {link.name for link, _ in wounds} == {
        one.name for one in links_of(stage).all() if {one.source, one.target} == pair
    }
    assert {link.name for link, _ in cut_one_way(links_of(stage), "agent-1", planned)} == {
        link.name for link, _ in wounds
    }


async def test_two_faults_of_one_kind_leave_each_other_their_links(healthy: Stage) -> None:
    first, second = (fault(healthy, "latency_upstream", Target.FOLLOWER) for _ in range(2))
    async with biting(first):
        await second.begin()
        await second.end()
        assert await second.bites() == 0
        felt = await first.bites()
        async with asyncio.timeout(PATIENCE_SECONDS):
            while await first.bites() == felt:  # noqa: ASYNC110 - another task counts
                await asyncio.sleep(0.01)


async def test_a_fault_that_cannot_be_healed_is_told(healthy: Stage) -> None:
    hurt = fault(healthy, "latency_upstream", Target.FOLLOWER)
    await hurt.begin()
    for link in links_of(healthy).all():
        await links_of(healthy).proxies.clear(link)
    with pytest.raises(ProxyError):
        await hurt.end()


async def test_a_link_that_could_not_be_hurt_is_no_bite_and_left_as_it_is(healthy: Stage) -> None:
    hurt = fault(healthy, "slow_close_upstream", Target.FOLLOWER)
    links = links_of(healthy)
    there = Toxic(ToxicKind.SLOW_CLOSE, Stream.UPSTREAM, {"delay": 0})
    for link in links.all():
        await links.proxies.add(link, there)
    await hurt.begin()
    for link in links.all():
        await links.proxies.remove(link, there)
    await hurt.end()
    assert await hurt.bites() == 0


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
async def test_without_links_the_reason_is_told(stage: Stage, kind: FaultKind) -> None:
    assert kind.why_not(stage) is None
    assert kind.why_not(Stage(stage.cluster)) == "no links are laid"
