"""Seeded chaos over whole clusters: loss, duplication, reordering, crashes that lose unwritten data, wiped disks.

Checked after every event: election safety, committed entries never change, and at the end log matching, progress and
convergence. Messages may be delivered long after their sender or receiver has crashed, which is harsher than TCP.
"""

from __future__ import annotations

import contextlib
import random

from pidkeeper.controller.raft.core import NotLeader, ProposalRefused, Role
from pidkeeper.controller.raft.messages import Message
from tests.support.raft_network import Node

EVENTS = 4000
RARE = {
    "crash": 1, "restart": 1, "start": 3, "wipe": 1, "snapshot": 2, "transfer": 1, "links": 1, "pause": 1, "resume": 2,
    "cut": 4, "heal": 4,
}  # fmt: skip


class Chaos:
    rare_kinds = RARE
    rare_weight = 2

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.nodes = self.make_nodes()
        self.wire: list[Message] = []
        self.leaders: dict[int, int] = {}
        self.committed: dict[int, tuple[int, int, bytes]] = {}
        self.proposed = 0
        self.loss = self.rng.choice([0.0, 0.05, 0.2])
        self.repeat = self.rng.choice([0.0, 0.1])
        self.reorder = self.rng.random() < 0.7
        self.paused: set[int] = set()
        self.severed: set[tuple[int, int]] = set()

    def make_nodes(self) -> dict[int, Node]:
        voters = tuple(range(1, self.rng.choice([1, 2, 3, 3, 3, 3, 3, 5]) + 1))
        return {node_id: self.make_node(node_id, voters) for node_id in voters}

    def make_node(self, node_id: int, voters: tuple[int, ...], chunk_bytes: int = 60) -> Node:
        return Node(
            node_id,
            self.rng,
            voters,
            heartbeat_ticks=2,
            election_ticks=8,
            link_lost_ticks=2,
            max_inflight_messages=self.rng.choice([1, 3, 64]),
            max_append_bytes=self.rng.choice([1, 40, 4096]),
            chunk_bytes=chunk_bytes,
            promotion_lag=self.rng.choice([4, 1024]),
        )

    def run(self) -> None:
        actions = [self.deliver, self.work, self.sync, self.tick, self.propose, self.rare]
        weights = [35, 30, 20, 15, 10, self.rare_weight]
        if self.rng.random() < 0.8:
            self.calm_ticks(40)
        for _ in range(EVENTS):
            self.rng.choices(actions, weights)[0]()
            self.check()
        self.calm_down()

    def some_node(self) -> Node | None:
        live = [node for node in self.nodes.values() if node.up and node.node_id not in self.paused]
        return self.rng.choice(live) if live else None

    def deliver(self) -> None:
        for _ in range(self.rng.choice([1, 4, 12])):
            if self.wire:
                self.deliver_one()

    def deliver_one(self) -> None:
        position = self.rng.randrange(len(self.wire)) if self.reorder and self.rng.random() < 0.3 else 0
        message = self.wire.pop(position)
        if self.rng.random() < self.repeat:
            self.wire.insert(self.rng.randrange(len(self.wire) + 1), message)
        target = self.nodes[message.to]
        if message.to in self.paused:
            self.wire.append(message)
        elif target.up and self.rng.random() >= self.loss and (message.sender, message.to) not in self.severed:
            target.core.step(message)

    def work(self) -> None:
        for node in self.nodes.values():
            if node.up and node.node_id not in self.paused and self.rng.random() < 0.7:
                self.wire += node.work() or []

    def sync(self) -> None:
        if (node := self.some_node()) is not None:
            for _ in range(self.rng.randrange(len(node.disk.pending) + 1)):
                node.core.written(node.disk.sync_one())

    def tick(self) -> None:
        if (node := self.some_node()) is not None:
            for _ in range(self.rng.choice([1, 1, 1, 1, 1, 16])):
                node.core.tick()

    def propose(self) -> None:
        for node in self.nodes.values():
            if node.up and node.core.role is Role.LEADER:
                try:
                    node.core.propose(b"%d" % self.proposed)
                except (NotLeader, ProposalRefused):
                    continue
                self.proposed += 1

    def rare(self) -> None:
        node = self.rng.choice(list(self.nodes.values()))
        if node.up or self.rng.random() < 0.5:
            kind = self.rng.choices(list(self.rare_kinds), list(self.rare_kinds.values()))[0]
            getattr(self, kind)(node)

    def crash(self, node: Node) -> None:
        node.up = False
        self.links(node)

    def restart(self, node: Node) -> None:
        node.restart()

    def start(self, node: Node) -> None:
        if not node.up:
            node.restart()

    def wipe(self, node: Node) -> None:
        """Fewer than a majority may have lost data at any time: the promise goes no further."""
        if self.may_wipe(node):
            self.links(node)
            node.wipe()

    def may_wipe(self, node: Node) -> bool:
        weak = sum(1 for other in self.nodes.values() if other.disk.hard_state.recovering)
        return weak + 1 <= (len(self.nodes) - 1) // 2

    def snapshot(self, node: Node) -> None:
        if node.up and node.core.applied > node.core.snapshot.index:
            node.take_snapshot(keep=self.rng.choice([0, 3]))

    def transfer(self, node: Node) -> None:
        if node.up and node.core.role is Role.LEADER and len(self.nodes) > 1:
            with contextlib.suppress(ProposalRefused):
                node.core.transfer_leadership()

    def links(self, node: Node) -> None:
        for other in self.nodes.values():
            if other.up and other is not node and self.rng.random() < 0.7:
                other.core.link_lost(node.node_id)
                if self.rng.random() < 0.7:
                    other.core.link_up(node.node_id)

    def pause(self, node: Node) -> None:
        if len(self.paused) < (len(self.nodes) - 1) // 2:
            self.paused.add(node.node_id)

    def resume(self, node: Node) -> None:
        self.paused.clear()

    def cut(self, node: Node) -> None:
        self.severed |= {pair for other in self.nodes for pair in [(node.node_id, other), (other, node.node_id)]}

    def heal(self, node: Node) -> None:
        self.severed.clear()

    def check(self) -> None:
        for node in self.nodes.values():
            core = node.core
            if node.up and core.role is Role.LEADER:
                assert self.leaders.setdefault(core.term, node.node_id) == node.node_id, f"two leaders in {core.term}"
            for slot in node.applied[-3:]:
                assert self.committed.setdefault(slot[0], slot) == slot, f"{node.node_id} changed {slot[0]}"
            assert not node.up or core.applied == (node.applied[-1][0] if node.applied else 0)

    def calm_down(self) -> None:
        """Heal everything: one leader, all logs equal, all that was committed still there."""
        self.loss = self.repeat = 0.0
        self.reorder = False
        self.paused.clear()
        self.severed.clear()
        for node in self.nodes.values():
            if not node.up:
                node.restart()
        self.calm_ticks(200)
        leaders = [node for node in self.nodes.values() if node.core.role is Role.LEADER]
        assert len(leaders) == 1, [(node.core.role, node.core.term) for node in self.nodes.values()]
        leaders[0].core.propose(b"last")
        self.calm_ticks(20)
        for node in [self.nodes[member] for member in sorted(leaders[0].core.membership.members)]:
            assert node.applied == leaders[0].applied
            assert not node.core.recovering
        assert leaders[0].applied[-1][2] == b"last"
        for index, slot in self.committed.items():
            assert leaders[0].applied[index - 1] == slot
        self.check_logs_match([self.nodes[member] for member in sorted(leaders[0].core.membership.members)])

    def calm_ticks(self, count: int) -> None:
        for _ in range(count):
            for node in self.nodes.values():
                node.core.tick()
            self.rest()

    def rest(self) -> None:
        for _ in range(10_000):
            busy = False
            for node in self.nodes.values():
                if (sent := node.work()) is not None:
                    busy = True
                    self.wire += sent
                if node.disk.pending:
                    busy = True
                    node.sync()
            wire, self.wire = self.wire, []
            for message in wire:
                self.nodes[message.to].core.step(message)
            self.check()
            if not busy and not wire:
                return
        raise AssertionError("the cluster does not come to rest")

    def check_logs_match(self, nodes: list[Node]) -> None:
        logs = [{entry.index: entry for entry in node.disk.entries} for node in nodes]
        for log in logs:
            for other in logs:
                for index in log.keys() & other.keys():
                    assert log[index] == other[index]
