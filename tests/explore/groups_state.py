"""The replicated state with one consumer group, and the coordinators and members around it."""

from __future__ import annotations

from typing import Final

import msgspec

from pidkeeper.controller.state import requests
from pidkeeper.controller.state.groups.group import Group
from pidkeeper.controller.state.machine import StateMachine
from pidkeeper.protocol.groups import NO_VERSION
from tests.explore.worlds import image_of, restored
from tests.support.log_leader import LogLeader

GROUP: Final = "g"
INPUT: Final = "in"
OUTPUT: Final = "out"
NO_OFFSET: Final = -1
NOBODY: Final = -1

Pair = tuple[int, int]
"""A producer's ID and epoch."""

Kept = tuple[int, int]
"""An offset, and how many were committed before it, in or without transactions."""

NOTHING: Final[Kept] = (NO_OFFSET, -1)


class GroupScope(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of one exploration. inputs: records of the partition that the group reads. generations: that coordinators
    propose. parts: whether any members may be one, or all alone. replaced: static members that take another one's
    place. committed: transactions of each member that are committed. aborted: of all members that are not. offsets:
    that the quorum takes. plain: that are offered without a transaction."""

    name: str
    coordinators: int = 2
    members: int = 2
    inputs: int = 1
    generations: int = 2
    parts: bool = False
    replaced: int = 0
    committed: int = 1
    aborted: int = 1
    offsets: int = 2
    plain: int = 0


class Asked(msgspec.Struct, frozen=True, array_like=True, order=True):
    """A request that was sent: it may be decided at any time, again, or never. kind: group, offsets, plain, commit."""

    kind: str
    whose: int
    after: int = NO_VERSION
    generation: int = -1
    members: tuple[int, ...] = ()
    pair: Pair = (-1, -1)
    offset: int = NO_OFFSET


class Coordinator(msgspec.Struct, frozen=True, array_like=True):
    """What an agent has in memory. version: of the record that it goes on from; None before it has looked. asking: for
    which it waits. mine: whether that version is its own. heirs: who may be assigned the partition; owner: who was."""

    version: int | None = None
    generation: int = -1
    members: tuple[int, ...] = ()
    asking: Asked | None = None
    mine: bool = False
    heirs: tuple[int, ...] = ()
    owner: int = NOBODY


class Session(msgspec.Struct, frozen=True, array_like=True):
    """What a member was told, and how far it is: away, joined, ready, asked, kept, ending. pair: of its producer, as it
    knows it. position, end: what it has read from, and up to."""

    pair: Pair
    step: str = "away"
    generation: int = -1
    position: int = 0
    end: int = 0


class World(msgspec.Struct, frozen=True, array_like=True):
    """One state. image: the snapshot of the replicated state. epochs: of the agents.

    What was decided, in books of the explorer's own: `writes`, what each member's transaction has the results of;
    `held`, the offset that it holds; `kept`, the committed one, and how many were; `consumed`, how often each input is
    in a committed transaction. order, replaced, committed, aborted, plain: how much of the bounds is used up.
    """

    image: bytes
    epochs: tuple[int, ...]
    coordinators: tuple[Coordinator, ...]
    sessions: tuple[Session, ...]
    asked: frozenset[Asked]
    writes: tuple[tuple[int, int] | None, ...]
    held: tuple[Kept, ...]
    consumed: tuple[int, ...]
    committed: tuple[int, ...]
    kept: Kept = NOTHING
    order: int = 0
    replaced: int = 0
    aborted: int = 0
    plain: int = 0


def machine_of(world: World) -> StateMachine:
    """The replicated state of a world. Raises BrokenError."""
    return restored(world.image)


def group_of(machine: StateMachine) -> Group | None:
    """The group, if anything is known of it."""
    return machine.groups.get(GROUP)


def member_id(member: int) -> str:
    """Of a member's process, as its coordinator has given it."""
    return f"m{member}"


def transactional_id(member: int) -> str:
    """Of a member's producer."""
    return f"x{member}"


def beginning(scope: GroupScope) -> World:
    """Agents are registered, topics are there, and each member's producer has its pair."""
    leader = LogLeader()
    epochs = tuple(leader.register(broker_id) for broker_id in range(scope.coordinators))
    leader.add_topic(INPUT)
    leader.add_topic(OUTPUT)
    sessions = []
    for member in range(scope.members):
        asked = requests.InitProducerId(
            0, epochs[0], transactional_id(member), 60_000, -1, -1, candidate=-1, may_take_block=True
        )
        given = leader.decide(asked)
        sessions.append(Session((given.producer_id, given.producer_epoch)))
    return World(
        image_of(leader.machine),
        epochs,
        (Coordinator(),) * scope.coordinators,
        tuple(sessions),
        frozenset(),
        (None,) * scope.members,
        (NOTHING,) * scope.members,
        (0,) * scope.inputs,
        (0,) * scope.members,
    )
