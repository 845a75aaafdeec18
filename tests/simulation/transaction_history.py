"""Whether what transactional producers were told agrees with the log: an exact check of linearizability for each id.

The log gives the order of an id's states. A state counts from when some member applied it; an attempt took effect
between its invocation and its answer. So an attempt needs a state that overlaps with it in time and in which the model
answers as the producer was told; or it made one of the records, and no two attempts made the same. As the times of the
states are ordered like the log, choosing for each attempt by itself keeps the order in real time too.
"""

from __future__ import annotations

import bisect
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from pidkeeper.controller.node.markers import Markers
from pidkeeper.controller.state import requests
from pidkeeper.protocol.errors import ErrorCode
from pidkeeper.protocol.groups import OffsetsRecord
from pidkeeper.protocol.logs import ObjectRecord
from pidkeeper.protocol.messages import InitProducerIdResponse, TransactionResponse
from pidkeeper.protocol.transactions import AddPartitionsRecord, ForgetTransactionRecord, TransactionRecord
from tests.simulation.history import AgentClaims, Commit, Operation
from tests.simulation.own_blocks import SINCE, OwnBlocks
from tests.simulation.transaction_model import (
    COMMITTED_EPOCH,
    COMPLETE_COMMIT,
    NOBODY,
    ONGOING,
    OUTCOME,
    PREPARE_COMMIT,
    Expected,
    Pair,
    State,
    completed,
    expected,
    fence,
    joined,
    state_of,
)
from tests.simulation.world import MILLISECOND, Violation

SLOWEST_CLOCK: Final = 0.6
"""Ticks of 10 ms last at least this part of it."""

_DECIDED: Final = frozenset(
    {
        ErrorCode.NONE,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.INVALID_REQUEST,
    }
)
"""Codes that tell of the state of the id; others tell of the broker or of the quorum."""

_EITHER: Final = (False, True)
"""Whether a decided transaction is complete at once. What a record shows is what was so: the replay asserts when."""

Signature = tuple[Any, ...]


class Written(NamedTuple):
    """Markers that a member wrote: asked for and done at these times."""

    asked: int
    done: int
    markers: Markers


