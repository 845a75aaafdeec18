"""The leader's side: which requests it takes, whom it keeps a session for, and what it asks for by itself."""

from __future__ import annotations

import logging
import uuid
from typing import Any

import pytest
from msgspec.structs import replace

from pidkeeper.controller.node import decider as decider_module
from pidkeeper.controller.node.leadership import DUTY_TICKS, Leadership
from pidkeeper.controller.node.transaction_duties import FORGET_CHECK_MS
from pidkeeper.controller.raft.core import Role
from pidkeeper.controller.raft.membership import Membership, plain_record
from pidkeeper.controller.state.foundings import NOT_FOUNDED, Foundings
from pidkeeper.controller.state.requests import (
    AbortTransaction,
    AllocateProducerIds,
    BrokerHeartbeat,
    FenceBroker,
    ForgetTransactionalId,
    InitProducerId,
    RaiseMetadataVersion,
    RecordFounding,
    RegisterBroker,
    Request,
    UnregisterBroker,
)
from pidkeeper.controller.state.transitions import TransactionStatus
from pidkeeper.controller.transport.identity import Peer
from pidkeeper.protocol.errors import ErrorCode, RequestError
from pidkeeper.protocol.founding import FoundingRecord, Succession
from pidkeeper.protocol.messages import HeldIds
from pidkeeper.protocol.metadata_version import ADDED_PARTITIONS, BASE, FOUNDING, LATEST, UNTOLD
from pidkeeper.protocol.migration import MigrationPhase
from pidkeeper.protocol.records import (
    AllocateProducerIdsRecord,
    FeatureLevelRecord,
    ProducerIdFloorRecord,
    Record,
    RegisterBrokerRecord,
    encode_batch,
)
from pidkeeper.protocol.transactions import (
    AddPartitionsRecord,
    TopicPartitions,
    TransactionalBlockRecord,
    TransactionRecord,
)
from tests.support.memory_leader import ALLOCATE, SETTINGS, MemoryLeader, MemoryQuorum, code_of

SESSION_TICKS = SETTINGS.timing.ticks(SETTINGS.broker_session_timeout_ms)
ALL = 1 << 40
"""A tick at which every session has expired."""


@pytest.fixture
def quorum() -> MemoryQuorum:
    return MemoryQuorum()


@pytest.fixture
def leader(quorum: MemoryQuorum) -> MemoryLeader:
    return quorum.leader


def sessions(leader: MemoryLeader) -> list[int]:
    """Whom the leader keeps a session for; they are forgotten with the question."""
    return leader.leadership.sessions.expired(ALL)


def refused(leadership: Leadership, request: Request = ALLOCATE) -> ErrorCode:
    with pytest.raises(RequestError) as refusal:
        leadership.submit(request)
    return refusal.value.code


def waiting(leader: MemoryLeader) -> list[Request]:
    return [one.request for one in leader.decider._waiting]


def pass_time(leader: MemoryLeader, ticks: int) -> None:
    for _ in range(ticks):
        leader.leadership.tick()


# What is taken.


def test_a_request_is_answered_when_its_entry_is_applied(leader: MemoryLeader) -> None:
    answer = leader.ask()
    assert not answer.done()
    leader.settle()
    assert answer.result().producer_id_start == 0


def test_who_does_not_lead_takes_nothing(leader: MemoryLeader) -> None:
    leader.depose()
    assert refused(leader.leadership) is ErrorCode.NOT_CONTROLLER
    assert waiting(leader) == []


def test_who_hands_over_takes_nothing(leader: MemoryLeader) -> None:
    leader.core.transferring = 2
    assert refused(leader.leadership) is ErrorCode.NOT_CONTROLLER


def test_who_stops_takes_nothing_and_answers_what_it_took(leader: MemoryLeader) -> None:
    answer = leader.ask()
    leader.leadership.close()
    assert refused(leader.leadership) is ErrorCode.NOT_CONTROLLER
    leader.settle()
    assert answer.result().producer_id_start == 0


def test_a_fault_answers_everything_with_its_own_error_and_takes_no_more(leader: MemoryLeader) -> None:
    in_the_log = leader.ask()
    leader.loop.run()
    waits = leader.ask()
    leader.leadership.fail(RequestError(ErrorCode.KAFKA_STORAGE_ERROR))
    for answer in (in_the_log, waits):
        assert answer.refusal is not None
        assert answer.refusal.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert refused(leader.leadership) is ErrorCode.NOT_CONTROLLER


