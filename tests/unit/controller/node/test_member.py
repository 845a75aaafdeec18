"""Three members inside one process, over real logs, snapshots and links on the loopback."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import itertools
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from pidkeeper.controller.node.assembly import ClusterMember
from pidkeeper.controller.node.interface import MemberInterface
from pidkeeper.controller.raft.core import Role
from pidkeeper.controller.state import requests
from pidkeeper.controller.state.machine import UnsupportedMetadataVersion
from pidkeeper.controller.storage.errors import LogFailed
from pidkeeper.disk.files import OsFiles
from pidkeeper.protocol.errors import ErrorCode, RequestError
from pidkeeper.protocol.messages import AddVoterRequest
from pidkeeper.protocol.metadata_version import BASE, LATEST
from pidkeeper.protocol.records import MAX_PEER_LENGTH
from tests.support.loopback_cluster import LoopbackCluster, eventually, history

Make = Callable[..., LoopbackCluster]


@pytest.fixture
async def make(tmp_path: Path) -> AsyncIterator[Make]:
    made: list[LoopbackCluster] = []

    def build(**options: object) -> LoopbackCluster:
        made.append(LoopbackCluster(tmp_path / str(len(made)), **options))  # type: ignore[arg-type]
        return made[-1]

    yield build
    for cluster in made:
        await cluster.close()


class BrittleFiles(OsFiles):
    """A disk whose syncs fail from the moment that `broken` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.broken = False

    def fdatasync(self, handle: int) -> None:
        if self.broken:
            raise OSError(errno.EIO, "Input/output error")
        super().fdatasync(handle)


def next_id(member: ClusterMember) -> int:
    return member.machine.producer_ids.next_producer_id


async def test_the_metadata_version_rises_when_all_members_read_the_next(make: Make) -> None:
    """A member of an older build holds it back for as long as it runs."""
    cluster = make()
    await cluster.start(1, 2, supported=LATEST)
    await cluster.start(3, supported=BASE)
    leader = await cluster.leader()
    await eventually(lambda: leader.links.peers.keys() == {1, 2, 3} - {leader.node_id})
    with pytest.raises(RequestError, match=r"see that all members \[1, 2, 3\] run, as the newest build"):
        MemberInterface(leader).remove_voter(3)
    await cluster.stop(3)
    await cluster.start(3)
    await eventually(lambda: all(member.machine.metadata_version == LATEST for member in cluster.members.values()))
    await cluster.stop(3)
    await cluster.start(3, supported=BASE)
    async with asyncio.timeout(10):
        fault = await asyncio.shield(cluster.members[3].ended)
    assert isinstance(fault, UnsupportedMetadataVersion)
    assert f"the quorum has the metadata version {LATEST}, this build reads 1 at most: upgrade it" in str(fault)


async def test_without_a_peer_key_no_voter_is_added(make: Make) -> None:
    """Nothing would tell it from a stranger."""
    cluster = make(peer_keys=(None,))
    await cluster.start()
    leader = await cluster.leader()
    with pytest.raises(RequestError, match="set peer_key_file, or security, on every member") as refusal:
        MemberInterface(leader).add_voter(AddVoterRequest(4, "127.0.0.1:9", "http://127.0.0.1:9"))
    assert refusal.value.code is ErrorCode.INVALID_REQUEST
    assert leader.core.membership.members == {1, 2, 3}


async def test_three_members_allocate_and_agree(make: Make) -> None:
    cluster = make()
    await cluster.start()
    epoch = await cluster.register()
    leader = await cluster.leader()
    answers = await asyncio.gather(*(leader.submit(requests.AllocateProducerIds(1, epoch)) for _ in range(50)))
    starts = [answer.producer_id_start for answer in answers]
    assert starts == list(range(0, 500, 10))
    assert await cluster.allocate(epoch, 3) == [500, 510, 520]
    await cluster.settle()
    await eventually(lambda: MemberInterface(leader).describe().failure_tolerance == 1)
    histories = [await history(member) for member in cluster.members.values()]
    assert histories[0] == histories[1] == histories[2]
    assert [block.first for block in histories[0]] == list(range(0, 530, 10))
    assert {next_id(member) for member in cluster.members.values()} == {530}
    description = MemberInterface(leader).describe()
    assert (description.role, description.healthy, description.reasons) == ("leader", True, [])
    assert description.leader_http == f"http://127.0.0.1:{leader.node_id}"
    for member in cluster.members.values():
        assert all(check.ok for check in [*MemberInterface(member).liveness(), *MemberInterface(member).readiness()])
        assert MemberInterface(member).leader() == (leader.node_id, f"http://127.0.0.1:{leader.node_id}")
        assert {block.broker_epoch for block in await history(member)} == {epoch}


