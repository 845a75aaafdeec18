"""What an operator should mend although the quorum is healthy; health and the log say it."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence

from pidkeeper.controller.node.durable_voters import named_voters
from pidkeeper.controller.node.settings import MemberSettings
from pidkeeper.controller.raft.core import RaftCore
from pidkeeper.controller.raft.membership import Membership
from pidkeeper.controller.state.machine import StateMachine
from pidkeeper.protocol.founding import FoundingRecord
from pidkeeper.protocol.migration import CLAIMING, PAUSED, MigrationPhase
from pidkeeper.protocol.records import QuorumMember


class WarningKind(enum.Enum):
    """What is to be mended, as a label of the metrics."""

    SETTINGS_DIFFER = "settings_differ"
    """The file of this member says otherwise than the quorum was founded with."""
    VOTERS_DIFFER = "voters_differ"
    """It names other voters than the quorum has, or has them elsewhere."""
    EVEN_VOTERS = "even_voters"
    """A voter too many or too few: the quorum tolerates no more failures than one that is smaller."""
    INSECURE_PEERS = "insecure_peers"
    """Whoever reaches the peer port can act as a member."""
    IMPLAUSIBLE_TERMS = "implausible_terms"
    """A peer sent terms that no election can have led to."""
    VERSION_WAITS = "version_waits"
    """A member or an agent does not know the newest metadata version of the leader. Told by the leader alone."""


def warnings(
    settings: MemberSettings, core: RaftCore, machine: StateMachine, version_waits: Sequence[str] = ()
) -> list[str]:
    """All of them, each with what to do. `version_waits`: as the leader has it, else empty."""
    return [text for texts in warnings_by_kind(settings, core, machine, version_waits).values() for text in texts]


def warnings_by_kind(
    settings: MemberSettings, core: RaftCore, machine: StateMachine, version_waits: Sequence[str] = ()
) -> dict[WarningKind, list[str]]:
    """The same by kind; every kind is there."""
    return {
        WarningKind.SETTINGS_DIFFER: _of_the_settings(settings, machine.foundings.founding, machine.migration.phase),
        WarningKind.EVEN_VOTERS: _of_the_voters(core.membership),
        WarningKind.VOTERS_DIFFER: _of_the_file(settings, core.members),
        WarningKind.INSECURE_PEERS: _of_the_peer_keys(settings, core.membership),
        WarningKind.IMPLAUSIBLE_TERMS: [implausible_terms(*refused) for refused in sorted(core.terms_refused.items())],
        WarningKind.VERSION_WAITS: list(version_waits),
    }


def implausible_terms(peer: int, count: int) -> str:
    """What is said of a peer whose terms were refused `count` times."""
    return (
        f"member {peer} sent {count} messages of terms that no election can have led to: unless most members are in "
        "such terms, stop it, and replace it"
    )


def _of_the_settings(settings: MemberSettings, founding: FoundingRecord | None, phase: MigrationPhase) -> list[str]:
    """What this member's file says otherwise than the quorum was founded with; nothing of it is obeyed."""
    if founding is None:
        return []
    found = []
    if settings.block_size != founding.block_size:
        found.append(
            f"member {settings.node_id}: its file has block_size = {settings.block_size}, the quorum was founded with "
            f"{founding.block_size}, which holds: correct the file"
        )
    if settings.bridge and not founding.bridge:
        found.append(
            f'member {settings.node_id}: its file has mode = "zookeeper", but the quorum was founded without, which '
            "holds: take it out, or order `pidkeeper migrate zookeeper start`"
        )
    if founding.bridge and phase in CLAIMING | PAUSED and not settings.bridge:
        found.append(
            f'member {settings.node_id}: its file has not mode = "zookeeper", but the quorum was founded with it, and '
            "its blocks come from ZooKeeper, which holds: put it back until `pidkeeper migrate zookeeper finalize`"
        )
    return found


def _of_the_voters(membership: Membership) -> list[str]:
    count = len(membership.voters)
    if count % 2 == 1 or count < len(membership.members):  # a learner is on its way to mend that
        return []
    return [f"{count} voters tolerate no more failures than {count - 1}: add or remove one"]


def _of_the_file(settings: MemberSettings, in_force: Iterable[QuorumMember]) -> list[str]:
    """What this member's file says otherwise than the quorum in force; nothing of it is obeyed."""
    own, named = settings.node_id, named_voters(settings)
    members = {member.id: member for member in in_force}
    found = []
    if named.keys() != members.keys():
        found.append(
            f"member {own}: its file names the voters {sorted(named)}, the quorum is {sorted(members)}: "
            "bring [[voters]] up to date, for a member whose disk is replaced looks for the others there"
        )
    for one in sorted(named.keys() & members.keys()):
        there, here = str(named[one].peer), members[one].peer
        if there != here:
            found.append(
                f"member {own}: its file has member {one} at {there}, the quorum at {here}: correct [[voters]], or "
                "move the member by remove-voter and add-voter"
            )
    return found


def _of_the_peer_keys(settings: MemberSettings, membership: Membership) -> list[str]:
    if None not in settings.peer_keys or len(membership.members) == 1:
        return []
    who = f"member {settings.node_id}"
    remedy = "give all members a peer_key_file, and then remove insecure"
    return [f"{who}: insecure = true lets whoever reaches its peer port act as a member: {remedy}"]
