"""Nothing founds by itself; one operator does, once; and who is blank among founded members joins them."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from pidkeeper.controller.node.assembly import ClusterMember
from pidkeeper.controller.node.durable_voters import founding_by
from pidkeeper.controller.node.interface import MemberInterface
from pidkeeper.controller.node.leadership import DUTY_TICKS
from pidkeeper.controller.node.status import describe
from pidkeeper.controller.raft.messages import AppendEntries, Entry, HardState, Message, RequestVote
from pidkeeper.controller.state.foundings import Foundings
from pidkeeper.controller.storage.directory import format_directory, read_meta
from pidkeeper.controller.storage.founding import FOUNDING_NAME, read_founding, write_founding
from pidkeeper.controller.storage.wal import WriteAheadLog
from pidkeeper.controller.transport.identity import Identity
from pidkeeper.disk.files import OsFiles
from pidkeeper.protocol.errors import ErrorCode, RequestError
from pidkeeper.protocol.founding import FoundingRecord, Succession
from pidkeeper.protocol.logs import ObjectId
from pidkeeper.protocol.messages import FoundQuorumRequest, FoundQuorumResponse
from pidkeeper.protocol.metadata_version import BASE, FOUNDING, LATEST
from pidkeeper.protocol.records import LeaderChangeRecord, encode_batch
from pidkeeper.protocol.segment_messages import CheckObjectsRequest
from tests.support.loopback_cluster import CLUSTER_ID, LoopbackCluster, eventually

FOUNDING_ID = uuid.UUID(int=5)
Make = Callable[..., LoopbackCluster]


@pytest.fixture
async def make(tmp_path: Path) -> AsyncIterator[Make]:
    made: list[LoopbackCluster] = []

    def build(**options: Any) -> LoopbackCluster:
        made.append(LoopbackCluster(tmp_path / str(len(made)), **options))
        return made[-1]

    yield build
    for cluster in made:
        await cluster.close()


@pytest.fixture
async def blank(make: Make) -> LoopbackCluster:
    """Three blank members that are connected."""
    cluster = make(blank=True)
    await cluster.start()
    await connected(cluster)
    return cluster


async def connected(cluster: LoopbackCluster) -> None:
    others = len(cluster.members) - 1
    await eventually(lambda: all(len(member.links.peers) == others for member in cluster.members.values()))


async def found(member: ClusterMember, *voters: int, founding_id: uuid.UUID = FOUNDING_ID) -> FoundQuorumResponse:
    answer = MemberInterface(member).found(FoundQuorumRequest(founding_id, list(voters)))
    founded: FoundQuorumResponse = await asyncio.wait_for(answer, 20)
    return founded


async def refused(member: ClusterMember, *voters: int, founding_id: uuid.UUID = FOUNDING_ID) -> RequestError:
    with pytest.raises(RequestError) as caught:
        await found(member, *voters, founding_id=founding_id)
    return caught.value


def founding_on_disk(member: ClusterMember) -> uuid.UUID | None:
    founding = read_founding(OsFiles(), Path(member.settings.data_dir))
    return None if founding is None else founding.founding_id


def sample(member: ClusterMember, name: str) -> float:
    families = {family.name: family for family in MemberInterface(member).metric_families()}
    (found,) = families[name].samples
    return found.value


def assert_nothing_happened(cluster: LoopbackCluster) -> None:
    """However long they wait."""
    for member in cluster.members.values():
        for _ in range(1000):
            member.gate.tick()
        assert member.core.term == 0
        assert member.gate.founding is None
        assert founding_on_disk(member) is None
        assert [check.name for check in MemberInterface(member).readiness() if not check.ok] == ["founded"]
        assert not MemberInterface(member).describe().healthy


async def test_blank_members_wait_and_say_for_what(blank: LoopbackCluster) -> None:
    assert_nothing_happened(blank)
    (reason,) = MemberInterface(blank.members[2]).describe().reasons
    assert "`pidkeeper quorum found` founds a new quorum" in reason
    assert sample(blank.members[2], "pidkeeper_founded") == 0.0
    assert all(check.ok for check in MemberInterface(blank.members[2]).liveness())


async def test_a_blank_member_alone_founds_nothing_either(make: Make) -> None:
    cluster = make(voters=1, blank=True)
    await cluster.start()
    assert_nothing_happened(cluster)
    assert await found(cluster.members[1], 1) == FoundQuorumResponse(FOUNDING_ID, [1])
    assert await cluster.allocate(await cluster.register()) == [0]


async def test_a_member_of_an_earlier_build_that_is_alone_in_its_file_waits_for_an_operators_word(make: Make) -> None:
    """There may be others that went on without it. If there never were, it goes on where it was.

    A later one of the earlier builds would have the voters in its log, sooner or later.
    """
    cluster = make(voters=1)
    await cluster.start(supported=BASE)
    epoch = await cluster.register()
    assert await cluster.allocate(epoch, 2) == [0, 10]
    await cluster.stop()
    (Path(cluster.settings(1).data_dir) / FOUNDING_NAME).unlink()
    await cluster.start()
    member = cluster.members[1]
    term = member.core.term
    for _ in range(1000):
        member.gate.tick()
    assert (member.core.term, member.core.leader_id, founding_on_disk(member)) == (term, None, None)
    (reason,) = MemberInterface(member).describe().reasons
    assert "name all of them in [[voters]] and start again" in reason
    assert await found(member, 1) == FoundQuorumResponse(FOUNDING_ID, [1])
    assert await cluster.allocate(epoch) == [20]


async def test_a_blank_member_gives_no_vote_and_takes_no_entry(blank: LoopbackCluster) -> None:
    """Whoever asks for it: a member with a disk, whose founding has not reached this one yet."""
    member = blank.members[2]
    asked: list[Message] = [
        RequestVote(5, 3, 2, 9, 4, True),
        AppendEntries(5, 3, 2, 0, 0, 0, [Entry(5, 1, encode_batch([LeaderChangeRecord(3)]))]),
    ]
    for message in asked:
        member.gate.received([message])
    member.gate.link_lost(3)
    member.gate.link_up(3)
    assert (member.core.term, member.core.last_index) == (0, 0)
    assert_nothing_happened(blank)


async def test_one_request_founds_the_quorum_of_all(blank: LoopbackCluster) -> None:
    assert await found(blank.members[1], 3, 1, 2) == FoundQuorumResponse(FOUNDING_ID, [1, 2, 3])
    assert founding_on_disk(blank.members[1]) == FOUNDING_ID
    assert await blank.allocate(await blank.register()) == [0]
    await blank.settled()
    await eventually(lambda: all(one.machine.foundings.founding_id == FOUNDING_ID for one in blank.members.values()))
    for member in blank.members.values():
        assert founding_on_disk(member) == FOUNDING_ID
        assert MemberInterface(member).describe().founding_id == FOUNDING_ID
    assert sample(blank.members[2], "pidkeeper_founded") == 1.0
    assert sample(blank.members[2], "pidkeeper_evidence_open") == 0.0
    await eventually(lambda: all(all(c.ok for c in MemberInterface(m).readiness()) for m in blank.members.values()))


async def test_it_is_founded_once_and_the_same_request_is_granted_again(blank: LoopbackCluster) -> None:
    both = await asyncio.gather(found(blank.members[1], 1, 2, 3), found(blank.members[1], 1, 2, 3))
    assert both[0] == both[1]
    await blank.leader()
    assert await found(blank.members[1], 1, 2, 3) == both[0]
    for member in blank.members.values():
        refusal = await refused(member, 1, 2, 3, founding_id=uuid.UUID(int=6))
        assert refusal.code is ErrorCode.FOUNDING_REFUSED
        assert f"belongs to a quorum already: founding {FOUNDING_ID}, of the voters [1, 2, 3]" in refusal.detail


async def test_a_second_founding_does_not_begin_while_the_first_is_being_written(blank: LoopbackCluster) -> None:
    first = MemberInterface(blank.members[1]).found(FoundQuorumRequest(FOUNDING_ID, [1, 2, 3]))
    refusal = await refused(blank.members[1], 1, 2, 3, founding_id=uuid.UUID(int=6))
    assert f"founding {FOUNDING_ID}" in refusal.detail
    assert (await first).founding_id == FOUNDING_ID


async def test_a_founding_counts_only_once_it_is_durable(blank: LoopbackCluster) -> None:
    member = blank.members[1]
    answer = MemberInterface(member).found(FoundQuorumRequest(FOUNDING_ID, [1, 2, 3]))
    # The loop has not run since, so nothing can have told the member that founding.json is written.
    member.gate.received([RequestVote(5, 3, 1, 9, 4, True)])
    for _ in range(1000):
        member.gate.tick()
    assert (member.gate.founding, member.core.term) == (None, 0)
    assert (await answer).founding_id == FOUNDING_ID
    assert await blank.allocate(await blank.register()) == [0]


@pytest.mark.parametrize(
    ("asked", "voters", "what"),
    [
        (1, (1, 2), "the file of member 1 names the voters [1, 2, 3], not [1, 2]"),
        (1, (1, 2, 3, 4), "the file of member 1 names the voters [1, 2, 3], not [1, 2, 3, 4]"),
        (2, (1, 2, 3), "member 1 founds a quorum of [1, 2, 3], for its id is the lowest: ask http://127.0.0.1:1"),
    ],
)
async def test_what_cannot_be_founded_is_refused_and_changes_nothing(
    blank: LoopbackCluster, asked: int, voters: tuple[int, ...], what: str
) -> None:
    refusal = await refused(blank.members[asked], *voters)
    assert refusal.code is ErrorCode.FOUNDING_REFUSED
    assert refusal.detail == f"{what}; nothing was founded"
    assert_nothing_happened(blank)


async def test_all_voters_must_be_there(blank: LoopbackCluster) -> None:
    await blank.stop(3)
    await connected(blank)
    refusal = await refused(blank.members[1], 1, 2, 3)
    assert refusal.code is ErrorCode.VOTERS_NOT_CONNECTED
    assert refusal.detail.startswith("member 3 is not connected: start it")
    assert_nothing_happened(blank)


async def test_all_files_must_name_the_same_voters(make: Make) -> None:
    cluster = make(blank=True)
    await cluster.start(1, 2)
    await cluster.stop(1)
    cluster.voters = cluster.voters[:2]
    await cluster.start(1)
    await connected_to(cluster.members[1], 2)
    refusal = await refused(cluster.members[1], 1, 2)
    assert refusal.detail == (
        "the file of member 2 says voters [1, 2, 3], block_size 10, mode quorum, not voters [1, 2], block_size 10, "
        "mode quorum; nothing was founded"
    )
    assert_nothing_happened(cluster)


@pytest.mark.parametrize(
    ("options", "says"), [({"block_size": 20}, "block_size 20, mode quorum"), ({"bridge": True}, "mode zookeeper")]
)
async def test_all_files_must_agree_on_the_settings_that_hold_for_all(
    make: Make, options: dict[str, Any], says: str
) -> None:
    cluster = make(blank=True)
    await cluster.start(1, 2)
    cluster._options |= options
    await cluster.start(3)
    await connected(cluster)
    refusal = await refused(cluster.members[1], 1, 2, 3)
    assert refusal.code is ErrorCode.FOUNDING_REFUSED
    assert "the file of member 3 says voters [1, 2, 3], " in refusal.detail
    assert says in refusal.detail
    assert_nothing_happened(cluster)


async def test_the_settings_of_the_founding_hold_and_a_member_that_differs_is_named(blank: LoopbackCluster) -> None:
    await found(blank.members[1], 1, 2, 3)
    epoch = await blank.register()
    assert await blank.allocate(epoch, 2) == [0, 10]
    await blank.settled()
    await eventually(lambda: all(one.machine.foundings.founding is not None for one in blank.members.values()))
    blank._options |= {"block_size": 500, "bridge": True}
    for node_id in (1, 2, 3):
        await blank.stop(node_id)
        await blank.start(node_id)
    leader = await blank.leader()
    await blank.settle()
    described = MemberInterface(leader).describe()
    assert described.block_size == 10
    first, second = described.warnings
    assert first.endswith(
        "its file has block_size = 500, the quorum was founded with 10, which holds: correct the file"
    )
    assert 'its file has mode = "zookeeper", but the quorum was founded without, which holds' in second
    assert await blank.allocate(await blank.register(incarnation="two"), 2) == [20, 30]


async def connected_to(member: ClusterMember, peer: int) -> None:
    await eventually(lambda: peer in member.links.peers)


async def test_a_blank_member_among_founded_ones_joins_their_founding(blank: LoopbackCluster) -> None:
    await found(blank.members[1], 1, 2, 3)
    epoch = await blank.register()
    assert await blank.allocate(epoch) == [0]
    await blank.stop(1)
    blank.wipe(1)
    await blank.start(1)
    await eventually(lambda: blank.members[1].gate.founding is not None)
    assert founding_on_disk(blank.members[1]) == FOUNDING_ID
    await eventually(lambda: not blank.members[1].core.recovering)
    assert await blank.allocate(epoch) == [10]


async def test_a_replaced_disk_counts_by_the_voters_that_founded_members_tell_and_not_by_its_file(make: Make) -> None:
    """By a file that names three of five it would elect itself with one of these, beside the other three."""
    cluster = make(voters=5)
    await cluster.start()
    await cluster.allocate(await cluster.register())
    await cluster.stop(1)
    cluster.wipe(1)
    cluster.voters = cluster.voters[:3]
    for _ in range(2):
        await cluster.start(1)
        await eventually(lambda: cluster.members[1].gate.founding is not None)
        await eventually(lambda: not cluster.members[1].core.recovering)
        member = cluster.members[1]
        assert member.core.voters == {1, 2, 3, 4, 5}
        assert [voter.id for voter in member.links.identity.voters] == [1, 2, 3, 4, 5]
        (warning,) = (one for one in describe(member).warnings if "its file" in one)
        assert warning.startswith("member 1: its file names the voters [1, 2, 3], the quorum is [1, 2, 3, 4, 5]")
        await cluster.stop(1)


async def test_a_spare_that_was_founded_by_its_file_does_not_tell_a_replaced_disk_who_votes(make: Make) -> None:
    cluster = make(voters=5, learners=1)
    everybody = cluster.voters
    await cluster.start()
    await cluster.leader()
    cluster.voters = everybody[:3]
    await cluster.start(6)
    await eventually(lambda: cluster.members[6].gate.founding is not None)
    await cluster.stop(1, 2, 3, 4, 5)
    cluster.wipe(1)
    cluster.voters = (*everybody, cluster.learners[6])
    # The spare alone is there to be met at first.
    await cluster.start(1)
    await connected_to(cluster.members[1], 6)
    assert "member 6 is no voter" in cluster.members[1].gate.waits_for
    await cluster.start(2, 3, 4, 5)
    await eventually(lambda: cluster.members[1].gate.founding is not None)
    assert cluster.members[1].core.voters == {1, 2, 3, 4, 5}


async def test_the_operator_is_answered_when_all_voters_have_joined(blank: LoopbackCluster) -> None:
    """What the disk of one member alone knows is lost with it: then all are blank again, under an operator who thinks
    that they are founded."""
    held_back = blank.members[3]
    begin, held_back.gate._begin = held_back.gate._begin, lambda founding: None  # type: ignore[method-assign]
    answer = MemberInterface(blank.members[1]).found(FoundQuorumRequest(FOUNDING_ID, [1, 2, 3]))
    await eventually(lambda: blank.members[2].gate.founding is not None)
    await eventually(lambda: FOUNDING_ID in {one.founding_id for one in blank.members[1].links.peers.values()})
    for _ in range(100):
        blank.members[1].gate.tick()
    assert not answer.done()
    held_back.gate._begin = begin  # type: ignore[method-assign]

    def joined() -> bool:
        held_back.gate.introduced(1)
        return held_back.gate.founding is not None

    await eventually(joined)
    assert (await asyncio.wait_for(answer, 20)).founding_id == FOUNDING_ID
    assert founding_on_disk(held_back) == FOUNDING_ID


async def test_a_founding_whose_only_disk_was_lost_can_be_ordered_again(blank: LoopbackCluster) -> None:
    for node_id in (2, 3):
        blank.members[node_id].gate._begin = lambda founding: None  # type: ignore[method-assign]
    answer = MemberInterface(blank.members[1]).found(FoundQuorumRequest(FOUNDING_ID, [1, 2, 3]))
    await eventually(lambda: founding_on_disk(blank.members[1]) == FOUNDING_ID)
    await blank.stop(hand_over=False)
    assert not answer.done()
    blank.wipe(1)
    await blank.start()
    await connected(blank)
    assert_nothing_happened(blank)
    assert await found(blank.members[1], 1, 2, 3) == FoundQuorumResponse(FOUNDING_ID, [1, 2, 3])


async def test_an_order_that_was_carried_out_long_ago_is_answered_whoever_the_voters_are_now(
    blank: LoopbackCluster,
) -> None:
    await found(blank.members[1], 1, 2, 3)
    await blank.settled()
    await eventually(lambda: all(one.machine.foundings.founding is not None for one in blank.members.values()))
    await blank.stop(3)
    await eventually(lambda: 3 not in blank.members[1].links.peers)
    assert await found(blank.members[1], 1, 2, 3) == FoundQuorumResponse(FOUNDING_ID, [1, 2, 3])


async def test_who_was_not_there_when_the_others_were_founded_joins_later(blank: LoopbackCluster) -> None:
    """Its process was killed after it had said that it is blank."""
    await found(blank.members[1], 1, 2, 3)
    await eventually(lambda: all(one.gate.founding is not None for one in blank.members.values()))
    await blank.stop(3, hand_over=False)
    blank.wipe(3)
    await blank.start(3)
    assert await blank.allocate(await blank.register()) == [0]
    assert founding_on_disk(blank.members[3]) == FOUNDING_ID


async def test_all_disks_lost_at_once_found_nothing_by_themselves(blank: LoopbackCluster) -> None:
    """They began a new cluster at ID 0, silently."""
    await found(blank.members[1], 1, 2, 3)
    await blank.allocate(await blank.register())
    await blank.stop(hand_over=False)
    for node_id in (1, 2, 3):
        blank.wipe(node_id)
    await blank.start()
    await connected(blank)
    assert_nothing_happened(blank)


async def test_a_blank_member_cannot_found_beside_one_that_is_not(make: Make) -> None:
    """Between them it joins, so it is asked before it has heard of it: the others' first words are withheld."""
    cluster = make(voters=2, blank=True)
    await cluster.start()
    await connected(cluster)
    await found(cluster.members[1], 1, 2)
    await eventually(lambda: cluster.members[2].gate.founding is not None)
    await cluster.stop(1, hand_over=False)
    cluster.wipe(1)
    await cluster.start(1)
    member = cluster.members[1]
    member.gate._begin = lambda founding: None  # type: ignore[method-assign]
    await connected_to(member, 2)
    refusal = await refused(member, 1, 2, founding_id=uuid.UUID(int=6))
    assert refusal.detail == "member 2 is not blank: this member joins the quorum of that one; nothing was founded"


