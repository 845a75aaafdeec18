"""Seeded chaos over clusters whose members come and go, and lose their disks, while everything else goes wrong too."""

from __future__ import annotations

import contextlib

import msgspec
import pytest

from pidkeeper.controller.raft.core import NotLeader, ProposalRefused, Role
from pidkeeper.protocol.records import VotersRecord, read_voters
from tests.support.raft_chaos import RARE, Chaos
from tests.support.raft_network import Node, members

SEEDS = 200


class MembershipChaos(Chaos):
    """Six machines, of which one to three are the first voters.

    harsh: half of an even number of voters may lose their data too. That must not break a promise, but the rest may
    have to wait for ever: a learner that is ahead of them can neither agree nor stand itself.
    """

    harsh = False

    def calm_down(self) -> None:
        if not self.harsh:
            super().calm_down()

    def make_nodes(self) -> dict[int, Node]:
        self.rare_kinds = RARE | {"change": 80, "wipe": 3}
        self.rare_weight = 8
        voters = tuple(range(1, self.rng.choice([1, 2, 3, 3]) + 1))
        return {node_id: self.make_node(node_id, voters, chunk_bytes=4096) for node_id in range(1, 7)}

    def change(self, _: Node) -> None:
        """Whoever thinks that it leads makes a change at random."""
        for node in self.nodes.values():
            if node.up and node.core.role is Role.LEADER:
                with contextlib.suppress(NotLeader, ProposalRefused):
                    node.core.change_members(self.another(node.core.membership.record))

    def another(self, record: VotersRecord) -> VotersRecord:
        voters = [member.id for member in record.members if member.voting]
        learners = [member.id for member in record.members if not member.voting]
        one = self.rng.choice(list(self.nodes))
        if one in learners and self.rng.random() < 0.8:
            return members(*voters, one, learners=[other for other in learners if other != one])
        if one in learners:
            return members(*voters, learners=[other for other in learners if other != one])
        if one not in voters:
            return members(*voters, learners=[*learners, one])
        if len(voters) == 1:
            raise ProposalRefused("the last voter stays")
        return members(*[other for other in voters if other != one], learners=learners)

    def may_wipe(self, node: Node) -> bool:
        """By every configuration that anybody may still count by, a majority has not lost data."""
        weak = {other.node_id for other in self.nodes.values() if other.disk.hard_state.recovering} | {node.node_id}
        known = [one for other in self.nodes.values() for one in other.core.log.memberships.configurations]
        written = [read_voters(entry.data) for other in self.nodes.values() for entry in other.disk.entries]
        voters = [one.voters for one in known] + [
            frozenset(member.id for member in record.members if member.voting) for record in written if record
        ]
        if not self.harsh and any(node.node_id in one.members - one.voters for one in known):
            return False  # it might be made a voter before its leader hears of the loss
        if any(len(weak & one) > (len(one) if self.harsh else len(one) - 1) // 2 for one in voters):
            return False
        # As the operator's page says: a machine that starts with an empty disk is told who the voters are by now.
        newest = self.newest()
        learner = node.node_id not in newest
        node.config = msgspec.structs.replace(node.config, voters=newest, learner=learner)
        return True

    def newest(self) -> tuple[int, ...]:
        records = [read_voters(slot[2]) for _, slot in sorted(self.committed.items())]
        changed = [record for record in records if record is not None]
        if not changed:
            return self.nodes[1].config.voters
        return tuple(member.id for member in changed[-1].members if member.voting)


@pytest.mark.parametrize("first", range(0, SEEDS, 20))
def test_safety_and_convergence(first: int) -> None:
    changes = 0
    for seed in range(first, first + 20):
        chaos = MembershipChaos(seed)
        chaos.harsh = seed % 2 == 1
        try:
            chaos.run()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
        changes += sum(1 for slot in chaos.committed.values() if read_voters(slot[2]) is not None)
    assert changes > 20
