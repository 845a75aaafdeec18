"""All that can happen next to one partition log and its objects.

Decisions and replay are those that ship. What agents do around them is told here: they put objects and segments, offer
them, ask again, collect and sweep. A request that was made once may be decided at any time, again, or never.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msgspec.structs import replace

from pidkeeper.controller.node.segment_views import check_objects
from pidkeeper.controller.state import requests
from pidkeeper.controller.state.logs.partition_log import PartitionLog
from pidkeeper.controller.state.machine import StateMachine
from pidkeeper.controller.state.transitions import TransactionStatus
from pidkeeper.protocol.log_messages import OfferedBatch
from pidkeeper.protocol.logs import ObjectId, ObjectRecord
from pidkeeper.protocol.segment_messages import CheckObjectsRequest
from pidkeeper.protocol.segments import SegmentName
from pidkeeper.protocol.transactions import TopicPartitions
from tests.explore.logs_state import (
    IDEMPOTENT,
    LOG,
    SIZE,
    TOPIC,
    TRANSACTIONAL,
    Item,
    LogScope,
    Stored,
    World,
    machine_of,
)
from tests.explore.worlds import BrokenError, ask, image_of
from tests.support.log_leader import FOUNDING, STORE

Move = tuple[str, World]
"""What happens, in words, and the world behind it."""

MANY: Final = 1000
"""Rows: more than any log of a scope has."""


class LogMoves:
    """What can happen in the worlds of one scope. Raises BrokenError."""

    def __init__(self, scope: LogScope) -> None:
        self._scope = scope

    def of(self, world: World) -> Iterator[Move]:
        """Every move, always in the same order."""
        machine = machine_of(world)
        yield from self._puts(world, machine)
        yield from self._segment_puts(world, machine)
        yield from self._offers(world)
        for place in sorted(world.offered):
            if world.made[place].is_segment:
                yield from self._commit_segment(world, place)
            else:
                yield from self._commit(world, place)
        yield from self._transact(world, machine)
        yield from self._registrations(world)
        yield from self._starts(world, machine)
        if self._scope.deletes:
            yield from self._collects(world, machine)
            yield from self._sweeps(world, machine)

    # Agents and the store.

    def _puts(self, world: World, machine: StateMachine) -> Iterator[Move]:
        if sum(not one.is_segment for one in world.made) >= self._scope.objects:
            return
        sendable = self._sendable(world, machine)
        contents: list[tuple[Item, ...]] = [(one,) for one in sendable]
        if self._scope.pairs:
            contents += [(one, (*one[:3], one[3] + 1)) for one in sendable]
        for broker_id in range(self._scope.agents):
            object_id = _next_id(world, broker_id, segment=False)
            for items in contents:
                one = Stored(object_id.path(FOUNDING), object_id, items)
                yield f"broker {broker_id} puts {one.path} with {items}", _with_put(world, one)

    def _sendable(self, world: World, machine: StateMachine) -> list[Item]:
        """The next batch of each producer, and the last one once more."""
        pairs = [(IDEMPOTENT, 0)]
        if (record := machine.transactions.get(TRANSACTIONAL)) is not None:
            pairs.append((record.producer_id, record.producer_epoch))
        found: list[Item] = []
        for pair in pairs:
            sent = sum(one[0] == "batch" and one[1:3] == pair for one in world.items)
            found += [("batch", *pair, sequence) for sequence in (sent - 1, sent) if sequence >= 0]
        return found

    def _segment_puts(self, world: World, machine: StateMachine) -> Iterator[Move]:
        log = machine.logs.log(LOG)
        if log is None or sum(one.is_segment for one in world.made) >= self._scope.segments:
            return
        spans = [(one.base_offset, one.end_offset) for one in log.segments]
        older = len(spans)
        spans += _rows(log)
        for first in range(min(older + 1, len(spans))):
            for last in range(max(first, older), len(spans)):
                base, end = spans[first][0], spans[last][1]
                if end > log.last_stable:
                    continue
                for broker_id in range(self._scope.agents):
                    one = _segment(world, machine, log, broker_id, (base, end), last - first + 1)
                    yield f"broker {broker_id} puts {one.path} up to {end}", _with_put(world, one)

    def _offers(self, world: World) -> Iterator[Move]:
        for place, one in enumerate(world.made):
            if place in world.stored and place not in world.offered and _may_offer(world, one):
                yield f"{one.path} is offered", replace(world, offered=world.offered | {place})

    def _collects(self, world: World, machine: StateMachine) -> Iterator[Move]:
        objects = machine.logs.objects
        for key in objects.garbage:
            path = objects.path(key)
            if path not in world.doomed:
                yield f"{path} is collected", _without(world, path)
                continue
            for broker_id, epoch in enumerate(world.epochs):
                asked = requests.ObjectsDeleted((broker_id, epoch), (key,))
                yield from self._decided(world, f"broker {broker_id} says that {path} is deleted", asked)

    def _sweeps(self, world: World, machine: StateMachine) -> Iterator[Move]:
        for place in sorted(world.stored):
            one = world.made[place]
            answer = check_objects(machine, CheckObjectsRequest(FOUNDING, one.is_segment, (one.id,)))
            if answer.dead and not answer.held:
                yield f"{one.path} is swept", _without(world, one.path)

    # The quorum.

    def _commit(self, world: World, place: int) -> Iterator[Move]:
        one = world.made[place]
        transactional = _transactional_id(machine_of(world))
        batches = tuple(
            OfferedBatch(LOG, 1, number * SIZE, SIZE, *item[1:], 0, item[1] == transactional)
            for number, item in enumerate(one.items)
        )
        asked = requests.CommitObject(one.id, FOUNDING, SIZE * len(batches), batches)
        machine = machine_of(world)
        found = ask(machine, asked)
        if found is None:
            return
        answer, records = found
        items = list(world.items)
        for record in records:
            if isinstance(record, ObjectRecord):
                for batch in record.batches:
                    if batch.base_offset != len(items):
                        raise BrokenError(f"{batch} joins a log that ends at {len(items)}")
                    items.append(("batch", batch.producer_id, batch.producer_epoch, batch.base_sequence))
        outcomes, told = tuple(answer.outcomes), dict(world.told)
        if told.setdefault(place, outcomes) != outcomes:
            raise BrokenError(f"{one.path} was answered with {told[place]}, and now with {outcomes}")
        after = replace(world, image=image_of(machine), items=tuple(items), told=tuple(sorted(told.items())))
        yield f"{one.path} is committed: {outcomes}", after if answer.referenced else _without(after, one.path)

    def _commit_segment(self, world: World, place: int) -> Iterator[Move]:
        one = world.made[place]
        name = SegmentName(TOPIC, 0, one.base)
        asked = requests.CommitSegment(one.id, FOUNDING, LOG, name, one.end, SIZE, SIZE, 0, one.replaces)
        yield from self._decided(world, f"{one.path} is committed", asked)

    def _transact(self, world: World, machine: StateMachine) -> Iterator[Move]:
        record = machine.transactions.get(TRANSACTIONAL)
        if record is None or world.ended >= self._scope.transactions:
            return
        pair, broker = (record.producer_id, record.producer_epoch), (0, world.epochs[0])
        if record.status != TransactionStatus.ONGOING:
            joined = (TopicPartitions(TOPIC, (LOG,)),)
            asked = requests.AddPartitionsToTxn(*broker, TRANSACTIONAL, *pair, joined)
            yield from self._decided(world, "a transaction begins", asked)
            return
        fence = requests.InitProducerId(
            *broker, TRANSACTIONAL, 60_000, -1, -1, candidate=-1, may_take_block=True, may_get_id=True
        )
        for outcome, request in (
            ("commit", requests.EndTxn(*broker, TRANSACTIONAL, *pair, committed=True)),
            ("abort", requests.EndTxn(*broker, TRANSACTIONAL, *pair, committed=False)),
            ("abort", fence),
        ):
            for what, after in self._decided(world, f"{type(request).__name__}: {outcome}", request):
                now = machine_of(after).transactions.get(TRANSACTIONAL)
                assert now is not None, "it is not forgotten"
                marker = (outcome, pair[0], now.producer_epoch, -1)
                items = (*world.items, marker) if _is_open(world, pair[0]) else world.items
                yield what, replace(after, items=items, ended=world.ended + 1)

    def _registrations(self, world: World) -> Iterator[Move]:
        if world.registered >= self._scope.registrations:
            return
        for broker_id in range(self._scope.agents):
            machine = machine_of(world)
            asked = requests.RegisterBroker(broker_id, f"anew-{world.registered}", store_id=STORE)
            found = ask(machine, asked)
            assert found is not None, "everybody may register"
            epochs = tuple(
                found[0].broker_epoch if one == broker_id else epoch for one, epoch in enumerate(world.epochs)
            )
            after = replace(world, image=image_of(machine), epochs=epochs, registered=world.registered + 1)
            yield f"broker {broker_id} registers anew", after

    def _starts(self, world: World, machine: StateMachine) -> Iterator[Move]:
        log = machine.logs.log(LOG)
        assert log is not None, "the topic stays"
        for offset in range(log.start + 1, min(log.end, self._scope.start) + 1):
            asked = requests.DeleteRecords((0, world.epochs[0]), ((LOG, offset),))
            yield from self._decided(world, f"the log begins at {offset}", asked)

    def _decided(self, world: World, what: str, asked: requests.Request) -> Iterator[Move]:
        """The world behind a decision that leaves anything; none where it is refused."""
        machine = machine_of(world)
        found = ask(machine, asked)
        if found is not None and found[1]:
            yield what, replace(world, image=image_of(machine))


def _next_id(world: World, broker_id: int, *, segment: bool) -> ObjectId:
    epoch = world.epochs[broker_id]
    mine = [
        one
        for one in world.made
        if one.is_segment is segment and (one.id.broker_id, one.id.broker_epoch) == (broker_id, epoch)
    ]
    return ObjectId(broker_id, epoch, len(mine))


def _may_offer(world: World, one: Stored) -> bool:
    """In the order of the numbers, and under the registration that its agent believes in."""
    epoch = one.id.broker_id, one.id.broker_epoch
    offered = [world.made[place] for place in world.offered]
    numbers = [
        other.id.number
        for other in offered
        if other.is_segment is one.is_segment and (other.id.broker_id, other.id.broker_epoch) == epoch
    ]
    return world.epochs[epoch[0]] == epoch[1] and one.id.number > max(numbers, default=-1)


def _with_put(world: World, one: Stored) -> World:
    return replace(world, made=(*world.made, one), stored=world.stored | {len(world.made)})


def _without(world: World, path: str) -> World:
    """Somebody asks to delete an object, and the store does."""
    left = frozenset(place for place in world.stored if world.made[place].path != path)
    return replace(world, stored=left, doomed=world.doomed | {path})


def _rows(log: PartitionLog) -> list[tuple[int, int]]:
    """The offsets of each row of the tail."""
    rows = [(one.base_offset, one.base_offset + one.records) for one in log.batches_from(0, log.end, MANY)]
    return sorted(rows + [(one.offset, one.offset + 1) for one in log.markers_from(0, log.end, MANY)])


def _segment(
    world: World, machine: StateMachine, log: PartitionLog, broker_id: int, span: tuple[int, int], replaces: int
) -> Stored:
    base, end = span
    object_id = _next_id(world, broker_id, segment=True)
    paths = [machine.logs.objects.path(one.key) for one in log.segments if one.base_offset >= base]
    aborted = {row for path in paths for row in world.object_at(path).aborted}
    aborted |= {(one.producer_id, one.first_offset, one.marker_offset) for one in log.aborted_between(base, end)}
    path = SegmentName(TOPIC, 0, base).path(object_id, FOUNDING)
    return Stored(path, object_id, world.items[base:end], base, replaces, tuple(sorted(aborted)))


def _transactional_id(machine: StateMachine) -> int:
    record = machine.transactions.get(TRANSACTIONAL)
    return -1 if record is None else record.producer_id


def _is_open(world: World, producer_id: int) -> bool:
    last = next((one for one in reversed(world.items) if one[1] == producer_id), None)
    return last is not None and last[0] == "batch"
