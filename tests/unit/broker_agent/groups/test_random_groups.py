"""Whatever members do, and whenever, what they are told is of one group. Histories are drawn from seeds.

- one call has one answer, and nobody waits longer than for a rebalance, a session, and the quorum;
- who is told that it joined a generation is of its record, and in the quorum before it hears of it;
- a record has one leader and one protocol for all of its members;
- generations rise, but for a static member that takes its own place;
- an assignment is that of the leader of this generation.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from typing import Any

import pytest

from pidkeeper.broker_agent.groups.classic_group import ClassicGroup
from pidkeeper.broker_agent.groups.turns import Commit
from pidkeeper.broker_agent.kafka.wire.groups.join_group import JoinGroupResponse
from pidkeeper.broker_agent.kafka.wire.groups.sync_group import SyncGroupResponse
from pidkeeper.protocol.errors import ErrorCode
from pidkeeper.protocol.group_messages import GroupDescription
from tests.support.coordinator_rig import Consumer, CoordinatorRig
from tests.support.group_quorum import losing, raising, waiting
from tests.support.group_rig import DEFAULTS, REBALANCE_MS, SESSION_MS, GroupRig

SEEDS = 150
STEPS = 400
LAG_MS = 4_000
PROTOCOLS = [("range",), ("range", "sticky"), ("sticky", "range"), (("range", b"other topics"),)]


class RandomGroup(GroupRig):
    """A group in which everything happens by chance. `kept`: what the quorum has, at each version."""

    def __init__(self, seed: int) -> None:
        super().__init__(agrees=False)
        self.rng = random.Random(seed)
        self.kept: list[Commit] = []
        self.asked: dict[int, int] = {}
        self.commit_due = 0
        self.ids: list[str] = []
        self.leaders: dict[int, str] = {}
        self.checked: set[int] = set()
        self.kinds: set[str] = set()

    def step(self) -> None:
        """One thing happens, and all that is said is looked at."""
        action = self.rng.choice(
            [self.comes, self.comes_again, self.syncs, self.syncs, self.lives, self.goes, self.passes]
        )
        action()
        if self.commits and (self.rng.random() < 0.5 or self.now >= self.commit_due):
            self.decided()
        if self.rng.random() < 0.01:
            self.another_coordinator()
        self.check()

    # What members do.

    def _member(self) -> tuple[str, str | None]:
        """Any that is or was one."""
        if self.rng.random() < 0.7 and len(self.group.members):
            one = self.rng.choice(list(self.group.members))
            return one.member_id, one.instance_id
        return (self.rng.choice(self.ids), None) if self.ids else ("somebody", None)

    def comes(self) -> None:
        instance = self.rng.choice([None, None, "static-1", "static-2"])
        self._called(self.join(instance_id=instance, takes_member_id=self.rng.random() < 0.5, **self._protocols()))

    def comes_again(self) -> None:
        member_id, instance = self._member()
        self._called(self.join(member_id, instance_id=instance, **self._protocols()))

    def syncs(self) -> None:
        member_id, instance = self._member()
        generation = self.group.generation
        assignments = {}
        if member_id == self.group.members.leader:
            assignments = {
                one.member_id: f"{generation}:{one.instance_id or one.member_id}".encode() for one in self.group.members
            }
        self._called(self.sync(member_id, generation, instance_id=instance, assignments=assignments))

    def lives(self) -> None:
        member_id, instance = self._member()
        self.heartbeat(member_id, instance_id=instance)

    def goes(self) -> None:
        if self.rng.random() < 0.3:
            self._called(self.leave(self._member()))

    def passes(self) -> None:
        self.wait(self.rng.choice([1, 100, 2000, 8000]))

    def _protocols(self) -> dict[str, Any]:
        return {"protocols": self.rng.choice(PROTOCOLS)}

    def _called(self, call: int) -> None:
        self.asked[call] = self.now

    # What the quorum does.

    def wait(self, milliseconds: int) -> None:
        end = self.now + milliseconds
        while self.commits and self.commit_due <= end:
            super().wait(max(0, self.commit_due - self.now))
            self.decided()
        super().wait(end - self.now)

    def look(self) -> None:
        before = len(self.commits)
        super().look()
        if len(self.commits) > before:
            self.commit_due = self.now + LAG_MS

    def decided(self) -> None:
        self.check()
        commit = self.commits[-1]
        static = self.kept and commit.generation == self.kept[-1].generation
        if static:
            assert {one.instance_id for one in commit.members} == {one.instance_id for one in self.kept[-1].members}
        elif self.kept:
            assert commit.generation == self.kept[-1].generation + 1
        self.kept.append(commit)
        if static:
            self.leaders.pop(commit.generation, None)
        self.kinds.add("static" if static else "generation")
        self.commit()
        self.check()

    def another_coordinator(self) -> None:
        """This one is told to give up, and another one goes on with what the quorum has."""
        self.kinds.add("moved")
        self.group.close(ErrorCode.NOT_COORDINATOR)
        self.look()
        assert not self._waiting(), "all are answered"
        self.commits.clear()
        self.group = ClassicGroup("group", self.room, DEFAULTS)
        if self.kept:
            last = self.kept[-1]
            members = list(last.members)
            known = GroupDescription("group", 99, last.generation, last.protocol_type, members, 1, 1, 0, 0, 0)
            assert self.group.load(self.now, known)

    # What has to hold.

    def _waiting(self) -> list[int]:
        return [call for call in self.asked if call not in self.answers]

    def check(self) -> None:
        longest = REBALANCE_MS + SESSION_MS + 2 * LAG_MS
        for call in self._waiting():
            assert self.now - self.asked[call] <= longest, f"call {call} waits since {self.asked[call]}"
        for call in self.answers.keys() - self.checked:
            self.checked.add(call)
            answer = self.answers[call]
            if isinstance(answer, JoinGroupResponse) and answer.error_code == 0:
                self.check_joined(answer)
            elif isinstance(answer, JoinGroupResponse):
                self.ids.append(answer.member_id)
            elif isinstance(answer, SyncGroupResponse) and answer.assignment:
                generation, _, _ = answer.assignment.decode().partition(":")
                assert int(generation) == self.kept[-1].generation
                self.kinds.add("assigned")

    def check_joined(self, answer: JoinGroupResponse) -> None:
        record = self.kept[-1]
        assert answer.generation == record.generation
        members = {one.member_id for one in record.members}
        assert answer.member_id in members
        assert self.leaders.setdefault(answer.generation, answer.leader) == answer.leader
        assert answer.leader in members
        if answer.members:
            assert answer.member_id == answer.leader
            assert {one.member_id for one in answer.members} == members
        self.ids.append(answer.member_id)
        self.kinds.add("joined")


@pytest.mark.parametrize("start", range(0, SEEDS, 50))
def test_random_histories(start: int) -> None:
    kinds: set[str] = set()
    for seed in range(start, start + 50):
        group = RandomGroup(seed)
        try:
            for _ in range(STEPS):
                group.step()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
        group.another_coordinator()
        kinds |= group.kinds
    assert kinds == {"joined", "assigned", "static", "generation", "moved"}


async def nemesis(rig: CoordinatorRig, consumers: list[Consumer], rng: random.Random, seconds: float) -> None:
    """Consumers die and come, agents believe what they like, and the quorum has its troubles."""
    end = rig.now + seconds
    names = [None, "static-1", None, "static-2", None]
    while rig.now < end:
        await asyncio.sleep(rng.uniform(0.1, 8))
        what = rng.randrange(6)
        agent = rig.agents[rng.choice([1, 2])]
        number = rng.randrange(len(consumers))
        if what == 0:
            consumers[number].die()
            consumers[number] = Consumer(rig, rng.choice([1, 2]), rng, names[number % len(names)])
        elif what == 1:
            await consumers[number].leave()
            consumers[number] = Consumer(rig, rng.choice([1, 2]), rng, names[number % len(names)])
        elif what == 2:
            agent.hear(*rng.choice([(1,), (2,), (1, 2)]))
        elif what == 3:
            agent.session.broker_epoch = rig.quorum.register(agent.session.broker_id)
        else:
            rig.quorum.faults.extend(
                rng.choice([losing, waiting(rng.uniform(0, 8)), raising(ErrorCode.REQUEST_TIMED_OUT)])
                for _ in range(rng.randrange(4))
            )


@pytest.mark.parametrize("seed", range(12))
def test_members_end_up_in_one_generation(seed: int) -> None:
    """Two agents, each of which believes to coordinate now and then."""
    with contextlib.closing(CoordinatorRig(1, 2, seed=seed)) as rig:
        rng = rig.world.stream("nemesis")
        names = [None, "static-1", None, "static-2", None]
        consumers = [Consumer(rig, rng.choice([1, 2]), rng, name) for name in names]
        everybody = list(consumers)
        rig.run(nemesis(rig, consumers, rng, 300))
        everybody += consumers
        rig.quorum.faults.clear()
        for agent in rig.agents.values():
            agent.hear(1, 2)
        rig.run(asyncio.sleep(150))

        known = rig.quorum.known()
        assert {one.member_id for one in known.members} == {one.member_id for one in consumers}
        assert {one.history[-1][0] for one in consumers} == {known.generation}
        holder = rig.agents[rig.agents[1].directory.group_coordinator("group").id].coordinator
        described = rig.run(holder.describe_group("group"))
        assert described.state == "Stable"

        kept = {(one.generation, member.member_id) for one in rig.quorum.commits for member in one.members}
        # A static leader may have come back with another id since.
        assert {(known.generation, one.history[-1][1]) for one in consumers} <= kept
        for consumer in everybody:
            assert {(one.generation, one.member_id) for one in consumer.joins} <= kept
            assert consumer.longest_join <= (REBALANCE_MS + SESSION_MS) / 1000 + 20
        generations = [one.generation for one in rig.quorum.commits]
        assert generations == sorted(generations)
        for task in (consumer.task for consumer in consumers):
            task.cancel()