class _Story:
    """The states of one id: `times[n]` is when the n-th was first applied; it begins unknown, at the start of time."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.times: list[float] = [0]
        self.states: list[State | None] = [None]
        self.offsets = [-1]
        # The newest whole record by then, for what the states leave out.
        self.records: list[TransactionRecord | None] = [None]
        self.attempts: list[Operation] = []

    def add(self, commit: Commit) -> None:
        record = commit.record
        self.times.append(commit.time)
        self.offsets.append(commit.offset)
        if isinstance(record, AddPartitionsRecord):
            self.records.append(self.records[-1])
            self.states.append(joined(self.states[-1], record))
            return
        known = record if isinstance(record, TransactionRecord) else None
        self.records.append(known)
        self.states.append(None if known is None else state_of(known))

    def overlapping(self, attempt: Operation) -> range:
        """The states that were in force at some time of an answered attempt."""
        assert attempt.returned is not None, f"{attempt.request} is not answered"
        first = bisect.bisect_left(self.times, attempt.invoked) - 1
        return range(max(0, first), bisect.bisect_right(self.times, attempt.returned))


class TransactionChecker:
    """Checks all transactional ids of a run."""

    def __init__(
        self,
        commits: Sequence[Commit],
        attempts: Iterable[Operation],
        written: Iterable[Written],
        max_epoch: int,
        own_blocks: OwnBlocks,
    ) -> None:
        self._own_blocks = own_blocks
        self._max_epoch = max_epoch
        self._stories: dict[str, _Story] = {}
        self._written: dict[tuple[str, Pair], list[Written]] = defaultdict(list)
        self._joined_by_themselves = _joined_by_themselves(commits)
        for commit in commits:
            if isinstance(commit.record, TransactionRecord | AddPartitionsRecord | ForgetTransactionRecord):
                self._story(commit.record.transactional_id).add(commit)
        for attempt in attempts:
            self._story(attempt.request.transactional_id).attempts.append(attempt)  # type: ignore[union-attr]
        for one in written:
            pair = (one.markers.producer_id, one.markers.producer_epoch)
            self._written[one.markers.transactional_id, pair].append(one)

    def _story(self, name: str) -> _Story:
        if name not in self._stories:
            self._stories[name] = _Story(name)
        return self._stories[name]

    def check(self, claims: Sequence[AgentClaims]) -> int:
        """Raise Violation, or return the number of answered attempts that were checked."""
        self._check_ids(claims)
        checked = 0
        for story in self._stories.values():
            self._check_outcomes(story)
            check_pairs(story.name, story.attempts)
            self._check_fencing(story)
            self._check_retries(story)
            checked += self._check_answers(story)
            self._check_records(story)
        return checked

    # What holds without the model.

    def _check_ids(self, claims: Sequence[AgentClaims]) -> None:
        """A producer id belongs to one transactional id for ever, and went to nobody without one; agents gave none.

        But for those that they gave as candidates, before the quorum took them itself.
        """
        runs = sorted((first, last) for agent in claims for first, last in agent.runs)
        starts = [first for first, _ in runs]
        candidates: dict[int, str] = {}
        for agent in claims:
            for candidate in agent.candidates:
                place = bisect.bisect_right(starts, candidate) - 1
                claimed = place >= 0 and candidate <= runs[place][1]
                if claimed or candidates.setdefault(candidate, agent.name) != agent.name:
                    raise Violation("producer-id-twice", f"{candidate}, a candidate of {agent.name}, left twice")
        users: dict[int, str] = {}
        for story in self._stories.values():
            for producer_id in {state.pair[0] for state in story.states if state is not None}:
                user = users.setdefault(producer_id, story.name)
                if user != story.name:
                    raise Violation("producer-id-twice", f"{producer_id} belongs to {user} and to {story.name}")
                if producer_id in self._own_blocks.by_candidate:
                    if producer_id not in candidates:
                        raise Violation("foreign-id", f"{producer_id} of {story.name} was nobody's candidate")
                    continue
                place = bisect.bisect_right(starts, producer_id) - 1
                if producer_id in candidates or (place >= 0 and producer_id <= runs[place][1]):
                    raise Violation("producer-id-twice", f"{producer_id} of {story.name} left an agent too")

    def _check_outcomes(self, story: _Story) -> None:
        """What was decided is completed just so, after all of its markers were written."""
        for number, before in enumerate(story.states[:-1]):
            if before is None or before.status not in OUTCOME:
                continue
            after = story.states[number + 1]
            if after is None or (after.pair, after.status) != (before.pair, OUTCOME[before.status]):
                raise Violation("outcome-reversed", f"{story.name}: {before} became {after}")
            committed = before.status == PREPARE_COMMIT
            if not any(
                one.asked >= story.times[number]
                and one.done <= story.times[number + 1]
                and one.markers.committed == committed
                and _partitions(one.markers) == before.partitions
                for one in self._written[story.name, before.pair]
            ):
                raise Violation("completed-without-markers", f"{story.name}: {before} became {after}")

    def _check_fencing(self, story: _Story) -> None:
        """Once an instance was given a pair, nothing that is invoked under an older pair is granted."""
        order: dict[Pair, int] = {}
        for state in story.states:
            if state is not None:
                order.setdefault(state.pair, len(order))
        given = [math.inf] * (len(order) + 1)
        granted = [attempt for attempt in story.attempts if attempt.answer is not None]
        for attempt in granted:
            if given_pair(attempt) is not None:
                place = order.get(_pair(attempt), -1)
                if place < 0 or attempt.returned is None:
                    raise Violation("pair-not-in-the-log", f"{story.name}: {_pair(attempt)}")
                given[place] = min(given[place], attempt.returned)
        for place in range(len(order) - 1, -1, -1):
            given[place] = min(given[place], given[place + 1])
        for attempt in granted:
            place = order.get(_pair(attempt), -1)
            if place < 0 or given[place + 1] < attempt.invoked:
                raise Violation(
                    "two-unfenced",
                    f"{attempt.request}, invoked at {attempt.invoked}, was granted under {_pair(attempt)}, but a newer "
                    f"pair had been given by {given[place + 1]}",
                )

    def _check_retries(self, story: _Story) -> None:
        """Whoever asks again with the same pair is given the same pair again, unless the id was forgotten meanwhile."""
        forgotten = [time for time, state in zip(story.times, story.states, strict=True) if state is None]
        first: dict[tuple[int, Pair], Operation] = {}
        for attempt in story.attempts:
            if given_pair(attempt) is not None and supplied_pair(attempt) != NOBODY:
                known = first.setdefault((attempt.producer, supplied_pair(attempt)), attempt)
                if _pair(known) != _pair(attempt) and not any(known.invoked <= time for time in forgotten):
                    raise Violation("retry-differs", f"{known.request} was given {_pair(known)}, then {_pair(attempt)}")

    # What the model says.

    def _check_answers(self, story: _Story) -> int:
        """Every answer was right in some state that overlaps with its attempt."""
        writers: dict[int, list[int]] = {}
        checked = 0
        for number, attempt in enumerate(story.attempts):
            told = _told(attempt)
            if told is None:
                continue
            checked += 1
            places = story.overlapping(attempt)
            outcomes = [
                (place, self._expected(attempt, story.states[place], new_id, at_once=at_once))
                for place in places
                for new_id in self._new_ids(story, attempt, place + 1)
                for at_once in _EITHER
            ]
            if any(outcome == Expected(told) for _, outcome in outcomes):
                continue
            made = [
                place + 1
                for place, outcome in outcomes
                if outcome.answer == told and self._made(story, attempt, place + 1, outcome)
            ]
            if not made:
                states = [(story.times[place], story.states[place]) for place in places]
                raise Violation(
                    "transaction-order",
                    f"{attempt.request} of {attempt.producer}, from {attempt.invoked} to {attempt.returned}, was told "
                    f"{told} in {states}",
                )
            writers[number] = made
        self._match(story, writers, "answered, but made no record of its own")
        return checked

    def _new_ids(self, story: _Story, attempt: Operation, place: int) -> set[int | None]:
        """What an attempt may have got that needed an ID: the one that the record at `place` or the next one takes, its
        candidate, -1. And None, for one that needed none."""
        found: set[int | None] = {None}
        if not isinstance(attempt.request, requests.InitProducerId) and not _ends_anew(attempt):
            return found
        moments = self._own_blocks.during(attempt.invoked, attempt.returned)
        if isinstance(attempt.request, requests.InitProducerId) and moments[0].version < SINCE:
            found.add(attempt.request.candidate)
        if any(moment.may_wait and moment.version >= SINCE for moment in moments):
            found.add(-1)
        return found | {self._own_blocks.taken_at(offset) for offset in story.offsets[place : place + 2]}

    @staticmethod
    def _made(story: _Story, attempt: Operation, place: int, outcome: Expected) -> bool:
        """Whether the attempt may have made the record at `place`, and the one behind it if the model says so."""
        after, then = outcome.after, outcome.then
        return (
            after is not None
            and place < len(story.states)
            and story.states[place] == after
            and (then is None or story.states[place + 1 : place + 2] == [then])
            and attempt.invoked <= story.times[place]
            and (attempt.returned is None or story.times[place] <= attempt.returned)
        )

    def _check_records(self, story: _Story) -> None:
        """Every record is the work of an attempt of its own, or of the leader's duties."""
        index: dict[Signature, list[int]] = defaultdict(list)
        for number, attempt in enumerate(story.attempts):
            if not attempt.refused:
                for signature in _signatures(attempt):
                    index[signature].append(number)
                if isinstance(attempt.request, requests.InitProducerId):
                    index["candidate", attempt.request.candidate].append(number)
                    index["new",].append(number)
        makers: dict[int, list[int]] = {}
        for place in range(1, len(story.states)):
            before, after = story.states[place - 1], story.states[place]
            if self._is_duty(story, place) or self._belongs_to_another(story, place):
                continue
            taken = self._own_blocks.taken_at(story.offsets[place])
            made_by = ("new",) if before is None and taken is not None else _made_by(before, after)
            makers[place] = [
                number
                for number in index.get(made_by, ())
                for at_once in _EITHER
                if self._made(
                    story,
                    story.attempts[number],
                    place,
                    self._outcome(story.attempts[number], story, place, at_once=at_once),
                )
            ]
        self._match(story, makers, "nobody asked for it")

    def _belongs_to_another(self, story: _Story, place: int) -> bool:
        """Whether the record at `place` is there for the sake of one beside it: partitions that join with a batch or
        with offsets, and the new ID with which a transaction ends."""
        before, after = story.states[place - 1], story.states[place]
        if before is None or after is None:
            return False
        if story.offsets[place] in self._joined_by_themselves:
            return before.pair == after.pair and before.status not in OUTCOME
        ended = before.status in OUTCOME.values() and before.pair[1] == self._max_epoch
        renewed = after.last in {before.pair, (before.pair[0], COMMITTED_EPOCH)} and after.pair[0] != before.pair[0]
        return ended and renewed and story.times[place - 1] == story.times[place]

    def _outcome(self, attempt: Operation, story: _Story, place: int, *, at_once: bool) -> Expected:
        """What `attempt` made of the state before `place`, if it took the ID that was taken there from a block."""
        offsets = story.offsets[place : place + (2 if _ends_anew(attempt) else 1)]
        taken = [found for offset in offsets if (found := self._own_blocks.taken_at(offset)) is not None]
        new_id = taken[0] if taken else getattr(attempt.request, "candidate", None)
        return self._expected(attempt, story.states[place - 1], new_id, at_once=at_once)

    def _expected(self, attempt: Operation, before: State | None, new_id: int | None, *, at_once: bool) -> Expected:
        request: Any = attempt.request
        return expected(before, request, self._max_epoch, new_id, at_once=at_once)

    def _is_duty(self, story: _Story, place: int) -> bool:
        before, after = story.states[place - 1], story.states[place]
        if before is None:
            return False
        if after is None:
            return before.status != ONGOING and before.status not in OUTCOME
        if before.status in OUTCOME:
            return after == completed(before)
        fences = [fence(before, before.pair, at_once=at_once) for at_once in _EITHER]
        return before.status == ONGOING and after in fences and self._is_late(story, place)

    @staticmethod
    def _is_late(story: _Story, place: int) -> bool:
        """Whether the time of the transaction that the record at `place` aborts may be up."""
        record = story.records[place - 1]
        assert record is not None, f"{story.name}: nothing is under way at {place}"
        begin = place - 1
        while (state := story.states[begin - 1]) is not None and state.status == ONGOING:
            begin -= 1
        least = (record.timeout_ms - 20) * MILLISECOND * SLOWEST_CLOCK
        return story.times[place] - story.times[begin] >= least

    @staticmethod
    def _match(story: _Story, choices: Mapping[int, Sequence[int]], rule: str) -> None:
        """Give each of `choices` one of its own. Raises Violation if that cannot be done."""
        taken: dict[int, int] = {}

        def place(one: int, seen: set[int]) -> bool:
            for choice in choices[one]:
                if choice not in seen:
                    seen.add(choice)
                    if choice not in taken or place(taken[choice], seen):
                        taken[choice] = one
                        return True
            return False

        for one in choices:
            if not place(one, set()):
                facts = story.attempts[one].request if rule.startswith("answered") else story.states[one - 1 : one + 1]
                raise Violation("transaction-unexplained", f"{story.name}: {facts}: {rule}")


