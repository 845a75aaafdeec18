"""A classic group with members that a test plays, in time that it lets pass, over a quorum that it answers for."""

from __future__ import annotations

import itertools
from typing import Any

from pidkeeper.broker_agent.data.byte_budget import ByteBudget
from pidkeeper.broker_agent.groups.classic_group import ClassicGroup, State
from pidkeeper.broker_agent.groups.members import Client
from pidkeeper.broker_agent.groups.settings import GroupSettings
from pidkeeper.broker_agent.groups.turns import Answer, Commit
from pidkeeper.broker_agent.kafka.wire.groups.heartbeat import HeartbeatRequest
from pidkeeper.broker_agent.kafka.wire.groups.join_group import JoinGroupRequest, JoinGroupResponse, JoinProtocol
from pidkeeper.broker_agent.kafka.wire.groups.leave_group import LeaveGroupRequest, LeaveGroupResponse, LeavingMember
from pidkeeper.broker_agent.kafka.wire.groups.sync_group import MemberAssignment, SyncGroupRequest, SyncGroupResponse
from pidkeeper.protocol.errors import ErrorCode

SESSION_MS = 10_000
REBALANCE_MS = 30_000
CLIENT = Client("client", "/10.0.0.1")
ROOM_BYTES = 1 << 30
MAX_TICKS = 10
DEFAULTS = GroupSettings()
INITIAL_DELAY_MS = DEFAULTS.initial_rebalance_delay_ms


def join_request(member_id: str = "", **changes: Any) -> JoinGroupRequest:
    """`protocols`: names, or names with metadata."""
    protocols = changes.pop("protocols", ("range",))
    fields: dict[str, Any] = {
        "group_id": "group",
        "session_timeout_ms": SESSION_MS,
        "rebalance_timeout_ms": REBALANCE_MS,
        "member_id": member_id,
        "instance_id": None,
        "protocol_type": "consumer",
        "protocols": [
            JoinProtocol(one, b"of " + one.encode()) if isinstance(one, str) else JoinProtocol(*one)
            for one in protocols
        ],
        "skips_assignment": True,
    }
    return JoinGroupRequest(**fields | changes)


def sync_request(member_id: str, generation: int, **changes: Any) -> SyncGroupRequest:
    """`assignments`: by member id, of the leader."""
    assignments = [MemberAssignment(*one) for one in changes.pop("assignments", {}).items()]
    fields: dict[str, Any] = {"instance_id": None, "protocol_type": None, "protocol_name": None}
    return SyncGroupRequest("group", generation, member_id, assignments=assignments, **fields | changes)


class GroupRig:
    """`agrees`: whether the quorum takes each commit at once; else it waits in `commits`."""

    def __init__(self, settings: GroupSettings = DEFAULTS, *, agrees: bool = True) -> None:
        self.room = ByteBudget(ROOM_BYTES)
        self.group = ClassicGroup("group", self.room, settings)
        self.agrees = agrees
        self.now = 0
        self.commits: list[Commit] = []
        self.answers: dict[Any, Answer] = {}
        self._calls = itertools.count(1)
        self._offsets = itertools.count(100)

    # What a member does; each returns the call.

    def join(self, member_id: str = "", **changes: Any) -> int:
        call = next(self._calls)
        self.group.join(self.now, call, join_request(member_id, **changes), CLIENT, f"id{call}")
        self.look()
        return call

    def sync(self, member_id: str, generation: int | None = None, **changes: Any) -> int:
        call = next(self._calls)
        generation = self.group.generation if generation is None else generation
        self.group.sync(self.now, call, sync_request(member_id, generation, **changes))
        self.look()
        return call

    def leave(self, *members: tuple[str, str | None]) -> int:
        call = next(self._calls)
        self.group.leave(self.now, call, LeaveGroupRequest("group", [LeavingMember(*one) for one in members]))
        self.look()
        return call

    def heartbeat(self, member_id: str, generation: int | None = None, instance_id: str | None = None) -> ErrorCode:
        generation = self.group.generation if generation is None else generation
        return self.group.heartbeat(self.now, HeartbeatRequest("group", generation, member_id, instance_id))

    # What happens.

    def wait(self, milliseconds: int) -> None:
        """Let time pass, with a tick at each deadline on the way."""
        end = self.now + milliseconds
        ticks = 0
        while (deadline := self.group.deadline) is not None and deadline <= end:
            # Deadlines may have passed while the quorum was asked. Each tick leaves fewer of them.
            ticks = ticks + 1 if deadline <= self.now else 0
            assert ticks < MAX_TICKS, "a deadline that has passed is not met"
            self.now = max(self.now, deadline)
            self.group.tick(self.now)
            self.look()
        self.now = end

    def gather(self, *calls: int) -> list[str]:
        """Let time pass until these joins are answered. Returns the ids of their members."""
        while any(call not in self.answers for call in calls):
            assert self.group.deadline is not None, "nobody would ever answer"
            self.wait(self.group.deadline - self.now)
        return [self.joined(call).member_id for call in calls]

    def commit(self) -> None:
        """The quorum takes the commit that waits."""
        self.commits.pop()
        self.group.committed(self.now, next(self._offsets))
        self.look()

    def look(self) -> None:
        """Take what the group has to say."""
        for call, answer in self.group.take_answers():
            assert call not in self.answers, "a call is answered once"
            self.answers[call] = answer
        commit = self.group.take_commit()
        if commit is not None:
            self.commits.append(commit)
            if self.agrees:
                self.commit()
        assert self.room.held == sum(one.held_bytes for one in self.group.members) + 1024 * len(self.group._pending)

    # What was heard.

    def is_in(self, state: State) -> bool:
        return self.group.state is state

    def code(self, call: int) -> ErrorCode | int | None:
        """That of an answer; None before there is one."""
        answer = self.answers.get(call)
        if answer is None or isinstance(answer, ErrorCode):
            return answer
        return answer.error_code

    def joined(self, call: int) -> JoinGroupResponse:
        answer = self.answers[call]
        assert isinstance(answer, JoinGroupResponse), answer
        assert answer.error_code == 0, answer
        return answer

    def synced(self, call: int) -> SyncGroupResponse:
        answer = self.answers[call]
        assert isinstance(answer, SyncGroupResponse), answer
        return answer

    def left(self, call: int) -> list[int]:
        answer = self.answers[call]
        assert isinstance(answer, LeaveGroupResponse), answer
        return [one.error_code for one in answer.members]

    # Groups that have come together.

    def stable(self, count: int = 1, *, instances: bool = False, **changes: Any) -> list[str]:
        """A stable group of so many new members, the leader first, each with an assignment. Returns their ids."""
        names = [f"instance{one}" if instances else None for one in range(count)]
        calls = [self.join(instance_id=name, **changes) for name in names]
        ids = self.gather(*calls)
        self.sync_all(ids, names)
        return ids

    def sync_all(self, ids: list[str], instances: list[str | None] | None = None) -> None:
        """Each of `ids` syncs, the leader last."""
        names = dict(zip(ids, instances or [None] * len(ids), strict=True))
        leader = self.group.members.leader
        for one in [*(one for one in ids if one != leader), leader]:
            assert one is not None
            assignments = {other: f"to {other}".encode() for other in ids} if one == leader else {}
            call = self.sync(one, instance_id=names[one], assignments=assignments)
            if one == leader:
                assert self.synced(call).assignment == f"to {one}".encode()
        assert self.is_in(State.STABLE)
