"""Configurations as transcripts write them: `voters 1 2 3, learners 4`, and the next ones that a command asks for."""

from __future__ import annotations

import msgspec

from pidkeeper.protocol.records import QuorumMember, VotersRecord
from tests.support.raft_network import members


def configuration_text(record: VotersRecord) -> str:
    """The voters, then the learners, if there are any."""
    voters = " ".join(str(member.id) for member in record.members if member.voting)
    learners = " ".join(str(member.id) for member in record.members if not member.voting)
    return f"voters {voters}" + (f", learners {learners}" if learners else "")


def configuration_of(text: str) -> VotersRecord:
    """What `configuration_text` wrote."""
    voters, _, learners = text.partition(", ")
    return members(*map(int, voters.split()[1:]), learners=[int(word) for word in learners.split()[1:]])


def with_member(record: VotersRecord, member_id: int, *, voting: bool) -> VotersRecord:
    """The same with one more member, or with a member that votes from now on, or no longer."""
    kept = [member for member in record.members if member.id != member_id]
    new = QuorumMember(member_id, None, "", "", voting)
    return msgspec.structs.replace(record, members=tuple(sorted([*kept, new], key=lambda member: member.id)))


def without_member(record: VotersRecord, member_id: int) -> VotersRecord:
    """The same without one member. Raises ValueError if no voter is left."""
    return VotersRecord(tuple(member for member in record.members if member.id != member_id))
