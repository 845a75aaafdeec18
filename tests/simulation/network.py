"""The links between members: delay, loss, repetition, reordering, cuts in one or both directions, broken connections.

As with the real links there is one connection for each direction, dialled by its sender. A message that is sent
without a connection is dropped; `link_up` tells the sender of a new one, `link_lost` tells the receiver that one broke.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pidkeeper.controller.raft.messages import AppendEntries, Message
from pidkeeper.controller.transport.identity import Peer, of_two_foundings
from tests.simulation.swarm import Swarm
from tests.simulation.world import MILLISECOND, World

if TYPE_CHECKING:
    from tests.simulation.member import Member
    from tests.simulation.process import Process

REDIAL = (1 * MILLISECOND, 400 * MILLISECOND)
"""As `outbound.DIAL_BACKOFF_SECONDS`, with its full jitter."""

SPIKE = (20 * MILLISECOND, 600 * MILLISECOND)
"""A message that got stuck; everything behind it on the same connection waits too."""


class Network:
    """All links. `members` is filled by the cluster before anything runs."""

    def __init__(self, world: World, swarm: Swarm) -> None:
        self.world = world
        self.swarm = swarm
        self.members: dict[int, Member] = {}
        self.healed = False
        self._rng = world.stream("network")
        self._blocked: set[tuple[int, int]] = set()
        self._connected: dict[tuple[int, int], tuple[Process, Process]] = {}
        self._dialling: set[tuple[int, int]] = set()
        self._listening: set[Process | None] = set()
        self._last: dict[tuple[int, int], int] = {}

    def send(self, messages: list[Message]) -> None:
        """Send each message, or lose it."""
        swarm, rng, world = self.swarm, self._rng, self.world
        for message in messages:
            link = (message.sender, message.to)
            ends = self._connected.get(link)
            if ends is None or link in self._blocked:
                continue
            delay = int(swarm.delay * (0.5 + rng.random()))
            if self.healed:
                world.at(self._in_order(link, delay), self._arrive, link, ends[1], message)
                continue
            if swarm.drop and rng.random() < swarm.drop:
                world.fault("message_dropped")
                continue
            if swarm.duplicate and rng.random() < swarm.duplicate:
                world.fault("message_repeated")
                world.at(delay + rng.randrange(*SPIKE), self._arrive, link, ends[1], message)
            if swarm.spike and rng.random() < swarm.spike:
                world.fault("message_stuck")
                delay += rng.randrange(*SPIKE)
            if swarm.reorder and rng.random() < swarm.reorder:
                world.fault("message_reordered")
                world.at(delay + rng.randrange(20 * swarm.delay), self._arrive, link, ends[1], message)
            else:
                world.at(self._in_order(link, delay), self._arrive, link, ends[1], message)

    def _in_order(self, link: tuple[int, int], delay: int) -> int:
        """The delay that keeps this message behind those before it."""
        moment = self.world.now + delay
        before = self._last.get(link, 0)
        if moment < before:
            moment = before
        self._last[link] = moment
        return moment - self.world.now

    def _arrive(self, link: tuple[int, int], target: Process, message: Message) -> None:
        if link in self._blocked:
            return
        if target not in self._listening:
            process = self.members[link[1]].process
            if not self.swarm.stale_delivery or process is None or process not in self._listening:
                return
            target = process
        world = self.world
        world.mix(message.term, link[0], link[1])
        if world.trace is not None:
            world.note(f"{link[0]} -> {link[1]}  {readable(message)}")
        target.receive(message)

    # Connections.

    def peers_of(self, process: Process) -> dict[int, Peer]:
        """What the peers that are connected to `process` said of themselves when they dialled."""
        return {
            dialler: ends[0].introduction()
            for (dialler, _), ends in self._connected.items()
            if ends[1] is process and ends[0].node_id == dialler
        }

    def started(self, process: Process) -> None:
        """A member's process listens and dials."""
        self._listening.add(process)
        for peer in self.members:
            if peer != process.node_id:
                self._redial((process.node_id, peer))
                self._redial((peer, process.node_id))

    def stopped(self, process: Process, silent: bool) -> None:
        """A member's process is gone; the peers notice, unless its machine went `silent` with it."""
        node = process.node_id
        self._listening.discard(process)
        for peer in self.members:
            if peer != node:
                self._connected.pop((peer, node), None)
                ends = self._connected.pop((node, peer), None)
                if ends is not None and not silent and (node, peer) not in self._blocked:
                    self.world.at(self._rng.randrange(5 * MILLISECOND), ends[1].link_lost, node)

    def reset(self, one: int, other: int) -> None:
        """Break the connections between two members; both dial again."""
        for link in ((one, other), (other, one)):
            ends = self._connected.pop(link, None)
            if ends is not None:
                self.world.at(self._rng.randrange(5 * MILLISECOND), ends[1].link_lost, link[0])
                self._redial(link)

    def redial(self, process: Process) -> None:
        """Break the connections that a process has dialled, and dial them again."""
        for link in [link for link, ends in self._connected.items() if ends[0] is process]:
            ends = self._connected.pop(link)
            self.world.at(self._rng.randrange(5 * MILLISECOND), ends[1].link_lost, link[0])
            self._redial(link)

    def introduced_anew(self, process: Process) -> None:
        """Break the connections with whoever belongs to another founding than `process` says now."""
        for link, ends in list(self._connected.items()):
            if process in ends and of_two_foundings(ends[0].introduction(), ends[1].introduction()) is not None:
                del self._connected[link]
                self.world.at(self._rng.randrange(5 * MILLISECOND), ends[1].link_lost, link[0])
                self._redial(link)

    def block(self, links: set[tuple[int, int]]) -> None:
        """Let nothing through on these links."""
        self._blocked |= links

    def unblock(self, links: set[tuple[int, int]]) -> None:
        """Let messages through again."""
        self._blocked -= links

    def heal(self) -> None:
        """Everything gets through, in order, from now on."""
        self._blocked.clear()
        self.healed = True

    def _redial(self, link: tuple[int, int]) -> None:
        if link not in self._dialling:
            self._dialling.add(link)
            self.world.at(self._rng.randrange(*REDIAL), self._dial, link)

    def _dial(self, link: tuple[int, int]) -> None:
        self._dialling.discard(link)
        if link in self._connected:
            return
        dialler, acceptor = self.members[link[0]].process, self.members[link[1]].process
        if dialler not in self._listening or acceptor not in self._listening:
            return  # it begins again when that one starts
        assert dialler is not None, "what is not there does not listen"
        assert acceptor is not None, "what is not there does not listen"
        refused = of_two_foundings(dialler.introduction(), acceptor.introduction())
        blocked = refused is not None or link in self._blocked or (link[1], link[0]) in self._blocked
        if blocked or self.world.now < max(dialler.paused_until, acceptor.paused_until):
            self._redial(link)
            return
        self._connected[link] = (dialler, acceptor)
        acceptor.introduced(link[0])
        dialler.link_up(link[1])


def readable(message: Message) -> str:
    """A message without its sender and receiver, and without payloads: of entries their indexes and terms."""
    facts = []
    for name in message.__struct_fields__:
        value = getattr(message, name)
        if isinstance(message, AppendEntries) and name == "entries":
            value = " ".join(f"{entry.index}({entry.term})" for entry in message.entries) or "none"
        elif isinstance(value, bytes):
            value = f"{len(value)} bytes"
        if name not in {"sender", "to"}:
            facts.append(f"{name} {value}")
    return f"{type(message).__name__}: {', '.join(facts)}"
