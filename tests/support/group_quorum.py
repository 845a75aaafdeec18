"""What the quorum does for coordinators of groups, in memory: compare-and-swap on the version of each group."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

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
from pidkeeper.protocol.groups import NO_VERSION

_Response = TypeVar("_Response")

TIMED_OUT = RequestError(ErrorCode.REQUEST_TIMED_OUT)


class GroupQuorum:
    """`faults`: what befalls the next calls, each called with the request: it may raise, give what to wait for, or say
    True if the answer is to be lost. `commits`: those that were taken, in order. `epochs`: of the brokers."""

    def __init__(self) -> None:
        self.known: dict[str, GroupDescription] = {}
        self.commits: list[CommitGroupRequest] = []
        self.calls: list[tuple[str, Any]] = []
        self.faults: deque[Callable[[Any], Any]] = deque()
        self.epochs: dict[int, int] = {}
        self.page = 1000
        self._offset = 100

    async def find_group(self, request: FindGroupRequest) -> FindGroupResponse:
        return await self._befall("find_group", request, lambda: FindGroupResponse(self.known.get(request.group_id)))

    async def commit_group(self, request: CommitGroupRequest) -> CommitGroupResponse:
        return await self._befall("commit_group", request, lambda: self._commit(request))

    async def delete_group(self, request: DeleteGroupRequest) -> DeleteGroupResponse:
        return await self._befall("delete_group", request, lambda: self._delete(request))

    async def groups(self, after: str, limit: int) -> GroupsPage:
        def page() -> GroupsPage:
            names = sorted(one for one in self.known if one > after)
            shown = names[: min(limit, self.page)]
            return GroupsPage([self.known[one] for one in shown], shown[-1] if len(shown) < len(names) else None)

        return await self._befall("groups", after, page)

    def asked(self, call: str) -> list[Any]:
        return [request for name, request in self.calls if name == call]

    def _commit(self, request: CommitGroupRequest) -> CommitGroupResponse:
        if self.epochs.get(request.broker_id, request.broker_epoch) != request.broker_epoch:
            raise RequestError(ErrorCode.STALE_BROKER_EPOCH)
        known = self.known.get(request.group_id)
        last = next((one for one in reversed(self.commits) if one.group_id == request.group_id), None)
        if known is not None and request == last:
            return CommitGroupResponse(taken=True, group=known)
        if request.after != (NO_VERSION if known is None else known.version):
            return CommitGroupResponse(taken=False, group=known)
        assert known is None or request.generation >= known.generation, "a generation never falls"
        assert len({one.member_id for one in request.members}) == len(request.members)
        self._offset += 1
        self.commits.append(request)
        self.known[request.group_id] = GroupDescription(
            request.group_id,
            self._offset,
            request.generation,
            request.protocol_type,
            list(request.members),
            request.broker_id,
            request.broker_epoch,
            0,
            0,
            0,
        )
        return CommitGroupResponse(taken=True, group=self.known[request.group_id])

    def _delete(self, request: DeleteGroupRequest) -> DeleteGroupResponse:
        known = self.known.get(request.group_id)
        if known is None:
            raise RequestError(ErrorCode.GROUP_ID_NOT_FOUND)
        if known.members:
            raise RequestError(ErrorCode.NON_EMPTY_GROUP)
        del self.known[request.group_id]
        return DeleteGroupResponse(request.group_id)

    async def _befall(self, call: str, request: Any, answer: Callable[[], _Response]) -> _Response:
        self.calls.append((call, request))
        await asyncio.sleep(0.002)
        outcome = self.faults.popleft()(request) if self.faults else None
        if outcome is True:
            answer()
            raise TIMED_OUT
        if outcome is not None:
            await outcome
        # As it was sent: an answer is nobody else's.
        told = answer()
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
