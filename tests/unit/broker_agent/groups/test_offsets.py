"""Offsets of groups by the real state: what is committed is told, by the rules of KIP-98 and KIP-447."""

from __future__ import annotations

import pytest

from pidkeeper.broker_agent.coordinator.caller import ANYBODY
from pidkeeper.broker_agent.groups.committing import OffsetCommitter
from pidkeeper.broker_agent.groups.deleting import GroupDeleter
from pidkeeper.broker_agent.groups.fetching import OffsetFetcher
from pidkeeper.broker_agent.kafka.wire.groups.offset_commit import OffsetCommitRequest
from pidkeeper.broker_agent.kafka.wire.groups.offset_delete import OffsetDeleteRequest
from pidkeeper.broker_agent.kafka.wire.groups.offset_fetch import VERSIONS, GroupOffsets, OffsetFetchRequest
from pidkeeper.broker_agent.kafka.wire.groups.partitions import PartitionCommit, TopicCommits, TopicPartitions
from pidkeeper.broker_agent.kafka.wire.groups.txn_offset_commit import TxnOffsetCommitRequest
from pidkeeper.protocol.group_messages import CommitGroupRequest, FindGroupRequest
from pidkeeper.protocol.groups import OFFSETS_TOPIC, GroupMember, offsets_partition
from pidkeeper.service.kafka.wire.headers import RequestHeader, frame_response
from pidkeeper.service.kafka.wire.versions import OFFSET_FETCH
from tests.support.group_calls import Registered, ToldCoordination, punctual
from tests.support.group_leader import GroupLeader
from tests.support.log_leader import LogLeader
from tests.support.plain_messages import CORRELATION_ID, response

Who = tuple[int, str, str | None]
"""Generation, member id and instance id."""

NOBODY: Who = (-1, "", None)
UNSTABLE = 88


class Rig:
    """Agent 7, and topic `t` with 2000 partitions."""

    def __init__(self) -> None:
        self.leader = LogLeader()
        self.calls = GroupLeader(self.leader)
        session = Registered()
        session.broker_epoch = self.leader.register(7)
        self.epoch = session.broker_epoch
        self.leader.add_topic("t", 2000)
        coordination = ToldCoordination()
        self.committer = OffsetCommitter(self.calls, session, coordination, punctual())
        self.fetcher = OffsetFetcher(self.calls, session)
        self.deleter = GroupDeleter(self.calls, session, coordination)

    async def gather(self, *members: tuple[str, str | None], generation: int = 1) -> None:
        """The group `g` has these members."""
        group = (await self.calls.find_group(FindGroupRequest("g"))).group
        after = -1 if group is None else group.version
        made = [GroupMember(member_id, instance_id, "c", "h") for member_id, instance_id in members]
        request = CommitGroupRequest(7, self.epoch, "g", after, generation, "consumer", made)
        assert (await self.calls.commit_group(request)).taken

    async def commit(self, offset: int, *partitions: int, who: Who = NOBODY, topic: str = "t") -> list[int]:
        topics = [TopicCommits(topic, [PartitionCommit(number, offset, 3, "m") for number in partitions])]
        (outcome,) = await self.committer.commit(OffsetCommitRequest("g", *who, topics), ANYBODY)
        return [one.error_code for one in outcome.partitions]

    async def commit_in_transaction(
        self, producer: tuple[int, int], offset: int, *partitions: int, who: Who = NOBODY
    ) -> list[int]:
        topics = [TopicCommits("t", [PartitionCommit(number, offset, -1, "") for number in partitions])]
        generation, member_id, instance_id = who
        request = TxnOffsetCommitRequest("x", "g", *producer, generation, member_id, instance_id, topics)
        (outcome,) = await self.committer.commit_in_transaction(request, 3, ANYBODY)
        return [one.error_code for one in outcome.partitions]

    async def told(self, *partitions: int, stable: bool = False, group_id: str = "g") -> list[tuple[int, int]]:
        """Offset and code of each partition, or of all."""
        topics = [TopicPartitions("t", [*partitions])] if partitions else None
        request = OffsetFetchRequest([GroupOffsets(group_id, topics)], stable)
        body = await self.fetcher.fetch(request, 9, ANYBODY)
        frame = frame_response(RequestHeader(OFFSET_FETCH, 9, CORRELATION_ID, None), VERSIONS, body)
        (group,) = response("offset_fetch", 9, frame[4:])["groups"]
        assert group["error_code"] == 0
        return [(one["committed_offset"], one["error_code"]) for t in group["topics"] for one in t["partitions"]]

    def begin(self) -> tuple[int, int]:
        """A producer begins a transaction that the group's offsets join (AddOffsetsToTxn)."""
        return self.leader.begin("x", OFFSETS_TOPIC, offsets_partition("g"))


async def test_offsets_without_members() -> None:
    """A simple group: `testSimpleGroupOffsetCommit`."""
    rig = Rig()
    assert await rig.told(0, 1) == [(-1, 0), (-1, 0)]
    assert await rig.commit(5, 0, who=(1, "me", None)) == [22], "testGenericGroupOffsetCommitWithUnknownGroupId"
    assert await rig.commit(5, 0, 1, 9999) == [0, 0, 3]
    assert await rig.commit(5, 0, topic="other") == [3]
    assert await rig.told(1, 9, 0) == [(5, 0), (-1, 0), (5, 0)]
    assert await rig.commit(3, 0) == [0], "consumers may go back"
    assert await rig.told() == [(3, 0), (5, 0)]
    assert await rig.told(group_id="other") == []
    assert await rig.commit(5, 0, who=(1, "me", None)) == [25], "nobody is a member"


