"""A call as its handler gets it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

import msgspec

from pidkeeper.service.access import Principal

Path = TypeVar("Path")
Query = TypeVar("Query")
Body = TypeVar("Body")


class Call(msgspec.Struct, Generic[Path, Query, Body], frozen=True):
    """Who calls, and the checked values of path, query and body; None where the route has no model for them.

    `has_hung_up`: as in HttpRequest. `trace_id`: of the trace that the caller records, if it does.
    """

    principal: Principal
    path: Path
    query: Query
    body: Body
    has_hung_up: Callable[[], bool]
    trace_id: str | None = None
