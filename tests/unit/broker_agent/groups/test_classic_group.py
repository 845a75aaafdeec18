"""A classic group comes together as Kafka's does. Tests that mirror one of Kafka's name it."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from pidkeeper.broker_agent.groups import classic_group, turns
from pidkeeper.broker_agent.groups.classic_group import (
    NEW_MEMBER_MS,
    UNKNOWN_REBALANCE_MS,
    ClassicGroup,
    State,
)
from pidkeeper.broker_agent.groups.settings import GroupSettings
from pidkeeper.protocol.errors import ErrorCode
from pidkeeper.protocol.group_messages import GroupDescription
from pidkeeper.protocol.groups import DEFAULT_SESSION_TIMEOUT_MS, GroupMember
from tests.support.group_rig import DEFAULTS, INITIAL_DELAY_MS, REBALANCE_MS, SESSION_MS, GroupRig

REBALANCING = ErrorCode.REBALANCE_IN_PROGRESS
UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID
FENCED = ErrorCode.FENCED_INSTANCE_ID
INCONSISTENT = ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def known(*members: GroupMember, generation: int = 7) -> GroupDescription:
    return GroupDescription("group", 55, generation, "consumer", list(members), 1, 2, 0, 0, 0)


def loaded(*member_ids: str, instance_id: str | None = None) -> GroupRig:
    """A group as another coordinator left it."""
    rig = GroupRig()
    assert rig.group.load(0, known(*(GroupMember(one, instance_id, "client", "host") for one in member_ids)))
    return rig


# The first members.


def test_an_empty_group_waits_for_more_members() -> None:
    """`testDelayInitialRebalanceByGroupInitialRebalanceDelayOnEmptyGroup`."""
    rig = GroupRig()
    call = rig.join()
    rig.wait(INITIAL_DELAY_MS - 1)
    assert call not in rig.answers
    rig.wait(1)
    answer = rig.joined(call)
    assert (answer.generation, answer.leader, answer.protocol_name) == (1, answer.member_id, "range")
    assert answer.member_id == "client-id1", "people recognise the client"
    assert [one.metadata for one in answer.members] == [b"of range"]


def test_each_new_member_extends_the_wait() -> None:
    """`testResetRebalanceDelayWhenNewMemberJoinsGroupDuringInitialRebalance`."""
    rig = GroupRig()
    first = rig.join()
    rig.wait(INITIAL_DELAY_MS - 1)
    second = rig.join()
    rig.wait(1)
    assert first not in rig.answers
    rig.wait(INITIAL_DELAY_MS)
    assert rig.joined(first).generation == rig.joined(second).generation == 1
    assert len(rig.joined(first).members) == 2
    assert not rig.joined(second).members, "a follower is told of nobody"
    assert rig.joined(second).leader == rig.joined(first).member_id


def test_the_wait_ends_with_the_rebalance_timeout() -> None:
    """`testDelayRebalanceUptoRebalanceTimeout`."""
    rig = GroupRig()
    first = rig.join(rebalance_timeout_ms=2 * INITIAL_DELAY_MS + 500)
    for _ in range(3):
        rig.join()
        rig.wait(INITIAL_DELAY_MS - 1000)
    rig.wait(499)
    assert first not in rig.answers
    rig.wait(1)
    assert len(rig.joined(first).members) == 4


def test_a_member_comes_again_with_the_id_it_is_given() -> None:
    """`testJoinGroupCompletionWhenPendingMemberJoins` (KIP-394)."""
    rig = GroupRig()
    (leader,) = rig.stable()
    pending = rig.join(takes_member_id=True)
    assert rig.code(pending) == ErrorCode.MEMBER_ID_REQUIRED.kafka_code
    assert rig.is_in(State.STABLE), "one that may never come disturbs nobody"
    again = rig.join(leader)
    assert again not in rig.answers, "the pending member is waited for"
    new = rig.join("client-id3")
    assert {rig.joined(again).generation, rig.joined(new).generation} == {2}


def test_a_pending_member_that_does_not_come_is_forgotten() -> None:
    """`testJoinGroupCompletionWhenPendingMemberTimesOut`, `testHeartbeatExpirationShouldRemovePendingMember`."""
    rig = GroupRig()
    (leader,) = rig.stable()
    rig.join(takes_member_id=True)
    again = rig.join(leader)
    rig.wait(SESSION_MS - 1)
    assert again not in rig.answers
    rig.wait(1)
    assert rig.joined(again).generation == 2
    assert rig.code(rig.join("client-id3")) is UNKNOWN


def test_a_member_id_that_nobody_gave_is_unknown() -> None:
    """`testJoinGroupUnknownMemberNewGroup`, `testJoinGroupUnknownConsumerExistingGroup`."""
    rig = GroupRig()
    assert rig.code(rig.join("somebody")) is UNKNOWN
    rig.stable()
    assert rig.code(rig.join("somebody")) is UNKNOWN
    assert rig.code(rig.join("somebody", instance_id="x")) is UNKNOWN


@pytest.mark.parametrize("changes", [{"protocol_type": ""}, {"protocols": ()}])
def test_a_first_member_needs_protocols(changes: dict[str, Any]) -> None:
    """`testJoinGroupWithEmptyProtocolType`, `testJoinGroupWithEmptyGroupProtocol`."""
    rig = GroupRig()
    assert rig.code(rig.join(**changes)) is INCONSISTENT
    assert rig.group.idle


@pytest.mark.parametrize(
    "changes", [{"protocol_type": "connect"}, {"protocols": ("sticky",)}, {"protocols": (), "protocol_type": ""}]
)
def test_members_need_a_protocol_in_common(changes: dict[str, Any]) -> None:
    """`testJoinGroupInconsistentGroupProtocol`, `testClassicGroupJoinInconsistentProtocolType`."""
    rig = GroupRig()
    rig.stable()
    assert rig.code(rig.join(**changes)) is INCONSISTENT
    assert rig.is_in(State.STABLE)


def test_the_protocol_is_chosen_by_votes() -> None:
    rig = GroupRig()
    calls = [
        rig.join(protocols=("range", "sticky", "alone")),
        rig.join(protocols=("sticky", "range")),
        rig.join(protocols=("sticky", "range", "other")),
    ]
    rig.wait(REBALANCE_MS)
    assert {rig.joined(call).protocol_name for call in calls} == {"sticky"}
    assert [one.metadata for one in rig.joined(calls[0]).members] == [b"of sticky"] * 3


def test_a_new_member_is_not_waited_for_without_end() -> None:
    """`testNewMemberJoinExpiration`, `testHeartbeatExpirationShouldRemoveMember`: nobody knows whether it is there."""
    rig = GroupRig()
    (member,) = rig.stable(session_timeout_ms=2 * NEW_MEMBER_MS, rebalance_timeout_ms=2 * NEW_MEMBER_MS)
    new = rig.join(rebalance_timeout_ms=2 * NEW_MEMBER_MS)
    rig.wait(NEW_MEMBER_MS - 1)
    assert new not in rig.answers
    rig.wait(1)
    assert rig.code(new) is UNKNOWN
    assert rig.joined(rig.join(member)).generation == 2


def test_a_new_member_has_its_session_from_its_first_answer() -> None:
    """`testNewMemberFailureAfterJoinGroupCompletion`, `testNewMemberTimeoutCompletion`."""
    rig = GroupRig()
    (member,) = rig.stable()
    rig.wait(SESSION_MS - 1)
    assert rig.heartbeat(member) is ErrorCode.NONE
    rig.wait(SESSION_MS - 1)
    assert rig.is_in(State.STABLE)
    rig.wait(1)
    assert rig.is_in(State.EMPTY)
    assert rig.heartbeat(member, 1) is UNKNOWN


# Who joins again.


def test_an_unchanged_follower_does_not_rebalance() -> None:
    """`testJoinGroupExistingMemberDoesNotTriggerRebalanceInStableState`."""
    rig = GroupRig()
    leader, follower = rig.stable(2)
    answer = rig.joined(rig.join(follower))
    assert (answer.generation, answer.leader, list(answer.members)) == (1, leader, [])
    assert rig.is_in(State.STABLE)
    assert rig.synced(rig.sync(follower)).assignment == f"to {follower}".encode()


def test_an_unchanged_leader_rebalances() -> None:
    """`testJoinGroupFromUnchangedLeaderShouldRebalance`,
    `testJoinGroupAsExistingLeaderTriggersRebalanceInStableState`."""
    rig = GroupRig()
    leader, follower = rig.stable(2)
    call = rig.join(leader)
    assert call not in rig.answers
    assert rig.heartbeat(follower) is REBALANCING
    other = rig.join(follower)
    assert rig.joined(call).generation == rig.joined(other).generation == 2


def test_a_changed_follower_rebalances() -> None:
    """`testJoinGroupAsExistingMemberWithUpdatedMetadataTriggersRebalanceInStableState`."""
    rig = GroupRig()
    _, follower = rig.stable(2)
    call = rig.join(follower, protocols=(("range", b"other topics"),))
    assert call not in rig.answers
    assert rig.is_in(State.PREPARING_REBALANCE)


def test_joining_again_before_the_sync() -> None:
    """`testJoinGroupExistingMemberUpdatedMetadataTriggersRebalance`: unchanged, the answer is told again."""
    rig = GroupRig()
    first, second = rig.join(), rig.join()
    leader, follower = rig.gather(first, second)
    assert rig.joined(rig.join(leader)) == rig.joined(first)
    assert rig.joined(rig.join(follower)) == rig.joined(second)
    waiting = rig.sync(follower)
    assert waiting not in rig.answers
    rig.join(leader, protocols=(("range", b"other"),))
    assert rig.code(waiting) is REBALANCING
    assert rig.is_in(State.PREPARING_REBALANCE)


def test_a_call_takes_the_place_of_one_before() -> None:
    """`testJoinGroupExistingMemberRejoinDuringPreparingRebalanceCompletesPreviousJoinFuture`,
    `testSyncGroupDuplicateFollowerSyncDuringCompletingRebalanceCompletesPreviousSyncFuture`: a connection broke, and
    the member comes on another one."""
    rig = GroupRig()
    leader, follower = rig.stable(2)
    lost, call = rig.join(leader), rig.join(leader)
    assert rig.code(lost) is ErrorCode.NOT_COORDINATOR
    rig.join(follower)
    assert rig.joined(call).generation == 2
    lost, call = rig.sync(follower), rig.sync(follower)
    assert rig.code(lost) is ErrorCode.NOT_COORDINATOR
    rig.sync(leader, assignments={follower: b"x"})
    assert rig.synced(call).assignment == b"x"


def test_who_does_not_come_is_removed() -> None:
    """`testCompleteJoinRemoveNotYetRejoinedDynamicMembers`."""
    rig = GroupRig()
    leader, follower = rig.stable(2, session_timeout_ms=10 * REBALANCE_MS)
    call = rig.join(leader)
    rig.wait(REBALANCE_MS - 1)
    assert call not in rig.answers
    rig.wait(1)
    assert [one.member_id for one in rig.joined(call).members] == [leader]
    assert rig.heartbeat(follower, 1) is UNKNOWN


def test_another_leads_if_the_leader_does_not_come() -> None:
    rig = GroupRig()
    leader, follower = rig.stable(2, session_timeout_ms=10 * REBALANCE_MS)
    call = rig.join(follower, protocols=(("range", b"other"),))
    rig.wait(REBALANCE_MS)
    assert rig.joined(call).leader == follower
    assert rig.heartbeat(leader, 1) is UNKNOWN


def test_silence_ends_a_membership() -> None:
    rig = GroupRig()
    leader, follower = rig.stable(2)
    rig.wait(SESSION_MS - 1)
    assert rig.heartbeat(follower) is ErrorCode.NONE
    rig.wait(1)
    assert rig.is_in(State.PREPARING_REBALANCE)
    assert leader not in rig.group.members
    answer = rig.joined(rig.join(follower))
    assert (answer.leader, answer.generation) == (follower, 2)


def test_an_empty_group_goes_on_with_its_generation() -> None:
    rig = GroupRig()
    rig.stable()
    rig.wait(SESSION_MS)
    assert (rig.is_in(State.EMPTY), rig.group.generation, rig.group.idle) == (True, 2, True)
    call = rig.join(protocol_type="connect", protocols=("other",))
    rig.wait(INITIAL_DELAY_MS)
    assert (rig.joined(call).generation, rig.joined(call).protocol_type) == (3, "connect")


# SyncGroup.


def test_followers_wait_for_the_leader() -> None:
    rig = GroupRig()
    leader, early, late = rig.gather(rig.join(), rig.join(), rig.join())
    waiting = rig.sync(early)
    assert waiting not in rig.answers
    call = rig.sync(leader, assignments={leader: b"l", late: b"x", "stranger": b"y" * 1000})
    assert rig.synced(call).assignment == b"l"
    assert rig.synced(waiting).assignment == b"", "left out"
    assert rig.synced(rig.sync(late)).assignment == b"x"
    assert (rig.synced(call).protocol_type, rig.synced(call).protocol_name) == ("consumer", "range")


def test_sync_is_refused() -> None:
    """`testSyncGroupFromUnknownMember`, `testSyncGroupFromIllegalGeneration`, `testSyncGroupFromUnknownGroup`,
    `testSyncGroupReturnsAnErrorWhenProtocolTypeIsInconsistent`,
    `testSyncGroupReturnsAnErrorWhenProtocolNameIsInconsistent`."""
    rig = GroupRig()
    (member,) = rig.stable()
    assert rig.code(rig.sync("somebody")) is UNKNOWN
    assert rig.code(rig.sync(member, 2)) is ErrorCode.ILLEGAL_GENERATION
    assert rig.code(rig.sync(member, protocol_type="connect")) is INCONSISTENT
    assert rig.code(rig.sync(member, protocol_name="sticky")) is INCONSISTENT
    assert rig.code(rig.sync(member, tells_protocol=True)) is INCONSISTENT
    assert rig.code(rig.sync(member, protocol_type="consumer", protocol_name="range", tells_protocol=True)) == 0
    rig.join(protocols=("range", "sticky"))
    assert rig.code(rig.sync(member)) is REBALANCING
    rig = GroupRig()
    assert rig.code(rig.sync("somebody", 0)) is UNKNOWN


@pytest.mark.parametrize("silent", ["leader", "followers", "all"])
def test_who_does_not_sync_is_removed(silent: str) -> None:
    """`testRebalanceTimesOutWhenSyncRequestIsNotReceived`,
    `testRebalanceTimesOutWhenSyncRequestIsNotReceivedFromFollowers`,
    `testRebalanceTimesOutWhenSyncRequestIsNotReceivedFromLeaders`."""
    rig = GroupRig()
    leader, *followers = rig.gather(rig.join(), rig.join(), rig.join())
    end = rig.now + REBALANCE_MS
    if silent != "leader":
        synced = {} if silent == "all" else {rig.sync(leader): leader}
    else:
        synced = {rig.sync(one): one for one in followers}
    while rig.now < end - SESSION_MS // 2:
        rig.wait(SESSION_MS // 2)
        assert rig.group.generation == 1
        assert {rig.heartbeat(one) for one in (leader, *followers)} == {ErrorCode.NONE}
    rig.wait(end - rig.now)
    left = set(synced.values())
    assert {one.member_id for one in rig.group.members} == left
    assert rig.group.state is (State.PREPARING_REBALANCE if left else State.EMPTY)
    if silent == "leader":
        assert {rig.code(call) for call in synced} == {REBALANCING}


def test_all_have_synced_in_time() -> None:
    """`testRebalanceDoesNotTimeOutWhenAllSyncAreReceived`."""
    rig = GroupRig()
    members = rig.stable(3)
    for _ in range(2 * REBALANCE_MS // SESSION_MS + 1):
        rig.wait(SESSION_MS - 1)
        assert {rig.heartbeat(one) for one in members} == {ErrorCode.NONE}
    assert (rig.is_in(State.STABLE), rig.group.generation) == (True, 1)


def test_a_rebalance_answers_those_who_wait_for_the_leader() -> None:
    rig = GroupRig()
    _, follower = rig.gather(rig.join(), rig.join())
    waiting = rig.sync(follower)
    rig.join()
    assert rig.code(waiting) is REBALANCING
    assert rig.heartbeat(follower) is REBALANCING


def test_whoever_waits_for_the_leader_need_not_show_life() -> None:
    rig = GroupRig()
    leader, follower = rig.gather(rig.join(), rig.join())
    waiting = rig.sync(follower)
    for _ in range(2):
        rig.wait(SESSION_MS - 1)
        assert rig.heartbeat(leader) is ErrorCode.NONE
    rig.sync(leader, assignments={follower: b"late"})
    assert rig.synced(waiting).assignment == b"late"
    rig.wait(SESSION_MS - 1)
    assert follower in rig.group.members, "its session begins with the answer"


# Heartbeats, and commits of offsets.


def test_heartbeats() -> None:
    """`testHeartbeatUnknownGroup`, `testHeartbeatUnknownMemberExistingGroup`,
    `testHeartbeatDuringRebalanceCausesRebalanceInProgress`."""
    rig = GroupRig()
    assert rig.heartbeat("somebody") is UNKNOWN
    (member,) = rig.stable()
    assert rig.heartbeat(member) is ErrorCode.NONE
    assert rig.heartbeat(member, 2) is ErrorCode.ILLEGAL_GENERATION
    assert rig.heartbeat("somebody") is UNKNOWN
    rig.join()
    assert rig.heartbeat(member) is REBALANCING


def test_heartbeats_while_the_leader_assigns() -> None:
    """As in a stable group."""
    rig = GroupRig()
    (member,) = rig.gather(rig.join())
    rig.wait(SESSION_MS - 1)
    assert rig.heartbeat(member) is ErrorCode.NONE
    rig.wait(1)
    assert rig.is_in(State.COMPLETING_REBALANCE)


def test_commits_keep_a_session() -> None:
    rig = GroupRig()
    (member,) = rig.stable()
    for _ in range(5):
        rig.wait(SESSION_MS - 1)
        assert rig.group.before_commit(rig.now, member, 1, None) is ErrorCode.NONE
    assert rig.is_in(State.STABLE)
    rig.wait(SESSION_MS - 1)
    # The quorum refuses these, and they are no sign of life.
    assert rig.group.before_commit(rig.now, member, 2, None) is ErrorCode.NONE
    assert rig.group.before_commit(rig.now, "somebody", 1, None) is ErrorCode.NONE
    rig.wait(1)
    assert rig.is_in(State.EMPTY)


def test_commits_wait_for_the_leader() -> None:
    """While it assigns, nobody owns a partition; in a rebalance before
    that, members still have theirs."""
    rig = GroupRig()
    (member,) = rig.gather(rig.join())
    assert rig.group.before_commit(rig.now, member, 1, None) is REBALANCING
    rig.sync_all([member])
    rig.join()
    assert rig.group.before_commit(rig.now, member, 1, None) is ErrorCode.NONE


# LeaveGroup.


def test_who_leaves_is_not_waited_for() -> None:
    rig = GroupRig()
    leader, follower = rig.stable(2)
    assert rig.left(rig.leave((leader, None), ("somebody", None))) == [0, UNKNOWN.kafka_code]
    assert rig.heartbeat(follower) is REBALANCING
    assert rig.joined(rig.join(follower)).leader == follower


def test_leaving_while_joining() -> None:
    """The others go on at once, and its own call does not stay open."""
    rig = GroupRig()
    leader, follower = rig.stable(2)
    leaving = rig.join(leader)
    assert rig.left(rig.leave((leader, None))) == [0]
    assert rig.code(leaving) is UNKNOWN
    assert rig.joined(rig.join(follower)).generation == 2


def test_pending_members_leave() -> None:
    rig = GroupRig()
    leader, follower = rig.stable(2)
    rig.join(takes_member_id=True)
    pending = "client-id5"
    calls = rig.join(leader), rig.join(follower)
    assert not any(call in rig.answers for call in calls)
    assert rig.left(rig.leave((pending, None), ("somebody", None))) == [0, UNKNOWN.kafka_code]
    assert {rig.joined(call).generation for call in calls} == {2}


def test_a_pending_member_that_leaves_disturbs_nobody() -> None:
    rig = GroupRig()
    rig.stable()
    rig.join(takes_member_id=True)
    assert rig.left(rig.leave(("client-id3", None))) == [0]
    assert rig.is_in(State.STABLE)


def test_static_members_leave_by_instance() -> None:
    rig = GroupRig()
    rig.stable(2, instances=True)
    codes = rig.left(rig.leave(("", "instance0"), ("wrong", "instance1"), ("", "other"), ("", None)))
    assert codes == [0, FENCED.kafka_code, UNKNOWN.kafka_code, UNKNOWN.kafka_code]
    assert [one.instance_id for one in rig.group.members] == ["instance1"]
    rig = GroupRig()
    assert rig.left(rig.leave(("", "instance0"))) == [UNKNOWN.kafka_code]


# Static members (KIP-345).


def test_a_static_follower_comes_back_without_a_rebalance() -> None:
    """`testStaticMemberRejoinWithUnknownMemberIdAndChangeOfProtocolWhileSelectProtocolUnchanged`."""
    rig = GroupRig()
    leader, follower = rig.stable(2, instances=True)
    rig.agrees = False
    call = rig.join(instance_id="instance1")
    (commit,) = rig.commits
    assert call not in rig.answers, "the quorum has to know the new member id first"
    assert commit.generation == 1
    assert [one.member_id for one in commit.members] == [leader, f"instance1-id{call}"]
    assert rig.heartbeat(follower, instance_id="instance1") is FENCED
    rig.commit()
    answer = rig.joined(call)
    assert (answer.generation, answer.leader, answer.skip_assignment) == (1, leader, False)
    assert (rig.is_in(State.STABLE), answer.member_id) == (True, f"instance1-id{call}")
    got = rig.synced(rig.sync(answer.member_id, instance_id="instance1"))
    assert got.assignment == f"to {follower}".encode(), "the assignment is that of the instance"


@pytest.mark.parametrize("skips", [True, False])
def test_a_static_leader_comes_back_without_a_rebalance(skips: bool) -> None:
    """`testReplaceStaticMemberInStableStateNoError` (KIP-814): an older one is told that another leads."""
    rig = GroupRig()
    leader, _ = rig.stable(2, instances=True)
    call = rig.join(instance_id="instance0", skips_assignment=skips)
    answer = rig.joined(call)
    assert answer.skip_assignment is skips
    assert answer.leader == (answer.member_id if skips else leader)
    assert len(answer.members) == (2 if skips else 0)
    assert rig.group.members.leader == answer.member_id
    assert rig.is_in(State.STABLE)


def test_a_leader_leads_whatever_its_place() -> None:
    rig = GroupRig()
    _, follower = rig.stable(2, instances=True)
    leader = rig.joined(rig.join(instance_id="instance0")).member_id
    calls = rig.join(leader, instance_id="instance0"), rig.join(follower, instance_id="instance1")
    assert {rig.joined(call).leader for call in calls} == {leader}


def test_a_static_member_with_another_protocol() -> None:
    """`testReplaceStaticMemberInStableStateWithUpdatedProtocolTriggersRebalance`,
    `testStaticMemberRejoinWithUnknownMemberIdAndChangeOfProtocolWithSelectedProtocolChanged`."""
    rig = GroupRig()
    rig.stable(2, instances=True, protocols=("range", "sticky"))
    call = rig.join(instance_id="instance1", protocols=(("range", b"other topics"),))
    assert rig.joined(call).generation == 1, "range it is and stays"
    call = rig.join(instance_id="instance1", protocols=("sticky",))
    assert rig.code(call) is INCONSISTENT, "it had taken that back"
    rig = GroupRig()
    rig.stable(2, instances=True, protocols=("range", "sticky"))
    call = rig.join(instance_id="instance1", protocols=("sticky",))
    assert call not in rig.answers
    assert rig.is_in(State.PREPARING_REBALANCE)


def test_a_duplicate_of_a_static_member_is_fenced() -> None:
    """`testStaticMemberFenceDuplicateRejoinedFollower`,
    `testStaticMemberFenceDuplicateSyncingFollowerAfterMemberIdChanged`."""
    rig = GroupRig()
    leader, follower = rig.stable(2, instances=True)
    rig.join(leader, instance_id="instance0")
    joining = rig.join(follower, instance_id="instance1", protocols=(("range", b"new"),))
    assert rig.joined(joining).generation == 2
    syncing = rig.sync(follower, instance_id="instance1")
    call = rig.join(instance_id="instance1")
    assert rig.code(syncing) is FENCED
    assert rig.is_in(State.PREPARING_REBALANCE), "the leader assigns to the old id"
    twin = rig.join(instance_id="instance1")
    assert rig.code(call) is FENCED
    assert rig.code(rig.join(follower, instance_id="instance1")) is FENCED
    assert rig.code(rig.sync(follower, instance_id="instance1")) is FENCED
    rig.join(leader, instance_id="instance0")
    assert rig.joined(twin).generation == 3


def test_a_static_member_joins_again_by_its_member_id() -> None:
    """`testStaticMemberRejoinWithExplicitUnknownMemberId`: the instance is another one's."""
    rig = GroupRig()
    leader, follower = rig.stable(2, instances=True)
    assert rig.joined(rig.join(follower, instance_id="instance1")).member_id == follower
    assert rig.code(rig.join(follower, instance_id="instance0")) is FENCED
    assert leader in rig.group.members