async def test_members_alone_commit_and_only_those_of_the_newest_generation() -> None:
    """`testGenericGroupOffsetCommitWithUnknownMemberId`, `WithIllegalGeneration`, `WithFencedInstanceId`."""
    rig = Rig()
    await rig.gather(("me", None), ("you", "i"))
    assert await rig.commit(5, 0, who=(1, "me", None)) == [0]
    assert await rig.commit(6, 0, who=(1, "you", "i")) == [0]
    assert await rig.commit(7, 0) == [25]
    assert await rig.commit(7, 0, who=(1, "other", None)) == [25]
    assert await rig.commit(7, 0, who=(2, "me", None)) == [22]
    assert await rig.commit(7, 0, who=(1, "me", "i")) == [82]
    await rig.gather(("you", "i"), generation=2)
    assert await rig.commit(7, 0, who=(1, "me", None)) == [25]
    assert await rig.commit(7, 0, who=(1, "you", "i")) == [22]
    assert await rig.told(0) == [(6, 0)]


@pytest.mark.parametrize("committed", [True, False])
async def test_offsets_of_a_transaction_count_when_it_has_ended(committed: bool) -> None:
    """`testReplayTransactionEndMarkerWithCommit` and `WithAbort`, seen from a client."""
    rig = Rig()
    await rig.gather(("me", None))
    assert await rig.commit(5, 0, 1, who=(1, "me", None)) == [0, 0]
    producer = rig.begin()
    assert await rig.commit_in_transaction(producer, 9, 0, 9999, who=(1, "me", None)) == [0, 3]
    assert await rig.told(0, 1, stable=True) == [(-1, UNSTABLE), (5, 0)]
    assert await rig.told(stable=True) == [(-1, UNSTABLE), (5, 0)]
    assert await rig.told(0, 1) == [(5, 0), (5, 0)]
    rig.leader.end("x", committed=committed)
    assert await rig.told(0, 1, stable=True) == [(9 if committed else 5, 0), (5, 0)]


async def test_a_newer_plain_commit_stays() -> None:
    """`testReplayTransactionEndMarkerKeepsTheMostRecentCommittedOffset`."""
    rig = Rig()
    producer = rig.begin()
    assert await rig.commit_in_transaction(producer, 9, 0, 1) == [0, 0]
    assert await rig.commit(7, 0) == [0]
    rig.leader.end("x", committed=True)
    assert await rig.told(0, 1, stable=True) == [(7, 0), (9, 0)]


async def test_a_zombie_commits_nothing_within_its_transaction() -> None:
    """KIP-447: who is of an older generation, and who has been fenced, as a consumer or as a producer."""
    rig = Rig()
    await rig.gather(("me", None))
    old = rig.begin()
    await rig.gather(("you", None), generation=2)
    assert await rig.commit_in_transaction(old, 9, 0, who=(1, "me", None)) == [25]
    assert await rig.commit_in_transaction(old, 9, 0, who=(1, "you", None)) == [22]
    assert await rig.commit_in_transaction(old, 9, 0) == [0], "clients before KIP-447 name no member"
    new = rig.begin()
    assert new != old
    assert await rig.commit_in_transaction(old, 9, 0, who=(2, "you", None)) == [47]
    assert await rig.commit_in_transaction((999_999_999, 0), 9, 0) == [49]
    assert await rig.commit_in_transaction(new, 9, 0, who=(2, "you", None)) == [0]
    rig.leader.end("x", committed=True)
    assert await rig.commit_in_transaction(new, 10, 0) == [48], "the transaction has ended"
    assert await rig.told(0) == [(9, 0)]


async def test_more_than_a_record_holds_is_committed_and_told() -> None:
    rig = Rig()
    assert await rig.commit(5, *range(2000)) == [0] * 2000
    assert await rig.told(*range(2000)) == [(5, 0)] * 2000
    assert await rig.told() == [(5, 0)] * 2000
    producer = rig.begin()
    assert await rig.commit_in_transaction(producer, 6, *range(2000)) == [0] * 2000
    rig.leader.end("x", committed=True)
    assert await rig.told(stable=True) == [(6, 0)] * 2000


async def test_deleted_offsets_and_deleted_topics_are_forgotten() -> None:
    rig = Rig()
    await rig.commit(5, 0, 1)
    request = OffsetDeleteRequest("g", [TopicPartitions("t", [1, 2])])
    code, (outcome,) = await rig.deleter.delete_offsets(request, ANYBODY)
    assert (code, [one.error_code for one in outcome.partitions]) == (0, [0, 0])
    assert await rig.told() == [(5, 0)]
    rig.leader.drop_topic("t")
    assert await rig.told() == []
    code, outcomes = await rig.deleter.delete_offsets(OffsetDeleteRequest("other", request.topics), ANYBODY)
    assert (code, outcomes) == (69, [])
