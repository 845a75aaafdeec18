"""All that can happen next to one consumer group, as in `spec/Groups.tla`.

Decisions and replay are those that ship, and so is what readers are told. What coordinators and members do around them
is told here. Each member's producer takes the versions of KIP-890: partitions and group join with what is written.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import Any, Final

from msgspec.structs import replace

from pidkeeper.controller.node.group_views import fetch_offsets
from pidkeeper.controller.state import requests
from pidkeeper.controller.state.machine import StateMachine
from pidkeeper.protocol.errors import ErrorCode
from pidkeeper.protocol.group_messages import FetchOffsetsRequest, OffsetsTransaction
from pidkeeper.protocol.groups import NO_VERSION, GroupMember, PartitionOffset, TopicOffsets
from pidkeeper.protocol.transactions import TopicPartitions
from tests.explore.groups_state import (
    GROUP,
    INPUT,
    NOBODY,
    NOTHING,
    OUTPUT,
    Asked,
    Coordinator,
    GroupScope,
    Pair,
    Session,
    World,
    group_of,
    machine_of,
    member_id,
    transactional_id,
)
from tests.explore.worlds import ask, demand, image_of

Move = tuple[str, World]
"""What happens, in words, and the world behind it."""

UNSTABLE: Final = ErrorCode.UNSTABLE_OFFSET_COMMIT.kafka_code


class GroupMoves:
    """What can happen in the worlds of one scope. Raises BrokenError."""

    def __init__(self, scope: GroupScope) -> None:
        self._scope = scope

    def of(self, world: World) -> Iterator[Move]:
        """Every move, always in the same order."""
        machine = machine_of(world)
        for which in range(self._scope.coordinators):
            yield from self._coordinate(world, machine, which)
        for member in range(self._scope.members):
            yield from self._work(world, machine, member)
        for one in sorted(world.asked):
            yield from self._decided(world, one)

    # Coordinators.

    def _coordinate(self, world: World, machine: StateMachine, which: int) -> Iterator[Move]:
        known, group = world.coordinators[which], group_of(machine)
        if known.version is None:
            record = None if group is None else group.record
            members = () if record is None else tuple(int(one.member_id[1:]) for one in record.members)
            version = NO_VERSION if group is None else group.version
            loaded = Coordinator(version, 0 if record is None else record.generation, members)
            yield f"agent {which} loads the group", _with_coordinator(world, which, loaded)
        elif known.asking is None:
            yield from self._proposals(world, which, known)
        if known.mine and known.owner == NOBODY:
            for member in known.heirs:
                after = _with_coordinator(world, which, replace(known, owner=member))
                joined = Session(world.sessions[member].pair, "joined", known.generation)
                yield f"agent {which} tells member {member}, {known.generation}", _with_session(after, member, joined)

    def _proposals(self, world: World, which: int, known: Coordinator) -> Iterator[Move]:
        everybody = range(self._scope.members)
        if known.generation < self._scope.generations:
            for count in range(1 if self._scope.parts else self._scope.members, self._scope.members + 1):
                for members in combinations(everybody, count):
                    yield _proposed(world, which, known.generation + 1, members, members)
        if known.mine and known.owner != NOBODY and world.replaced < self._scope.replaced:
            for member in set(everybody) - set(known.members):
                others = {*known.members, member} - {known.owner}
                what, after = _proposed(world, which, known.generation, tuple(sorted(others)), (member,))
                yield what, replace(after, replaced=world.replaced + 1)

    # Members.

    def _work(self, world: World, machine: StateMachine, member: int) -> Iterator[Move]:
        session = world.sessions[member]
        if session.step == "joined":
            yield from self._fetch(world, machine, member)
        elif session.step == "ready":
            yield from self._transform(world, member)
        elif session.step == "kept" and world.committed[member] < self._scope.committed:
            one = Asked("commit", member, pair=session.pair)
            yield f"member {member} commits", _asked(_with_session(world, member, replace(session, step="ending")), one)
        if session.step in {"asked", "kept", "ending"} and world.writes[member] is None:
            yield from self._go_back(world, member)
        if world.writes[member] is not None and world.aborted < self._scope.aborted:
            if session.step in {"asked", "kept"}:
                yield from self._abort(world, member)
            yield from self._time_out(world, member)
        if session.step != "away" and world.plain < self._scope.plain:
            for offset in range(self._scope.inputs + 1):
                one = Asked("plain", member, generation=session.generation, offset=offset)
                yield f"member {member} commits {offset}", replace(_asked(world, one), plain=world.plain + 1)

    def _fetch(self, world: World, machine: StateMachine, member: int) -> Iterator[Move]:
        asked = FetchOffsetsRequest(GROUP, [TopicPartitions(INPUT, (0,))], require_stable=True)
        (told,) = fetch_offsets(machine.groups, asked).offsets
        if told.error_code == UNSTABLE:
            return
        demand(not any(one != NOTHING for one in world.held), f"member {member} is told {told.offset}: {world.held}")
        ready = replace(world.sessions[member], step="ready", position=max(told.offset, 0))
        yield f"member {member} begins at {ready.position}", _with_session(world, member, ready)

    def _transform(self, world: World, member: int) -> Iterator[Move]:
        session = world.sessions[member]
        topics = (TopicPartitions(OUTPUT, (0,)),)
        if world.writes[member] is not None:
            return
        for end in range(session.position + 1, self._scope.inputs + 1):
            machine = machine_of(world)
            asked = requests.AddPartitionsToTxn(0, world.epochs[0], transactional_id(member), *session.pair, topics)
            if ask(machine, asked) is None:
                continue
            one = Asked("offsets", member, generation=session.generation, pair=session.pair, offset=end)
            after = _with_session(_asked(world, one), member, replace(session, step="asked", end=end))
            writes = _with(world.writes, member, (session.position, end))
            yield (
                f"member {member} writes {session.position} to {end}",
                replace(after, image=image_of(machine), writes=writes),
            )

    def _go_back(self, world: World, member: int) -> Iterator[Move]:
        """Somebody has ended its transaction: its producer takes another pair."""
        machine, name = machine_of(world), transactional_id(member)
        if world.sessions[member].pair == _pair(machine, name):
            yield f"member {member} goes back", _with_session(world, member, _joined(world, member, machine))
            return
        found = ask(machine, requests.InitProducerId(0, world.epochs[0], name, 60_000, -1, -1, -1, may_take_block=True))
        assert found is not None, "everybody may have a newer pair"
        after = replace(world, image=image_of(machine))
        yield f"member {member} begins anew", _with_session(after, member, _joined(world, member, machine))

    def _abort(self, world: World, member: int) -> Iterator[Move]:
        machine = machine_of(world)
        found = ask(machine, _end(world, member, world.sessions[member].pair, committed=False))
        if found is not None and found[1]:
            after = _with_session(
                _ended(world, machine, member, committed=False), member, _joined(world, member, machine)
            )
            yield f"member {member} aborts", after

    def _time_out(self, world: World, member: int) -> Iterator[Move]:
        machine, name = machine_of(world), transactional_id(member)
        found = ask(machine, requests.AbortTransaction(name, *_pair(machine, name), timed_out=True))
        if found is not None and found[1]:
            yield f"the time of member {member} is up", _ended(world, machine, member, committed=False)

    # The quorum.

    def _decided(self, world: World, one: Asked) -> Iterator[Move]:
        machine = machine_of(world)
        if one.kind == "group":
            yield from self._group(world, machine, one)
        elif one.kind == "commit":
            yield from self._commit(world, machine, one)
        elif world.order < self._scope.offsets:
            yield from self._offsets(world, machine, one)

    def _group(self, world: World, machine: StateMachine, one: Asked) -> Iterator[Move]:
        broker = one.whose, world.epochs[one.whose]
        members = tuple(GroupMember(member_id(member), None, "", "") for member in one.members)
        asked = requests.CommitGroup(broker, GROUP, one.after, one.generation, "consumer", members)
        found = ask(machine, asked)
        if found is None:
            return
        answer, records = found
        after, known = replace(world, image=image_of(machine)), world.coordinators[one.whose]
        what = f"generation {one.generation} of agent {one.whose} with {one.members}: {answer.taken}"
        if records:
            yield f"{what}, unheard", after
        if known.asking == one:
            heard = Coordinator()
            if answer.taken:
                version = answer.group.version
                heard = Coordinator(version, one.generation, one.members, mine=True, heirs=known.heirs)
            yield what, _with_coordinator(after, one.whose, heard)

    def _offsets(self, world: World, machine: StateMachine, one: Asked) -> Iterator[Move]:
        member, group = one.whose, group_of(machine)
        topics = (TopicOffsets(INPUT, (PartitionOffset(0, one.offset, -1, ""),)),)
        transaction = None
        if one.kind == "offsets":
            transaction = OffsetsTransaction(transactional_id(member), *one.pair, joining=True)
        who = one.generation, member_id(member), None
        found = ask(machine, requests.CommitOffsets((0, world.epochs[0]), GROUP, topics, *who, transaction))
        if found is None:
            return
        members = () if group is None else group.members
        current = group is not None and group.record is not None and group.record.generation == one.generation
        current = current and any(known.member_id == member_id(member) for known in members)
        demand(current, f"{member_id(member)} of generation {one.generation} moves an offset of {members}")
        kept = (one.offset, world.order)
        after = replace(world, image=image_of(machine), order=world.order + 1)
        if transaction is None:
            yield f"member {member} has committed {one.offset}", replace(after, kept=kept)
            return
        after = replace(after, held=_with(world.held, member, kept))
        yield f"the transaction of member {member} holds {one.offset}, unheard", after
        session = world.sessions[member]
        if session == Session(one.pair, "asked", one.generation, session.position, one.offset):
            heard = replace(session, step="kept")
            yield f"the transaction of member {member} holds {one.offset}", _with_session(after, member, heard)

    def _commit(self, world: World, machine: StateMachine, one: Asked) -> Iterator[Move]:
        member = one.whose
        found = ask(machine, _end(world, member, one.pair, committed=True))
        if found is None or not found[1]:
            return
        after = _ended(world, machine, member, committed=True)
        yield f"member {member} has committed, unheard", after
        session = world.sessions[member]
        if session.step == "ending" and session.pair == one.pair:
            ready = replace(_joined(world, member, machine), step="ready", position=session.end)
            yield f"member {member} has committed", _with_session(after, member, ready)


def _proposed(world: World, which: int, generation: int, members: tuple[int, ...], heirs: tuple[int, ...]) -> Move:
    known = world.coordinators[which]
    assert known.version is not None, "it has looked"
    one = Asked("group", which, known.version, generation, members)
    waits = replace(known, asking=one, mine=False, heirs=heirs, owner=NOBODY)
    return f"agent {which} proposes {generation} with {members}", _asked(_with_coordinator(world, which, waits), one)


def _ended(world: World, machine: StateMachine, member: int, *, committed: bool) -> World:
    """A member's transaction has ended: its offset counts unless a later one was committed."""
    writes, held, kept, consumed = world.writes[member], world.held[member], world.kept, list(world.consumed)
    if committed and writes is not None:
        for number in range(*writes):
            consumed[number] += 1
    if committed and held[1] > kept[1]:
        kept = held
    return replace(
        world,
        image=image_of(machine),
        writes=_with(world.writes, member, None),
        held=_with(world.held, member, NOTHING),
        kept=kept,
        consumed=tuple(consumed),
        committed=_with(world.committed, member, world.committed[member] + committed),
        aborted=world.aborted + (not committed),
    )


def _end(world: World, member: int, pair: Pair, *, committed: bool) -> requests.EndTxn:
    name = transactional_id(member)
    return requests.EndTxn(0, world.epochs[0], name, *pair, committed, new_epoch=True, may_take_block=True)


def _pair(machine: StateMachine, name: str) -> Pair:
    record = machine.transactions.get(name)
    assert record is not None, "each member's producer has its pair"
    return record.producer_id, record.producer_epoch


def _joined(world: World, member: int, machine: StateMachine) -> Session:
    """It goes on from what is committed, with its producer's newest pair."""
    return Session(_pair(machine, transactional_id(member)), "joined", world.sessions[member].generation)


def _asked(world: World, one: Asked) -> World:
    return replace(world, asked=world.asked | {one})


def _with_coordinator(world: World, which: int, known: Coordinator) -> World:
    return replace(world, coordinators=_with(world.coordinators, which, known))


def _with_session(world: World, member: int, session: Session) -> World:
    return replace(world, sessions=_with(world.sessions, member, session))


def _with(all_of_them: tuple[Any, ...], place: int, one: Any) -> tuple[Any, ...]:
    return (*all_of_them[:place], one, *all_of_them[place + 1 :])
