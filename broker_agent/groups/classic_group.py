"""One consumer group of the classic protocol: how its members come together, generation by generation. Pure.

The states and the order of checks are those of Kafka's `ClassicGroup` and `GroupMetadataManager`. One thing is not: a
generation holds only when the quorum has its members. So what completes a rebalance ends in a `Commit`, and until its
outcome is told nobody is answered who would learn of it, and whatever would change the group waits for its turn.
Somebody else may have gone on with the group meanwhile: then it is closed here.

Members that the quorum names were those of another coordinator, which may be dead. They are known by their ids alone,
and are told to join again. Their assignments are nobody's but the leader's: the quorum does not keep them.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Final, Protocol

from pidkeeper.broker_agent.groups.members import MEMBER_BYTES, Call, Client, Member, Members, held_bytes
from pidkeeper.broker_agent.groups.settings import MAX_GROUP_SIZE, GroupSettings
from pidkeeper.broker_agent.groups.turns import Answer, Commit, Turns
from pidkeeper.broker_agent.kafka.wire.groups.describe_groups import DescribedGroup, DescribedMember
from pidkeeper.broker_agent.kafka.wire.groups.heartbeat import HeartbeatRequest
from pidkeeper.broker_agent.kafka.wire.groups.join_group import JoinedMember, JoinGroupRequest, JoinGroupResponse
from pidkeeper.broker_agent.kafka.wire.groups.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    LeavingMember,
    LeftMember,
)
from pidkeeper.broker_agent.kafka.wire.groups.sync_group import SyncGroupRequest, SyncGroupResponse
from pidkeeper.protocol.errors import ErrorCode
from pidkeeper.protocol.group_messages import GroupDescription
from pidkeeper.protocol.groups import MAX_MEMBER_ID_LENGTH, MAX_MEMBERS_BYTES, NO_VERSION

NEW_MEMBER_MS: Final = 5 * 60_000
"""How long a new member waits for its first answer: it has no id to show signs of life with, and may have gone
(`classicGroupNewMemberJoinTimeoutMs`)."""

UNKNOWN_REBALANCE_MS: Final = 5 * 60_000
"""How long such members are waited for while they show signs of life, and none has joined that says how long it wants
to be waited for: Java's default of `max.poll.interval.ms`."""

MAX_PENDING: Final = MAX_GROUP_SIZE
"""Member ids given out that nobody has joined with yet (KIP-394). They go with their session timeouts."""

MAX_GROUP_BYTES: Final = 1024 * 1024
"""Of a group's members with their metadata and assignments, as `Member.held_bytes` counts them: Kafka keeps both in one
record of at most `message.max.bytes`, 1 MiB by default. The leader's answer has all metadata of one protocol."""

SUPERSEDED: Final = ErrorCode.NOT_COORDINATOR
"""What a call is told in whose place the same member has another one: all clients come again after it, and most likely
nobody hears it."""


class Room(Protocol):
    """Bytes that all groups of an agent share. `ByteBudget` is one."""

    def take_now(self, count: int) -> bool: ...
    def give_back(self, count: int) -> None: ...