async def begun_by_an_earlier_build(
    cluster: LoopbackCluster, node_id: int, founding_id: uuid.UUID | None = None
) -> None:
    """A term in its log, and no founding; or one of another quorum."""
    settings = cluster.settings(node_id)
    path = Path(settings.data_dir)
    format_directory(OsFiles(), path, CLUSTER_ID, node_id)
    if founding_id is not None:
        write_founding(OsFiles(), path, founding_by(settings, founding_id))
    log, _ = WriteAheadLog.open(OsFiles(), path / "wal", read_meta(OsFiles(), path), segment_bytes=1 << 20)
    log.append([], HardState(1, None, 0, recovering=True))
    log.close()


async def test_members_that_an_earlier_build_began_need_no_founding_and_take_a_blank_one_in(make: Make) -> None:
    cluster = make(blank=True)
    for node_id in (1, 2):
        await begun_by_an_earlier_build(cluster, node_id)
    await cluster.start()
    assert await cluster.allocate(await cluster.register()) == [0]
    assert cluster.members[3].gate.founding == founding_by(cluster.settings(3))
    assert "of [1, 2, 3]" in (await refused(cluster.members[1], 1, 2, 3)).detail


async def test_a_quorum_that_an_earlier_build_began_gets_a_founding_that_blank_members_join_later(make: Make) -> None:
    cluster = make(blank=True)
    for node_id in (1, 2, 3):
        await begun_by_an_earlier_build(cluster, node_id)
    await cluster.start()
    await cluster.settled()
    await eventually(lambda: all(one.links.identity.founding_id for one in cluster.members.values()))
    (founding_id,) = {one.machine.foundings.founding_id for one in cluster.members.values()}
    assert {one.links.identity.founding_id for one in cluster.members.values()} == {founding_id}
    assert founding_on_disk(cluster.members[2]) is None, "what is in the log is said once"
    await cluster.stop(2)
    cluster.wipe(2)
    await cluster.start(2)
    await eventually(lambda: cluster.members[2].gate.founding is not None)
    assert founding_on_disk(cluster.members[2]) == founding_id
    await eventually(lambda: not cluster.members[2].core.recovering)


