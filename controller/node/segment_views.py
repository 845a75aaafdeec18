"""What callers are told of segments, and of the objects of the store, from the applied state. Pure."""

from __future__ import annotations

import uuid
from collections.abc import Iterable

from pidkeeper.controller.state.logs.rolled import LocatedSegment
from pidkeeper.controller.state.logs.state import LogsState
from pidkeeper.controller.state.machine import StateMachine
from pidkeeper.protocol.logs import ObjectId
from pidkeeper.protocol.segment_messages import (
    MAX_TRAILING_SEGMENTS,
    CheckObjectsRequest,
    CheckObjectsResponse,
    DueLog,
    FindGarbageResponse,
    FindRollsResponse,
    GarbageObject,
    KeptObject,
    KeptObjectsPage,
    StoredSegment,
)


def stored_segment(found: LocatedSegment, objects: dict[int, int]) -> StoredSegment:
    """A segment, as callers are told of it. `objects`: the index of each object in the answer by its key; it joins."""
    return StoredSegment(
        found.base_offset,
        found.end_offset,
        objects.setdefault(found.key, len(objects)),
        found.size,
        found.index_size,
        found.max_timestamp,
    )


def due_logs(logs: LogsState, due: Iterable[int], segment_bytes: int) -> FindRollsResponse:
    """The logs of these numbers that there are."""
    objects: dict[int, int] = {}
    found = []
    for number in due:
        log = logs.log(number)
        if log is None:
            continue
        trailing = [stored_segment(one, objects) for one in log.segments.trailing(MAX_TRAILING_SEGMENTS)]
        place = number, log.topic.name, log.partition
        found.append(DueLog(*place, log.tail_start, log.last_stable, log.rows, log.tail_size, trailing))
    return FindRollsResponse(found, [logs.objects.path(key) for key in objects], segment_bytes)


def garbage(machine: StateMachine, limit: int, before: int, *, hearing: bool = False) -> FindGarbageResponse:
    """Objects that are to be deleted, of the first `before` that became so, and of the foundings that are released.

    `hearing`: as of `FoundingDuty`.
    """
    logs = machine.logs
    if hearing or not logs.collects(machine.foundings.founding_id):
        return FindGarbageResponse([], held=True)
    keys = logs.objects.collectable(limit, before, logs.collected)
    return FindGarbageResponse([GarbageObject(key, logs.objects.names(key)) for key in keys], held=False)


def check_objects(
    machine: StateMachine, request: CheckObjectsRequest, *, hearing: bool = False
) -> CheckObjectsResponse:
    """Which of these objects nobody needs, and which of these nobody ever will.

    `hearing`: the founding in the log may be that of a quorum which is gone, and has left more than the log knows.
    """
    logs, founding_id = machine.logs, request.founding_id
    unnamed = [
        index
        for index, one in enumerate(request.objects)
        if not logs.objects.holds(founding_id, one, segment=request.segments)
    ]
    dead = [index for index in unnamed if _is_dead(machine, founding_id, request.objects[index])]
    held = hearing or not logs.collects(machine.foundings.founding_id) or founding_id not in logs.collected
    return CheckObjectsResponse(unnamed, dead, held)


def _is_dead(machine: StateMachine, founding_id: uuid.UUID, one: ObjectId) -> bool:
    """Whether nobody may commit an object of that epoch any more."""
    own = machine.foundings.founding_id
    if own != founding_id:
        # Commits that name another founding are refused for ever, as long as this one is in force.
        return own is not None
    if one.broker_epoch >= machine.next_offset:
        return False
    registration = machine.brokers.get(one.broker_id)
    return registration is None or registration.broker_epoch > one.broker_epoch


def kept_objects(machine: StateMachine, after: int, limit: int) -> KeptObjectsPage:
    """At most `limit` objects whose keys are above `after`."""
    logs, founding_id = machine.logs, machine.foundings.founding_id
    found = logs.objects.page(after, limit + 1)
    page = [KeptObject(key, logs.objects.names(key), stored.size, batches) for key, stored, batches in found[:limit]]
    next_after = page[-1].key if len(found) > limit else None
    return KeptObjectsPage(page, next_after, founding_id, list(logs.collected), not logs.collects(founding_id))
