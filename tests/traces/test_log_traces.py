"""Courses of partition logs in the specification: what the code decides is allowed, and what it must not is refused.

The decisions are those of the shipped state, replayed by it; simulated quorums are followed by `make traces`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pidkeeper.controller.state import commit_decisions, requests
from pidkeeper.protocol.log_messages import OfferedBatch
from pidkeeper.protocol.logs import ObjectId
from pidkeeper.protocol.records import Record
from pidkeeper.protocol.segments import SegmentName
from pidkeeper.protocol.transactions import TopicPartitions
from spec.run import why_no_tlc
from tests.support.log_leader import FOUNDING, LogLeader
from tests.traces.log_course import LogCourse
from tests.traces.log_recorder import LogRecorder
from tests.traces.log_seeds import follow, with_data
from tests.traces.told_course import FollowedCourse

LIMIT = 1000


class RecordedLeader(LogLeader):
    """A leader whose records are written down, and agents that put what they have committed."""

    def __init__(self) -> None:
        self.recorder = LogRecorder()
        super().__init__()
        self.epoch = self.register(7)
        self.add_topic("t")
        self._numbers = {"batches": 0, "segment": 0}

    def _replay(self, records: list[Record]) -> None:
        super()._replay(records)
        self.recorder.entry(records, self.machine)

    def _number(self, kind: str) -> int:
        self._numbers[kind] += 1
        return self._numbers[kind] - 1

    def commit(self, *batches: OfferedBatch, put: bool = True) -> list[int]:
        """An object is put and committed: the outcomes."""
        name = ObjectId(7, self.epoch, self._number("batches"))
        if put:
            self.recorder.stored(name.path(FOUNDING))
        size = sum(batch.size for batch in batches)
        outcomes: list[int] = self.decide(requests.CommitObject(name, FOUNDING, size, batches)).outcomes
        return outcomes

    def roll(self, base: int, end: int, replaces: int) -> bool:
        """A segment likewise; whether the log reads from it."""
        name, segment = ObjectId(7, self.epoch, self._number("segment")), SegmentName("t", 0, base)
        self.recorder.stored(segment.path(name, FOUNDING))
        request = requests.CommitSegment(name, FOUNDING, 0, segment, end, 70, 10, 0, replaces)
        joined: bool = self.decide(request).joined
        return joined

    def collect(self) -> None:
        """What no log needs is deleted."""
        objects = self.machine.logs.objects
        keys = tuple(objects.collectable(10))
        for path in [objects.path(key) for key in keys]:
            self.recorder.doomed(path)
            self.recorder.gone(path)
        self.decide(requests.ObjectsDeleted((7, self.epoch), keys))

    def begin_here(self) -> tuple[int, int]:
        """A transaction with the partition in it: the pair."""
        asked = requests.InitProducerId(7, self.epoch, "x", 60_000, -1, -1, candidate=-1, may_take_block=True)
        given = self.decide(asked)
        pair = given.producer_id, given.producer_epoch
        self.decide(requests.AddPartitionsToTxn(7, self.epoch, "x", *pair, (TopicPartitions("t", (0,)),)))
        return pair

    def end_here(self, pair: tuple[int, int], *, committed: bool) -> None:
        """It ends."""
        self.decide(requests.EndTxn(7, self.epoch, "x", *pair, committed))

    def follow(self) -> FollowedCourse:
        """What the specification says of log 0."""
        return LogCourse(self.recorder, 0, LIMIT).follow()


def batch(records: int = 1, pair: tuple[int, int] = (-1, -1), sequence: int = -1, **more: Any) -> OfferedBatch:
    """At the beginning of its object."""
    return OfferedBatch(0, records, 0, 70, *pair, sequence, 0, more.get("transactional", False))


@pytest.fixture(autouse=True)
def tlc() -> None:
    """Whoever lacks Java or TLC is told so."""
    if (missing := why_no_tlc()) is not None:
        pytest.skip(missing)


@pytest.fixture
def leader() -> RecordedLeader:
    """With an idempotent producer's batches, one of which came twice, and a plain one's."""
    leader = RecordedLeader()
    assert leader.commit(batch(2, (5, 0), 0)) == [0]
    assert leader.commit(batch(3, (5, 0), 2)) == [2]
    assert leader.commit(batch(3, (5, 0), 2)) == [2], "a duplicate"
    assert leader.commit(batch()) == [5]
    return leader


def test_what_the_code_decides_is_a_behaviour_of_the_specification(leader: RecordedLeader) -> None:
    pair = leader.begin_here()
    assert leader.commit(batch(1, pair, 0, transactional=True)) == [6]
    assert leader.roll(0, 6, 3)
    assert not leader.roll(0, 7, 2), "beyond the last stable offset"
    leader.end_here(pair, committed=False)
    pair = leader.begin_here()
    assert leader.commit(batch(2, pair, 0, transactional=True)) == [8]
    leader.end_here(pair, committed=True)
    assert leader.roll(0, 11, 5)
    leader.collect()
    leader.decide(requests.DeleteRecords((7, leader.epoch), ((0, 7),)))
    leader.epoch = leader.register(7)
    assert leader.commit(batch()) == [11]
    leader.decide(requests.DeleteRecords((7, leader.epoch), ((0, 12),)))
    leader.collect()
    found = leader.follow()
    assert found.refused is None
    assert set(found.actions) == {
        "Registered", "Stored", "Committed", "Rolled", "Transacts", "Ended", "Started", "Doomed", "Gone", "Deleted",
    }  # fmt: skip


def _outside(leader: RecordedLeader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit_decisions, "has_joined", lambda *_: True)
    pair = leader.begin_here()
    leader.end_here(pair, committed=True)
    leader.commit(batch(1, pair, 0, transactional=True))


def _before_the_put(leader: RecordedLeader, _: pytest.MonkeyPatch) -> None:
    leader.commit(batch(), put=False)


def _needed(leader: RecordedLeader, _: pytest.MonkeyPatch) -> None:
    leader.recorder.doomed(leader.machine.logs.objects.path(0))


@pytest.mark.parametrize(
    ("wrong", "step"),
    [(_outside, "Committed"), (_before_the_put, "Committed"), (_needed, "Doomed")],
    ids=["outside of its transaction", "before the put", "needed and deleted"],
)
def test_a_decision_that_must_not_be_is_refused(
    leader: RecordedLeader,
    wrong: Callable[[RecordedLeader, pytest.MonkeyPatch], None],
    step: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wrong(leader, monkeypatch)
    refused = leader.follow().refused
    assert refused is not None
    assert f": {step} " in refused.splitlines()[-1]


def test_simulated_quorums_are_followed() -> None:
    """From where the listener sits in the simulation to TLC; `make traces` goes further."""
    found = follow(next(with_data(1000)), most_steps=60)
    assert found.violation is None
    assert [log.refused for log in found.logs] == [None] * len(found.logs)
    assert {"Stored", "Committed"} <= {action for log in found.logs for action in log.actions}