def check_pairs(transactional_id: str, attempts: Iterable[Operation]) -> None:
    """No pair is given to two instances of a transactional id."""
    holders: dict[Pair, int] = {}
    for attempt in attempts:
        pair = given_pair(attempt)
        if pair is not None and holders.setdefault(pair, attempt.producer) != attempt.producer:
            raise Violation("pair-twice", f"{transactional_id}: {pair} went to {holders[pair]}, {attempt.producer}")


def _partitions(markers: Markers) -> frozenset[tuple[str, int]]:
    return frozenset((topic.topic, number) for topic in markers.partitions for number in topic.partitions)


def supplied_pair(attempt: Operation) -> Pair:
    """The pair with which the producer came."""
    request: Any = attempt.request
    return request.producer_id, request.producer_epoch


def _ends_anew(attempt: Operation) -> bool:
    return isinstance(attempt.request, requests.EndTxn) and attempt.request.new_epoch


def given_pair(attempt: Operation) -> Pair | None:
    """The pair that the producer was given, if it was given one."""
    answer = attempt.answer
    if isinstance(answer, InitProducerIdResponse) or (isinstance(answer, TransactionResponse) and _ends_anew(attempt)):
        return answer.producer_id, answer.producer_epoch
    return None


def _pair(attempt: Operation) -> Pair:
    """The pair under which a granted attempt works from then on."""
    return given_pair(attempt) or supplied_pair(attempt)


