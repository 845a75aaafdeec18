"""Whatever is asked, in whatever batches: the outcomes are by Kafka's rules, and each member has the same state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pidkeeper.controller.state import requests
from pidkeeper.controller.state.draft import Draft
from pidkeeper.controller.state.logs import limits
from pidkeeper.controller.state.machine import CapturedState, StateMachine
from pidkeeper.protocol.errors import ErrorCode
from pidkeeper.protocol.log_messages import CommitObjectResponse, DeleteTopicResponse, OfferedBatch, TopicDescription
from pidkeeper.protocol.logs import MAX_DELETED, ObjectId, ObjectsDeletedRecord
from pidkeeper.protocol.messages import InitProducerIdResponse, TransactionResponse
from pidkeeper.protocol.records import decode_batch, encode_batch
from pidkeeper.protocol.segment_messages import HIGH_WATERMARK, CommitSegmentResponse, DeletedRecords
from pidkeeper.protocol.segments import SegmentName
from pidkeeper.snapshots.image import StateImage
from pidkeeper.snapshots.snapshot_format import decode_snapshot
from tests.support.log_state import (
    EPOCHS,
    FIRST_OWN,
    FOUNDING,
    NOW,
    commit,
    data,
    decided,
    end,
    init,
    join,
    log_of,
    make,
    topic,
)
from tests.support.naive_logs import NO_PAIR, UNKNOWN, NaiveLogs
from tests.support.snapshot_file import snapshot_file

NAMES = ["t", "u"]
IDS = ["x", "y"]
Asked = tuple[Any, ...]
small = st.integers(0, 3)
written = st.tuples(
    st.integers(0, 7),
    st.sampled_from(["none", "seven", "eight", "x", "x", "x", "y", "nobody"]),
    st.sampled_from(["next"] * 6 + ["again", "again", "gap", "zero", "older", "newer"]),
    st.integers(1, 3),
    st.sampled_from([True, True, False]),
)
kinds: dict[str, tuple[int, st.SearchStrategy[Asked]]] = {
    "commit": (14, st.tuples(st.sampled_from([0, 1, 0, 1, 0, 1, 2, 3]), st.lists(written, min_size=1, max_size=4))),
    "add": (5, st.tuples(small, small, small)),
    "end": (3, st.tuples(small, small, st.booleans())),
    "create": (2, st.tuples(small, small)),
    "delete": (1, st.tuples(small)),
    "init": (2, st.tuples(small, small)),
    "abort": (1, st.tuples(small, st.booleans())),
    "forget": (1, st.tuples(small)),
    "expire": (1, st.tuples(st.integers(0, 2))),
}
asked = st.sampled_from([kind for kind, (weight, _) in kinds.items() for _ in range(weight)]).flatmap(
    lambda kind: st.tuples(st.just(kind), kinds[kind][1])
)
between = st.sampled_from(["nothing", "capture", "restore", "collect", "roll", "roll", "cut"])
histories = st.lists(st.tuples(st.lists(asked, min_size=2, max_size=8), between), min_size=3, max_size=10)
History = list[tuple[list[tuple[str, Asked]], str]]


class World:
    """A leader, a follower that reads what it wrote, and the model. `outcome` counts what was answered."""

    def __init__(self) -> None:
        self.leader, self.follower, self.model = make(), make(), NaiveLogs()
        self.now = NOW
        self.numbers = {1: 0, 2: 0}
        self.captured: CapturedState | None = None
        self.eager: StateImage | None = None
        self.since: list[bytes] = []

    # A batch.

    def batch(self, wanted: list[tuple[str, Asked]]) -> None:
        """Decide one after the other, compare each answer, replay it on both."""
        self.now += 1
        self.model.begin(self.now)
        draft = Draft(self.leader, self.now)
        for kind, values in wanted:
            self._ask(draft, kind, values)
        if draft.records:
            self._replay(encode_batch(draft.records))
        self.model.finish()
        self._check_counts(draft)
        self.check()

    def _ask(self, draft: Draft, kind: str, values: Asked) -> None:
        request = self._request(kind, values)
        (answer,) = decided(draft, [request])
        found = _plain(answer)
        if isinstance(request, requests.CommitObject):
            expected: Any = self.model.commit(request, found)
        else:
            expected = getattr(self.model, kind)(request)
        assert found == expected, f"{request}: {found}, by Kafka's rules {expected}"

    def _replay(self, payload: bytes) -> None:
        self.leader.replay(decode_batch(payload))
        self.follower.replay(decode_batch(payload))
        self.since.append(payload)

    def _check_counts(self, draft: Draft) -> None:
        """They are those behind the batch, or above them where it let something go."""
        logs, after = draft.logs, self.leader.logs
        drafted = [logs._rows, logs._open, logs._aborted, logs._strangers]
        real = [after.rows, after.open, after.aborted, after.producer_count]
        if self.model.let_go:
            assert all(one >= other for one, other in zip(drafted, real, strict=True)), (drafted, real)
        else:
            assert drafted == real
        assert (logs._objects, logs.next_log, logs.partitions) == (
            len(after.objects),
            after.topics.next_log,
            after.topics.partitions,
        )

    # The state against the model.

    def check(self) -> None:
        """Both members hold the same, and that is what the model has."""
        assert self.leader.image(1, 1) == self.follower.image(1, 1)
        logs, model = self.leader.logs, self.model
        assert {one.name: one.logs for one in logs.topics.all()} == {
            one.name: one.logs for one in model.topics.values()
        }
        assert (logs.rows, logs.open, logs.aborted) == (model.rows, model.open, model.aborted)
        assert (logs.producer_count, len(logs.objects)) == (len(model.producers), model.objects)
        for number in range(model.next_log):
            assert (logs.log(number) is None) == (number not in model.logs)
        for number in model.logs:
            self._check_log(number)
        for (number, producer_id), known in model.producers.items():
            entry = logs.producer(number, producer_id)
            assert entry is not None
            opened = -1 if known.open is None else known.open
            assert (entry.producer_epoch, entry.open_since, list(entry.batches)) == (known.epoch, opened, known.batches)

    def _check_log(self, number: int) -> None:
        log, known = log_of(self.leader, number), self.model.logs[number]
        data_rows = [(one.base_offset, one.records) for one in log.batches_from(0, 10**6, 10**6)]
        assert data_rows == [row[:2] for row in known.rows if row[4] is None]
        ends = [
            (one.offset, 1, one.producer_id, one.producer_epoch, one.committed)
            for one in log.markers_from(0, 10**6, 10**6)
        ]
        assert ends == [row for row in known.rows if row[4] is not None]
        aborted = [(one.producer_id, one.first_offset, one.marker_offset) for one in log.aborted_between(0, 10**6)]
        assert aborted == known.aborted
        assert (log.start, log.end, log.last_stable) == (known.start, known.end, self.model.last_stable(number))
        assert [(one.base_offset, one.end_offset) for one in log.segments] == known.segments
        for offset in range(log.start, log.end):
            rolled = log.segments.holding(offset)
            inside = [one for one in known.segments if one[0] <= offset < one[1]]
            assert ([] if rolled is None else [(rolled.base_offset, rolled.end_offset)]) == inside

    # Snapshots and garbage.

    def between(self, what: str) -> None:
        """What happens behind a batch."""
        if what == "capture" and self.captured is None:
            self.captured, self.eager = self.leader.capture(9, 1), self.leader.image(9, 1)
            self.since = []
        elif what == "restore" and self.captured is not None:
            self._restore(self.captured)
            self.captured = None
        elif what == "collect" and (keys := self.leader.logs.objects.collectable(MAX_DELETED)):
            self._replay(encode_batch([ObjectsDeletedRecord(tuple(keys), self.now)]))
            self.model.objects -= len(keys)
            self.check()
        elif what == "roll":
            for number in list(self.model.logs):
                self._roll(number)
        elif what == "cut":
            self._cut()

    def _roll(self, number: int) -> None:
        """One broker rolls some part of a log, and then another one does that knows of no other roller."""
        known, (topic, partition) = self.model.logs[number], self._partition_of(number)
        parts, stable = known.parts, self.model.last_stable(number)
        bases = [one[0] for one in known.segments[-2:]] + [row[0] for row in known.rows[:1]]
        if not bases:
            return
        base = bases[(self.now + number) % len(bases)]
        tail = known.rows[0][0] if known.rows else known.behind
        ends = [one[1] for one in parts if base < one[1] and tail <= one[1] <= stable]
        if not ends:
            return
        end = ends[(self.now * 7 + number) % len(ends)]
        replaced = sum(base <= one[0] and one[1] <= end for one in parts)
        name = SegmentName(topic, partition, base)
        for broker in (1, 2):
            still = sum(base <= one[0] and one[1] <= end for one in known.parts)
            self.numbers[broker] += 1
            request = requests.CommitSegment(
                ObjectId(broker, EPOCHS[broker], self.numbers[broker]), FOUNDING, number, name, end, 9, 9, 9, replaced
            )
            fits = still == replaced and len(self.leader.logs.objects) < limits.MAX_OBJECTS
            if len(self.leader.logs.objects) >= limits.MAX_OBJECTS:
                assert self._decide(request) is ErrorCode.NOT_ENOUGH_REPLICAS
                continue
            for _ in range(2):
                assert self._decide(request) == CommitSegmentResponse(fits), (number, base, end, known)
            self.model.objects += 1
            if fits:
                known.roll(base, end)
            self.check()

    def _partition_of(self, number: int) -> tuple[str, int]:
        return next((one.name, number - one.logs[0]) for one in self.model.topics.values() if number in one.logs)

    def _cut(self) -> None:
        """Records are deleted below some offset of each log, also amid a batch or a transaction, and behind the end."""
        asked = []
        for number, known in self.model.logs.items():
            asked.append((number, (known.start + self.now % 5) if self.now % 3 else HIGH_WATERMARK))
        asked.append((self.model.next_log, 0))
        answer = self._decide(requests.DeleteRecords((1, EPOCHS[1]), tuple(asked)))
        for (number, offset), told in zip(asked, answer.logs, strict=True):
            if number not in self.model.logs:
                assert told == DeletedRecords(-UNKNOWN, -1)
                continue
            known = self.model.logs[number]
            if offset > known.end:
                assert told == DeletedRecords(1, -1)
            else:
                start = known.end if offset == HIGH_WATERMARK else max(offset, known.start)
                assert told == DeletedRecords(0, start)
                if start > known.start:
                    known.cut(start)
        self.check()

    def _decide(self, request: requests.Request) -> Any:
        """One request in a batch of its own."""
        self.now += 1
        draft = Draft(self.leader, self.now)
        (answer,) = decided(draft, [request])
        if draft.records:
            self._replay(encode_batch(draft.records))
        return answer

    def _restore(self, captured: CapturedState) -> None:
        """A follower begins with the snapshot, and goes on with what came since it was begun."""
        image = captured.image()
        assert image == self.eager, "what was replayed since is in it"
        again = decode_snapshot(snapshot_file("c", image), "x.snap", "c")
        assert again == image
        self.follower = StateMachine("c")
        self.follower.restore(again)
        for payload in self.since:
            self.follower.replay(decode_batch(payload))
        self.check()

    # Requests.

    def _request(self, kind: str, values: Asked) -> requests.Request:
        makers: dict[str, Callable[..., requests.Request]] = {
            "commit": self._commit,
            "create": lambda name, number: topic(NAMES[name % 2], 1 + number % 2, number or name % 2 + 10),
            "delete": lambda name: requests.DeleteTopic(NAMES[name % 2], None, None),
            "init": lambda name, how: init(IDS[name % 2], self._pair(IDS[name % 2], how)),
            "add": lambda name, how, number: join(
                IDS[name % 2], self._pair(IDS[name % 2], how or 1), NAMES[number % 2], *range(number // 2 + 1)
            ),
            "end": lambda name, how, committed: end(
                IDS[name % 2], self._pair(IDS[name % 2], how or 1), committed=committed
            ),
            "abort": lambda name, late: requests.AbortTransaction(IDS[name % 2], *NO_PAIR, timed_out=late),
            "forget": lambda name: requests.ForgetTransactionalId(IDS[name % 2], *self._pair(IDS[name % 2], 1)),
            "expire": self._expire,
        }
        return makers[kind](*values)

    def _expire(self, age: int) -> requests.ExpireProducers:
        """Those that are so old, one of them by its last word but one."""
        known = [(place, one.time) for place, one in self.model.producers.items() if one.time <= self.now - age]
        return requests.ExpireProducers(
            tuple((*place, time - (number == 1)) for number, (place, time) in enumerate(known))
        )

    def _pair(self, name: str, how: int) -> tuple[int, int]:
        """No pair for 0, the one before the newest for 3, else the newest."""
        known = self.model.transactions.get(name)
        if known is None or how == 0:
            return NO_PAIR
        producer_id, epoch = known.producer
        return (producer_id, epoch - 1) if how == 3 and epoch else known.producer

    def _commit(self, how: int, specs: list[Asked]) -> requests.CommitObject:
        """By the first broker for an even `how`. 2 and 3 ask with the number of the object before."""
        broker = how % 2 + 1
        self.numbers[broker] += how < 2
        return commit(self.numbers[broker], *(self._batch(*spec) for spec in specs), broker=broker)

    def _batch(self, place: int, who: str, how: str, records: int, transactional: bool) -> OfferedBatch:
        pair = {"none": NO_PAIR, "seven": (7, 1), "eight": (8, 1), "nobody": (FIRST_OWN + 50, 0)}.get(who)
        pair = self._pair(who, 1) if pair is None else pair
        transactional = transactional and who != "seven"
        log = self._place(place, who if transactional else "")
        if pair == NO_PAIR:
            return data(log, records=records)
        known = self.model.producers.get((log, pair[0]))
        pair = (pair[0], max(pair[1], known.epoch if known is not None and who in {"seven", "eight"} else 0))
        pair = (pair[0], max(pair[1] + {"older": -1, "newer": 1}.get(how, 0), 0))
        same = known.batches if known is not None and known.epoch == pair[1] else []
        following = same[-1][1] + 1 if same else 0
        if how == "again" and same:
            first, last, _ = same[place % len(same)]
            return data(log, pair, first, records=last - first + 1, transactional=transactional)
        sequence = {"gap": following + 2, "zero": 0, "older": following}.get(how, following)
        return data(log, pair, sequence, records=records, transactional=transactional)

    def _place(self, place: int, name: str) -> int:
        """A log of the transaction of that name if there is one, else any that there is, or none of them for 7."""
        known = self.model.transactions.get(name)
        joined = [
            self.model.topics[of].logs[number]
            for of, number in sorted(known.partitions if known is not None else ())
            if of in self.model.topics and number < len(self.model.topics[of].logs)
        ]
        there = joined or list(self.model.logs)
        return there[place % len(there)] if there and place < 7 else place % (self.model.next_log + 1)


def _plain(answer: Any) -> Any:
    """An answer as the model gives it."""
    match answer:
        case ErrorCode():
            return answer
        case CommitObjectResponse():
            return answer.outcomes
        case TopicDescription():
            return answer.first_log
        case InitProducerIdResponse():
            return answer.producer_id, answer.producer_epoch
        case TransactionResponse() | DeleteTopicResponse():
            return 0
    return answer


def run(history: History) -> None:
    world = World()
    world.batch([("create", (0, 1)), ("create", (1, 2)), ("init", (0, 0)), ("init", (1, 0)), ("add", (0, 1, 2))])
    for wanted, between in history:
        world.batch(wanted)
        world.between(between)
    if world.captured is not None:
        world.between("restore")


@settings(max_examples=120)
@given(histories)
def test_any_history_has_the_outcomes_of_kafkas_rules(history: History) -> None:
    run(history)


@settings(max_examples=60)
@given(histories, st.sampled_from([("MAX_ROWS", 7), ("MAX_PRODUCERS", 3), ("MAX_ABORTED", 2), ("MAX_OBJECTS", 4)]))
def test_no_history_passes_a_bound(history: History, bound: tuple[str, int]) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(limits, *bound)
        run(history)
