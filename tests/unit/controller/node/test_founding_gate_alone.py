"""What the gate hands on, and what it has made durable before: with stand-ins, one call at a time."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable
from pathlib import PurePath
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from pidkeeper.controller.answers import Callback
from pidkeeper.controller.node.durable_voters import founding_by
from pidkeeper.controller.node.founding_gate import ALONE, WAITING, FoundingGate, founding_terms
from pidkeeper.controller.node.settings import MemberSettings, Voter
from pidkeeper.controller.state.foundings import Foundings
from pidkeeper.controller.state.machine import StateMachine
from pidkeeper.controller.storage.founding import Founding
from pidkeeper.controller.transport.frames import FoundingTerms
from pidkeeper.controller.transport.identity import Peer
from pidkeeper.protocol.addresses import HostPort
from pidkeeper.protocol.errors import RequestError
from pidkeeper.protocol.founding import FoundingRecord, Succession
from pidkeeper.protocol.ids import MAX_FLOOR_JUMP, MAX_PRODUCER_ID
from pidkeeper.protocol.messages import FoundQuorumRequest, FoundQuorumResponse
from pidkeeper.protocol.metadata_version import FOUNDING
from pidkeeper.protocol.records import QuorumMember
from tests.crash.facts import settings

FOUNDING_ID, OTHER_ID = uuid.UUID(int=5), uuid.UUID(int=6)
TOLD = ["received", "link_up", "link_lost", "tick"]


class World:
    """Everything beside the gate; `calls` in their order. Jobs of the storage thread wait in `jobs`."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.jobs: list[Callable[[], None]] = []
        self.peers: dict[int, Any] = {}
        self.identity = SimpleNamespace(founding_id=None)
        self.machine = StateMachine("c")

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *arguments: self.calls.append(name)

    def run(self, job: Callable[[], None]) -> None:
        self.jobs.append(job)

    def report(self, callback: Callable[[], None]) -> None:
        callback()

    def found(self, founding: Founding) -> None:
        self.calls.append(f"durable {founding.founding_id}")


@pytest.fixture
def world() -> World:
    return World()


def gate_of(
    world: World, voters: int, *, own: int = 1, founding: Founding | None = None, blank: bool = True
) -> FoundingGate:
    """Of member `own`, whose file names the voters 1 to `voters`."""
    storage: Any = SimpleNamespace(directory=world, machine=world.machine, founding=founding, blank=blank)
    stand_in: Any = world
    return FoundingGate(file_of(voters, own), storage, stand_in, stand_in, stand_in)


def file_of(voters: int, own: int = 1) -> MemberSettings:
    named = tuple(Voter(one, HostPort("h", one), f"http://h:{one}") for one in range(1, voters + 1))
    return replace(settings(PurePath("/data")), node_id=own, voters=named)


@pytest.fixture
def gate(world: World) -> FoundingGate:
    return gate_of(world, 1)


def blank(voters: int) -> Any:
    return Peer("d", blank=founding_terms(file_of(voters)))


def ask(gate: FoundingGate, *voters: int, founding_id: uuid.UUID = FOUNDING_ID) -> list[Any]:
    """What is answered, in time."""
    answers: list[Any] = []
    gate.found(FoundQuorumRequest(founding_id, list(voters)), Callback(lambda answer, refusal: answers.append(answer)))
    return answers


def refusal(gate: FoundingGate, *voters: int, founding_id: uuid.UUID = FOUNDING_ID) -> str:
    with pytest.raises(RequestError) as caught:
        ask(gate, *voters, founding_id=founding_id)
    assert caught.value.detail is not None
    return f"{caught.value.code.name}: {caught.value.detail}"


def say_everything(gate: FoundingGate) -> None:
    gate.received([])
    gate.link_up(2)
    gate.link_lost(2)
    gate.tick()


