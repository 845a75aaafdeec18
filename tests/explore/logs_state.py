"""The replicated state with one partition log, and the store beside it."""

from __future__ import annotations

from typing import Final

import msgspec

from pidkeeper.controller.state import requests
from pidkeeper.controller.state.machine import StateMachine
from pidkeeper.protocol.logs import ObjectId
from tests.explore.worlds import BrokenError, image_of, restored
from tests.support.log_leader import LogLeader

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
    registrations: beside the first ones. transactions: that end. start: the highest first offset. deletes: whether
    what is needless or dead is deleted from the store. pairs: whether objects have two batches."""

    name: str
    agents: int = 2
    objects: int = 2
    segments: int = 0
    registrations: int = 0
    transactions: int = 0
    start: int = 0
    deletes: bool = True
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

    @property
    def is_segment(self) -> bool:
        """Whether it is of one log alone."""
        return self.base >= 0

    @property
    def end(self) -> int:
        """The offset behind a segment."""
        return self.base + len(self.items)


class World(msgspec.Struct, frozen=True, array_like=True):
    """One state. image: the snapshot of the replicated state. epochs: by broker, as its agent believes. made: what was
    ever put; offered, stored: which of it, by its place there. doomed: paths that somebody asked to delete. items: what
    the log ever had. told: the outcomes that each offer was answered with. ended: transactions; registered: processes
    that were started anew."""

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

    def object_at(self, path: str) -> Stored:
        """The object of that path. Raises BrokenError if nobody has put it."""
        for one in self.made:
            if one.path == path:
                return one
        raise BrokenError(f"{path} was put by nobody")


def machine_of(world: World) -> StateMachine:
    """The replicated state of a world. Raises BrokenError."""
    return restored(world.image)


def beginning(scope: LogScope) -> World:
    """Agents are registered with the store, and the topic is there."""
    leader = LogLeader()
    epochs = tuple(leader.register(broker_id) for broker_id in range(scope.agents))
    leader.add_topic(TOPIC)
    if scope.transactions:
        leader.decide(
            requests.InitProducerId(0, epochs[0], TRANSACTIONAL, 60_000, -1, -1, candidate=-1, may_take_block=True)
        )
    return World(image_of(leader.machine), epochs)