async def test_a_follower_refuses_and_keeps_no_session(make: Make) -> None:
    cluster = make()
    await cluster.start()
    for follower in await cluster.followers():
        for request in (requests.BrokerHeartbeat(7, 0), requests.RegisterBroker(7, "x")):
            with pytest.raises(RequestError) as refused:
                follower.submit(request)
            assert refused.value.code is ErrorCode.NOT_CONTROLLER
        assert follower.leadership.sessions.expired(1 << 40) == []
        with pytest.raises(RequestError) as refused:
            MemberInterface(follower).transfer_leadership(None)
        assert refused.value.code is ErrorCode.NOT_CONTROLLER


async def test_snapshots_are_taken_and_the_log_shrinks(make: Make) -> None:
    cluster = make(snapshot_entries=10)
    await cluster.start()
    epoch = await cluster.register()
    await cluster.allocate(epoch, 40)
    await cluster.settle()
    members = list(cluster.members.values())
    await eventually(lambda: all(member.keeper.taken >= 2 for member in members))
    for member in members:
        core = member.core
        assert core.snapshot.index > 0
        assert 1 < core.first_index <= core.snapshot.index + 1
        assert len(member.ledger) < 40
        assert [block.first for block in await history(member)] == list(range(0, 400, 10))
        for producer_id, offset in ((0, 0), (199, 19), (399, 39)):
            owner = await MemberInterface(member).owner(producer_id)
            assert owner is not None
            assert (owner.first, owner.broker_id) == (offset * 10, 1)
        assert await MemberInterface(member).owner(400) is None
        snapshots = Path(member.settings.data_dir, "snapshots")
        await eventually(lambda snapshots=snapshots: 1 <= len(list(snapshots.iterdir())) <= 2)  # type: ignore[misc]


async def test_a_quorum_that_restarts_goes_on_where_it_was(make: Make) -> None:
    cluster = make(snapshot_entries=10)
    await cluster.start()
    epoch = await cluster.register()
    await cluster.allocate(epoch, 25)
    await cluster.stop(hand_over=False)
    await cluster.start()
    assert await cluster.register() == epoch
    assert await cluster.allocate(epoch, 2) == [250, 260]
    await cluster.settle()
    for member in cluster.members.values():
        assert [block.first for block in await history(member)] == list(range(0, 270, 10))
        assert (await MemberInterface(member).blocks(-1, 1)).complete_from == 0


async def test_a_member_with_an_empty_disk_votes_only_once_it_has_caught_up(make: Make) -> None:
    cluster = make(snapshot_entries=10)
    await cluster.start()
    epoch = await cluster.register()
    victim = (await cluster.followers())[0].node_id
    await cluster.stop(victim)
    await cluster.allocate(epoch, 60)
    leader = await cluster.leader()
    await eventually(lambda: leader.core.first_index > 30)
    committed = leader.core.commit
    cluster.wipe(victim)
    await cluster.start(victim)
    member = cluster.members[victim]
    core = member.core
    await eventually(lambda: member.gate.founding is not None)
    assert not {check.name: check.ok for check in MemberInterface(member).readiness()}["voting"]
    while core.recovering:
        assert core.vote is None or core.leader_id is not None
        assert core.role is not Role.LEADER
        await asyncio.sleep(0.001)
    assert core.commit >= committed
    await eventually(lambda: all(check.ok for check in MemberInterface(member).readiness()))
    await cluster.allocate(epoch, 3)
    await cluster.settle()
    assert member.keeper.installed >= 1
    assert next_id(member) == 630
    # It says from where on its history is whole, and still does after another start.
    complete_from = (await MemberInterface(member).blocks(-1, 1)).complete_from
    assert 0 < complete_from <= 600
    assert [block.first for block in await history(member)] == list(range(complete_from, 630, 10))
    await cluster.stop(victim)
    await cluster.start(victim)
    await cluster.settle()
    again = cluster.members[victim]
    assert not again.core.recovering
    assert (await MemberInterface(again).blocks(-1, 1)).complete_from == complete_from
    assert [block.first for block in await history(again)] == list(range(complete_from, 630, 10))