async def test_guests_of_other_foundings_neither_stop_a_quorum_without_one_nor_found_it(make: Make) -> None:
    """Any process that knows the peer key is let in as a guest, and says what it likes of its founding."""
    cluster = make(learners=2, blank=True, founding_hearing_ms=60_000)
    for node_id, founding_id in {1: None, 2: None, 3: None, 4: uuid.UUID(int=8), 5: uuid.UUID(int=9)}.items():
        await begun_by_an_earlier_build(cluster, node_id, founding_id)
    await cluster.start(1, 2, 3, supported=FOUNDING - 1)
    leader = await cluster.leader()
    await cluster.start(4, 5)
    await eventually(lambda: {4, 5} <= leader.links.peers.keys())
    assert leader.leadership.founding.trouble() is None
    assert await cluster.allocate(await cluster.register()) == [0]
    assert leader._foundings() == {}


async def test_members_of_two_foundings_leave_a_leader_that_says_so_and_hands_out_nothing(make: Make) -> None:
    cluster = make(blank=True)
    others = {2: uuid.UUID(int=8), 3: uuid.UUID(int=9)}
    for node_id in (1, 2, 3):
        await begun_by_an_earlier_build(cluster, node_id, others.get(node_id))
    await cluster.start()
    leader = await cluster.leader()
    await eventually(lambda: leader.machine.metadata_version == LATEST)
    looked = leader.leadership.ticks
    await eventually(lambda: leader.leadership.ticks > looked + 2 * DUTY_TICKS)
    assert leader.leadership.serving()
    assert leader.machine.foundings.founding_id is None
    (told,) = describe(leader).reasons
    assert "nothing is handed out, because members belong to different foundings" in told
    assert all(f"member {member} of {founding_id}" in told for member, founding_id in others.items())
    epoch = await cluster.register()
    with pytest.raises(RequestError, match="FOUNDING_UNDER_WAY: nothing is handed out"):
        await cluster.allocate(epoch)
    await cluster.stop(3)
    cluster.wipe(3)
    await cluster.start(3)
    await eventually(lambda: leader.machine.foundings.founding_id == others[2])
    assert await cluster.allocate(epoch) == [0]