def _joined_by_themselves(commits: Iterable[Commit]) -> set[int]:
    """The offsets of the records by which partitions may have joined with the object, or the offsets, behind them."""
    found: set[int] = set()
    joining: list[int] = []
    for commit in commits:
        if isinstance(commit.record, AddPartitionsRecord):
            joining.append(commit.offset)
            continue
        if isinstance(commit.record, ObjectRecord | OffsetsRecord):
            found.update(joining)
        joining.clear()
    return found


def _told(attempt: Operation) -> Pair | ErrorCode | None:
    """What the producer knows by the attempt about its transactional id, if anything."""
    if attempt.answer is not None:
        return given_pair(attempt) or ErrorCode.NONE
    return attempt.error if attempt.error in _DECIDED else None


def _signatures(attempt: Operation) -> Iterator[Signature]:
    request: Any = attempt.request
    if isinstance(request, requests.EndTxn):
        yield ("end", request.committed)
    if isinstance(request, requests.AddPartitionsToTxn):
        yield ("add", request.topics[0].partitions[0])
    elif isinstance(request, requests.InitProducerId) or request.new_epoch:
        yield ("next", supplied_pair(attempt))


def _made_by(before: State | None, after: State | None) -> Signature:
    """One of the signatures of the attempts that can have led from one state to the other."""
    if after is None:
        return ("nobody",)
    if before is None:
        return ("candidate", after.pair[0])
    if after.pair != before.pair:
        return ("next", after.last)
    if after.status == ONGOING:
        known = before.partitions if before.status == ONGOING else frozenset()
        return ("add", min((number for _, number in after.partitions - known), default=None))
    return ("end", after.status in {PREPARE_COMMIT, COMPLETE_COMMIT})