async def test_a_failing_disk_ends_the_member_and_releases_nothing(make: Make) -> None:
    cluster = make()
    files = {node_id: BrittleFiles() for node_id in (1, 2, 3)}
    for node_id, disk in files.items():
        await cluster.start(node_id, files=disk)
    epoch = await cluster.register()
    assert await cluster.allocate(epoch, 5) == [0, 10, 20, 30, 40]
    await cluster.settled()
    leader = await cluster.leader()
    # With an entry under way that no follower takes, the leader would write nothing more, and never meet its disk.
    await eventually(lambda: leader.core.applied == leader.core.last_index)
    # No disk works, so that nobody else can commit the entry either.
    for disk in files.values():
        disk.broken = True
    answer = leader.submit(requests.AllocateProducerIds(1, epoch))
    async with asyncio.timeout(10):
        fault = await leader.ended
        with pytest.raises(RequestError) as refused:
            await answer
    assert refused.value.code in {ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_CONTROLLER}
    assert isinstance(fault, LogFailed)
    assert "Input/output error" in str(fault)
    assert not leader.leadership.serving()
    assert [check.name for check in MemberInterface(leader).liveness() if not check.ok] == ["storage", "fault"]
    with pytest.raises(RequestError):
        leader.submit(requests.AllocateProducerIds(1, epoch))
    for member in cluster.members.values():
        assert next_id(member) == 50


async def test_the_others_go_on_when_the_leaders_disk_fails(make: Make) -> None:
    cluster = make()
    files = {node_id: BrittleFiles() for node_id in (1, 2, 3)}
    for node_id, disk in files.items():
        await cluster.start(node_id, files=disk)
    epoch = await cluster.register()
    first = await cluster.allocate(epoch, 5)
    leader = await cluster.leader()
    files[leader.node_id].broken = True
    with pytest.raises(RequestError):
        # Committed by the two others or not: without its own sync this member must not say so.
        await leader.submit(requests.AllocateProducerIds(1, epoch))
    await eventually(leader.ended.done)
    await cluster.stop(leader.node_id, hand_over=False)
    second = await cluster.allocate(epoch, 5)
    starts = first + second
    assert all(later >= earlier + 10 for earlier, later in itertools.pairwise(starts))


async def test_a_graceful_stop_hands_leadership_over(make: Make) -> None:
    cluster = make()
    await cluster.start()
    epoch = await cluster.register()
    first = await cluster.allocate(epoch, 3)
    leader = await cluster.leader()
    term = leader.core.term
    await leader.hand_over()
    core = leader.core
    assert core.role is Role.FOLLOWER
    assert core.leader_id not in {None, leader.node_id}
    assert core.term > term
    assert "this member is being stopped" in MemberInterface(leader).describe().reasons
    with pytest.raises(RequestError):
        leader.submit(requests.AllocateProducerIds(1, epoch))
    await cluster.stop(leader.node_id)
    assert first + await cluster.allocate(epoch, 2) == [0, 10, 20, 30, 40]


async def test_the_quorum_survives_the_death_of_its_leader(make: Make) -> None:
    cluster = make()
    await cluster.start()
    epoch = await cluster.register()
    first = await cluster.allocate(epoch, 3)
    leader = await cluster.leader()
    await cluster.stop(leader.node_id, hand_over=False)
    second = await cluster.allocate(epoch, 3)
    await cluster.start(leader.node_id)
    third = await cluster.allocate(epoch, 3)
    starts = first + second + third
    assert starts == sorted(set(starts))
    await cluster.settle()
    histories = [await history(member) for member in cluster.members.values()]
    assert histories[0] == histories[1] == histories[2]
    assert set(starts) <= {block.first for block in histories[0]}


async def test_leadership_is_transferred_on_request(make: Make) -> None:
    cluster = make()
    await cluster.start()
    leader = await cluster.leader()
    target = (await cluster.followers())[-1].node_id
    for wrong in (leader.node_id, 9):
        with pytest.raises(RequestError, match="not one of the other voters") as refused:
            MemberInterface(leader).transfer_leadership(wrong)
        assert refused.value.code is ErrorCode.INVALID_REQUEST
    await eventually(lambda: not leader.core.progress[target].recovery)
    MemberInterface(leader).transfer_leadership(target)
    await eventually(cluster.members[target].leadership.serving)
    assert MemberInterface(leader).leader() == (target, f"http://127.0.0.1:{target}")


async def test_a_silent_broker_is_fenced_and_a_heartbeat_unfences_it(make: Make) -> None:
    cluster = make(voters=1, broker_session_timeout_ms=200)
    await cluster.start()
    epoch = await cluster.register()
    machine = cluster.members[1].machine

    def fenced() -> bool:
        registration = machine.brokers.get(1)
        assert registration is not None
        return registration.fenced

    assert not fenced()
    await eventually(fenced)
    # Fencing is information: the epoch alone decides.
    assert await cluster.allocate(epoch) == [0]
    assert (await cluster.call(requests.BrokerHeartbeat(1, epoch))).fenced is False
    assert not fenced()
    await cluster.call(requests.UnregisterBroker(1, epoch))
    assert machine.brokers.get(1) is None


