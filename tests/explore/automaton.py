"""One member as an automaton: its states and messages by number, and what comes of each event, found out once.

Members touch each other by messages alone. So what a member does about an event is asked of the core one time,
however many states of the cluster it happens in. For the same reason two clusters that differ in who is who are told
to be equal without asking the core: members and messages are renamed by number, too.
"""

from __future__ import annotations

import pickle
from typing import Any, Final, NamedTuple

import msgspec

from pidkeeper.controller.raft.core import RaftConfig, Role
from pidkeeper.controller.raft.messages import Message
from tests.explore.agent import Agent
from tests.explore.controller import Controller, Grant
from tests.explore.frozen import frozen, renamed, shape
from tests.explore.member import FIRST_ID, Event, Member
from tests.explore.scope import Scope

Permutation = tuple[int, ...]
"""Who takes whose place: position i goes to position `permutation[i]`."""


def inverse(permutation: Permutation) -> Permutation:
    """What gives everybody's own place back."""
    found = [0] * len(permutation)
    for place, to in enumerate(permutation):
        found[to] = place
    return tuple(found)


Automatic = Member | Agent
"""What has a place in a cluster."""

_AGENTS: Final = 1 << 32


class Facts(NamedTuple):
    """What is known of a state of a member without loading it. `asks`: it is an agent. `leads_removed`: it leads a
    quorum of which it is no voter any more. `lost`: something that was durable, and it has not recovered. `voters`: of
    each configuration that counts for it, by their places."""

    asks: bool
    leads: bool
    leads_removed: bool
    term: int
    writes: int
    installing: bool
    lost: bool
    log: tuple[int, ...]
    voters: tuple[frozenset[int], ...]


class Step(NamedTuple):
    """What came of an event, by number. `granted`: the blocks, by their first ID. `handed`: the IDs."""

    member: int
    sent: tuple[int, ...]
    committed: tuple[tuple[int, int], ...]
    elected: bool
    broken: str | None
    granted: tuple[int, ...] = ()
    handed: tuple[int, ...] = ()


class Automaton:
    """States of members and messages of one scope, by number, and what comes of each event."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.ids: Final = tuple(range(FIRST_ID, FIRST_ID + scope.places))
        self.facts: list[Facts] = []
        # Equal for members that differ in names alone; higher for agents, so that their places are the last ones.
        self.shapes: list[int] = []
        self.messages: list[Message] = []
        self.links: list[tuple[int, int]] = []
        self.kinds: list[type[Message]] = []
        self.places: list[int] = []
        self._members: list[bytes] = []
        self._by_bytes: dict[bytes, int] = {}
        self._by_value: dict[object, int] = {}
        self._shapes: dict[object, int] = {}
        self._message_numbers: dict[bytes, int] = {}
        self._steps: dict[tuple[int, Event], Step | None] = {}
        self._renamed: dict[tuple[int, Permutation], int] = {}
        self._renamed_messages: dict[tuple[int, Permutation], int] = {}

    def first(self) -> tuple[int, ...]:
        """The members as they start for the first time, by position."""
        scope, ids = self.scope, self.ids
        voters, kind = ids[: scope.voters], (Controller if scope.asks else Member)
        all_members = [
            kind(_config(one, voters), recovering=scope.blank or one not in voters) for one in ids[: scope.members]
        ]
        agents: list[Automatic] = [Agent(one) for one in ids[scope.members :]]
        return tuple(self._number(one) for one in [*all_members, *agents])

    def step(self, member: int, event: Event) -> Step | None:
        """What comes of `event`; None if it cannot happen."""
        key = member, event
        try:
            return self._steps[key]
        except KeyError:
            found = self._steps[key] = self._find_out(member, event)
            return found

    def _find_out(self, number: int, event: Event) -> Step | None:
        member = _load(self._members[number])
        if event[0] == "receive":
            event = ("receive", self.messages[event[1]], event[2])
        outcome = member.happen(event)
        if outcome is None:
            return None
        if outcome.broken is not None:
            return Step(number, (), (), False, outcome.broken)
        return Step(
            self._number(member),
            tuple(dict.fromkeys(self.message(one) for one in outcome.messages)),
            tuple(outcome.committed),
            outcome.elected,
            None,
            tuple(one.first for one in outcome.messages if isinstance(one, Grant)),
            tuple(outcome.handed),
        )

    def dumped(self, member: int) -> bytes:
        """The member itself, pickled."""
        return self._members[member]

    # Numbers.

    def message(self, message: Message) -> int:
        """The number of a message."""
        key = msgspec.msgpack.encode(message)
        found = self._message_numbers.get(key)
        if found is None:
            found = self._message_numbers[key] = len(self.messages)
            self.messages.append(message)
            self.links.append((message.sender - FIRST_ID, message.to - FIRST_ID))
            self.kinds.append(type(message))
        return found

    def _number(self, member: Automatic) -> int:
        dumped = pickle.dumps(member, 5)
        found = self._by_bytes.get(dumped)
        if found is None:
            value = frozen(member)
            found = self._by_value.get(value)
            if found is None:
                found = self._by_value[value] = len(self._members)
                self._members.append(dumped)
                self.places.append(_own(member) - FIRST_ID)
                self.facts.append(_facts(member))
                self.shapes.append(self._shape(member))
            self._by_bytes[dumped] = found
        return found

    def _shape(self, member: Automatic) -> int:
        own = _own(member)
        masked = shape(member, lambda value: value if value < FIRST_ID else FIRST_ID + (value != own))
        return self._shapes.setdefault(masked, len(self._shapes) + _AGENTS * isinstance(member, Agent))

    # Names.

    def renamed(self, member: int, permutation: Permutation) -> int:
        """The state in which a member is if everybody takes the place of another."""
        key = member, permutation
        found = self._renamed.get(key)
        if found is None:
            copy = _load(self._members[member]).renamed(self._names(permutation))
            found = self._renamed[key] = self._number(copy)
        return found

    def renamed_message(self, message: int, permutation: Permutation) -> int:
        """A message, likewise."""
        key = message, permutation
        found = self._renamed_messages.get(key)
        if found is None:
            copy = renamed(self.messages[message], self._names(permutation))
            found = self._renamed_messages[key] = self.message(copy)
        return found

    def _names(self, permutation: Permutation) -> dict[int, int]:
        return {one: self.ids[place] for one, place in zip(self.ids, permutation, strict=True)}


def _config(own: int, voters: tuple[int, ...]) -> RaftConfig:
    return RaftConfig(own, voters, learner=own not in voters)


def _own(member: Automatic) -> int:
    return member.own if isinstance(member, Agent) else member.config.node_id


def _facts(member: Automatic) -> Facts:
    if isinstance(member, Agent):
        return Facts(True, False, False, 0, 0, False, False, (), ())
    core, log = member.core, member.core.log
    return Facts(
        asks=False,
        leads=core.role is Role.LEADER,
        leads_removed=core.role is Role.LEADER and member.config.node_id not in core.membership.voters,
        term=core.term,
        writes=len(member.disk.pending),
        installing=member.installing is not None,
        lost=member.lost,
        log=tuple(log.term(index) or 0 for index in range(1, log.last_index + 1)),
        voters=tuple(frozenset(one - FIRST_ID for one in each.voters) for each in log.memberships.configurations),
    )


def _load(dumped: bytes) -> Any:
    return pickle.loads(dumped)
