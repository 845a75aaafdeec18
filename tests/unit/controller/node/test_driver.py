"""The driver: faults stop the member and release nothing; everything else goes on."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from pidkeeper.controller.node.assembly import ClusterMember
from pidkeeper.controller.node.interface import MemberInterface
from pidkeeper.controller.raft.core import InvariantViolation, Role
from pidkeeper.controller.raft.messages import (
    AppendEntries,
    AppendEntriesReply,
    Entry,
    Heartbeat,
    InstallSnapshot,
    Message,
    RequestVote,
)
from pidkeeper.controller.raft.ready import ChunkRequest
from pidkeeper.controller.state import requests
from pidkeeper.protocol.errors import ErrorCode, RequestError
from pidkeeper.protocol.records import LeaderChangeRecord, RecordError, encode_batch
from pidkeeper.snapshots.snapshot_id import SnapshotId
from tests.support.loopback_cluster import LoopbackCluster, eventually


@pytest.fixture
async def alone(tmp_path: Path) -> AsyncIterator[ClusterMember]:
    """A quorum of one in which broker 1 has registered."""
    cluster = LoopbackCluster(tmp_path, voters=1)
    await cluster.start()
    await cluster.settled()
    await cluster.register()
    yield cluster.members[1]
    await cluster.close()


@pytest.fixture
async def follower(tmp_path: Path) -> AsyncIterator[ClusterMember]:
    """Member 1 of three, for which the test plays the leader 2 of term 5."""
    cluster = LoopbackCluster(tmp_path, voters=3)
    await cluster.start(1)
    yield cluster.members[1]
    await cluster.close()


@pytest.fixture
async def three(tmp_path: Path) -> AsyncIterator[LoopbackCluster]:
    cluster = LoopbackCluster(tmp_path, voters=3)
    await cluster.start()
    await cluster.settled()
    yield cluster
    await cluster.close()


def epoch_of(member: ClusterMember) -> int:
    registration = member.machine.brokers.get(1)
    assert registration is not None
    return registration.broker_epoch


async def fault_of(member: ClusterMember) -> BaseException:
    async with asyncio.timeout(10):
        fault = await member.ended
    assert fault is not None
    return fault


def append(prev: int, commit: int, *entries: Entry) -> AppendEntries:
    return AppendEntries(5, 2, 1, prev, 5 if prev else 0, commit, list(entries))


async def test_what_a_leader_commits_is_applied(follower: ClusterMember) -> None:
    entry = Entry(5, 1, encode_batch([LeaderChangeRecord(2)]))
    follower.driver.received([append(0, 0, entry)])
    assert follower.core.applied == 0
    follower.driver.received([append(1, 1)])
    await eventually(lambda: follower.core.applied == 1)
    assert follower.machine.next_offset == 1
    assert follower.driver.leader_changes == 1
    assert follower.driver.led_by_another.is_set()
    assert MemberInterface(follower).leader() == (2, "http://127.0.0.1:2")


async def test_a_record_that_is_not_known_stops_the_member(follower: ClusterMember) -> None:
    follower.driver.received([append(0, 0, Entry(5, 1, b"\x91\x93\x63\x00\x91\x01"))])
    follower.driver.received([append(1, 1)])
    fault = await fault_of(follower)
    assert isinstance(fault, RecordError)
    assert "unknown record type 99" in str(fault)
    assert follower.core.applied == 0


async def test_nothing_is_decided_while_an_entry_of_the_cores_own_is_not_applied(alone: ClusterMember) -> None:
    alone.core.propose(encode_batch([LeaderChangeRecord(1)]))
    before = alone.core.last_index
    answer = alone.submit(requests.AllocateProducerIds(1, epoch_of(alone)))
    alone.driver.pump()
    assert (alone.leadership.decider.waiting(), alone.core.last_index) == (1, before)
    await answer
    assert alone.core.last_index == before + 1


async def test_a_violated_rule_of_replay_gives_no_block(alone: ClusterMember) -> None:
    answer = alone.submit(requests.AllocateProducerIds(1, epoch_of(alone)))
    alone.driver.pump()
    assert alone.leadership.decider.waiting() == 0
    # The decision is on its way to the disk when the state jumps under it.
    alone.machine.producer_ids.next_producer_id += 10
    fault = await fault_of(alone)
    assert isinstance(fault, AssertionError)
    assert str(fault).startswith("S1: ")
    with pytest.raises(RequestError) as refused:
        await answer
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR


async def test_a_violated_invariant_of_the_core_stops_the_member(three: LoopbackCluster) -> None:
    leader = await three.leader()
    peer = (await three.followers())[0].node_id
    core = leader.core
    beyond = core.last_index + 100
    leader.driver.received([AppendEntriesReply(core.term, peer, leader.node_id, False, beyond, 0, 0, 0, 0)])
    fault = await fault_of(leader)
    assert isinstance(fault, InvariantViolation)
    assert f"acknowledged {beyond}" in str(fault)
    assert not leader.leadership.serving()
    assert [check.name for check in MemberInterface(leader).liveness() if not check.ok] == ["fault"]
    with pytest.raises(RequestError) as refused:
        leader.submit(requests.RegisterBroker(1, "x"))
    assert refused.value.code is ErrorCode.NOT_CONTROLLER


async def test_after_a_fault_nothing_moves_any_more(alone: ClusterMember) -> None:
    driver, core = alone.driver, alone.core
    driver.fault(ZeroDivisionError("first"))
    driver.fault(ZeroDivisionError("second"))
    assert str(await fault_of(alone)) == "first"
    before = (core.term, core.last_index, core.applied)
    driver.tick()
    driver.durable([99])
    driver.received([Heartbeat(core.term + 1, 2, 1, 0, 0)])
    driver.link_lost(2)
    driver.link_up(2)
    driver.pump()
    assert (core.term, core.last_index, core.applied) == before


async def test_a_write_that_nobody_ordered_stops_the_member(alone: ClusterMember) -> None:
    alone.driver.durable([10_000])
    assert "R13" in str(await fault_of(alone))


@pytest.mark.parametrize("offset", [0, 10_000_000])
async def test_a_snapshot_that_is_gone_costs_the_transfer_and_not_the_leader(
    three: LoopbackCluster, caplog: pytest.LogCaptureFixture, offset: int
) -> None:
    """It was pruned while it was sent, or a follower asks for what is not in it."""
    leader = await three.leader()
    peer = (await three.followers())[0].node_id
    leader.chunk_reader.read(ChunkRequest(leader.core.term, peer, SnapshotId(77, 1), offset))
    await eventually(lambda: f"cannot send a part of a snapshot to member {peer}" in caplog.text)
    assert not leader.ended.done()
    epoch = await three.register()
    assert await three.allocate(epoch) == [0]


async def test_a_disk_that_cannot_be_read_stops_the_member(three: LoopbackCluster) -> None:
    leader = await three.leader()
    peer = (await three.followers())[0].node_id
    leader.storage.catalog.read_chunk = _fails_to_read  # type: ignore[method-assign]
    leader.chunk_reader.read(ChunkRequest(leader.core.term, peer, SnapshotId(1, 1), 0))
    assert str(await fault_of(leader)) == "[Errno 5] Input/output error"


def _fails_to_read(snapshot: SnapshotId, offset: int, size: int) -> tuple[bytes, bool]:
    raise OSError(errno.EIO, "Input/output error")


async def test_a_chunk_is_sent_only_by_who_still_leads_in_its_term(
    three: LoopbackCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader = await three.leader()
    peer = (await three.followers())[0].node_id
    sent: list[Message] = []
    monkeypatch.setattr(leader.links, "send", sent.extend)

    def chunks() -> list[Message]:
        return [message for message in sent if isinstance(message, InstallSnapshot)]

    core, snapshot = leader.core, SnapshotId(1, 1)
    now, before = (ChunkRequest(term, peer, snapshot, 64) for term in (core.term, core.term - 1))
    leader.driver.chunk_read(before, b"old", False)
    assert chunks() == []
    leader.driver.chunk_read(now, b"data", True)
    assert chunks() == [InstallSnapshot(core.term, leader.node_id, peer, snapshot, 64, b"data", True)]
    leader.driver.received([Heartbeat(core.term + 1, peer, leader.node_id, 0, 0)])
    assert core.role is Role.FOLLOWER
    leader.driver.chunk_read(now, b"data", True)
    leader.driver.chunk_read(msgspec.structs.replace(now, term=core.term), b"data", True)
    assert len(chunks()) == 1


async def test_a_deposed_leader_answers_unknown(three: LoopbackCluster) -> None:
    epoch = await three.register()
    leader = await three.leader()
    peer = (await three.followers())[0].node_id
    core = leader.core
    answer = leader.submit(requests.AllocateProducerIds(1, epoch))
    leader.driver.pump()
    assert leader.leadership.decider.waiting() == 0
    leader.driver.received([Heartbeat(core.term + 1, peer, leader.node_id, 0, 0)])
    assert core.role is Role.FOLLOWER
    with pytest.raises(RequestError) as refused:
        await answer
    assert refused.value.code is ErrorCode.NOT_CONTROLLER
    # A block may have been taken for it; the next one is another.
    first = await three.allocate(epoch)
    second = await three.allocate(epoch)
    assert first[0] < second[0]
    assert first[0] in {0, 10}


async def test_a_handing_over_leader_serves_no_more(three: LoopbackCluster) -> None:
    leader = await three.leader()
    leader.core.transfer_leadership(next(m.node_id for m in await three.followers()))
    assert not leader.leadership.serving()
    with pytest.raises(RequestError) as refused:
        leader.submit(requests.RegisterBroker(1, "x"))
    assert refused.value.code is ErrorCode.NOT_CONTROLLER
    with pytest.raises(RequestError) as refused:
        leader.proposals.propose([LeaderChangeRecord(1)], [])
    assert refused.value.code is ErrorCode.NOT_CONTROLLER


@pytest.mark.parametrize(
    "message",
    [append(0, 0, Entry(5, 1, encode_batch([LeaderChangeRecord(2)]))), RequestVote(5, 2, 1, 0, 0, transfer=False)],
    ids=lambda message: type(message).__name__,
)
async def test_d8_whatever_lets_it_through_a_blank_member_takes_no_entry_and_gives_no_vote(
    tmp_path: Path, message: Message
) -> None:
    cluster = LoopbackCluster(tmp_path, voters=3, blank=True)
    await cluster.start(1)
    member = cluster.members[1]
    try:
        member.driver.received([message])
        assert str(await fault_of(member)).startswith("D8: ")
        assert (member.writer.waiting(), member.writer.wal.next_index, member.writer.wal.hard_state.term) == (0, 1, 0)
    finally:
        await cluster.close()