async def test_a_log_of_another_founding_than_the_directory_stops_the_member(make: Make) -> None:
    cluster = make(voters=1)
    await cluster.start()
    await cluster.settled()
    member = cluster.members[1]
    await eventually(lambda: member.machine.foundings.founding_id is not None)
    member.machine.foundings = Foundings(FoundingRecord(uuid.UUID(int=9), 10, False, 0))
    with pytest.raises(AssertionError, match="F1: the log is of founding 00000000-0000-0000-0000-000000000009"):
        member.gate.tick()


async def test_a_member_that_hears_names_nothing_for_deletion(make: Make) -> None:
    """As if its directory had been restored: the log has the founding before, whose objects are released."""
    cluster = make(voters=1)
    await cluster.start()
    await cluster.settled()
    member = cluster.members[1]
    await eventually(lambda: member.machine.foundings.founding_id is not None)
    before = member.machine.foundings.founding_id
    assert before is not None
    member.machine.logs.collect((before,))
    interface, asked = MemberInterface(member), CheckObjectsRequest(before, False, (ObjectId(1, 0, 0),))
    assert not interface.find_garbage(1).held
    assert not interface.check_objects(asked).held
    restored = Identity(CLUSTER_ID, 1, "d", founding_id=FOUNDING_ID, succession=Succession(before, 10))
    member.leadership.founding._own = lambda: restored
    member.leadership.founding._foundings = lambda: {1: restored}
    assert interface.find_garbage(1).held
    assert interface.check_objects(asked).held