async def test_a_quorum_of_one(make: Make) -> None:
    cluster = make(voters=1)
    await cluster.start()
    epoch = await cluster.register()
    assert await cluster.allocate(epoch, 2) == [0, 10]
    member = cluster.members[1]
    assert MemberInterface(member).describe().failure_tolerance == 0
    names = [family.name for family in MemberInterface(member).metric_families()]
    assert len(names) == len(set(names))
    assert {"pidkeeper_raft_term", "pidkeeper_ids_next_id"} <= set(names)
    member.request_stop()
    member.request_stop()
    assert await member.ended is None


async def test_an_address_that_is_taken_is_an_error(make: Make) -> None:
    cluster = make(voters=1)
    await cluster.start()
    other = make(voters=1, peer_listen=cluster.voters[0].peer)
    with pytest.raises(OSError, match="address already in use"):
        await other.start()
    member = other.members.pop(1)
    await member.stop()


async def leader_does(cluster: LoopbackCluster, change: Callable[[ClusterMember], Any]) -> Any:
    """A change of the quorum, asked for again while the last one, or a fresh cluster's recovery, is not complete."""
    async with asyncio.timeout(20):
        while True:
            with contextlib.suppress(RequestError):
                return await change(await cluster.leader())
            await asyncio.sleep(0.02)


async def add(cluster: LoopbackCluster, node_id: int) -> None:
    """Make a running learner a voter."""
    voter = cluster.learners[node_id]
    request = AddVoterRequest(node_id, str(voter.peer), voter.http)
    while not (await leader_does(cluster, lambda leader: MemberInterface(leader).add_voter(request))).voting:  # noqa: ASYNC110
        await asyncio.sleep(0.02)


async def test_a_voter_that_joins_gets_a_snapshot_and_the_quorum_outlives_a_restart(make: Make) -> None:
    cluster = make(voters=3, learners=1, snapshot_entries=10)
    await cluster.start(1, 2, 3)
    epoch = await cluster.register()
    await cluster.allocate(epoch, 30)
    await cluster.start(4)
    await eventually(lambda: cluster.members[4].gate.founding is not None)
    checks = {check.name: check.ok for check in MemberInterface(cluster.members[4]).readiness()}
    assert not checks["member"], "it belongs to nobody yet"
    await add(cluster, 4)
    assert cluster.members[4].keeper.installed >= 1
    await cluster.allocate(epoch, 30)
    await cluster.settle()
    await eventually(lambda: all(member.core.snapshot.index > 30 for member in cluster.members.values()))
    description = MemberInterface(await cluster.leader()).describe()
    directory_id = str(cluster.members[4].storage.directory.meta.directory_id)
    assert [voter.id for voter in description.voters] == [1, 2, 3, 4]
    assert description.voters[3].directory_id == directory_id
    await cluster.stop(hand_over=False)
    await cluster.start(1, 2, 4)
    assert await cluster.allocate(epoch, 1) == [600]
    leader = await cluster.leader()
    assert leader.core.membership.voters == frozenset({1, 2, 3, 4})


async def test_a_removed_leader_answers_and_leads_no_more(make: Make) -> None:
    cluster = make()
    await cluster.start()
    await cluster.settle()
    old = await cluster.leader()
    removed = await leader_does(cluster, lambda _: MemberInterface(old).remove_voter(old.node_id))
    assert removed.id == old.node_id
    await eventually(lambda: old.core.role is Role.FOLLOWER)
    await eventually(lambda: any(m.leadership.serving() for m in cluster.members.values() if m is not old))
    leader = await cluster.leader()
    assert leader.core.membership.voters == frozenset({1, 2, 3} - {old.node_id})
    assert not {check.name: check.ok for check in MemberInterface(old).readiness()}["member"]
    with pytest.raises(RequestError, match="NOT_CONTROLLER"):
        await MemberInterface(old).remove_voter(leader.node_id)


async def test_an_address_that_is_none_is_refused(make: Make) -> None:
    cluster = make(voters=1)
    await cluster.start()
    with pytest.raises(RequestError, match="peer: 'nowhere' is not host:port"):
        await MemberInterface(await cluster.leader()).add_voter(AddVoterRequest(2, "nowhere", "http://h:1"))


async def test_an_address_that_no_record_holds_is_refused_and_nothing_is_appended(make: Make) -> None:
    """The brackets that an address of many colons gets make it longer than what was asked for."""
    cluster = make(voters=1)
    await cluster.start()
    leader = await cluster.leader()
    last = leader.core.last_index
    peer = "a:" * (MAX_PEER_LENGTH // 2 - 1) + "1"
    with pytest.raises(RequestError, match=r"INVALID_REQUEST: .* has 265 characters, 264 are allowed"):
        await MemberInterface(leader).add_voter(AddVoterRequest(2, peer, "http://h:1"))
    assert leader.core.last_index == last
    assert not leader.driver.faulted
