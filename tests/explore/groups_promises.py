"""What must hold of one consumer group in every state, looked at from outside."""

from __future__ import annotations

from pidkeeper.controller.state.transitions import TransactionStatus
from tests.explore.groups_state import INPUT, NO_OFFSET, NOTHING, World, group_of, machine_of, transactional_id
from tests.explore.worlds import demand


def check(world: World) -> None:
    """Raise BrokenError if a promise is broken."""
    _check_once(world)
    _check_offsets(world)
    _check_owners(world)


def _check_once(world: World) -> None:
    """Each input is in just one committed transaction once the group is past it, and in none before; but where offsets
    are committed by themselves."""
    if world.plain:
        return
    for number, times in enumerate(world.consumed):
        wanted = int(number < world.kept[0])
        demand(times == wanted, f"input {number} is in {times} committed transactions, the group is at {world.kept[0]}")


def _check_offsets(world: World) -> None:
    """The group's offsets are those that were decided, the latest counts, and pending ones are of transactions that
    are under way."""
    machine = machine_of(world)
    group = group_of(machine)
    found = None if group is None else group.committed(INPUT, 0)
    offset = NO_OFFSET if found is None else found.offset
    demand(offset == world.kept[0], f"the group is at {offset}, and the latest that was committed is {world.kept[0]}")
    pending = {} if group is None else {row[2]: row[3].offset for row in group.all_pending()}
    held = {}
    for member, kept in enumerate(world.held):
        record = machine.transactions.get(transactional_id(member))
        assert record is not None, "each member's producer has its pair"
        if kept != NOTHING:
            demand(record.status == TransactionStatus.ONGOING, f"what member {member} holds will never be settled")
            held[record.producer_id] = kept[0]
    demand(pending == held, f"the group has {pending} pending, and transactions hold {held}")


def _check_owners(world: World) -> None:
    """Of a generation there is one coordinator that assigns by it."""
    mine = [one.generation for one in world.coordinators if one.mine]
    demand(len(mine) == len(set(mine)), f"several agents assign in one generation: {mine}")