def test_a_leader_that_is_deposed_answers_unknown_to_everybody(leader: MemoryLeader) -> None:
    in_the_log = leader.ask()
    leader.loop.run()
    waits = leader.ask()
    leader.depose()
    for answer in (in_the_log, waits):
        assert answer.refusal is not None
        assert answer.refusal.code is ErrorCode.NOT_CONTROLLER


def test_another_leadership_right_after_this_one_answers_unknown_too(leader: MemoryLeader) -> None:
    """Deposed and elected again before anybody looked: what waits was asked of the leadership before."""
    answer = leader.ask()
    leader.core.term += 2
    leader.leadership.observe()
    assert answer.refusal is not None
    assert answer.refusal.code is ErrorCode.NOT_CONTROLLER


def test_a_claim_that_comes_back_to_who_does_not_lead_is_not_decided() -> None:
    quorum = MemoryQuorum()
    quorum.enter(MigrationPhase.BRIDGE)
    leader = quorum.leader
    answer = leader.ask()
    leader.loop.run()
    leader.leadership.close()
    quorum.settle()
    assert answer.refusal is not None
    assert answer.refusal.code is ErrorCode.NOT_CONTROLLER


def test_a_claim_of_who_is_deposed_is_answered_unknown() -> None:
    quorum = MemoryQuorum()
    quorum.enter(MigrationPhase.BRIDGE)
    leader = quorum.leader
    answer = leader.ask()
    leader.loop.run()
    leader.depose()
    assert answer.refusal is not None
    assert answer.refusal.code is ErrorCode.NOT_CONTROLLER


# Sessions.


def test_what_a_broker_has_at_hand_is_what_the_process_of_its_epoch_says(leader: MemoryLeader) -> None:
    leader.ask(BrokerHeartbeat(1, 0, reserve_ids=500))
    assert leader.leadership.reserve_ids(1) == 500
    leader.ask(BrokerHeartbeat(1, 7, reserve_ids=900))
    leader.ask(BrokerHeartbeat(2, 0, reserve_ids=900))
    assert leader.leadership.reserve_ids(1) == 500
    assert leader.leadership.reserve_ids(2) is None, "it is not registered"
    leader.leadership.close()
    assert leader.leadership.reserve_ids(1) is None


@pytest.mark.parametrize("request_", [RegisterBroker(7, "x"), BrokerHeartbeat(7, 0), AllocateProducerIds(7, 0)])
def test_a_sign_of_life_keeps_a_session(leader: MemoryLeader, request_: Request) -> None:
    assert sessions(leader) == [1]
    leader.ask(request_)
    assert sessions(leader) == [7]


def test_who_unregisters_has_no_session(leader: MemoryLeader) -> None:
    leader.ask(BrokerHeartbeat(1, 0))
    leader.ask(UnregisterBroker(1, 0))
    leader.settle()
    assert sessions(leader) == []


def test_a_late_word_of_an_epoch_that_was_replaced_ends_no_session(leader: MemoryLeader) -> None:
    leader.ask(RegisterBroker(1, "b"))
    leader.settle()
    late = leader.ask(UnregisterBroker(1, 0))
    leader.settle()
    assert late.refusal is not None
    assert late.refusal.code is ErrorCode.STALE_BROKER_EPOCH
    assert sessions(leader) == [1]


def test_who_is_unfenced_later_than_its_session_ends_has_one_again(leader: MemoryLeader) -> None:
    pass_time(leader, SESSION_TICKS + DUTY_TICKS)
    leader.settle()
    leader.ask(BrokerHeartbeat(1, 0))
    assert sessions(leader) == [1], "it is over before the record is committed"
    leader.settle()
    assert sessions(leader) == [1]


@pytest.mark.parametrize("why", ["deposed", "stopping", "full", "zookeeper"])
def test_a_request_that_is_not_taken_keeps_no_session(monkeypatch: pytest.MonkeyPatch, why: str) -> None:
    quorum = MemoryQuorum()
    if why == "zookeeper":
        quorum.enter(MigrationPhase.BRIDGE)
        quorum.znode.trouble = "no session with ZooKeeper"
    leader = quorum.leader
    assert sessions(leader) == [1]
    if why == "deposed":
        leader.depose()
    elif why == "stopping":
        leader.leadership.close()
    elif why == "full":
        monkeypatch.setattr(decider_module, "MAX_WAITING", 0)
    refused(leader.leadership, AllocateProducerIds(1, 0))
    assert sessions(leader) == []


# Duties.