@pytest.mark.parametrize("votes", [False, True])
async def test_a_stranger_to_the_file_founds_nobody(make: Make, votes: bool) -> None:
    """Whoever has the key, but is named by no file here, may be of another quorum: a removed member, for one."""
    cluster = make(voters=2, learners=1, blank=True)
    named, stranger = cluster.voters, cluster.learners.pop(3)
    cluster.voters = (*named, stranger)
    await begun_by_an_earlier_build(cluster, 3)
    if not votes:
        cluster.voters, cluster.learners[3] = named, stranger
    await cluster.start(3)
    assert (3 in cluster.members[3].core.voters) is votes
    cluster.voters = named
    await cluster.start(1, 2)
    await connected_to(cluster.members[1], 3)
    await connected_to(cluster.members[2], 3)
    await connected_to(cluster.members[1], 2)
    for node_id in (1, 2):
        assert cluster.members[node_id].gate._begun() is None


async def test_a_learner_is_not_founded_as_the_voter_whose_id_it_bears(make: Make) -> None:
    """Those whom it meets have not heard of that one's removal. Until the log makes it a voter it speaks for nobody."""
    cluster = make()
    await cluster.start()
    await cluster.leader()
    await cluster.stop(3)
    cluster.wipe(3)
    for told in (cluster.members[1], cluster.members[2]):
        assert [voter.id for voter in told.links.identity.voters] == [1, 2, 3]
    cluster.learners[3], cluster.voters = cluster.voters[2], cluster.voters[:2]
    await cluster.start(3)
    member = cluster.members[3]
    await eventually(lambda: member.gate.founding is not None)
    assert member.gate.founding is not None
    assert [voter.id for voter in member.gate.founding.voters] == [1, 2]


