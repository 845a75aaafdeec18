"""What consumer groups take from the rest of the agent: the controllers' calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from pidkeeper.protocol.group_messages import (
    CommitGroupRequest,
    CommitGroupResponse,
    CommitOffsetsRequest,
    CommitOffsetsResponse,
    DeleteGroupRequest,
    DeleteGroupResponse,
    DeleteOffsetsRequest,
    DeleteOffsetsResponse,
    FetchOffsetsRequest,
    FindGroupRequest,
    FindGroupResponse,
    GroupsPage,
    OffsetsPage,
)


class GroupCalls(Protocol):
    """The calls about consumer groups. `ControllerClient` has them; each raises RequestError.

    REQUEST_TIMED_OUT and UNKNOWN_SERVER_ERROR do not tell whether the request took effect. `attempt` makes the request
    of each attempt, or raises RequestError to end the call: an old commit must not take the place of a newer one.
    """

    async def find_group(self, request: FindGroupRequest) -> FindGroupResponse: ...
    async def commit_group(self, request: CommitGroupRequest) -> CommitGroupResponse: ...
    async def commit_offsets(self, attempt: Callable[[], CommitOffsetsRequest]) -> CommitOffsetsResponse: ...
    async def fetch_offsets(self, request: FetchOffsetsRequest) -> OffsetsPage: ...
    async def delete_group(self, request: DeleteGroupRequest) -> DeleteGroupResponse: ...
    async def delete_offsets(self, request: DeleteOffsetsRequest) -> DeleteOffsetsResponse: ...
    async def groups(self, after: str | None, limit: int) -> GroupsPage: ...
