"""The store's objects, a page at a time, and what the quorum says of each.

The quorum is asked after a page was listed, and answers from a confirmed state: what it calls dead no commit will ever
name, whenever that arrives. So neither an old listing nor an object that is put meanwhile makes the answer wrong.
"""

from __future__ import annotations

import itertools
import uuid
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from typing import Final, NamedTuple

from pidkeeper.broker_agent.data.calls import LogCalls
from pidkeeper.broker_agent.data.object_names import parsed
from pidkeeper.broker_agent.data.store.port import MAX_LISTED, ObjectStore, StoredObject, StoreError
from pidkeeper.protocol.errors import ErrorCode, RequestError
from pidkeeper.protocol.logs import ObjectId
from pidkeeper.protocol.segment_messages import MAX_CHECKED_OBJECTS, CheckObjectsRequest, CheckObjectsResponse

MAX_PAGES: Final = 10_000
"""Of one prefix, with MAX_LISTED names each: ten million objects, 25 times as many as a quorum knows."""

_Objects = dict[ObjectId, list[StoredObject]]


class Group(NamedTuple):
    """What no log names of a page's objects of one founding. `held`: none of it may be deleted for now.

    `dead`: what nobody will ever commit. `living`: what is left to the agent that put it, which may commit it yet.
    """

    founding_id: uuid.UUID
    held: bool
    dead: list[StoredObject]
    living: list[StoredObject]


class Examined(NamedTuple):
    """One page: what no log names, and `unknown`, which no agent of this build has put."""

    groups: list[Group]
    unknown: list[StoredObject]


async def listed(store: ObjectStore, prefix: str) -> AsyncIterator[list[StoredObject]]:
    """All objects under a prefix, page by page. Raises StoreError, also for pages that cannot be."""
    after = ""
    for _ in range(MAX_PAGES):
        page = await store.list(prefix, after, MAX_LISTED)
        names = [after, *(row.name for row in page)]
        ascending = all(low < high for low, high in itertools.pairwise(names))
        if len(page) > MAX_LISTED or not ascending or not all(name.startswith(prefix) for name in names[1:]):
            raise StoreError(f"the store's list of {prefix} behind {after!r} is none: check what speaks for it")
        if page:
            yield page
        if len(page) < MAX_LISTED:
            return
        after = names[-1]
    raise StoreError(f"the store has more than {MAX_PAGES * MAX_LISTED:,} objects under {prefix}")


async def examine(calls: LogCalls, rows: Sequence[StoredObject]) -> Examined:
    """Ask the quorum about one page. Raises RequestError."""
    known: defaultdict[tuple[uuid.UUID, bool], _Objects] = defaultdict(dict)
    unknown: list[StoredObject] = []
    for row in rows:
        name = parsed(row.name)
        if name is None:
            unknown.append(row)
        else:
            known[name.founding_id, name.segment].setdefault(name.id, []).append(row)
    groups = [
        await _grouped(calls, founding_id, objects, segments=segments)
        for (founding_id, segments), objects in known.items()
    ]
    return Examined(groups, unknown)


async def _grouped(calls: LogCalls, founding_id: uuid.UUID, objects: _Objects, *, segments: bool) -> Group:
    assert len(objects) <= MAX_CHECKED_OBJECTS, "a page has no more"
    answer = await calls.check_objects(CheckObjectsRequest(founding_id, segments, tuple(objects)))
    _check(answer, len(objects))
    rows, dead = list(objects.values()), set(answer.dead)
    return Group(
        founding_id,
        answer.held,
        [row for index in answer.dead for row in rows[index]],
        [row for index in answer.unnamed if index not in dead for row in rows[index]],
    )


def _check(answer: CheckObjectsResponse, asked: int) -> None:
    unnamed = set(answer.unnamed)
    if not (unnamed <= set(range(asked)) and set(answer.dead) <= unnamed and len(unnamed) == len(answer.unnamed)):
        raise RequestError(ErrorCode.UNKNOWN_SERVER_ERROR, "the quorum's answer about objects makes no sense")
