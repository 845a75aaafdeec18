"""The replicated state with one partition log, the store beside it, and all that can happen next.

Decisions and replay are those that ship. What agents do around them is told here: they put objects and segments, offer
them, ask again, collect and sweep. The replicated state of each step is kept as its snapshot, so it is restored as often
as anything happens.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from pidkeeper.controller.node.segment_views import check_objects
from pidkeeper.controller.state import requests
from pidkeeper.controller.state.decide import decide
from pidkeeper.controller.state.draft import Draft
from pidkeeper.controller.state.machine import StateMachine
from pidkeeper.controller.state.transitions import TransactionStatus
from pidkeeper.protocol.errors import RequestError
from pidkeeper.protocol.log_messages import CommitObjectResponse, OfferedBatch
from pidkeeper.protocol.logs import ObjectId
from pidkeeper.protocol.segment_messages import CheckObjectsRequest
from pidkeeper.protocol.segments import SegmentName
from pidkeeper.protocol.transactions import TopicPartitions
from pidkeeper.snapshots.image import StateImage
from tests.support.log_leader import CLUSTER_ID, FOUNDING, NOW, STORE, LogLeader

LOG: Final = 0
TOPIC: Final = "t"
TRANSACTIONAL: Final = "x"
IDEMPOTENT: Final = 5
"""A producer ID that was given to somebody."""

SIZE: Final = 70
"""Bytes of a batch. They are never looked at."""

Item = tuple[str, int, int, int]
"""What a log has at an offset: `batch`, `commit` or `abort`, producer ID and epoch, and the sequence of a batch."""


class LogScope(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of one exploration. agents: brokers that are registered at first. objects, segments: that are put.
    registrations: beside the first ones. duplicates: whether a batch is sent again. transactions: that end. start: the
    highest first offset. sweeps: whether what is dead is deleted. pairs: whether objects have two batches."""

    name: str
    agents: int = 2
    objects: int = 2
    segments: int = 0
    registrations: int = 0
    transactions: int = 0
    start: int = 0
    sweeps: bool = False
    pairs: bool = False


class Stored(msgspec.Struct, frozen=True, array_like=True):
    """What was put: an object with `items`, or the segment of the offsets from `base` on. `path`: in the store.

    `aborted`: producer, first offset and marker of each transaction that a segment's index calls aborted.
    """

    path: str
    id: ObjectId
    items: tuple[Item, ...]
    base: int = -1
    replaces: int = 0
    aborted: tuple[tuple[int, int, int], ...] = ()


class World(msgspec.Struct, frozen=True, array_like=True):
    """One state. image: the snapshot of the replicated state. epochs: by broker, as its agent believes. made: what was
    ever put; offered, stored: which of it, by its place there. doomed: paths that somebody asked to delete. items: what
    the log ever had. told: the outcomes that each offer was answered with. ended: transactions."""

    image: bytes
    epochs: tuple[int, ...]
    made: tuple[Stored, ...] = ()
    offered: frozenset[int] = frozenset()
    stored: frozenset[int] = frozenset()
    doomed: frozenset[str] = frozenset()
    items: tuple[Item, ...] = ()
    told: tuple[tuple[int, tuple[int, ...]], ...] = ()
    ended: int = 0
    registered: int = 0


Move = tuple[str, World]
"""What happens, in words, and what comes of it."""


class BrokenError(Exception):
    """A move breaks a rule or a promise. `move`: in words."""

    def __init__(self, move: str, what: str) -> None:
        super().__init__(what)
        self.move = move


def machine_of(world: World) -> StateMachine:
    """The replicated state, as a member has it that was restored from its snapshot."""
    machine = StateMachine(CLUSTER_ID)
    machine.restore(msgspec.msgpack.decode(world.image, type=StateImage))
    return machine


def beginning(scope: LogScope) -> World:
    """Agents are registered with the store, and the topic is there."""
    leader = LogLeader()
    epochs = tuple(leader.register(broker_id) for broker_id in range(scope.agents))
    leader.add_topic(TOPIC)
    if scope.transactions:
        ask = requests.InitProducerId(0, epochs[0], TRANSACTIONAL, 60_000, -1, -1, -1, may_take_block=True)
        leader.decide(ask)
    return World(_snapshot(leader.machine), epochs)


def _snapshot(machine: StateMachine) -> bytes:
    return msgspec.msgpack.encode(machine.image(0, 0))


class Moves:
    """What can happen in the worlds of one scope. Raises BrokenError."""

    def __init__(self, scope: LogScope) -> None:
        self._scope = scope

    def of(self, world: World) -> Iterator[Move]:
        """Every move and the world behind it, always in the same order."""
        machine = machine_of(world)
        yield from self._puts(world, machine)
        yield from self._segment_puts(world, machine)
        for place, one in enumerate(world.made):
            if place in world.stored and self._may_offer(world, one):
                yield f"offer {one.path}", msgspec.structs.replace(world, offered=world.offered | {place})
        for place in sorted(world.offered):
            yield from self._commit(world, place)
        yield from self._transact(world, machine)
        yield from self._registrations(world)
        yield from self._starts(world, machine)
        yield from self._deletions(world, machine)

    def _may_offer(self, world: World, one: Stored) -> bool:
        """In the order of the numbers, and under the registration that its agent believes in."""
        kind = one.base >= 0
        offered = (world.made[place].id for place in world.offered if (world.made[place].base >= 0) == kind)
        mine = [id_.number for id_ in offered if id_[:2] == one.id[:2]] if False else [
            id_.number
            for id_ in offered
            if (id_.broker_id, id_.broker_epoch) == (one.id.broker_id, one.id.broker_epoch)
        ]
        return one.id.number > max(mine, default=-1) and world.epochs[one.id.broker_id] == one.id.broker_epoch
