"""What must hold of one partition log in every state, looked at from outside."""

from __future__ import annotations

from pidkeeper.controller.state.logs.partition_log import PartitionLog
from pidkeeper.controller.state.machine import StateMachine
from pidkeeper.controller.state.transitions import TransactionStatus
from tests.explore.logs_moves import MANY
from tests.explore.logs_state import LOG, SIZE, TRANSACTIONAL, Stored, World, machine_of
from tests.explore.worlds import demand


def check(world: World) -> None:
    """Raise BrokenError if a promise is broken."""
    machine = machine_of(world)
    log = machine.logs.log(LOG)
    assert log is not None, "the topic stays"
    read = _read(world, machine, log)
    _check_order(world)
    _check_told(world)
    _check_stable(world, machine, log, read)
    _check_books(world, machine)


def _read(world: World, machine: StateMachine, log: PartitionLog) -> dict[int, Stored | None]:
    """Where each offset is read from: an object, or nothing for a marker of the tail."""
    there: dict[int, Stored | None] = {}
    for segment in log.segments:
        one = _stored(world, machine, segment.key)
        span = segment.base_offset, segment.end_offset
        demand(span == (one.base, one.end), f"{one.path} has {one.base} to {one.end}, the log reads {span} from it")
        demand(one.items == world.items[slice(*span)], f"{one.path} has {one.items}")
        there |= dict.fromkeys(range(*span), one)
    for batch in log.batches_from(0, log.end, MANY):
        one = _stored(world, machine, batch.key)
        item = one.items[batch.position // SIZE]
        demand(item == world.items[batch.base_offset], f"offset {batch.base_offset} is read as {item}")
        there[batch.base_offset] = one
    for marker in log.markers_from(0, log.end, MANY):
        item = ("commit" if marker.committed else "abort", marker.producer_id, marker.producer_epoch, -1)
        demand(item == world.items[marker.offset], f"the marker at {marker.offset} is {item}")
        there[marker.offset] = None
    demand(log.end == len(world.items), f"the log ends at {log.end}, and has had {world.items}")
    first = min(there, default=log.end)
    demand(first <= log.start, f"the log begins at {log.start}, and {first} is the first that is read")
    demand(sorted(there) == list(range(first, log.end)), f"the log has the offsets {sorted(there)} of {log.end}")
    return there


def _stored(world: World, machine: StateMachine, key: int) -> Stored:
    path = machine.logs.objects.path(key)
    one = world.object_at(path)
    demand(path not in world.doomed, f"the log reads from {path}, which somebody has deleted")
    demand(world.made.index(one) in world.stored, f"the log reads from {path}, which is not there")
    return one


def _check_order(world: World) -> None:
    last: dict[tuple[int, int], int] = {}
    for kind, producer_id, epoch, sequence in world.items:
        if kind == "batch":
            before = last.get((producer_id, epoch), -1)
            demand(sequence == before + 1, f"sequence {sequence} of {producer_id} is behind {before}: {world.items}")
            last[producer_id, epoch] = sequence


def _check_told(world: World) -> None:
    for place, outcomes in world.told:
        for item, offset in zip(world.made[place].items, outcomes, strict=True):
            there = offset < 0 or world.items[offset] == item
            demand(there, f"{item} was said to be at {offset}: {world.items}")


def _check_stable(world: World, machine: StateMachine, log: PartitionLog, read: dict[int, Stored | None]) -> None:
    """The last stable offset, and what is shown below it to who reads committed records."""
    record = machine.transactions.get(TRANSACTIONAL)
    producer_id = -1 if record is None else record.producer_id
    committed: dict[int, bool | None] = {}
    since: list[int] = []
    for offset, (kind, whose, _, _) in enumerate(world.items):
        if kind == "batch":
            committed[offset] = None if whose == producer_id else True
            since += [offset] if whose == producer_id else []
        else:
            committed |= dict.fromkeys(since, kind == "commit")
            since = []
    hangs = bool(since) and (record is None or record.status != TransactionStatus.ONGOING)
    demand(not hangs, f"the offsets {since} are of a transaction which nobody has begun")
    stable = max(min(since, default=log.end), log.start)
    demand(log.last_stable == stable, f"the last stable offset is {log.last_stable}, not {stable}")
    for offset in range(log.start, stable):
        if offset in committed:
            shown = not _is_aborted(log, read[offset], offset, world.items[offset][1])
            demand(shown == committed[offset], f"offset {offset} is shown: {shown}, committed: {committed[offset]}")


def _is_aborted(log: PartitionLog, source: Stored | None, offset: int, producer_id: int) -> bool:
    assert source is not None, "a batch is in an object"
    rows = source.aborted
    if not source.is_segment:
        found = log.aborted_between(offset, offset + 1)
        rows = tuple((one.producer_id, one.first_offset, one.marker_offset) for one in found)
    return any(row[0] == producer_id and row[1] <= offset < row[2] for row in rows)


def _check_books(world: World, machine: StateMachine) -> None:
    """Each object that the quorum knows is needed as often as it says, or to be deleted."""
    logs = machine.logs
    log = logs.log(LOG)
    needed = [] if log is None else log.keys()
    for key, one, batches in logs.objects.page(-1, MANY):
        demand(batches == needed.count(key), f"{one} has {batches} batches, logs need {needed.count(key)}")
        demand((batches == 0) == (key in logs.objects.garbage), f"{one} is garbage with {batches} batches")
    demand(len(set(needed)) <= len(logs.objects), f"{needed} of {len(logs.objects)} objects are needed")
    paths = [one.path for one in world.made]
    demand(len(paths) == len(set(paths)), f"a name was used twice: {paths}")
