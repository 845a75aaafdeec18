"""Operators' changes of the quorum: from a request to the next configuration, and the answer once it is applied.

To add a voter takes two changes: the first makes it a learner, the second, once it has caught up, a voter. Each request
goes one step, so that whoever leads by then can go the next one, and nothing is remembered outside the log.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from pidkeeper.controller.answers import Answer, not_controller, release
from pidkeeper.controller.node.proposals import Proposals
from pidkeeper.controller.raft.core import ProposalRefused, RaftCore, Role
from pidkeeper.controller.state.machine import StateMachine
from pidkeeper.controller.transport.identity import Peer
from pidkeeper.protocol.errors import ErrorCode, RequestError
from pidkeeper.protocol.messages import AddVoterResponse, RemoveVoterResponse
from pidkeeper.protocol.metadata_version import MEMBERSHIP
from pidkeeper.protocol.records import MAX_MEMBERS, QuorumMember, VotersRecord

Response = AddVoterResponse | RemoveVoterResponse


class VoterChanges:
    """Begins changes, and answers once they are committed.

    Also where nothing is left to do: a leader that was cut off may not know what was changed since, so it says so only
    after an entry that it appended behind the question is committed.
    """

    def __init__(self, core: RaftCore, machine: StateMachine, proposals: Proposals) -> None:
        self._core = core
        self._machine = machine
        self._proposals = proposals

    def add(self, wanted: QuorumMember, peer: Peer | None, answer: Answer) -> None:
        """One step towards `wanted` as a voter. `peer`: what it says of itself, None while it is not connected.

        `answer` gets an AddVoterResponse. Raises RequestError: NOT_CONTROLLER; INVALID_REQUEST if the id belongs to a
        member with other addresses or another directory, or if there are too many members; UNSUPPORTED_VERSION if
        its build, or that of a member, is too old; REASSIGNMENT_IN_PROGRESS while another change is not committed.
        """
        members = self._members()
        self._check_version()
        known = members.get(wanted.id)
        directory = None if peer is None else peer.directory_id
        if known is not None:
            _check_same(next(one for one in self._core.members if one.id == wanted.id), wanted)
        if wanted.directory_id not in {None, directory} and directory is not None:
            detail = f"member {wanted.id} has directory {directory}, not {wanted.directory_id}: which one do you mean?"
            raise RequestError(ErrorCode.INVALID_REQUEST, detail)
        if known is not None and known.voting:
            self._proposals.confirm([(answer, AddVoterResponse(wanted.id, voting=True))])
            return
        if peer is not None and peer.metadata_version < self._machine.metadata_version:
            detail = (
                f"it reads metadata version {peer.metadata_version}, the quorum has {self._machine.metadata_version}"
            )
            raise RequestError(ErrorCode.UNSUPPORTED_VERSION, f"upgrade member {wanted.id} first: {detail}")
        if known is None and len(members) >= MAX_MEMBERS:
            raise RequestError(ErrorCode.INVALID_REQUEST, f"there are {MAX_MEMBERS} members already: remove one first")
        found = wanted.directory_id or directory
        members[wanted.id] = msgspec.structs.replace(wanted, directory_id=found, voting=known is not None)
        try:
            self._propose(members, AddVoterResponse(wanted.id, voting=known is not None), answer)
        except ProposalRefused as refusal:
            if known is None:
                raise _in_progress(refusal) from refusal
            release(answer, AddVoterResponse(wanted.id, voting=False, waiting_for=str(refusal)))

    def remove(self, member_id: int, answer: Answer) -> None:
        """Remove a voter or a learner. `answer` gets a RemoveVoterResponse once that is committed.

        Raises RequestError: NOT_CONTROLLER, RESOURCE_NOT_FOUND, INVALID_REQUEST for the last voter, UNSUPPORTED_VERSION
        if the build of a member is too old, REASSIGNMENT_IN_PROGRESS while another change is not committed or the rest
        could not go on.
        """
        members = self._members()
        self._check_version()
        if member_id not in members:
            detail = f"member {member_id} is not in the quorum: its members are {sorted(members)}"
            self._proposals.confirm([(answer, RequestError(ErrorCode.RESOURCE_NOT_FOUND, detail))])
            return
        del members[member_id]
        if not any(member.voting for member in members.values()):
            raise RequestError(ErrorCode.INVALID_REQUEST, f"member {member_id} is the last voter")
        try:
            self._propose(members, RemoveVoterResponse(member_id), answer)
        except ProposalRefused as refusal:
            raise _in_progress(refusal) from refusal

    def _check_version(self) -> None:
        if self._machine.metadata_version < MEMBERSHIP:
            detail = (
                f"the quorum has metadata version {self._machine.metadata_version}, changes of the voters need "
                f"{MEMBERSHIP}: see that all members {sorted(self._core.membership.members)} run, as the newest build"
            )
            raise RequestError(ErrorCode.UNSUPPORTED_VERSION, detail)

    def _members(self) -> dict[int, QuorumMember]:
        """Those in force by id. Only a leader's are the newest: another member may have missed changes."""
        if self._core.role is not Role.LEADER:
            raise not_controller()
        return {member.id: member for member in self._core.membership.record.members}

    def _propose(self, members: Mapping[int, QuorumMember], response: Response, answer: Answer) -> None:
        record = VotersRecord(tuple(members[member_id] for member_id in sorted(members)))
        self._proposals.change_members(record, [(answer, response)])


def _check_same(known: QuorumMember, wanted: QuorumMember) -> None:
    if (known.peer, known.http) != (wanted.peer, wanted.http):
        detail = f"member {known.id} is known at {known.peer} and {known.http}: remove it before you add another"
        raise RequestError(ErrorCode.INVALID_REQUEST, detail)


def _in_progress(refusal: ProposalRefused) -> RequestError:
    return RequestError(ErrorCode.REASSIGNMENT_IN_PROGRESS, str(refusal))