def test_a_static_member_that_is_away_stays_a_member() -> None:
    """`testStaticMemberLeaderFailToRejoinBeforeRebalanceTimeout`,
    `testStaticMemberFollowerFailToRejoinBeforeRebalanceTimeout`."""
    rig = GroupRig()
    leader, follower = rig.stable(2, instances=True, session_timeout_ms=10 * REBALANCE_MS)
    call = rig.join(follower, instance_id="instance1", protocols=(("range", b"new"),))
    rig.wait(REBALANCE_MS)
    answer = rig.joined(call)
    assert (answer.leader, len(answer.members)) == (follower, 2)
    assert leader in rig.group.members


def test_nobody_comes_but_static_members_are_members() -> None:
    """`testCompleteJoinPhaseNoMembersRejoinedExtendsJoinPhase`."""
    rig = GroupRig()
    static, other = rig.stable(2, instances=True, session_timeout_ms=2 * REBALANCE_MS)
    assert rig.left(rig.leave(("", "instance1"))) == [0]
    rig.wait(REBALANCE_MS)
    assert (rig.is_in(State.PREPARING_REBALANCE), rig.group.generation) == (True, 1)
    assert other not in rig.group.members
    rig.wait(REBALANCE_MS)
    assert (rig.is_in(State.EMPTY), rig.group.generation) == (True, 2)
    assert rig.heartbeat(static, instance_id="instance0") is UNKNOWN


