"""Members of a group by compare-and-swap, and when a group is forgotten."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from pidkeeper.controller.state import requests
from pidkeeper.controller.state.decide import most_bytes, must_be_confirmed
from pidkeeper.controller.state.draft import Draft
from pidkeeper.controller.state.groups import limits
from pidkeeper.controller.state.machine import StateMachine
from pidkeeper.protocol.errors import ErrorCode
from pidkeeper.protocol.group_messages import CommitGroupResponse, DeleteGroupResponse, GroupDescription
from pidkeeper.protocol.groups import MAX_MEMBERS_BYTES, GroupMember
from tests.support.group_state import add_group, delete, gather, keep, member
from tests.support.log_state import EPOCHS, FIRST_OWN, NOW, batch, decided, end, init, make, one, topic

E = ErrorCode
TX = FIRST_OWN, 0


@pytest.fixture
def machine() -> StateMachine:
    """With a topic t of two partitions."""
    machine = make()
    batch(machine, topic("t", 2))
    return machine


def taken(machine: StateMachine, request: requests.CommitGroup) -> GroupDescription:
    """The group, as it was granted."""
    answer = one(machine, request)
    assert isinstance(answer, CommitGroupResponse), answer
    assert answer.taken
    assert answer.group is not None
    return answer.group


def test_a_group_goes_on_from_its_newest_record(machine: StateMachine) -> None:
    at = machine.next_offset
    first = taken(machine, gather("g", -1, 1, "a", member("b", "s")))
    assert first == GroupDescription("g", at, 1, "consumer", [member("a"), member("b", "s")], 1, EPOCHS[1], 0, 0, NOW)
    second = taken(machine, gather("g", first.version, 2, "a", broker=2))
    assert (second.version, second.generation, second.broker_id) == (at + 1, 2, 2)
    assert must_be_confirmed(gather("g"))


def test_of_two_coordinators_one_goes_on(machine: StateMachine) -> None:
    first = taken(machine, gather("g", -1, 1, "a"))
    answers = batch(
        machine,
        gather("g", first.version, 2, "a", "b", broker=1),
        gather("g", first.version, 2, "a", "c", broker=2),
        gather("g", -1, 2, "c", broker=2),
    )
    assert [one.taken for one in answers] == [True, False, False]
    assert answers[1].group == answers[2].group == answers[0].group, "who lost is told what is known now"
    assert one(machine, gather("unknown", 7, 1)) == CommitGroupResponse(taken=False, group=None)


def test_what_was_granted_is_granted_again(machine: StateMachine) -> None:
    """Its answer was lost. Whatever differs from it is another request."""
    asked = gather("g", -1, 1, "a")
    first = one(machine, asked)
    assert one(machine, asked, now=NOW + 5) == first
    assert batch(machine, asked, asked) == [first, first]
    others: list[dict[str, Any]] = [
        {"broker": (2, EPOCHS[2])},
        {"generation": 2},
        {"members": (member("b"),)},
        {"protocol_type": "connect"},
    ]
    for other in others:
        assert one(machine, replace(asked, **other)) == CommitGroupResponse(taken=False, group=first.group)
    batch(machine, keep("g", ("t", 0, 1), who=(1, "a", None)))
    again = one(machine, asked)
    assert (again.taken, again.group.offsets) == (True, 1), "of now"


def test_a_group_of_offsets_gets_members(machine: StateMachine) -> None:
    batch(machine, keep("g", ("t", 0, 1)))
    found = taken(machine, gather("g", -1, 1, "a"))
    assert (found.offsets, found.pending) == (1, 0)
    assert one(machine, keep("g", ("t", 0, 1))) is E.UNKNOWN_MEMBER_ID


def test_an_agent_of_another_epoch_coordinates_nothing(machine: StateMachine) -> None:
    assert one(machine, replace(gather("g"), broker=(1, 2))) is E.STALE_BROKER_EPOCH
    assert one(machine, replace(gather("g"), broker=(9, 1))) is E.BROKER_ID_NOT_REGISTERED


def test_what_no_coordinator_asks_is_refused(machine: StateMachine) -> None:
    first = taken(machine, gather("g", -1, 4, "a"))
    for members in (("a", "a"), (member("a", "s"), member("b", "s"))):
        assert one(machine, gather("g", first.version, 5, *members)) is E.INVALID_REQUEST
    assert one(machine, gather("g", first.version, 3, "a")) is E.INVALID_REQUEST
    assert taken(machine, gather("g", first.version, 4, "b")).generation == 4, "a static member may be replaced"


def test_no_group_is_larger_than_a_record(machine: StateMachine) -> None:
    one_member = GroupMember("m" * 200, None, "", "")
    count = MAX_MEMBERS_BYTES // one_member.encoded_bytes
    members = tuple(replace(one_member, member_id=f"{number:0200}") for number in range(count + 1))
    request = gather("ü" * 249, -1, 2**31 - 1, *members)
    assert one(machine, request) is E.GROUP_MAX_SIZE_REACHED
    assert most_bytes(Draft(machine, NOW), request) < MAX_MEMBERS_BYTES + 1000
    assert taken(machine, replace(request, members=members[:-1])).members == list(members[:-1])


def test_at_a_bound_groups_that_are_there_go_on(machine: StateMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    first = taken(machine, gather("g", -1, 1, "a"))
    monkeypatch.setattr(limits, "MAX_GROUPS", 1)
    assert one(machine, gather("h", -1, 1)) is E.COORDINATOR_NOT_AVAILABLE
    second = taken(machine, gather("g", first.version, 2, "b", "c"))
    monkeypatch.setattr(limits, "MAX_GROUPS", 2)
    monkeypatch.setattr(limits, "MAX_MEMBERS_BYTES", machine.groups.members_bytes)
    assert one(machine, gather("h", -1, 1, "a")) is E.COORDINATOR_NOT_AVAILABLE
    taken(machine, gather("h", -1, 1))
    assert one(machine, gather("g", second.version, 3, "b", "c", "d")) is E.COORDINATOR_NOT_AVAILABLE
    third = taken(machine, gather("g", second.version, 3, "b", "d"))
    taken(machine, gather("g", third.version, 4))
    assert machine.groups.members_bytes == 0


def test_an_empty_group_is_deleted_with_its_offsets(machine: StateMachine) -> None:
    """KIP-229: NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND."""
    first = taken(machine, gather("g", -1, 1, "a"))
    batch(machine, keep("g", ("t", 0, 1), ("t", 1, 1), who=(1, "a", None)))
    assert one(machine, delete("g")) is E.NON_EMPTY_GROUP
    answers = batch(machine, gather("g", first.version, 2), delete("g"), delete("g"), gather("g", -1, 0, "z"))
    assert answers[1:3] == [DeleteGroupResponse("g"), E.GROUP_ID_NOT_FOUND]
    assert (answers[3].taken, answers[3].group.offsets) == (True, 0), "it begins anew"
    assert (machine.groups.offsets, machine.groups.offset_bytes, len(machine.groups)) == (0, 0, 1)
    assert one(machine, replace(delete("g"), broker=(1, 2))) is E.STALE_BROKER_EPOCH


def test_what_a_transaction_holds_keeps_the_group(machine: StateMachine) -> None:
    batch(machine, init("tx"), add_group("tx", TX, "g"), keep("g", ("t", 0, 1)))
    batch(machine, keep("g", ("t", 0, 2), transaction=("tx", TX)))
    assert one(machine, delete("g")) is E.NON_EMPTY_GROUP
    assert batch(machine, end("tx", TX), delete("g"))[1] == DeleteGroupResponse("g")
    assert len(machine.groups) == 0


def test_a_draft_changes_nothing_that_is_applied(machine: StateMachine) -> None:
    batch(machine, gather("g", -1, 1), keep("g", ("t", 0, 1)), init("tx"), add_group("tx", TX, "g"))
    batch(machine, keep("g", ("t", 1, 1), transaction=("tx", TX)))
    before = machine.image(1, 1)
    version = machine.groups.after(None, 1)[0].version
    draft = Draft(machine, NOW)
    decided(
        draft,
        [
            keep("g", ("t", 0, 9)),
            keep("h", ("t", 0, 9)),
            end("tx", TX),
            gather("g", version, 2, "a"),
            requests.DeleteTopic("t", None, None),
        ],
    )
    assert len(draft.records) == 5
    assert draft.groups.get("h") is None
    assert machine.image(1, 1) == before
    assert machine.groups.held_by(FIRST_OWN) == 1
