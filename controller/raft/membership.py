"""The configurations of the quorum that a member's log holds (dissertation, chapter 4: one server at a time).

A configuration is an entry of the log. It is in force from the moment it is appended, and the one before it comes back
when that entry is truncated. So a member keeps those from the last one that is known to be committed to the newest.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from pidkeeper.controller.raft.invariants import InvariantViolation
from pidkeeper.protocol.records import QuorumMember, VotersRecord


class Membership:
    """One configuration; nothing of it ever changes.

    `index`: of its entry, or of the snapshot that holds it; 0 for the configured one.
    """

    __slots__ = ("index", "members", "record", "voters")

    def __init__(self, index: int, record: VotersRecord) -> None:
        self.index = index
        # As the entry holds it, with the addresses.
        self.record = record
        # The ids that count in majorities, and those of voters and learners; voters is a part of members.
        self.voters = frozenset(member.id for member in record.members if member.voting)
        self.members = frozenset(member.id for member in record.members)

    def is_learner(self, node_id: int) -> bool:
        """Whether `node_id` is a member that counts in no majority."""
        return node_id in self.members and node_id not in self.voters

    def names_voter(self, node_id: int, directory_id: str | None) -> bool:
        """Whether just this data directory votes, and not only some member with this id (KIP-853)."""
        return directory_id is not None and any(
            (one.id, one.directory_id, one.voting) == (node_id, directory_id, True) for one in self.record.members
        )


class Memberships:
    """The configurations that count, from the last one that is known to be committed to the newest."""

    __slots__ = ("_configured", "configurations", "everybody", "newest", "version")

    def __init__(self, configured: VotersRecord, index: int = 0, record: VotersRecord | None = None) -> None:
        """`record`: as of the snapshot at `index`; None if it has none, so that the configured one is in force."""
        # What the directory was founded with. In force until an entry holds another, and after a snapshot with none.
        self._configured = configured
        # Rises whenever the configurations change, so that what was derived from them is known to be out of date.
        self.version = 0
        self.restart(index, record)

    @property
    def committed(self) -> bool:
        """Whether the configuration in force is known to be committed."""
        return len(self.configurations) == 1

    def restart(self, index: int, record: VotersRecord | None) -> None:
        """A snapshot replaced the log: its configuration is the only one."""
        first = Membership(0, self._configured) if record is None else Membership(index, record)
        self._change([first])

    def configure(self, record: VotersRecord) -> None:
        """Count by `record` until an entry or a snapshot holds another; before there is any."""
        if self.newest.index or not self.committed:
            raise InvariantViolation("R16", f"the log has the voters {sorted(self.newest.voters)} already")
        self._configured = record
        self.restart(0, None)

    def append(self, index: int, record: VotersRecord) -> None:
        """An entry with a configuration was appended."""
        before, new = self.newest, Membership(index, record)
        # A member that joined was founded with whoever its file named, maybe not the first voters: only entries count.
        if before.index and len(before.voters ^ new.voters) > 1:
            raise InvariantViolation("R16", f"voters {sorted(before.voters)} are followed by {sorted(new.voters)}")
        if before.index and not new.voters <= before.members:
            raise InvariantViolation("R17", f"members {sorted(before.members)} are followed by {sorted(new.voters)}")
        self._change([*self.configurations, new])

    def truncate(self, index: int) -> None:
        """The entries from `index` on are gone."""
        if self.newest.index >= index:
            self._change([one for one in self.configurations if one.index < index])

    def commit_to(self, index: int) -> None:
        """Everything through `index` is committed: no configuration before the newest one in it comes back."""
        # The newest of the committed ones stays: it is in force, or comes back when all behind it are truncated.
        if len(self.configurations) > 1 and self.configurations[1].index <= index:
            newest = max(position for position, one in enumerate(self.configurations) if one.index <= index)
            self._change(self.configurations[newest:])

    def may_campaign(self, node_id: int) -> bool:
        """Whether `node_id` is a voter, or may still be needed as one (dissertation, section 4.2.2).

        Until the entry that removes a voter is committed, that voter may be the only one whose log can win.
        """
        return any(node_id in one.voters for one in self.configurations)

    def peers_of(self, node_id: int) -> tuple[int, ...]:
        """Everybody but `node_id`, by id: to whom it sends when it campaigns or leads."""
        return tuple(sorted(self.everybody - {node_id}))

    def contacts(self) -> list[QuorumMember]:
        """Everybody with the newest address of each, by id."""
        known = {member.id: member for one in self.configurations for member in self.members_of(one)}
        return [known[member_id] for member_id in sorted(known)]

    def members_of(self, membership: Membership) -> list[QuorumMember]:
        """The members of one of the configurations, where they are reached.

        Those who are members since the founding are where the configured record has them, whatever the leader's file
        said when the entry was written: no change has ever said where they are, so a file may. A learner, or a voter
        with a directory, was taken in by a change, maybe with an id of the founding.
        """
        configured = {one.id: one for one in self._configured.members}
        return [
            one if one.directory_id is not None or not one.voting else _reached(one, configured.get(one.id))
            for one in membership.record.members
        ]

    def _change(self, configurations: list[Membership]) -> None:
        if not configurations:
            raise InvariantViolation("R3", "the configuration that was truncated was committed")
        # Oldest first, by rising index. The first is committed; the others are not known to be, and may be truncated.
        self.configurations = configurations
        # In force, committed or not (dissertation, section 4.1): majorities are of its voters.
        self.newest = configurations[-1]
        # The members of all of them. To them everything is sent, and the unanimous rule asks all of them.
        self.everybody = frozenset().union(*(one.members for one in configurations))
        self.version += 1


def _reached(member: QuorumMember, configured: QuorumMember | None) -> QuorumMember:
    if configured is None or not configured.peer:
        return member
    return msgspec.structs.replace(member, peer=configured.peer, http=configured.http)


def plain_record(voters: Iterable[int]) -> VotersRecord:
    """A configuration of voters that have no address."""
    return VotersRecord(tuple(QuorumMember(voter, None, "", "", True) for voter in sorted(voters)))