def test_everything_is_handed_on_once_the_founding_is_durable_and_nothing_before(
    gate: FoundingGate, world: World, caplog: pytest.LogCaptureFixture
) -> None:
    say_everything(gate)
    answers = ask(gate, 1)
    assert f"founding a new quorum, {FOUNDING_ID}, of the voters [1]" in caplog.text
    say_everything(gate)
    assert (world.calls, answers) == ([], [])
    (job,) = world.jobs
    job()
    assert world.calls == [f"durable {FOUNDING_ID}", "introduce_as", "redial"]
    say_everything(gate)
    assert world.calls[3:] == TOLD
    assert [answer.founding_id for answer in answers] == [FOUNDING_ID]


def test_who_joins_says_whom(gate: FoundingGate, world: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    world.peers[1] = blank(1)
    gate.introduced(1)
    assert not world.jobs, "that one is blank itself"
    world.peers[1] = Peer("d", founding_id=FOUNDING_ID)
    gate.introduced(1)
    assert f"joining founding {FOUNDING_ID}, of which member 1 is" in caplog.text
    assert len(world.jobs) == 1
    gate.introduced(1)
    assert len(world.jobs) == 1, "it joins once"
    gate = gate_of(world, 1)
    world.peers[9] = world.peers[1]
    for stranger in (9, 10):
        gate.introduced(stranger)
    assert len(world.jobs) == 1, "one that no file names, and one that is gone already"


def voters(*ids: int) -> tuple[QuorumMember, ...]:
    return tuple(QuorumMember(one, None, f"there:{one}", f"http://there:{one}", True) for one in ids)


def test_who_joins_counts_by_the_voters_that_a_founded_member_tells(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    gate = gate_of(world, 3)
    world.peers[2] = Peer("d", founding_id=FOUNDING_ID, voters=voters(1, 2, 3, 4, 5))
    gate.introduced(2)
    world.jobs.pop()()
    assert world.calls == [f"durable {FOUNDING_ID}", "join", "introduce_as", "redial"]
    assert "its file names the voters [1, 2, 3], the quorum is [1, 2, 3, 4, 5], which holds" in caplog.text
    assert gate.founding is not None
    assert [(one.id, one.peer) for one in gate.founding.voters] == [(one, f"there:{one}") for one in range(1, 6)]


@pytest.mark.parametrize(
    ("told", "is_blank"),
    [
        pytest.param((), True, id="an earlier build tells nothing"),
        pytest.param((2, 3, 4), True, id="one to whom this member is no voter"),
        pytest.param((1, 2, 3, 4, 5), False, id="who joins has a log"),
        pytest.param((1, 2, 3), True, id="the file is right"),
    ],
)
def test_who_joins_counts_by_its_file_else(world: World, told: tuple[int, ...], is_blank: bool) -> None:
    gate = gate_of(world, 3, blank=is_blank)
    world.peers[2] = Peer("d", founding_id=FOUNDING_ID, voters=voters(*told))
    gate.introduced(2)
    world.jobs.pop()()
    assert world.calls == [f"durable {FOUNDING_ID}", "introduce_as", "redial"]
    assert gate.founding is not None
    assert [one.id for one in gate.founding.voters] == [1, 2, 3]


def test_who_is_no_voter_tells_nobody_who_is(world: World) -> None:
    """It has them from its file, as a machine that is to be added has."""
    gate = gate_of(world, 5)
    world.peers[4] = Peer("d", founding_id=FOUNDING_ID, voters=voters(1, 2, 3))
    gate.introduced(4)
    assert not world.jobs
    assert gate.waits_for.startswith(
        "the disk is blank, and member 4 is no voter, so it cannot tell who the voters are"
    )
    world.peers[2] = Peer("d", founding_id=FOUNDING_ID, voters=voters(1, 2, 3, 4, 5))
    gate.introduced(2)
    world.jobs.pop()()
    assert gate.founding is not None
    assert [one.id for one in gate.founding.voters] == [1, 2, 3, 4, 5]


def test_a_learner_is_not_founded_as_the_voter_whose_id_it_bears(world: World) -> None:
    """Its peer may not have heard that the one before was removed."""
    settings = file_of(3)
    storage: Any = SimpleNamespace(directory=world, machine=world.machine, founding=None, blank=True)
    stand_in: Any = world
    learner = replace(settings, voters=settings.voters[1:], learner=settings.voters[0])
    gate = FoundingGate(learner, storage, stand_in, stand_in, stand_in)
    world.peers[2] = Peer("d", founding_id=FOUNDING_ID, voters=voters(1, 2, 3))
    gate.introduced(2)
    world.jobs.pop()()
    assert gate.founding is not None
    assert [one.id for one in gate.founding.voters] == [2, 3]


def test_one_that_joins_members_of_an_earlier_build_gets_no_id(
    gate: FoundingGate, world: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    world.peers[1] = Peer("d")
    gate.introduced(1)
    world.jobs.pop()()
    assert "joining founding without an id" in caplog.text
    assert world.calls[0] == "durable None"
    assert "belongs to a quorum already: of [1]; nothing was founded" in refusal(gate, 1)


def test_all_who_ask_for_the_same_are_answered_and_others_refused(world: World) -> None:
    gate = gate_of(world, 2)
    world.peers[2] = blank(2)
    first, second = ask(gate, 2, 1, 2), ask(gate, 1, 2)
    taken = f"FOUNDING_REFUSED: member 1 belongs to a quorum already: founding {FOUNDING_ID}, of the voters [1, 2]"
    assert refusal(gate, 1, 2, founding_id=OTHER_ID) == f"{taken}; nothing was founded"
    (job,) = world.jobs
    job()
    third = ask(gate, 1, 2)
    for joined in (None, Peer("d"), blank(2)):
        world.peers = {} if joined is None else {2: joined}
        gate.tick()
        assert not first, "not everybody has joined"
    world.peers[2] = Peer("d", founding_id=FOUNDING_ID)
    gate.tick()
    assert first == second == third == [FoundQuorumResponse(FOUNDING_ID, [1, 2])]
    assert refusal(gate, 1, 2, founding_id=OTHER_ID).startswith(taken)
    assert world.jobs == [job]


def test_a_quorum_is_founded_by_the_lowest_of_its_voters_with_all_of_them(world: World) -> None:
    assert "the file of member 1 names the voters [1, 2, 3], not [1, 2]" in refusal(gate_of(world, 3), 1, 2)
    lowest = "member 1 founds a quorum of [1, 2, 3], for its id is the lowest: ask http://h:1"
    assert lowest in refusal(gate_of(world, 3, own=2), 1, 2, 3)
    assert not world.jobs


@pytest.mark.parametrize("odd", [2, 3])
def test_every_other_voter_must_be_there_blank_and_of_the_same_file(world: World, odd: int) -> None:
    gate = gate_of(world, 3)
    world.peers |= {2: blank(3), 3: blank(3)}
    del world.peers[odd]
    assert refusal(gate, 1, 2, 3).startswith(f"VOTERS_NOT_CONNECTED: member {odd} is not connected: start it")
    world.peers[odd] = Peer("d")
    assert f"member {odd} is not blank" in refusal(gate, 1, 2, 3)
    terms = founding_terms(file_of(2))
    world.peers[odd] = Peer("d", blank=FoundingTerms(terms.voters, terms.block_size, bridge=True))
    says = f"the file of member {odd} says voters [1, 2], block_size 10, mode zookeeper, not voters [1, 2, 3], "
    assert refusal(gate, 1, 2, 3) == f"FOUNDING_REFUSED: {says}block_size 10, mode quorum; nothing was founded"
    world.peers[odd] = blank(3)
    assert not world.jobs
    ask(gate, 1, 2, 3)
    assert len(world.jobs) == 1


def test_a_founding_that_the_log_brings_is_told_once(world: World) -> None:
    gate = gate_of(world, 1, founding=founding_by(file_of(1)))
    gate.tick()
    world.machine.foundings = Foundings(FoundingRecord(FOUNDING_ID, 10, False, 0))
    gate.tick()
    world.identity.founding_id = FOUNDING_ID
    gate.tick()
    assert world.calls == ["tick", "introduce_as", "tick", "tick"]


def test_it_says_for_what_it_waits(world: World) -> None:
    assert gate_of(world, 1).waits_for == WAITING
    assert gate_of(world, 1, blank=False).waits_for == ALONE


def test_what_the_log_says_is_answered_although_the_others_have_gone(world: World) -> None:
    """They had joined, or the founding would not be there; meanwhile the voters may be others."""
    gate = gate_of(world, 2, founding=founding_by(file_of(2), FOUNDING_ID))
    answers = ask(gate, 1, 2)
    gate.tick()
    assert answers == []
    world.machine.foundings = Foundings(FoundingRecord(FOUNDING_ID, 10, False, 0))
    world.identity.founding_id = FOUNDING_ID
    gate.tick()
    assert [answer.founding_id for answer in answers] == [FOUNDING_ID]


PLACE = Succession(OTHER_ID, 5000)


def place(gate: FoundingGate, succession: Succession = PLACE, *, force: bool = False) -> str:
    """Why a founding that takes the place of another is refused, or nothing."""
    wanted = FoundQuorumRequest(FOUNDING_ID, [1, 2], succession, force)
    try:
        gate.found(wanted, Callback(lambda answer, refusal: None))
    except RequestError as refusal:
        return f"{refusal.code.name}: {refusal.detail}"
    return ""


def test_whose_place_it_takes_is_durable_and_told_with_the_founding(world: World) -> None:
    gate = gate_of(world, 2)
    world.peers[2] = blank(2)
    assert not place(gate)
    world.jobs.pop()()
    assert gate.founding is not None
    assert gate.founding.succession == PLACE
    assert not place(gate), "once more is no other founding"
    assert "belongs to a quorum already" in place(gate, Succession(OTHER_ID, 6000))
    assert f"which takes the place of {OTHER_ID} from ID 5000 on; nothing was founded" in refusal(gate, 1, 2)


def test_who_joins_takes_over_whose_place_was_taken(world: World) -> None:
    gate = gate_of(world, 2)
    world.peers[2] = Peer("d", founding_id=FOUNDING_ID, succession=PLACE)
    gate.introduced(2)
    world.jobs.pop()()
    assert gate.founding == founding_by(file_of(2), FOUNDING_ID, PLACE)


def test_a_place_is_taken_only_by_blank_members_of_this_build_with_ids_of_their_own(world: World) -> None:
    world.peers[2] = blank(2)
    assert "cannot take its own place" in place(gate_of(world, 2), Succession(FOUNDING_ID, 5000))
    assert "takes nobody's place" in place(gate_of(world, 2, blank=False))
    settings = replace(file_of(2), bridge=True)
    storage: Any = SimpleNamespace(directory=world, machine=world.machine, founding=None, blank=True)
    stand_in: Any = world
    assert "`quorum found` goes on there" in place(FoundingGate(settings, storage, stand_in, stand_in, stand_in))
    world.peers[2] = replace(blank(2), metadata_version=FOUNDING)
    assert "member 2 runs a build that knows no predecessors: upgrade it first" in place(gate_of(world, 2))
    assert not world.jobs


def test_a_floor_is_bounded_as_any_other(world: World) -> None:
    world.peers[2] = blank(2)
    far = Succession(OTHER_ID, MAX_FLOOR_JUMP + 1)
    assert "INVALID_REQUEST" in place(gate_of(world, 2), far)
    assert "would leave no block" in place(gate_of(world, 2), Succession(OTHER_ID, MAX_PRODUCER_ID), force=True)
    assert not world.jobs
    assert not place(gate_of(world, 2), far, force=True)
    assert not place(gate_of(world, 2), Succession(OTHER_ID, MAX_FLOOR_JUMP))


def test_a_log_that_begins_with_that_of_the_predecessor_is_no_contradiction(world: World) -> None:
    founding = founding_by(file_of(1), FOUNDING_ID, PLACE)
    gate = gate_of(world, 1, founding=founding)
    world.identity.founding_id = FOUNDING_ID
    world.machine.foundings = Foundings(FoundingRecord(OTHER_ID, 10, False, 0))
    gate.tick()
    assert world.calls == ["tick"]
    gate = gate_of(world, 1, founding=founding_by(file_of(1), FOUNDING_ID))
    with pytest.raises(AssertionError, match="F1: the log is of founding"):
        gate.tick()
