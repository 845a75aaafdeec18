"""What health tells of although the quorum is healthy."""

from __future__ import annotations

import uuid

import msgspec
import pytest

from pidkeeper.controller.node.operator_warnings import WarningKind, warnings, warnings_by_kind
from pidkeeper.controller.node.settings import MemberSettings
from pidkeeper.controller.raft.messages import HeartbeatReply
from pidkeeper.controller.state.foundings import Foundings
from pidkeeper.controller.state.machine import StateMachine
from pidkeeper.controller.state.migration import MigrationState
from pidkeeper.protocol.founding import FoundingRecord
from pidkeeper.protocol.migration import MigrationPhase, MigrationRecord
from pidkeeper.protocol.records import QuorumMember, VotersRecord
from tests.support.raft_network import make_core
from tests.unit.controller.node.test_durable_voters import file_of, member


def told(settings: MemberSettings, *members: QuorumMember) -> list[str]:
    core = make_core(settings.node_id, voters=(1, 2, 3))
    core.log.memberships.restart(7, VotersRecord(members))
    return warnings(settings, core, StateMachine("c"))


THREE = (member(1), member(2), member(3))


def test_a_file_that_agrees_with_the_quorum_is_told_nothing_of() -> None:
    assert told(file_of(1, 2, 3), *THREE) == []
    assert told(file_of(1, 2, learner=4, node_id=4), member(1), member(2), member(4, voting=False)) == []


@pytest.mark.parametrize("named", [(1,), (1, 2, 4)])
def test_a_file_that_names_others_is_told_of_with_what_to_do(named: tuple[int, ...]) -> None:
    (warning,) = told(file_of(*named), *THREE)
    assert warning.startswith(f"member 1: its file names the voters {list(named)}, the quorum is [1, 2, 3]: bring")


def test_an_even_number_of_voters_is_told_of() -> None:
    (warning,) = told(file_of(1, 2), member(1), member(2))
    assert warning == "2 voters tolerate no more failures than 1: add or remove one"


def test_an_address_that_differs_is_told_of() -> None:
    (warning,) = told(file_of(1, 2, 3), member(1), QuorumMember(2, None, "moved:1", "", True), member(3))
    assert warning.startswith("member 1: its file has member 2 at host-2:1, the quorum at moved:1: correct [[voters]]")


@pytest.mark.parametrize("keys", [(None,), (b"a key", None)])
def test_peers_that_need_prove_nothing_are_told_of_where_there_are_any(keys: tuple[bytes | None, ...]) -> None:
    (warning,) = told(msgspec.structs.replace(file_of(1, 2, 3), peer_keys=keys), *THREE)
    assert warning.startswith("member 1: insecure = true lets whoever reaches its peer port act as a member")
    assert told(msgspec.structs.replace(file_of(1), peer_keys=keys), member(1)) == []


def test_a_peer_that_sent_implausible_terms_is_told_of() -> None:
    core = make_core(1, voters=(1, 2, 3))
    core.log.memberships.restart(7, VotersRecord(THREE))
    core.step(HeartbeatReply(2**60, 3, 1, 0))
    (warning,) = warnings(file_of(1, 2, 3), core, StateMachine("c"))
    assert warning.startswith("member 3 sent 1 messages of terms that no election can have led to")


@pytest.mark.parametrize(
    ("phase", "bridge", "in_file", "told"),
    [
        (MigrationPhase.BRIDGE, True, True, ""),
        (MigrationPhase.BRIDGE, True, False, 'its file has not mode = "zookeeper"'),
        (MigrationPhase.DUAL_WRITE, True, False, 'its file has not mode = "zookeeper"'),
        # The last step of the runbook, member by member.
        (MigrationPhase.FINALIZED, True, True, ""),
        (MigrationPhase.FINALIZED, True, False, ""),
        (MigrationPhase.NONE, False, True, 'its file has mode = "zookeeper"'),
        # Who founds without ZooKeeper, and imports from it later, never says so.
        (MigrationPhase.DUAL_WRITE, False, False, ""),
    ],
)
def test_a_mode_that_differs_is_told_of(phase: MigrationPhase, bridge: bool, in_file: bool, told: str) -> None:
    core, machine = make_core(1, voters=(1, 2, 3)), StateMachine("c")
    core.log.memberships.restart(7, VotersRecord(THREE))
    machine.foundings = Foundings(FoundingRecord(uuid.UUID(int=1), machine.block_size, bridge, 0))
    machine.migration = MigrationState(MigrationRecord(phase, "name", -1, 0))
    settings = msgspec.structs.replace(file_of(1, 2, 3), bridge=in_file, block_size=machine.block_size)
    found = warnings(settings, core, machine)
    assert [told in one for one in found] == ([True] if told else [])


def test_every_kind_is_told_of_by_its_number() -> None:
    core = make_core(1, voters=(1, 2, 3))
    core.log.memberships.restart(7, VotersRecord((member(1), member(2))))
    settings = msgspec.structs.replace(file_of(1, 2, 3), peer_keys=(None,))
    waits = ["a version waits for member 2"]
    by_kind = warnings_by_kind(settings, core, StateMachine("c"), waits)
    assert {kind: len(texts) for kind, texts in by_kind.items()} == {
        WarningKind.SETTINGS_DIFFER: 0,
        WarningKind.EVEN_VOTERS: 1,
        WarningKind.VOTERS_DIFFER: 1,
        WarningKind.INSECURE_PEERS: 1,
        WarningKind.IMPLAUSIBLE_TERMS: 0,
        WarningKind.VERSION_WAITS: 1,
    }
    assert by_kind.keys() == set(WarningKind)
    everything = [text for texts in by_kind.values() for text in texts]
    assert warnings(settings, core, StateMachine("c"), waits) == everything