# Bounds.


def test_a_full_group() -> None:
    """`testDynamicMembersJoinGroupWithMaxSizeAndNotRequiredKnownMember`, `testStaticMembersJoinGroupWithMaxSize`."""
    rig = GroupRig(GroupSettings(max_size=2))
    members = rig.stable(2, instances=True)
    assert rig.code(rig.join()) is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert rig.code(rig.join(takes_member_id=True)) is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert rig.joined(rig.join(instance_id="instance1")).generation == 1, "it takes its own place"
    rig.join(members[0], instance_id="instance0")
    assert rig.is_in(State.PREPARING_REBALANCE)


def test_places_are_for_those_who_come() -> None:
    """`testDynamicMembersCanRejoinGroupWithMaxSizeWhileRebalancing`,
    `testLastJoiningMembersAreKickedOutWhenRejoiningGroupWithMaxSize`."""
    rig = GroupRig(GroupSettings(max_size=2))
    first, second = rig.stable(2)
    rig.join(first)
    new = rig.join()
    assert rig.code(rig.join(second)) is ErrorCode.GROUP_MAX_SIZE_REACHED
    rig.gather(new)
    assert [one.member_id for one in rig.group.members] == [first, f"client-id{new}"]


def test_whoever_finds_no_place_is_not_waited_for() -> None:
    """`testDynamicMembersJoinGroupWithMaxSizeAndRequiredKnownMember`."""
    rig = GroupRig(GroupSettings(max_size=2))
    (first,) = rig.stable()
    rig.join(takes_member_id=True)
    calls = rig.join(), rig.join(first)
    assert not any(call in rig.answers for call in calls)
    assert rig.code(rig.join("client-id3")) is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert {rig.joined(call).generation for call in calls} == {2}