class State(enum.Enum):
    """Of a group, as Kafka names it to clients."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class ClassicGroup:
    """A group at its coordinator. All times are in milliseconds of one clock.

    Each call brings an opaque `call`, and is answered once, by `take_answers`. Whoever calls a method looks there
    afterwards, at `take_commit`, and at `deadline`. `version`, `generation`: what the quorum has of the group, as far
    as was heard.
    """

    def __init__(self, group_id: str, room: Room, settings: GroupSettings) -> None:
        self.group_id = group_id
        self._settings = settings
        self.state = State.EMPTY
        self.version = NO_VERSION
        self.generation = 0
        self.protocol_type = ""
        self.protocol = ""
        self.members = Members()
        self._room = room
        self._held_bytes = 0
        # Member ids that were given out, and when they expire.
        self._pending: dict[str, int] = {}
        # Of the rebalance under way: whether the group was empty before, or was another coordinator's.
        self._initial = False
        self._loaded = False
        self._more_came = False
        self._first_came: int | None = None
        self._join_deadline = self._latest_join = self._sync_deadline = 0
        self._turns = Turns()

    def load(self, now: int, known: GroupDescription) -> bool:
        """Go on with a new group from what the quorum knows. Members have to come again within their sessions.

        False if there is no room for them: then the group is not to be used.
        """
        if not self._room.take_now(MEMBER_BYTES * len(known.members)):
            return False
        self._held_bytes = MEMBER_BYTES * len(known.members)
        self.version = known.version
        self.generation = max(0, known.generation)
        self.protocol_type = known.protocol_type
        for one in known.members:
            member = Member(one.member_id, one.instance_id, Client(one.client_id, one.host))
            member.session_ms = one.session_timeout_ms
            self._refresh(now, member)
            self.members.add(member)
        if len(self.members):
            self.state, self._loaded = State.PREPARING_REBALANCE, True
            self._join_deadline = now + UNKNOWN_REBALANCE_MS
        return True

    # What callers ask for.

    def join(self, now: int, call: Call, request: JoinGroupRequest, client: Client, new_id: str) -> None:
        """A member joins. `new_id`: that of nobody else; a member that gets an id gets it as its end."""
        self._in_turn(now, call, lambda at: self._join(at, call, request, client, new_id))

    def sync(self, now: int, call: Call, request: SyncGroupRequest) -> None:
        """A member asks for its assignment; the leader brings those of all."""
        self._in_turn(now, call, lambda at: self._sync(at, call, request))

    def leave(self, now: int, call: Call, request: LeaveGroupRequest) -> None:
        """Members leave, or are removed by their instance ids (KIP-345)."""
        self._in_turn(now, call, lambda at: self._leave(at, call, request))

    def heartbeat(self, now: int, request: HeartbeatRequest) -> ErrorCode:
        """A member lives. Answered at once."""
        if self.state is State.DEAD:
            return ErrorCode.NOT_COORDINATOR
        refused = self.members.refused(request.member_id, request.instance_id)
        if refused is not None:
            return refused
        if request.generation != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        self._refresh(now, self.members[request.member_id])
        return ErrorCode.REBALANCE_IN_PROGRESS if self.state is State.PREPARING_REBALANCE else ErrorCode.NONE

    def before_commit(self, now: int, member_id: str, generation: int, instance_id: str | None) -> ErrorCode:
        """Whether the quorum may be asked to commit offsets of a member; if so, the member lives.

        The quorum judges the rest (`ClassicGroup.validateOffsetCommit`): it knows the members of this generation.
        """
        if self.state is State.DEAD:
            return ErrorCode.NOT_COORDINATOR
        refused = self.members.refused(member_id, instance_id)
        if refused is not None or generation != self.generation:
            return ErrorCode.NONE
        if self.state is State.COMPLETING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        self._refresh(now, self.members[member_id])
        return ErrorCode.NONE

    def describe(self) -> DescribedGroup:
        """As clients are told of it: the protocol, metadata and assignments of a stable group alone."""
        stable = self.state is State.STABLE
        return DescribedGroup(
            self.group_id,
            state=self.state.value,
            protocol_type=self.protocol_type,
            protocol_data=self.protocol if stable else "",
            members=[
                DescribedMember(
                    one.member_id,
                    one.instance_id,
                    *one.client,
                    one.metadata(self.protocol) if stable else b"",
                    one.assignment if stable else b"",
                )
                for one in self.members
            ],
        )

    # What happens besides.

    @property
    def deadline(self) -> int | None:
        """When `tick` has something to do, if nothing else happens before."""
        if self._turns.waiting:
            return None
        moments = [*self._pending.values(), *(one.expires for one in self.members if not one.keeps_waiting)]
        if self.state is State.PREPARING_REBALANCE:
            moments.append(self._join_deadline)
        elif self._unsynced():
            moments.append(self._sync_deadline)
        return min(moments, default=None)

    @property
    def idle(self) -> bool:
        """Whether nothing is lost if the group is loaded anew."""
        return self.state is State.EMPTY and not self._pending and not self._turns.waiting

    def tick(self, now: int) -> None:
        """Time has passed: whoever showed no sign of life is removed, and nobody waits for ever."""
        if not self._turns.waiting:
            self._expire(now)
            self._meet_deadlines(now)

    def committed(self, now: int, version: int) -> None:
        """The quorum has taken the commit, as `version` of the group."""
        self.version = version
        self._turns.agreed(now)

    def close(self, code: ErrorCode) -> None:
        """The group is coordinated here no more: whoever waits is answered with `code`, and comes again elsewhere."""
        self.state = State.DEAD
        for member in self.members:
            self._answer_joining(member, code)
            self._answer_syncing(member, code)
        self._turns.close(code)
        self._give_back(self._held_bytes)
        self.members, self._pending = Members(), {}

    def take_answers(self) -> list[tuple[Call, Answer]]:
        """What is to be answered, each once."""
        return self._turns.take_answers()

    def take_commit(self) -> Commit | None:
        """What the quorum is to be asked, once; `committed` or `close` tells how it went."""
        return self._turns.take_commit()

    def _in_turn(self, now: int, call: Call, run: Callable[[int], None]) -> None:
        if self.state is State.DEAD:
            self._turns.answer(call, ErrorCode.NOT_COORDINATOR)
        else:
            self._turns.take(now, call, run)

    # JoinGroup.

    def _join(self, now: int, call: Call, request: JoinGroupRequest, client: Client, new_id: str) -> None:
        code = self._join_member(now, call, request, client, new_id)
        if code is not None:
            self._turns.answer(call, code)

    def _join_member(
        self, now: int, call: Call, request: JoinGroupRequest, client: Client, new_id: str
    ) -> ErrorCode | None:
        """The code that `call` is answered with; None if it is answered otherwise, or waits."""
        member = self.members.get(request.member_id)
        replaced = None if request.member_id else self.members.of_instance(request.instance_id)
        newcomer = Member(request.member_id or _member_id(request, client, new_id), request.instance_id, client)
        if not self._has_place(member or newcomer, replaced):
            if self._forget_pending(request.member_id):
                self._complete_if_all_came(now)
            return ErrorCode.GROUP_MAX_SIZE_REACHED
        if not self._is_consistent(request):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if replaced is not None:
            return self._replace(now, call, request, replaced, newcomer)
        if not request.member_id and request.instance_id is None and request.takes_member_id:
            return self._give_member_id(now, call, request, newcomer.member_id)
        if not request.member_id or (request.member_id in self._pending and request.instance_id is None):
            return self._add(now, call, request, newcomer)
        if (refused := self.members.refused(request.member_id, request.instance_id)) is not None:
            return refused
        return self._rejoin(now, call, request, self.members[request.member_id])

    def _has_place(self, member: Member, replaced: Member | None) -> bool:
        """Whether the group takes a member, or keeps it. In a rebalance the places are for those who have come: others
        may be gone (`acceptJoiningMember`)."""
        preparing = self.state is State.PREPARING_REBALANCE
        others = [
            one.record_bytes
            for one in self.members
            if one is not member
            and one is not replaced
            and (not preparing or one.joining is not None or one.instance_id is not None)
        ]
        return len(others) < self._settings.max_size and sum(others) + member.record_bytes <= MAX_MEMBERS_BYTES

    def _is_consistent(self, request: JoinGroupRequest) -> bool:
        """`ClassicGroup.supportsProtocols`."""
        if not request.protocol_type or not request.protocols:
            return False
        if self.state is State.EMPTY:
            return True
        return request.protocol_type == self.protocol_type and self.members.support(request.protocols)

    def _give_member_id(self, now: int, call: Call, request: JoinGroupRequest, member_id: str) -> ErrorCode | None:
        """Have a member come again with an id, so that one which does not hear of it leaves no member (KIP-394)."""
        if len(self._pending) >= MAX_PENDING:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if (refused := self._grow(MEMBER_BYTES)) is not None:
            return refused
        self._pending[member_id] = now + request.session_timeout_ms
        self._turns.answer(call, JoinGroupResponse(member_id, ErrorCode.MEMBER_ID_REQUIRED.kafka_code))
        return None

    def _add(self, now: int, call: Call, request: JoinGroupRequest, member: Member) -> ErrorCode | None:
        if (refused := self._grow(held_bytes(request.protocols))) is not None:
            return refused
        self._forget_pending(member.member_id)
        if not len(self.members):
            self.protocol_type = request.protocol_type
        self.members.add(member)
        self._more_came = True
        member.new = True
        self._has_come(now, call, request, member)
        member.expires = now + NEW_MEMBER_MS
        self._rebalance(now)
        return None

    def _replace(self, now: int, call: Call, request: JoinGroupRequest, old: Member, new: Member) -> ErrorCode | None:
        """A static member comes back without its member id (`updateStaticMemberThenRebalanceOrCompleteJoin`)."""
        if (refused := self._grow(held_bytes(request.protocols, old.assignment) - old.held_bytes)) is not None:
            return refused
        leader = self.members.leader
        self._answer_joining(old, ErrorCode.FENCED_INSTANCE_ID)
        self._answer_syncing(old, ErrorCode.FENCED_INSTANCE_ID)
        self.members.replace(old, new)
        new.assignment, new.synced = old.assignment, old.synced
        self._has_come(now, call, request, new)
        if self.state is State.STABLE and self.members.choose() == self.protocol:
            self._propose(self.generation, lambda at: self._answer_replaced(at, new, request, leader))
        else:
            # Not what it was even if it can do the same: while the leader assigns, it knows the old member id.
            self._rebalance(now)
        return None

    def _answer_replaced(self, now: int, member: Member, request: JoinGroupRequest, leader: str | None) -> None:
        """The member is what it was. Had it led, it would assign anew: it is told not to, or that the one before it
        leads (KIP-814)."""
        if request.skips_assignment:
            leads = self.members.leader == member.member_id
            self._answer_joining(member, self._joined(member, self.members.leader, skip_assignment=leads))
        else:
            self._answer_joining(member, self._joined(member, leader))
        self._refresh(now, member)

    def _rejoin(self, now: int, call: Call, request: JoinGroupRequest, member: Member) -> ErrorCode | None:
        follows = self.state is State.STABLE and self.members.leader != member.member_id
        if (follows or self.state is State.COMPLETING_REBALANCE) and member.matches(request):
            # The answer before may have been lost. A leader that joins a stable group again wants to assign anew.
            self._turns.answer(call, self._joined(member, self.members.leader))
            return None
        if (refused := self._grow(held_bytes(request.protocols, member.assignment) - member.held_bytes)) is not None:
            return refused
        self._answer_joining(member, SUPERSEDED)
        self._has_come(now, call, request, member)
        self._rebalance(now)
        return None

    def _has_come(self, now: int, call: Call, request: JoinGroupRequest, member: Member) -> None:
        """A member waits for the next generation."""
        member.take(request, call)
        self._refresh(now, member)
        if self._loaded:
            # Nobody knew before how long members want to be waited for.
            self._first_came = now if self._first_came is None else self._first_came
            self._join_deadline = self._first_came + self.members.rebalance_ms()

    # The phases of a rebalance.

    def _rebalance(self, now: int) -> None:
        """Begin a rebalance, or go on with the one under way (`maybePrepareRebalanceOrCompleteJoin`)."""
        if self.state is not State.PREPARING_REBALANCE:
            self._prepare(now)
        elif not self._initial:
            self._complete_if_all_came(now)

    def _prepare(self, now: int) -> None:
        """All members have to join again (`prepareRebalance`). The first of an empty group waits for others."""
        self._initial = self.state is State.EMPTY
        self._loaded = False
        if self.state is State.COMPLETING_REBALANCE:
            for member in self.members:
                self._give_back(len(member.assignment))
                member.assignment = b""
                self._end_sync(now, member, ErrorCode.REBALANCE_IN_PROGRESS)
        self.state = State.PREPARING_REBALANCE
        self._join_deadline = self._latest_join = now + self.members.rebalance_ms()
        if self._initial:
            self._more_came = False
            self._join_deadline = now + self._settings.initial_rebalance_delay_ms
        else:
            self._complete_if_all_came(now)

    def _meet_deadlines(self, now: int) -> None:
        if self._turns.waiting:
            return
        if self.state is State.PREPARING_REBALANCE and now >= self._join_deadline:
            self._join_time_is_up(now)
        elif now >= self._sync_deadline and (unsynced := self._unsynced()):
            for member in unsynced:
                self._remove(member)
            self._prepare(now)

    def _join_time_is_up(self, now: int) -> None:
        if self._initial and self._more_came:
            self._more_came = False
            self._join_deadline = min(now + self._settings.initial_rebalance_delay_ms, self._latest_join)
        else:
            self._complete(now)

    def _complete_if_all_came(self, now: int) -> None:
        if self.state is State.PREPARING_REBALANCE and not self._pending and self.members.have_all_joined():
            self._complete(now)

    def _complete(self, now: int) -> None:
        """Go on without those who have not come, but for static members that may be back (`completeClassicGroupJoin`).

        Of one that the quorum alone knows no leader could tell what it subscribes to.
        """
        for member in [*self.members]:
            if member.joining is None and (member.instance_id is None or not member.protocols):
                self._remove(member)
        if len(self.members) and not self.members.elect():
            # Nobody came: they do, or their sessions end.
            self._join_deadline = min(one.expires for one in self.members)
            return
        self._propose(self.generation + 1, self._begin)

    def _propose(self, generation: int, follow: Callable[[int], None]) -> None:
        members = tuple(one.described for one in self.members)
        self._turns.ask(Commit(self.version, generation, self.protocol_type, members), follow)

    def _begin(self, now: int) -> None:
        """The quorum has the members of the next generation: they hear of it, and have to ask for their assignments."""
        self.generation += 1
        if not len(self.members):
            self.state, self.protocol = State.EMPTY, ""
            return
        self.state, self.protocol = State.COMPLETING_REBALANCE, self.members.choose()
        self._sync_deadline = now + self.members.rebalance_ms()
        for member in self.members:
            self._answer_joining(member, self._joined(member, self.members.leader))
            member.new = member.synced = False
            self._refresh(now, member)

    def _joined(self, member: Member, leader: str | None, *, skip_assignment: bool = False) -> JoinGroupResponse:
        members = self.members if leader == member.member_id else ()
        return JoinGroupResponse(
            member.member_id,
            generation=self.generation,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol,
            leader=leader or "",
            members=[JoinedMember(one.member_id, one.instance_id, one.metadata(self.protocol)) for one in members],
            skip_assignment=skip_assignment,
        )

    # SyncGroup.

    def _sync(self, now: int, call: Call, request: SyncGroupRequest) -> None:
        if (refused := self._sync_refused(request)) is not None:
            self._turns.answer(call, refused)
            return
        member = self.members[request.member_id]
        self._answer_syncing(member, SUPERSEDED)
        member.syncing, member.synced = call, True
        if self.state is State.STABLE:
            self._end_sync(now, member, self._synced(member))
        elif self.members.leader == member.member_id:
            self._share_out(now, request)

    def _sync_refused(self, request: SyncGroupRequest) -> ErrorCode | None:
        """`validateSyncGroup`."""
        told = (request.protocol_type, request.protocol_name)
        if request.tells_protocol and None in told:
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if (refused := self.members.refused(request.member_id, request.instance_id)) is not None:
            return refused
        if request.generation != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        # The protocol of a generation that another coordinator brought together is not known here.
        own = (self.protocol_type, self.protocol or request.protocol_name)
        if any(one not in {None, its} for one, its in zip(told, own, strict=True)):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        return ErrorCode.REBALANCE_IN_PROGRESS if self.state is State.PREPARING_REBALANCE else None

    def _share_out(self, now: int, request: SyncGroupRequest) -> None:
        """The leader has assigned: a member that it left out gets an empty assignment."""
        assignments = {one.member_id: one.assignment for one in request.assignments if one.member_id in self.members}
        before = sum(len(one.assignment) for one in self.members)
        refused = self._grow(sum(map(len, assignments.values())) - before)
        if refused is not None:
            # It is not heard, and so removed in time: others get nothing from it.
            leader = self.members[request.member_id]
            leader.synced = False
            self._end_sync(now, leader, refused)
            return
        self.state = State.STABLE
        for member in self.members:
            member.assignment = assignments.get(member.member_id, b"")
            self._end_sync(now, member, self._synced(member))

    def _synced(self, member: Member) -> SyncGroupResponse:
        return SyncGroupResponse(0, self.protocol_type, self.protocol, member.assignment)

    def _end_sync(self, now: int, member: Member, answer: Answer) -> None:
        if member.syncing is not None:
            self._answer_syncing(member, answer)
            self._refresh(now, member)

    def _unsynced(self) -> list[Member]:
        if self.state not in {State.COMPLETING_REBALANCE, State.STABLE}:
            return []
        return [one for one in self.members if not one.synced]

    # LeaveGroup, and those who are gone.

    def _leave(self, now: int, call: Call, request: LeaveGroupRequest) -> None:
        before = len(self.members), len(self._pending)
        left = [LeftMember(one.member_id, one.instance_id, self._let_go(one).kafka_code) for one in request.members]
        if (len(self.members), len(self._pending)) != before:
            self._after_removal(now, members=len(self.members) != before[0])
        # Who has left shall find the group empty, if it was the last one.
        self._turns.answer_behind(call, LeaveGroupResponse(0, left))

    def _let_go(self, leaving: LeavingMember) -> ErrorCode:
        if not leaving.member_id:
            member = self.members.of_instance(leaving.instance_id)
            if member is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
        elif self._forget_pending(leaving.member_id):
            return ErrorCode.NONE
        elif (refused := self.members.refused(leaving.member_id, leaving.instance_id)) is not None:
            return refused
        else:
            member = self.members[leaving.member_id]
        self._remove(member)
        return ErrorCode.NONE

    def _expire(self, now: int) -> None:
        late = [member_id for member_id, expires in self._pending.items() if expires <= now]
        for member_id in late:
            self._forget_pending(member_id)
        gone = [one for one in self.members if one.expires <= now and not one.keeps_waiting]
        for member in gone:
            self._remove(member)
        if late or gone:
            self._after_removal(now, members=bool(gone))

    def _after_removal(self, now: int, *, members: bool) -> None:
        """`members`: whether some are gone, not only ids that were given out."""
        if self.state is State.PREPARING_REBALANCE:
            self._complete_if_all_came(now)
        elif members:
            self._prepare(now)

    def _remove(self, member: Member) -> None:
        self._answer_joining(member, ErrorCode.UNKNOWN_MEMBER_ID)
        self._answer_syncing(member, ErrorCode.UNKNOWN_MEMBER_ID)
        self.members.remove(member)
        self._give_back(member.held_bytes)

    def _forget_pending(self, member_id: str) -> bool:
        """Whether the id was given out, and not joined with yet."""
        if self._pending.pop(member_id, None) is None:
            return False
        self._give_back(MEMBER_BYTES)
        return True

    # What they have in common.

    def _refresh(self, now: int, member: Member) -> None:
        member.expires = now + member.session_ms

    def _grow(self, more: int) -> ErrorCode | None:
        """Take memory, or give some back if `more` is negative. Why there is none, if so; then nothing is taken."""
        if more <= 0:
            self._give_back(-more)
            return None
        if self._held_bytes + more > MAX_GROUP_BYTES:
            return ErrorCode.GROUP_MAX_SIZE_REACHED
        if not self._room.take_now(more):
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        self._held_bytes += more
        return None

    def _give_back(self, count: int) -> None:
        self._room.give_back(count)
        self._held_bytes -= count

    def _answer_joining(self, member: Member, answer: Answer) -> None:
        if member.joining is not None:
            self._turns.answer(member.joining, answer)
            member.joining = None

    def _answer_syncing(self, member: Member, answer: Answer) -> None:
        if member.syncing is not None:
            self._turns.answer(member.syncing, answer)
            member.syncing = None


def _member_id(request: JoinGroupRequest, client: Client, new_id: str) -> str:
    """`generateMemberId`: people recognise the instance or the client by it."""
    prefix = request.instance_id or client.client_id
    return f"{prefix[: MAX_MEMBER_ID_LENGTH - 1 - len(new_id)]}-{new_id}"
