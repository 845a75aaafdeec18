"""A leader that was restored from a copy: the store went on, and nothing of it is touched before its own founding."""

from __future__ import annotations

import uuid

import pytest

from pidkeeper.controller.node.segment_views import check_objects, garbage
from pidkeeper.controller.state.requests import BrokerHeartbeat, CommitObject, CommitSegment, RegisterBroker, Request
from pidkeeper.protocol.errors import ErrorCode, RequestError
from pidkeeper.protocol.log_messages import OfferedBatch
from pidkeeper.protocol.logs import ObjectId
from pidkeeper.protocol.segment_messages import CheckObjectsRequest
from pidkeeper.protocol.segments import SegmentName
from tests.support.memory_leader import MemoryLeader
from tests.unit.controller.node.test_leadership import FOUNDING_ID, LOST, restored

STORE = uuid.UUID(int=11)
BATCH = OfferedBatch(0, 1, 0, 70, -1, -1, -1, 0, False)


def told(leader: MemoryLeader, request: Request) -> object:
    """The answer, or the code of a refusal."""
    try:
        answer = leader.leadership.submit(request)
        leader.settle()
        return answer.result()
    except RequestError as refusal:
        return refusal.code


def end_hearing(leader: MemoryLeader) -> None:
    """The succession is committed."""
    for _ in range(30):
        leader.leadership.tick()
    leader.settle()
    assert leader.machine.foundings.founding_id == FOUNDING_ID


def registered(leader: MemoryLeader, incarnation: str) -> int:
    """The epoch of a process of broker 1 with the cluster's store."""
    answer = told(leader, RegisterBroker(1, incarnation, store_id=STORE))
    epoch: int = answer.broker_epoch  # type: ignore[attr-defined]
    return epoch


@pytest.fixture
def leader() -> MemoryLeader:
    """It hears still. The copy has the release of its predecessor's objects."""
    leader = restored()
    leader.machine.logs.collect((LOST,))
    return leader


def test_nothing_is_committed_in_the_hearing_whatever_founding_it_is_named_after(leader: MemoryLeader) -> None:
    epoch = registered(leader, "new")
    name, segment = ObjectId(1, epoch, 0), SegmentName("t", 0, 0)
    offers = [
        request
        for founding in (LOST, FOUNDING_ID)
        for request in (
            CommitObject(name, founding, 70, (BATCH,)),
            CommitSegment(name, founding, 0, segment, 1, 70, 10, 0, 1),
        )
    ]
    assert [told(leader, one) for one in offers] == [ErrorCode.FOUNDING_UNDER_WAY] * 4
    end_hearing(leader)
    assert [told(leader, one) for one in offers[:2]] == [ErrorCode.STALE_BROKER_EPOCH] * 2
    granted = told(leader, offers[2])
    assert granted.outcomes == [-ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.kafka_code]  # type: ignore[attr-defined]


def test_a_commit_that_came_before_the_hearing_began_is_refused_in_it(leader: MemoryLeader) -> None:
    """Members that are of the next founding may be connected only then."""
    duty = leader.leadership.founding
    foundings, own = duty._foundings, duty._own
    duty._foundings = dict
    epoch = registered(leader, "new")
    answer = leader.leadership.submit(CommitObject(ObjectId(1, epoch, 0), LOST, 70, (BATCH,)))
    duty._foundings, duty._own = foundings, own
    leader.settle()
    with pytest.raises(RequestError) as refusal:
        answer.result()
    assert refusal.value.code is ErrorCode.FOUNDING_UNDER_WAY


def test_brokers_are_told_no_founding_in_the_hearing(leader: MemoryLeader) -> None:
    """They would name objects after that of the predecessor, which may have given their epochs, too."""
    for _ in range(2):
        epoch = registered(leader, "new")
        for request in (RegisterBroker(1, "new", store_id=STORE), BrokerHeartbeat(1, epoch)):
            answer = told(leader, request)
            assert (answer.founding_id, answer.succession) == (None, None)  # type: ignore[attr-defined]
    end_hearing(leader)
    answer = told(leader, BrokerHeartbeat(1, epoch))
    assert answer.founding_id == FOUNDING_ID  # type: ignore[attr-defined]
    assert answer.succession.predecessor == LOST  # type: ignore[attr-defined]


def test_what_the_predecessor_put_after_the_copy_is_held(leader: MemoryLeader) -> None:
    """Its epoch is dead once its broker has registered anew, and the copy does not name it."""
    registered(leader, "before")
    epoch = registered(leader, "old")
    registered(leader, "new")
    request = CheckObjectsRequest(LOST, False, (ObjectId(1, epoch, 0),))
    duty = leader.leadership.founding
    answer = check_objects(leader.machine, request, hearing=duty.hearing())
    assert (answer.dead, answer.held) == ([0], True)
    assert garbage(leader.machine, 10, 10, hearing=duty.hearing()).held
    end_hearing(leader)
    answer = check_objects(leader.machine, request, hearing=duty.hearing())
    assert (answer.dead, answer.held) == ([0], True), "an operator has not released it"