def test_a_record_has_room_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(classic_group, "MAX_MEMBERS_BYTES", 120)
    rig = GroupRig()
    rig.stable(2)
    assert rig.code(rig.join()) is ErrorCode.GROUP_MAX_SIZE_REACHED


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = GroupRig()
    leader, _ = rig.stable(2)
    large = (("range", b"x" * classic_group.MAX_GROUP_BYTES),)
    assert rig.code(rig.join(protocols=large)) is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert rig.code(rig.join(leader, protocols=large)) is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert rig.is_in(State.STABLE)
    rig.room.capacity = rig.room.held
    assert rig.code(rig.join()) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert rig.code(rig.join(takes_member_id=True)) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    monkeypatch.setattr(classic_group, "MAX_PENDING", 0)
    assert rig.code(rig.join(takes_member_id=True)) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    other = ClassicGroup("other", rig.room, DEFAULTS)
    assert not other.load(0, known(GroupMember("a", None, "", "")))


def test_an_assignment_that_is_too_large_is_not_taken() -> None:
    rig = GroupRig()
    leader, follower = rig.gather(rig.join(), rig.join())
    waiting = rig.sync(follower)
    call = rig.sync(leader, assignments={follower: b"x" * classic_group.MAX_GROUP_BYTES})
    assert rig.code(call) is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert (waiting in rig.answers, rig.is_in(State.COMPLETING_REBALANCE)) == (False, True)
    for _ in range(REBALANCE_MS // SESSION_MS):
        rig.wait(SESSION_MS - 1)
        assert rig.heartbeat(leader) is ErrorCode.NONE
    rig.wait(REBALANCE_MS // SESSION_MS)
    assert leader not in rig.group.members, "it has not synced in time"
    assert rig.code(waiting) is REBALANCING


# The quorum.


def test_nobody_is_answered_before_the_quorum_agrees() -> None:
    rig = GroupRig(agrees=False)
    call = rig.join()
    rig.wait(10 * REBALANCE_MS)
    (commit,) = rig.commits
    assert (commit.after, commit.generation, commit.protocol_type) == (-1, 1, "consumer")
    assert rig.is_in(State.PREPARING_REBALANCE)
    rig.group.tick(rig.now + NEW_MEMBER_MS)
    assert len(rig.group.members) == 1, "nothing changes meanwhile"
    late, leaving, syncing = rig.join(), rig.leave(("client-id1", None)), rig.sync("client-id1", 1)
    assert not rig.answers
    rig.commit()
    assert rig.answers.keys() == {call}
    assert rig.joined(call).generation == 1
    (commit,) = rig.commits
    assert (commit.after, commit.generation) == (100, 2)
    assert [one.member_id for one in commit.members] == [f"client-id{late}"], "in the order in which they came"
    rig.commit()
    assert rig.joined(late).generation == 2
    assert rig.left(leaving) == [0]
    assert rig.code(syncing) is UNKNOWN


def test_the_last_member_leaves_when_the_quorum_knows() -> None:
    rig = GroupRig()
    (member,) = rig.stable()
    rig.agrees = False
    call = rig.leave((member, None))
    assert call not in rig.answers
    assert rig.commits[0].members == ()
    rig.commit()
    assert rig.left(call) == [0]
    assert rig.group.idle


def test_a_closed_group_keeps_nobody_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = GroupRig(agrees=False)
    call = rig.join()
    rig.wait(INITIAL_DELAY_MS)
    monkeypatch.setattr(turns, "MAX_QUEUED", 1)
    queued, too_many = rig.join(), rig.join()
    assert rig.code(too_many) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    rig.group.close(ErrorCode.NOT_COORDINATOR)
    rig.commits.clear()
    after = rig.join()
    assert {rig.code(one) for one in (call, queued, after)} == {ErrorCode.NOT_COORDINATOR}
    assert (rig.group.deadline, rig.room.held) == (None, 0)
    assert rig.heartbeat("client-id1") is ErrorCode.NOT_COORDINATOR
    assert rig.group.before_commit(rig.now, "client-id1", 1, None) is ErrorCode.NOT_COORDINATOR


def test_a_closed_group_answers_syncs() -> None:
    rig = GroupRig()
    _, follower = rig.gather(rig.join(), rig.join())
    syncing = rig.sync(follower)
    rig.group.close(ErrorCode.NOT_COORDINATOR)
    rig.look()
    assert rig.code(syncing) is ErrorCode.NOT_COORDINATOR


# Groups of another coordinator.


def test_members_of_another_coordinator_come_again() -> None:
    """An agent's death costs one rebalance."""
    rig = loaded("a", "b")
    assert rig.heartbeat("a", 7) is REBALANCING
    assert rig.heartbeat("a", 6) is ErrorCode.ILLEGAL_GENERATION
    assert rig.code(rig.sync("a", 7, protocol_name="range")) is REBALANCING
    assert rig.group.before_commit(0, "a", 7, None) is ErrorCode.NONE
    first = rig.join("a")
    assert first not in rig.answers
    second = rig.join("b")
    assert rig.joined(first).generation == rig.joined(second).generation == 8
    assert rig.joined(first).leader == "a"


def test_members_of_another_coordinator_that_are_gone() -> None:
    rig = loaded("a", "b")
    rig.wait(DEFAULT_SESSION_TIMEOUT_MS - 1)
    call = rig.join("a", session_timeout_ms=10 * SESSION_MS)
    rig.wait(1)
    assert [one.member_id for one in rig.joined(call).members] == ["a"]
    rig = loaded("a", "b")
    rig.wait(DEFAULT_SESSION_TIMEOUT_MS)
    assert (rig.is_in(State.EMPTY), rig.group.generation) == (True, 8), "nobody came"


def test_members_of_another_coordinator_are_waited_for_as_long_as_their_sessions_were() -> None:
    """Whose session ended while nobody coordinated comes under another id, and is not to wait for what it was."""
    before = GroupRig(agrees=False)
    before.join()
    before.wait(INITIAL_DELAY_MS)
    (commit,) = before.commits
    rig = GroupRig()
    assert rig.group.load(0, known(*(replace(one, member_id="gone") for one in commit.members)))
    call = rig.join()
    rig.wait(SESSION_MS - 1)
    assert call not in rig.answers
    rig.wait(1)
    assert len(rig.joined(call).members) == 1


def test_members_of_another_coordinator_that_are_busy() -> None:
    """They show signs of life, and are waited for as long as those who come want to wait."""
    rig = loaded("a", "b")
    rig.wait(DEFAULT_SESSION_TIMEOUT_MS - 1)
    assert rig.heartbeat("b", 7) is REBALANCING
    call = rig.join("a", session_timeout_ms=10 * SESSION_MS)
    rig.wait(REBALANCE_MS - 1)
    assert call not in rig.answers
    rig.wait(1)
    assert len(rig.joined(call).members) == 1
    rig = loaded("a")
    while rig.now + SESSION_MS < UNKNOWN_REBALANCE_MS:
        rig.wait(SESSION_MS)
        assert rig.heartbeat("a", 7) is REBALANCING
    rig.wait(SESSION_MS)
    assert rig.is_in(State.EMPTY), "it was waited for long enough"


def test_a_static_member_of_another_coordinator() -> None:
    rig = loaded("a", instance_id="instance")
    answer = rig.joined(rig.join(instance_id="instance"))
    assert (answer.generation, answer.skip_assignment, len(answer.members)) == (8, False, 1)
    rig = loaded("a", instance_id="instance")
    new = rig.join(protocols=("sticky",))
    rig.wait(REBALANCE_MS)
    assert [one.instance_id for one in rig.joined(new).members] == [None], "it told no subscription"


def test_an_empty_group_of_another_coordinator() -> None:
    rig = GroupRig()
    assert rig.group.load(0, known(generation=-1))
    assert rig.group.idle
    call = rig.join()
    rig.wait(INITIAL_DELAY_MS)
    assert rig.joined(call).generation == 1


def test_a_member_id_has_an_end_of_its_own() -> None:
    rig = GroupRig()
    rig.join(instance_id="i" * 249)
    assert [len(one.member_id) for one in rig.group.members] == [249]
    assert next(iter(rig.group.members)).member_id.endswith("-id1")


# What others are told.


def test_description() -> None:
    rig = GroupRig()
    assert rig.group.describe().state == "Empty"
    (member,) = rig.stable()
    told = rig.group.describe()
    assert (told.state, told.protocol_type, told.protocol_data) == ("Stable", "consumer", "range")
    assert (told.members[0].metadata, told.members[0].assignment) == (b"of range", f"to {member}".encode())
    assert (told.members[0].client_id, told.members[0].client_host) == ("client", "/10.0.0.1")
    rig.join()
    told = rig.group.describe()
    assert (told.state, told.protocol_data) == ("PreparingRebalance", "")
    assert {(one.metadata, one.assignment) for one in told.members} == {(b"", b"")}
