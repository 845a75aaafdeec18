"""What the quorum does for coordinators of groups, in memory: the real state and its decisions, without consensus."""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from pidkeeper.controller.state import requests
from pidkeeper.controller.state.decide import decide
from pidkeeper.controller.state.draft import Draft
from pidkeeper.controller.state.group_decisions import described
from pidkeeper.protocol.errors import ErrorCode, RequestError
from pidkeeper.protocol.group_messages import (
    CommitGroupRequest,
    CommitGroupResponse,
    DeleteGroupRequest,
    DeleteGroupResponse,
    FindGroupRequest,
    FindGroupResponse,
    GroupDescription,
    GroupsPage,
)
from pidkeeper.protocol.groups import NO_VERSION, GroupMember
from tests.support.group_state import gather
from tests.support.log_state import NOW, make

_Response = TypeVar("_Response")

TIMED_OUT = RequestError(ErrorCode.REQUEST_TIMED_OUT)


class GroupQuorum:
    """`faults`: what befalls the next calls, each called with the request: it may raise, give what to wait for, say
    True if the answer is to be lost, or by how many seconds it is to be late.

    `commits`: those that were taken, in order; `calls`: all that was asked. `page`: groups on one, at most.
    """

    def __init__(self) -> None:
        self.machine = make()
        self.commits: list[CommitGroupRequest] = []
        self.calls: list[tuple[str, Any]] = []
        self.faults: deque[Callable[[Any], Any]] = deque()
        self.page = 1000
        self._incarnations = itertools.count(1)

    # What a test does to it, and asks of it.

    def decide(self, request: requests.Request) -> Any:
        """Decide one request and replay it, as all members do. Raises RequestError."""
        draft = Draft(self.machine, NOW)
        answer = decide(draft, request)
        self.machine.replay(draft.records)
        if isinstance(answer, RequestError):
            raise answer
        return answer

    def register(self, broker_id: int) -> int:
        """A new process of a broker: its epoch."""
        incarnation = f"new-{next(self._incarnations)}"
        epoch: int = self.decide(requests.RegisterBroker(broker_id, incarnation)).broker_epoch
        return epoch

    def keep(self, group_id: str, *members: str | GroupMember, generation: int = 7) -> None:
        """A group, as a coordinator that is gone left it."""
        self.decide(gather(group_id, self.version(group_id), generation, *members, broker=2))

    def known(self, group_id: str = "group") -> GroupDescription:
        """A group that there is."""
        group = self.machine.groups.get(group_id)
        assert group is not None, f"{group_id!r} is unknown"
        return described(group)

    def version(self, group_id: str) -> int:
        group = self.machine.groups.get(group_id)
        return NO_VERSION if group is None else group.version

    def asked(self, call: str) -> list[Any]:
        """The requests of that call so far."""
        return [request for name, request in self.calls if name == call]

    # The calls.

    async def find_group(self, request: FindGroupRequest) -> FindGroupResponse:
        return await self._befall("find_group", request, lambda: self._find(request))

    async def commit_group(self, request: CommitGroupRequest) -> CommitGroupResponse:
        return await self._befall("commit_group", request, lambda: self._commit(request))

    async def delete_group(self, request: DeleteGroupRequest) -> DeleteGroupResponse:
        return await self._befall("delete_group", request, lambda: self._delete(request))

    async def groups(self, after: str | None, limit: int) -> GroupsPage:
        return await self._befall("groups", after, lambda: self._page(after, min(limit, self.page)))

    def _find(self, request: FindGroupRequest) -> FindGroupResponse:
        group = self.machine.groups.get(request.group_id)
        return FindGroupResponse(None if group is None else described(group))

    def _page(self, after: str | None, limit: int) -> GroupsPage:
        found = self.machine.groups.after(after, limit + 1)
        shown = [described(one) for one in found[:limit]]
        return GroupsPage(shown, shown[-1].group_id if len(found) > limit else None)

    def _commit(self, request: CommitGroupRequest) -> CommitGroupResponse:
        before = self.version(request.group_id)
        broker = request.broker_id, request.broker_epoch
        asked = (request.group_id, request.after, request.generation, request.protocol_type, tuple(request.members))
        answer: CommitGroupResponse = self.decide(requests.CommitGroup(broker, *asked))
        if self.version(request.group_id) != before:
            self.commits.append(request)
        return answer

    def _delete(self, request: DeleteGroupRequest) -> DeleteGroupResponse:
        assert request.broker_id is not None
        assert request.broker_epoch is not None
        broker = request.broker_id, request.broker_epoch
        answer: DeleteGroupResponse = self.decide(requests.DeleteGroup(broker, request.group_id))
        return answer

    async def _befall(self, call: str, request: Any, answer: Callable[[], _Response]) -> _Response:
        self.calls.append((call, request))
        await asyncio.sleep(0.002)
        outcome = self.faults.popleft()(request) if self.faults else None
        if outcome is True:
            answer()
            raise TIMED_OUT
        if outcome is not None and not isinstance(outcome, float):
            await outcome
        # As it was sent: an answer is nobody else's.
        told = answer()
        if isinstance(outcome, float):
            await asyncio.sleep(outcome)
        return msgspec.json.decode(msgspec.json.encode(told), type=type(told))

    # The rest of `GroupCalls`, which no coordinator asks for.

    async def commit_offsets(self, attempt: Any) -> Any:
        raise NotImplementedError

    async def fetch_offsets(self, request: Any) -> Any:
        raise NotImplementedError

    async def delete_offsets(self, request: Any) -> Any:
        raise NotImplementedError


def raising(code: ErrorCode, *, throttle_time_ms: int = 0) -> Callable[[Any], Any]:
    """A call that is refused."""

    def fault(_: Any) -> None:
        raise RequestError(code, throttle_time_ms=throttle_time_ms)

    return fault


def losing(_: Any) -> bool:
    """A call that takes effect, of which nobody hears."""
    return True


def waiting(seconds: float) -> Callable[[Any], Any]:
    """A call that takes effect late."""
    return lambda _: asyncio.sleep(seconds)


def lagging(seconds: float) -> Callable[[Any], float]:
    """A call that takes effect at once, of which is heard late."""
    return lambda _: seconds
