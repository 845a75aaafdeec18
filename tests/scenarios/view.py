"""What can be seen of a member from outside, and what a single call changed about it."""

from __future__ import annotations

import msgspec

from pidkeeper.controller.raft.core import RaftCore, Role
from tests.scenarios.wording import configuration, slots, terms


class PeerView(msgspec.Struct, frozen=True):
    """A peer as its leader sees it."""

    state: str
    window_full: bool
    recovery: int
    barrier: int


class View(msgspec.Struct, frozen=True):
    """A member at one moment. `log`: (index, term) of every entry at hand, from index `first`.

    `configuration`: the one in force, whose entry is at `configuration_index`.
    """

    role: Role
    term: int
    leader: int | None
    commit: int
    recovering: bool
    serving: bool
    transferring: int | None
    first: int
    log: list[tuple[int, int]]
    configuration: str
    configuration_index: int
    configuration_committed: bool
    peers: dict[int, PeerView]

    @classmethod
    def of(cls, core: RaftCore) -> View:
        peers = {
            peer: PeerView(
                progress.state.value,
                progress.state.value == "replicate" and progress.paused,
                progress.recovery,
                progress.barrier,
            )
            for peer, progress in core.progress.items()
            if peer != core.node_id
        }
        return cls(
            core.role,
            core.term,
            core.leader_id,
            core.commit,
            core.recovering,
            core.serving,
            core.transferring,
            core.first_index,
            slots(core),
            configuration(core),
            core.membership.index,
            core.log.memberships.committed,
            peers,
        )


def changes(old: View, new: View) -> list[str]:
    """What happened between two views of one member, in words, most important first."""
    lines = _role_changes(old, new)
    kept = set(new.log)
    dropped = [slot for slot in old.log if slot not in kept and slot[0] >= new.first]
    if dropped:
        lines.append(f"drops {terms(dropped)}")
    if old.configuration_index != new.configuration_index:
        lines.append(new.configuration)
    if old.commit != new.commit:
        lines.append(f"commit {old.commit} -> {new.commit}")
    if new.configuration_committed and not old.configuration_committed and new.configuration_index:
        lines.append(f"configuration {new.configuration_index} is committed")
    if old.recovering != new.recovering:
        lines.append("is recovering" if new.recovering else "has recovered")
    if new.serving and not old.serving:
        lines.append("serves: the first entry of its term is applied")
    if old.role is new.role is Role.LEADER:
        lines += [f"sends to {peer} from now on" for peer in new.peers if peer not in old.peers]
        lines += [f"sends no more to {peer}" for peer in old.peers if peer not in new.peers]
    for peer, after in new.peers.items():
        lines += _peer_changes(peer, old.peers.get(peer), after)
    return lines


def _role_changes(old: View, new: View) -> list[str]:
    lines = []
    if (old.role, old.term) != (new.role, new.term) or old.leader != new.leader:
        if new.role is not Role.FOLLOWER:
            lines.append(f"becomes {new.role.value} in term {new.term}")
        elif new.leader is not None:
            lines.append(f"follows {new.leader} in term {new.term}")
        else:
            before = " after " + old.role.value if old.role is not Role.FOLLOWER else ""
            lines.append(f"follows nobody in term {new.term}{before}")
    if new.transferring is not None and new.transferring != old.transferring:
        lines.append(f"hands over to {new.transferring}")
    if old.transferring is not None and new.transferring is None and new.role is Role.LEADER:
        lines.append(f"gives up handing over to {old.transferring}")
    return lines


def _peer_changes(peer: int, old: PeerView | None, new: PeerView) -> list[str]:
    lines = []
    if old is not None and old.state != new.state:
        lines.append(f"progress of {peer}: {old.state} -> {new.state}")
    if old is not None and old.window_full != new.window_full:
        lines.append(f"window of {peer}: " + ("full" if new.window_full else "open"))
    was_recovering = old.recovery if old is not None else 0
    if new.recovery and new.recovery != was_recovering:
        lines.append(f"notes recovery {new.recovery} of {peer}, which ends once {new.barrier} is there and committed")
    if was_recovering and not new.recovery:
        lines.append(f"notes that {peer} has recovered")
    return lines