async def test_a_spare_member_joins_the_founding_of_those_whom_its_file_names(make: Make) -> None:
    cluster = make(learners=1)
    await cluster.start(1, 2, 3)
    await cluster.leader()
    await cluster.start(4)
    await eventually(lambda: cluster.members[4].gate.founding is not None)
    assert founding_on_disk(cluster.members[4]) == cluster.founding_id


async def test_members_of_two_foundings_do_not_speak_to_each_other(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    """Two were founded under one cluster id, by files that were edited or by a command that was given twice."""
    cluster = make()
    await cluster.start(1, 2)
    other, cluster.founding_id = cluster.founding_id, uuid.UUID(int=8)
    await cluster.start(3)
    await eventually(lambda: f"belongs to founding {other} of the cluster, not to {cluster.founding_id}" in caplog.text)
    assert 3 not in cluster.members[1].links.peers
    assert not cluster.members[3].links.peers


async def test_a_member_lost_before_the_founding_is_in_the_log_is_replaced_and_not_removed(make: Make) -> None:
    """Until all members were connected to one leader the log holds no change of voters, and nothing is handed out."""
    cluster = make(founding_hearing_ms=200)
    await cluster.start(1, 2)
    await cluster.start(3, supported=BASE)
    await cluster.leader()
    await eventually(lambda: all(not one.core.recovering for one in cluster.members.values()))
    await cluster.stop(3)
    leader = await cluster.leader()
    epoch = await cluster.register()
    with pytest.raises(RequestError, match="that begins when all members are connected and run this build"):
        await cluster.allocate(epoch)
    with pytest.raises(RequestError, match=r"UNSUPPORTED_VERSION: .*see that all members \[1, 2, 3\] run"):
        await MemberInterface(leader).remove_voter(3)
    assert leader.machine.metadata_version == BASE

    cluster.wipe(3)
    await cluster.start(3)
    await eventually(lambda: leader.machine.foundings.founding_id == cluster.founding_id)
    assert await cluster.allocate(epoch) == [0]
    assert (await MemberInterface(leader).remove_voter(3)).id == 3
