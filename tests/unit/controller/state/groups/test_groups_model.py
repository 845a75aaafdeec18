"""Whatever is asked of groups, in whatever batches: the outcomes are by Kafka's rules, and each member has the same."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

import pytest

from pidkeeper.controller.state import requests
from pidkeeper.controller.state.draft import Draft
from pidkeeper.controller.state.groups import limits
from pidkeeper.controller.state.groups.state import GroupsState
from pidkeeper.controller.state.machine import CapturedState, StateMachine
from pidkeeper.protocol.errors import ErrorCode
from pidkeeper.protocol.group_messages import (
    CommitGroupResponse,
    CommitOffsetsResponse,
    DeleteGroupResponse,
    DeleteOffsetsResponse,
    GroupDescription,
)
from pidkeeper.protocol.groups import GroupMember, TopicOffsets
from pidkeeper.protocol.log_messages import DeleteTopicResponse, TopicDescription
from pidkeeper.protocol.messages import InitProducerIdResponse, TransactionResponse
from pidkeeper.protocol.records import decode_batch, encode_batch
from pidkeeper.protocol.transactions import TopicPartitions
from pidkeeper.snapshots.image import StateImage
from pidkeeper.snapshots.snapshot_format import decode_snapshot
from tests.support.group_state import add_group, gather, keep, member
from tests.support.log_state import EPOCHS, NOW, decided, drop, end, init, make, topic
from tests.support.naive_groups import NaiveGroups
from tests.support.naive_logs import NO_PAIR
from tests.support.snapshot_file import snapshot_file

GROUPS: Final = ["g", "h", "", "ü"]
TOPICS: Final = ["t", "u", "v"]
IDS: Final = ["x", "y"]
METADATA: Final = ["", "", "", "m", "long metadata", "ü", "é" * 2048, "é" * 2049]
MEMBERS: Final = [member("a"), member("b", "s"), member("c", "s"), member("d"), member("a", "r"), member("ü")]
WEIGHTS: Final = {
    "gather": 12,
    "keep": 40,
    "add": 24,
    "end": 6,
    "unkeep": 4,
    "lapse": 4,
    "ungroup": 3,
    "create": 5,
    "delete": 1,
    "init": 3,
    "abort": 2,
    "forget": 1,
}
BATCHES: Final = 800


class World:
    """A leader, a follower that reads what it wrote, and the model. `outcomes` counts what was answered."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.leader, self.follower, self.model = make(), make(), NaiveGroups()
        self.now = NOW
        self.captured: CapturedState | None = None
        self.eager: StateImage | None = None
        self.since: list[bytes] = []
        self.last_gathered: requests.CommitGroup | None = None
        self.outcomes: Counter[str] = Counter()

    def run(self) -> None:
        """Batch after batch, and snapshots between."""
        self.batch(["create", "create", "init", "init"])
        kinds, weights = list(WEIGHTS), list(WEIGHTS.values())
        for _ in range(BATCHES):
            self.batch(self.rng.choices(kinds, weights, k=self.rng.randint(1, 8)))
            if self.captured is None and self.rng.random() < 0.1:
                self.captured, self.eager = self.leader.capture(9, 1), self.leader.image(9, 1)
                self.since = []
            elif self.captured is not None and self.rng.random() < 0.2:
                self._restore(self.captured)
        if self.captured is not None:
            self._restore(self.captured)

    def batch(self, kinds: list[str]) -> None:
        """Decide one after the other, compare each answer, replay it on both."""
        self.now += 1
        self.model.logs.begin(self.now)
        draft = Draft(self.leader, self.now)
        for kind in kinds:
            request = getattr(self, f"_{kind}")()
            self.model.at = draft.next_offset
            (answer,) = decided(draft, [request])
            found, expected = _plain(answer), self.model.ask(kind, request)
            assert found == expected, f"{request}: {found}, by Kafka's rules {expected}"
            self.outcomes[f"{kind} {found.name if isinstance(found, ErrorCode) else 'granted'}"] += 1
        if draft.records:
            payload = encode_batch(draft.records)
            self.leader.replay(decode_batch(payload))
            self.follower.replay(decode_batch(payload))
            self.since.append(payload)
        self.model.logs.finish()
        assert _counts(draft.groups) == _counts(self.leader.groups)
        self.check()

    # The state against the model.

    def check(self) -> None:
        """Both members hold the same, and that is what the model has."""
        assert self.leader.image(1, 1) == self.follower.image(1, 1)
        groups, model = self.leader.groups, self.model
        assert _counts(groups) == (
            len(model.names()),
            len(model.committed),
            len(model.pending),
            model.offset_bytes(),
            model.members_bytes(),
        )
        found = groups.after(None, 10**6)
        assert [one.group_id for one in found] == sorted(model.names())
        committed, pending = {}, {}
        for one in found:
            for name, number, kept in one.committed_after():
                committed[one.group_id, name, number] = kept.offset, kept.metadata, kept.record_offset
            for name, number, who, kept in one.all_pending():
                pending[who, (one.group_id, name, number)] = kept.offset, kept.metadata, kept.record_offset
                assert one.is_pending(name, number)
            assert (one.version, list(one.members)) == (model.version(one.group_id), model.members(one.group_id))
        assert (committed, pending) == (model.committed, model.pending)
        for who in {held[0] for held in pending} | {1000, 1001}:
            assert groups.held_by(who) == sum(held[0] == who for held in pending)

    def _restore(self, captured: CapturedState) -> None:
        """A follower begins with the snapshot, goes on with what came since, and leads from now on."""
        image = captured.image()
        assert image == self.eager, "what was replayed since is in it"
        data = snapshot_file("c", image)
        again = StateMachine("c")
        again.restore(decode_snapshot(data, "x.snap", "c"))
        assert snapshot_file("c", again.image(9, 1)) == data
        for payload in self.since:
            again.replay(decode_batch(payload))
        self.leader, self.follower, self.captured = again, self.leader, None
        self.check()

    # Requests.

    def _gather(self) -> requests.CommitGroup:
        if self.last_gathered is not None and self.rng.random() < 0.15:
            return self.last_gathered
        name = self.rng.choice(GROUPS)
        known = self.model.gathered.get(name)
        after = self.model.version(name) if self.rng.random() < 0.8 else self.rng.choice([-1, 3])
        generation = (0 if known is None else known.request.generation) + self.rng.choice([1, 1, 1, 0, -1])
        members = self.rng.sample(MEMBERS, self.rng.choice([0, 0, 1, 2, 3]))
        self.last_gathered = gather(name, after, max(generation, 0), *members, broker=self.rng.choice([1, 2]))
        return self.last_gathered

    def _ungroup(self) -> requests.DeleteGroup:
        return requests.DeleteGroup(self.rng.choice([None, (1, EPOCHS[1])]), self.rng.choice(GROUPS))

    def _keep(self) -> requests.CommitOffsets:
        name, tx = self.rng.choice(GROUPS), self.rng.choice([None, *IDS])
        told = [(topic_name, number, self.rng.randrange(99)) for topic_name, number in self._places()]
        return keep(
            name,
            *told,
            who=self._who(name),
            transaction=None if tx is None else (tx, self._pair(tx)),
            metadata=self.rng.choice(METADATA),
            operator=tx is None and self.rng.random() < 0.2,
        )

    def _who(self, name: str) -> tuple[int, str, str | None]:
        members, known = self.model.members(name), self.model.gathered.get(name)
        if known is None or not members or self.rng.random() < 0.2:
            return self.rng.choice([(-1, "", None), (-1, "", None), (1, "a", None), (-1, "a", None), (-1, "", "s")])
        one: GroupMember = self.rng.choice(members)
        generation = known.request.generation + self.rng.choice([0, 0, 0, 0, -1, 1])
        instance = self.rng.choice([one.instance_id, one.instance_id, None, "s"])
        return generation, self.rng.choice([one.member_id] * 5 + ["z"]), instance

    def _places(self) -> list[tuple[str, int]]:
        every = [(name, number) for name in TOPICS for number in range(4)]
        return self.rng.sample(every, self.rng.randint(1, 5))

    def _unkeep(self) -> requests.DeleteOffsets:
        broker = self.rng.choice([None, (1, EPOCHS[1])])
        topics = keep("", *[(*place, 0) for place in self._places()]).topics
        return requests.DeleteOffsets(broker, self.rng.choice(GROUPS), tuple(_numbers(one) for one in topics))

    def _lapse(self) -> requests.ExpireOffsets:
        name = self.rng.choice(GROUPS)
        seen = [(place[1:], kept[2]) for place, kept in self.model.committed.items() if place[0] == name]
        if self.rng.random() < 0.4:
            seen = self.rng.sample(seen, len(seen) // 2)
        late = self.rng.random() < 0.3
        offsets = tuple((*place, at - (late and self.rng.randrange(2))) for place, at in seen)
        version = self.model.version(name) if self.rng.random() < 0.8 else -1
        return requests.ExpireOffsets(name, version, offsets)

    def _create(self) -> requests.CreateTopic:
        return topic(self.rng.choice(TOPICS), self.rng.randint(1, 4), self.rng.randrange(10**9))

    def _delete(self) -> requests.DeleteTopic:
        return drop(self.rng.choice(TOPICS))

    def _init(self) -> requests.InitProducerId:
        name = self.rng.choice(IDS)
        return init(name, self.rng.choice([NO_PAIR, self._pair(name)]))

    def _add(self) -> requests.AddPartitionsToTxn:
        name = self.rng.choice(IDS)
        return add_group(name, self._pair(name), self.rng.choice(GROUPS))

    def _end(self) -> requests.EndTxn:
        name = self.rng.choice(IDS)
        return end(name, self._pair(name), committed=self.rng.random() < 0.6)

    def _abort(self) -> requests.AbortTransaction:
        return requests.AbortTransaction(self.rng.choice(IDS), *NO_PAIR, timed_out=self.rng.random() < 0.5)

    def _forget(self) -> requests.ForgetTransactionalId:
        name = self.rng.choice(IDS)
        return requests.ForgetTransactionalId(name, *self._pair(name))

    def _pair(self, name: str) -> tuple[int, int]:
        known = self.model.logs.transactions.get(name)
        if known is None:
            return 1000, 0
        producer_id, epoch = known.producer
        return producer_id, epoch - (epoch > 0 and self.rng.random() < 0.1)


def _numbers(one: TopicOffsets) -> TopicPartitions:
    return TopicPartitions(one.topic, tuple(told.partition for told in one.partitions))


def _counts(groups: GroupsState) -> tuple[int, ...]:
    return len(groups), groups.offsets, groups.pending, groups.offset_bytes, groups.members_bytes


def _plain(answer: Any) -> Any:
    """An answer as the model gives it."""
    plain: dict[type[Any], Callable[[Any], Any]] = {
        TopicDescription: lambda one: one.first_log,
        InitProducerIdResponse: lambda one: (one.producer_id, one.producer_epoch),
        TransactionResponse: lambda _: 0,
        DeleteTopicResponse: lambda _: 0,
        CommitGroupResponse: lambda one: (one.taken, _described(one.group)),
        CommitOffsetsResponse: lambda one: one.codes,
        DeleteGroupResponse: lambda one: one.group_id,
        DeleteOffsetsResponse: lambda one: one.deleted,
    }
    return plain[type(answer)](answer) if type(answer) in plain else answer


def _described(group: GroupDescription | None) -> Any:
    return group and (group.version, group.generation, group.members, group.offsets, group.pending)


@pytest.mark.parametrize("seed", range(6))
def test_groups_follow_the_model(seed: int) -> None:
    world = World(seed)
    world.run()
    expected = ["keep granted", "keep FENCED_INSTANCE_ID", "keep INVALID_TXN_STATE", "keep ILLEGAL_GENERATION"]
    expected += ["keep UNKNOWN_MEMBER_ID", "keep NON_EMPTY_GROUP", "keep PRODUCER_FENCED", "gather INVALID_REQUEST"]
    expected += ["ungroup granted", "ungroup NON_EMPTY_GROUP", "unkeep granted", "end granted", "abort granted"]
    assert all(world.outcomes[one] for one in expected), world.outcomes


@pytest.mark.parametrize("seed", range(6))
def test_groups_at_their_bounds_follow_the_model(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    small = {"MAX_GROUPS": 3, "MAX_OFFSETS": 8, "MAX_OFFSET_BYTES": 60, "MAX_MEMBERS_BYTES": 80, "MAX_PENDING": 3}
    for name, value in small.items():
        monkeypatch.setattr(limits, name, value)
    world = World(seed)
    world.run()
    expected = ["keep COORDINATOR_NOT_AVAILABLE", "keep INVALID_COMMIT_OFFSET_SIZE", "gather COORDINATOR_NOT_AVAILABLE"]
    assert all(world.outcomes[one] for one in expected), world.outcomes