def test_a_silent_broker_is_fenced_once_its_session_is_over(leader: MemoryLeader) -> None:
    pass_time(leader, SESSION_TICKS - 1)
    assert waiting(leader) == []
    pass_time(leader, DUTY_TICKS)
    assert waiting(leader) == [FenceBroker(1, 0)]
    leader.settle()
    registration = leader.machine.brokers.get(1)
    assert registration is not None
    assert registration.fenced
    pass_time(leader, 2 * SESSION_TICKS)
    assert waiting(leader) == [], "it is fenced already"


def test_a_broker_that_cannot_be_fenced_now_is_fenced_a_session_later(
    leader: MemoryLeader, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as full:
        full.setattr(decider_module, "MAX_WAITING", 0)
        pass_time(leader, SESSION_TICKS + DUTY_TICKS)
    assert waiting(leader) == []
    pass_time(leader, SESSION_TICKS + DUTY_TICKS)
    assert waiting(leader) == [FenceBroker(1, 0)]


def test_a_broker_that_is_fenced_has_no_session(leader: MemoryLeader) -> None:
    pass_time(leader, SESSION_TICKS + DUTY_TICKS)
    leader.settle()
    assert sessions(leader) == []


def test_a_broker_that_registers_anew_before_it_is_fenced_keeps_its_session(leader: MemoryLeader) -> None:
    leader.leadership.decide_for(RegisterBroker(1, "b"), leader.loop.create_future())
    pass_time(leader, SESSION_TICKS + DUTY_TICKS)
    assert waiting(leader) == [RegisterBroker(1, "b"), FenceBroker(1, 0)]
    leader.settle()
    assert sessions(leader) == [1]


def test_only_who_is_registered_and_not_fenced_is_fenced(
    leader: MemoryLeader, caplog: pytest.LogCaptureFixture
) -> None:
    leader.ask(BrokerHeartbeat(7, 0))
    pass_time(leader, SESSION_TICKS + DUTY_TICKS)
    assert waiting(leader)[1:] == [FenceBroker(1, 0)]
    assert [record.getMessage() for record in caplog.records] == ["fencing broker 1: no heartbeat"]
    leader.settle()
    # A new leader begins with a session for everybody, so also for who is fenced.
    leader.core.serving = False
    leader.leadership.observe()
    leader.core.serving = True
    leader.leadership.observe()
    pass_time(leader, 2 * SESSION_TICKS)
    assert waiting(leader) == []


def test_a_new_leader_gives_every_broker_a_full_timeout(leader: MemoryLeader) -> None:
    pass_time(leader, SESSION_TICKS - 1)
    leader.core.serving = False
    leader.leadership.observe()
    leader.core.serving = True
    leader.leadership.observe()
    pass_time(leader, SESSION_TICKS - 1)
    assert waiting(leader) == []


def test_who_does_not_lead_has_no_duties(leader: MemoryLeader) -> None:
    leader.depose()
    pass_time(leader, 2 * SESSION_TICKS)
    assert waiting(leader) == []


def test_the_duties_are_looked_at_every_so_many_ticks(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    leader = MemoryQuorum(version=BASE).leader
    pass_time(leader, DUTY_TICKS - 1)
    assert waiting(leader) == []
    pass_time(leader, 1)
    assert waiting(leader) == [RaiseMetadataVersion(LATEST)]
    assert [record.getMessage() for record in caplog.records] == [
        f"all members and agents know metadata version {LATEST}"
    ]


def test_a_leader_goes_on_with_the_migration() -> None:
    quorum = MemoryQuorum(bridge=True)
    pass_time(quorum.leader, DUTY_TICKS)
    quorum.settle()
    assert quorum.leader.phase() is MigrationPhase.BRIDGE


def test_the_metadata_version_rises_when_everybody_reads_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    quorum = MemoryQuorum(version=BASE)
    leader = quorum.leader
    others: dict[int, int] = {}
    members: list[Any] = [*leader.core.contacts(), *leader.core.contacts()]
    members[1] = type(members[0])(2, None, "", "", True)
    monkeypatch.setattr(leader.core, "contacts", lambda: members)
    leader.leadership._versions = lambda: others
    pass_time(leader, DUTY_TICKS)
    assert waiting(leader) == [], "what member 2 reads is not known"
    others[2] = LATEST
    pass_time(leader, DUTY_TICKS)
    assert waiting(leader) == [RaiseMetadataVersion(LATEST)]
    leader.settle()
    assert leader.machine.metadata_version == LATEST
    pass_time(leader, DUTY_TICKS)
    assert [type(one) for one in waiting(leader)] == [RecordFounding]
    leader.settle()
    pass_time(leader, DUTY_TICKS)
    assert waiting(leader) == []


def test_the_metadata_version_waits_for_what_a_registration_says() -> None:
    quorum = MemoryQuorum(version=UNTOLD)
    leader = quorum.leader
    leader.ask(RegisterBroker(7, "i", "host:1"))
    leader.settle()
    pass_time(leader, DUTY_TICKS)
    leader.settle()
    assert (leader.machine.metadata_version, leader.leadership.known_to(7)) == (UNTOLD, UNTOLD)
    assert [f"metadata version {LATEST} waits for broker 7: " in one for one in leader.leadership.version_waits()] == [
        True
    ]
    leader.ask(RegisterBroker(7, "i", "host:1", metadata_version=LATEST))
    assert leader.leadership.known_to(7) == LATEST
    leader.core.serving = False
    leader.leadership.observe()
    assert (leader.leadership.known_to(7), leader.leadership.version_waits()) == (None, [])
    leader.core.serving = True
    leader.leadership.observe()
    assert leader.leadership.known_to(7) == UNTOLD, "a new leader has not heard it yet"
    leader.ask(RegisterBroker(7, "i", "host:1", metadata_version=LATEST))
    pass_time(leader, DUTY_TICKS)
    leader.settle()
    assert leader.machine.metadata_version == LATEST


def test_each_leader_says_for_itself_whom_the_metadata_version_waits_for(caplog: pytest.LogCaptureFixture) -> None:
    leader = MemoryQuorum(version=UNTOLD).leader
    leader.ask(RegisterBroker(7, "i", "host:1"))
    leader.settle()
    registration = leader.machine.brokers.get(7)
    assert registration is not None

    def live() -> int:
        """It sends heartbeats for longer than a session; how often the log has named it so far."""
        for _ in range(3):
            leader.ask(BrokerHeartbeat(7, registration.broker_epoch))
            leader.ask(BrokerHeartbeat(1, 0))
            pass_time(leader, SESSION_TICKS // 2)
            leader.settle()
        return sum("waits for broker 7: " in record.getMessage() for record in caplog.records)

    assert [live(), live()] == [1, 1]
    leader.core.serving = False
    leader.leadership.observe()
    leader.core.serving = True
    leader.leadership.observe()
    assert live() == 2


HEARING_TICKS = SETTINGS.timing.ticks(SETTINGS.founding_hearing_ms)
FOUNDING_ID = uuid.UUID(int=5)


def knows(leader: MemoryLeader, foundings: list[uuid.UUID | None], succession: Succession | None = None) -> None:
    """Of which foundings the members are that are connected, from member 1 on, which is the leader."""
    said = [Peer("d", LATEST, one, None, None if one is None else succession) for one in foundings]
    duty = leader.leadership.founding
    duty._own = lambda: said[0]
    duty._foundings = lambda: {member: one for member, one in enumerate(said, start=1) if one.founding_id is not None}


def just_founded() -> MemoryLeader:
    """The leader of a quorum that an operator has founded, and whose log does not say so yet."""
    quorum = MemoryQuorum(version=FOUNDING - 1)
    quorum.log.append(encode_batch([FeatureLevelRecord(LATEST)]))
    leader = MemoryLeader(quorum)
    leader.machine.foundings = NOT_FOUNDED
    knows(leader, [FOUNDING_ID])
    return leader


def test_a_quorum_that_was_just_founded_hears_its_brokers_before_it_hands_out() -> None:
    leader = just_founded()
    pass_time(leader, DUTY_TICKS)
    for _ in range(3):
        assert refused(leader.leadership) is ErrorCode.FOUNDING_UNDER_WAY
        pass_time(leader, HEARING_TICKS // 3 - 1)
        assert waiting(leader) == []
    assert "hears which IDs its brokers hold before it hands out any: for 2000 ms" in (
        leader.leadership.founding.trouble() or ""
    )
    pass_time(leader, 2 * DUTY_TICKS)
    assert [type(one) for one in waiting(leader)] == [RecordFounding]
    assert refused(leader.leadership) is ErrorCode.FOUNDING_UNDER_WAY, "until the end of the hearing is committed"
    leader.settle()
    assert leader.leadership.founding.trouble() is None
    answer = leader.ask()
    leader.settle()
    assert answer.result().producer_id_start == 0


def test_who_holds_what_was_not_handed_out_is_heard_meanwhile() -> None:
    leader = just_founded()
    held = HeldIds(uuid.UUID(int=6), 5_000)
    assert refused(leader.leadership, AllocateProducerIds(1, 0, held=held)) is ErrorCode.FOUNDING_UNDER_WAY
    leader.ask(BrokerHeartbeat(1, 0, held))
    leader.settle()
    assert [one.highest_producer_id for one in leader.machine.foundings.evidence] == [5_000]
    pass_time(leader, HEARING_TICKS + 2 * DUTY_TICKS)
    leader.settle()
    assert leader.machine.foundings.founding_id == FOUNDING_ID
    assert refused(leader.leadership) is ErrorCode.EVIDENCE_OPEN


def test_a_new_leader_hears_the_brokers_anew() -> None:
    leader = just_founded()
    pass_time(leader, HEARING_TICKS - DUTY_TICKS)
    leader.depose()
    leader.core.role, leader.core.serving = Role.LEADER, True
    leader.leadership.observe()
    pass_time(leader, HEARING_TICKS - DUTY_TICKS)
    assert waiting(leader) == []
    pass_time(leader, 3 * DUTY_TICKS)
    assert [type(one) for one in waiting(leader)] == [RecordFounding]


def test_the_hearing_begins_when_evidence_can_be_committed() -> None:
    leader = just_founded()
    leader.machine.metadata_version = FOUNDING - 1
    pass_time(leader, HEARING_TICKS)
    assert "begins when all members are connected and run this build" in (leader.leadership.founding.trouble() or "")
    leader.decider.fail(RequestError(ErrorCode.NOT_CONTROLLER))
    leader.machine.metadata_version = LATEST
    pass_time(leader, HEARING_TICKS - DUTY_TICKS)
    assert refused(leader.leadership) is ErrorCode.FOUNDING_UNDER_WAY
    assert waiting(leader) == []


def test_no_transactional_producer_gets_an_id_before_the_brokers_were_heard() -> None:
    leader = just_founded()
    request = INIT
    for expected in (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, None):
        answer = leader.leadership.submit(request)
        leader.settle()
        if expected is not None:
            with pytest.raises(RequestError) as told:
                answer.result()
            assert told.value.code is expected
        else:
            assert answer.result().producer_id == 0
        pass_time(leader, HEARING_TICKS + 2 * DUTY_TICKS)
        leader.settle()


def test_who_asks_while_the_end_of_the_hearing_is_being_committed_is_decided_on_behind_it() -> None:
    """Members may have applied the founding before the leader has, whose own disk is slow: the hearing is over."""
    leader = just_founded()
    pass_time(leader, HEARING_TICKS + 2 * DUTY_TICKS)
    leader.loop.run()
    assert len(leader.core.proposed) == 1
    answer = leader.leadership.submit(InitProducerId(1, 0, "t", 60_000, -1, -1, candidate=-1))
    leader.settle()
    assert answer.result().producer_id == 0


def test_a_quorum_that_an_early_build_began_is_not_kept_waiting() -> None:
    leader = just_founded()
    knows(leader, [None])
    answer = leader.ask()
    leader.settle()
    assert answer.result().producer_id_start == 0


LOST = uuid.UUID(int=7)
PLACE = Succession(LOST, 5000)
INIT = InitProducerId(1, 0, "t", 60_000, -1, -1, candidate=-1)


def restored() -> MemoryLeader:
    """The leader of a quorum that was restored from copies of LOST, with an own block of that. It hears for no time."""
    leader = just_founded()
    leader.machine.foundings = Foundings(FoundingRecord(LOST, 10, False, 0))
    leader.machine.replay([TransactionalBlockRecord(0, 9, 0)])
    leader.leadership.founding._hearing_ticks = 0
    knows(leader, [FOUNDING_ID], PLACE)
    return leader


def test_nothing_is_handed_out_before_the_floor_of_a_succession_is_in_force_however_short_the_hearing() -> None:
    leader = restored()
    assert refused(leader.leadership) is ErrorCode.FOUNDING_UNDER_WAY
    told = leader.leadership.submit(INIT)
    leader.settle()
    with pytest.raises(RequestError) as refusal:
        told.result()
    assert refusal.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert leader.machine.own_ids.next_id == 0, "the predecessor may have given it since"
    pass_time(leader, 2 * DUTY_TICKS)
    leader.settle()
    assert leader.machine.foundings.founding_id == FOUNDING_ID
    assert leader.leadership.founding.trouble() is None
    block, given = leader.ask(), leader.leadership.submit(INIT)
    leader.settle()
    assert block.result().producer_id_start == 5000
    assert given.result().producer_id >= 5000


def test_no_founding_is_told_to_name_objects_after_before_that_of_a_succession_is_in_the_log() -> None:
    """Broker epochs come again behind a copy: under its founding the lost quorum may have objects of the same names."""
    leader = restored()
    early = leader.ask(RegisterBroker(1, "anew"))
    leader.settle()
    assert early.result().founding_id is early.result().succession is None
    pass_time(leader, 2 * DUTY_TICKS)
    leader.settle()
    late = leader.ask(RegisterBroker(1, "anew"))
    leader.settle()
    assert (late.result().broker_epoch, late.result().founding_id) == (early.result().broker_epoch, FOUNDING_ID)


def test_a_leader_without_a_founding_of_its_own_waits_for_that_of_its_followers() -> None:
    """Its directory is of a build without foundings, and theirs were restored to take another's place."""
    leader = restored()
    knows(leader, [None, FOUNDING_ID], PLACE)
    assert refused(leader.leadership) is ErrorCode.FOUNDING_UNDER_WAY
    leader.machine.foundings = NOT_FOUNDED
    assert refused(leader.leadership) is ErrorCode.FOUNDING_UNDER_WAY
    pass_time(leader, 2 * DUTY_TICKS)
    (record,) = [one for one in waiting(leader) if isinstance(one, RecordFounding)]
    assert record.succession == PLACE


def test_copies_of_another_quorum_hand_out_nothing_and_say_so() -> None:
    leader = restored()
    other = uuid.UUID(int=9)
    leader.machine.foundings = Foundings(FoundingRecord(other, 10, False, 0))
    pass_time(leader, 3 * DUTY_TICKS)
    leader.settle()
    assert refused(leader.leadership) is ErrorCode.FOUNDING_UNDER_WAY
    assert f"to take the place of founding {LOST}, but their log is of {other}" in (
        leader.leadership.founding.trouble() or ""
    )


def test_a_succession_waits_until_all_members_can_read_it() -> None:
    leader = restored()
    leader.machine.metadata_version = FOUNDING
    pass_time(leader, 3 * DUTY_TICKS)
    assert not [one for one in waiting(leader) if isinstance(one, RecordFounding)]
    assert "begins when all members are connected and run this build" in (leader.leadership.founding.trouble() or "")


@pytest.mark.parametrize(
    ("held", "news"),
    [(HeldIds(LOST, 4999), False), (HeldIds(LOST, 5000), True), (HeldIds(uuid.UUID(int=99), 4999), True)],
    ids=["below the floor", "above it", "of another founding"],
)
def test_what_lies_below_a_floor_that_is_to_come_is_no_evidence(held: HeldIds, news: bool) -> None:
    leader = restored()
    leader.ask(RegisterBroker(1, "anew", None, held))
    leader.settle()
    assert bool(leader.machine.foundings.evidence) is news


def began_early() -> MemoryLeader:
    """The leader of a quorum without a founding, that hands out; a member with one is about to be heard of."""
    leader = just_founded()
    knows(leader, [None])
    return leader


def test_a_block_that_was_asked_for_before_the_hearing_began_is_refused_in_it() -> None:
    leader = began_early()
    answer = leader.ask()
    heartbeat = leader.ask(BrokerHeartbeat(1, 0))
    knows(leader, [None, FOUNDING_ID])
    leader.settle()
    assert code_of(answer) is ErrorCode.FOUNDING_UNDER_WAY
    assert not heartbeat.result().fenced, "whoever waits behind it is decided on"
    assert leader.machine.producer_ids.next_producer_id == 0


def test_a_block_for_transactional_producers_that_was_claimed_before_the_hearing_began_is_refused_in_it() -> None:
    quorum = MemoryQuorum(version=FOUNDING - 1)
    quorum.enter(MigrationPhase.BRIDGE)
    leader = quorum.leader
    knows(leader, [None])
    leader.leadership.own_ids.wanted()
    pass_time(leader, DUTY_TICKS)
    leader.settle()
    knows(leader, [None, FOUNDING_ID])
    quorum.settle()
    assert (leader.leadership.own_ids.trouble or "").startswith("FOUNDING_UNDER_WAY")
    assert leader.machine.own_ids.next_id is None


def test_no_transactional_id_gets_what_is_left_of_an_own_block_in_the_hearing() -> None:
    leader = began_early()
    one, other = (InitProducerId(1, 0, name, 60_000, -1, -1, candidate=-1) for name in ("t", "u"))
    answer = leader.ask(one)
    leader.settle()
    assert (answer.result().producer_id, leader.machine.own_ids.next_id) == (0, 1)
    knows(leader, [None, FOUNDING_ID])
    answers = [leader.ask(one), leader.ask(other)]
    leader.settle()
    assert (answers[0].result().producer_id, answers[0].result().producer_epoch) == (0, 1), "it has its ID"
    assert code_of(answers[1]) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert leader.machine.own_ids.next_id == 1


def test_no_candidate_of_an_agent_is_taken_in_the_hearing() -> None:
    leader = MemoryQuorum(version=ADDED_PARTITIONS).leader
    knows(leader, [None])
    leader.ask()
    leader.settle()
    knows(leader, [None, FOUNDING_ID])
    answer = leader.ask(InitProducerId(1, 0, "t", 60_000, -1, -1, candidate=3))
    leader.settle()
    assert code_of(answer) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


KNOWN = TransactionRecord("t", 0, 0, -1, -1, 60_000, TransactionStatus.EMPTY, 1)


@pytest.mark.parametrize(
    "record",
    [
        AllocateProducerIdsRecord(1, 0, 19, 10, 10, 0),
        TransactionalBlockRecord(10, 19, 0),
        replace(KNOWN, transactional_id="u", producer_id=1),
        replace(KNOWN, producer_id=1),
    ],
)
def test_f5_nothing_is_proposed_that_hands_out_before_the_founding_is_in_the_log(record: Record) -> None:
    leader = began_early()
    leader.machine.replay([TransactionalBlockRecord(0, 9, 0), KNOWN])
    founding = leader.leadership.founding
    founding.checked([record])
    knows(leader, [None, FOUNDING_ID])
    founding.checked([replace(KNOWN, producer_epoch=1), RegisterBrokerRecord(2, 1, "b")])
    with pytest.raises(AssertionError, match=r"F5: .* before the founding of this quorum is in its log"):
        founding.checked([RegisterBrokerRecord(2, 1, "b"), record])


def test_d10_no_block_is_proposed_before_the_log_says_who_the_voters_are() -> None:
    leader = MemoryQuorum().leader
    leader.core.membership = Membership(0, plain_record([1]))
    leader.ask()
    with pytest.raises(AssertionError, match=r"D10: .* before the log says who the voters are"):
        leader.settle()
    assert leader.core.proposed == []
    early = MemoryQuorum(version=BASE).leader
    early.core.membership = Membership(0, plain_record([1]))
    early.ask()
    early.settle()
    assert early.core.last_index == 1, "not all members can read it yet"


def test_f5_holds_of_whatever_was_decided(monkeypatch: pytest.MonkeyPatch) -> None:
    leader = just_founded()
    monkeypatch.setattr(leader.leadership.founding, "check", lambda request: None)
    leader.ask()
    with pytest.raises(AssertionError, match="F5"):
        leader.settle()
    assert leader.core.proposed == []


@pytest.mark.parametrize("hearing_ticks", [0, HEARING_TICKS])
def test_members_of_two_foundings_stop_what_is_handed_out_and_no_leader(hearing_ticks: int) -> None:
    """One of them is of another quorum, and an operator alone can tell which. It was an assertion in every leader."""
    leader, other = just_founded(), uuid.UUID(int=6)
    leader.leadership.founding._hearing_ticks = hearing_ticks
    pass_time(leader, hearing_ticks - 2 * DUTY_TICKS)
    knows(leader, [None, FOUNDING_ID, other])
    pass_time(leader, 4 * DUTY_TICKS)
    assert waiting(leader) == [], "neither is the founding of this quorum yet"
    assert refused(leader.leadership) is ErrorCode.FOUNDING_UNDER_WAY
    told = leader.leadership.founding.trouble() or ""
    assert told.startswith("nothing is handed out, because members belong to different foundings: stop those")
    assert told.endswith(f"member 2 of {FOUNDING_ID}, member 3 of {other}")
    assert leader.leadership.serving()

    knows(leader, [None, FOUNDING_ID])
    pass_time(leader, hearing_ticks)
    assert waiting(leader) == [], "it may be gone for a moment only"
    pass_time(leader, 2 * DUTY_TICKS)
    assert [one.founding_id for one in waiting(leader) if isinstance(one, RecordFounding)] == [FOUNDING_ID]
    leader.settle()
    assert leader.leadership.founding.trouble() is None


def test_the_founding_is_recorded_once_by_the_name_that_a_member_knows_it_by() -> None:
    """Where nobody knows one, an early build began the quorum: it gets one when all of its members are there."""
    founding_id = uuid.UUID(int=5)
    cases: list[tuple[list[uuid.UUID | None], dict[int, int], bool]] = [
        ([None, founding_id], {}, True),
        ([None, None], {}, False),
        ([None, None], {2: LATEST}, True),
    ]
    for known, connected, recorded in cases:
        quorum = MemoryQuorum(version=FOUNDING - 1)
        quorum.log.append(encode_batch([FeatureLevelRecord(LATEST)]))
        leader = MemoryLeader(quorum)
        leader.machine.foundings = NOT_FOUNDED
        members: list[Any] = [*leader.core.contacts(), *leader.core.contacts()]
        members[1] = type(members[0])(2, None, "", "", True)
        leader.core.contacts = lambda members=members: members  # type: ignore[misc,method-assign]
        leader.leadership._versions = lambda connected=connected: connected  # type: ignore[misc]
        knows(leader, known)
        pass_time(leader, HEARING_TICKS + 3 * DUTY_TICKS)
        asked = waiting(leader)
        assert len(asked) == recorded, "it is asked for once, however long that takes"
        leader.settle()
        found = leader.machine.foundings.founding_id
        assert (found == founding_id) is (founding_id in known)
        assert (found is not None) is recorded


def test_a_founding_that_could_not_be_recorded_is_asked_for_again(quorum: MemoryQuorum) -> None:
    quorum = MemoryQuorum(version=FOUNDING - 1)
    quorum.log.append(encode_batch([FeatureLevelRecord(LATEST)]))
    leader = MemoryLeader(quorum)
    leader.machine.foundings = NOT_FOUNDED
    knows(leader, [None])
    pass_time(leader, DUTY_TICKS)
    leader.depose()
    leader.core.role, leader.core.serving = Role.LEADER, True
    leader.leadership.observe()
    pass_time(leader, DUTY_TICKS)
    assert len(waiting(leader)) == 1


def test_what_a_follower_applies_is_no_duty_of_its_own(leader: MemoryLeader, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[object] = []
    monkeypatch.setattr(leader.leadership.transactions, "applied", lambda records, tick: told.append(records))
    leader.leadership.applied([])
    assert told == [[]]
    leader.core.role, leader.core.serving = Role.FOLLOWER, False
    leader.leadership.applied([])
    assert told == [[]]


# Transactions.

TIMEOUT_MS = 60_000
ABORT_CHECK_TICKS = SETTINGS.timing.ticks(SETTINGS.transaction_abort_check_ms)
EMPTY = TransactionRecord("tx", 7, 0, -1, -1, TIMEOUT_MS, TransactionStatus.EMPTY, 1000)
ONGOING = replace(
    EMPTY, status=TransactionStatus.ONGOING, partitions=(TopicPartitions("t", (0,)),), start_ms=EMPTY.update_ms
)


def leader_after(*records: Record) -> MemoryLeader:
    """It comes to lead when `records` are in the log already."""
    quorum = MemoryQuorum()
    own = TransactionalBlockRecord(EMPTY.producer_id, EMPTY.producer_id + 9, 0)
    quorum.log.append(encode_batch([ProducerIdFloorRecord(EMPTY.producer_id, 0), own, *records]))
    quorum.succeed()
    return quorum.leader


def test_a_transaction_of_the_leader_before_gets_its_full_timeout() -> None:
    leader = leader_after(EMPTY, ONGOING)
    pass_time(leader, SETTINGS.timing.ticks(TIMEOUT_MS) - 1)
    assert AbortTransaction("tx", 7, 0, timed_out=True) not in waiting(leader)
    pass_time(leader, ABORT_CHECK_TICKS + DUTY_TICKS)
    assert AbortTransaction("tx", 7, 0, timed_out=True) in waiting(leader)


def test_a_transaction_whose_partitions_are_logged_alone_times_out_as_well() -> None:
    leader = leader_after(EMPTY)
    joined = AddPartitionsRecord("tx", 7, 0, ONGOING.partitions, 2000)
    leader.machine.replay([joined])
    leader.leadership.applied([joined])
    pass_time(leader, SETTINGS.timing.ticks(TIMEOUT_MS) + ABORT_CHECK_TICKS + DUTY_TICKS)
    assert AbortTransaction("tx", 7, 0, timed_out=True) in waiting(leader)


@pytest.mark.parametrize(("spare_ms", "forgotten"), [(0, False), (1, True)])
def test_an_idle_transactional_id_is_forgotten_by_the_wall_clock(spare_ms: int, forgotten: bool) -> None:
    leader = leader_after(EMPTY)
    now_ms = EMPTY.update_ms + SETTINGS.transactional_id_expiration_ms + spare_ms
    surroundings: Any = leader.leadership._surroundings
    surroundings.wall_clock = lambda: (now_ms + 0.5) / 1000
    pass_time(leader, ABORT_CHECK_TICKS + SETTINGS.timing.ticks(FORGET_CHECK_MS) + DUTY_TICKS)
    assert (ForgetTransactionalId("tx", 7, 0) in waiting(leader)) == forgotten
