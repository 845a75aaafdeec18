"""What the clients saw, what was committed, and whether the two agree; the checks are those of the chaos runs as well.

An allocation is fetch-and-add with results that are all distinct, so the results themselves force the order: the exact
check of linearizability is a sort.
"""

from __future__ import annotations

import bisect
import itertools
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextvars import ContextVar
from typing import Final

from pidkeeper.controller.state import requests
from pidkeeper.protocol.errors import ErrorCode, RequestError
from pidkeeper.protocol.founding import EvidenceDismissedRecord, EvidenceRecord
from pidkeeper.protocol.messages import AllocateProducerIdsResponse, RaiseFloorResponse, RegisterBrokerResponse
from pidkeeper.protocol.migration import ZooKeeperBlockRecord
from pidkeeper.protocol.records import (
    AllocateProducerIdsRecord,
    ProducerIdFloorRecord,
    Record,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)
from pidkeeper.protocol.transactions import TransactionalBlockRecord
from tests.simulation.world import Violation, World

FIRST_WITNESS: Final = 800
"""Broker ids from here to those of the brokers in ZooKeeper are of those who say that they hold what they do not."""

NOBODY: Final = -1

SERVED: Final[ContextVar[Sequence[Operation]]] = ContextVar("SERVED", default=())
"""The operation that a member's HTTP interface is serving."""


class Operation:
    """One attempt of a client. `returned` is None, and `answer` too, while the outcome is unknown.

    `taken`: a member has taken the request to have it decided. `refused`: the member said that nothing was done and
    nothing will be. `producer`: the number of the transactional producer that asks, and `error` the code of the refusal
    that it holds.
    """

    __slots__ = ("answer", "error", "invoked", "producer", "refused", "request", "returned", "taken")

    def __init__(self, request: requests.Request, invoked: int) -> None:
        self.request = request
        self.invoked = invoked
        self.returned: int | None = None
        self.answer: object = None
        self.taken = False
        self.refused = False
        self.error: ErrorCode | None = None
        self.producer = NOBODY


AcknowledgedBlock = tuple[int, int, Operation]
"""First ID, length, and the operation that was given it."""


class Commit:
    """A committed record: its offset, and when the first member applied it."""

    __slots__ = ("offset", "record", "time")

    def __init__(self, offset: int, record: Record, time: int) -> None:
        self.offset = offset
        self.record = record
        self.time = time


class History:
    """The operations of all clients, the committed records, and the IDs that left the agents."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.operations: list[Operation] = []
        self.transactional: list[Operation] = []
        self.commits: list[Commit] = []
        self.newest_invocation = 0
        """When the newest request for a block was sent that was answered: with one, or that there will be none."""

    def invoke(self, request: requests.Request, producer: int = NOBODY) -> Operation:
        """A client sends a request, or a transactional producer does."""
        operation = Operation(request, self.world.now)
        if producer == NOBODY:
            self.operations.append(operation)
        else:
            operation.producer = producer
            self.transactional.append(operation)
        return operation

    def acknowledge(self, operation: Operation, answer: object) -> None:
        """The client holds the answer."""
        operation.returned = self.world.now
        operation.answer = answer
        if isinstance(answer, AllocateProducerIdsResponse):
            self.newest_invocation = max(self.newest_invocation, operation.invoked)

    def refuse(self, operation: Operation, error: RequestError) -> None:
        """The client holds a refusal."""
        operation.returned = self.world.now
        operation.error = error.code
        if error.code is ErrorCode.PRODUCER_IDS_EXHAUSTED:
            self.newest_invocation = max(self.newest_invocation, operation.invoked)

    def commit(self, first_offset: int, records: Iterable[Record]) -> None:
        """The next entry was applied for the first time."""
        for offset, record in enumerate(records, first_offset):
            self.commits.append(Commit(offset, record, self.world.now))

    def check(self, claims: Sequence[AgentClaims]) -> int:
        """Raise Violation, or return the number of acknowledged blocks that were checked."""
        acknowledged = acknowledged_blocks(self.operations)
        self._check_offsets()
        committed = committed_blocks(self.commits)
        self._check_evidence()
        check_disjoint(acknowledged)
        check_owners(acknowledged, committed)
        check_real_time_order(self.operations)
        check_gaps(self.operations, acknowledged, committed)
        check_floors(self.operations, self.commits)
        self._check_registrations()
        _check_offers(claims, committed)
        check_foreign(claims)
        check_repeated(claims)
        return len(acknowledged)

    def _check_offsets(self) -> None:
        for offset, commit in enumerate(self.commits):
            if commit.offset != offset:
                raise Violation("log-offsets", f"record {offset} of the log has offset {commit.offset}")

    def _check_evidence(self) -> None:
        """Nothing is handed out while a broker holds what was not, and no honest broker ever does."""
        held: dict[int, int] = {}
        for commit in self.commits:
            record = commit.record
            if isinstance(record, EvidenceRecord):
                if record.broker_id < FIRST_WITNESS:
                    raise Violation("honest-evidence", f"{record} at offset {commit.offset}, with one quorum alone")
                held[record.broker_id] = record.highest_producer_id
            elif isinstance(record, EvidenceDismissedRecord):
                del held[record.broker_id]
            elif _hands_out_under(record, held):
                raise Violation("handed-out-under-evidence", f"{record} at {commit.offset}, brokers hold {held}")

    def _check_registrations(self) -> None:
        for operation in self.operations:
            request, answer = operation.request, operation.answer
            if not isinstance(answer, RegisterBrokerResponse) or not isinstance(request, requests.RegisterBroker):
                continue
            epoch = answer.broker_epoch
            record = self.commits[epoch].record if epoch < len(self.commits) else None
            if record != RegisterBrokerRecord(request.broker_id, epoch, request.incarnation_id):
                raise Violation("registration", f"{request} was given epoch {epoch}, where the log says {record}")


def acknowledged_blocks(operations: Iterable[Operation]) -> list[AcknowledgedBlock]:
    """(first, length, operation) in order of the first ID."""
    found = [
        (operation.answer.producer_id_start, operation.answer.producer_id_len, operation)
        for operation in operations
        if isinstance(operation.answer, AllocateProducerIdsResponse)
    ]
    return sorted(found, key=lambda block: block[:2])


def committed_blocks(commits: Iterable[Commit]) -> dict[int, Commit]:
    """The committed blocks, the quorum's own included, by their first ID.

    Walks the log to see that IDs only jump where a floor rose or ZooKeeper was ahead, and that each block went to
    the epoch in force.
    """
    blocks: dict[int, Commit] = {}
    epochs: dict[int, int] = {}
    next_id = 0
    for commit in commits:
        record, offset = commit.record, commit.offset
        if isinstance(record, ProducerIdFloorRecord | ZooKeeperBlockRecord):
            if record.next_producer_id <= next_id:
                raise Violation("floor", f"{record} at offset {offset}, but the next ID was {next_id}")
            next_id = record.next_producer_id
        elif isinstance(record, AllocateProducerIdsRecord | TransactionalBlockRecord):
            _check_block(commit, next_id, epochs)
            blocks[next_id] = commit
            next_id = record.producer_id_end + 1
        elif isinstance(record, RegisterBrokerRecord):
            epochs[record.broker_id] = offset
        elif isinstance(record, UnregisterBrokerRecord):
            epochs.pop(record.broker_id, None)
    return blocks


def check_disjoint(blocks: Iterable[AcknowledgedBlock]) -> None:
    """No two acknowledged blocks, in order, have an ID in common."""
    end, before = -1, None
    for first, length, operation in blocks:
        if first <= end:
            raise Violation("duplicate", f"{operation.answer} to {operation.request} overlaps the one to {before}")
        end, before = first + length - 1, operation.request


def check_owners(acknowledged: Iterable[AcknowledgedBlock], committed: Mapping[int, Commit]) -> None:
    """Every acknowledged block was committed for whoever asked for it."""
    for first, length, operation in acknowledged:
        commit = committed.get(first)
        record = None if commit is None else commit.record
        request = operation.request
        if not (
            isinstance(record, AllocateProducerIdsRecord)
            and isinstance(request, requests.AllocateProducerIds)
            and record.length == length
            and record.broker_id == request.broker_id
            and record.broker_epoch == request.broker_epoch
        ):
            raise Violation("lost", f"{request} was given {first} +{length}, the log says {record}")


def check_real_time_order(operations: Sequence[Operation]) -> None:
    """Whatever was invoked after a block or a floor was acknowledged gets IDs above it."""
    bounds: list[tuple[int, int]] = []
    for operation in operations:
        answer, returned = operation.answer, operation.returned
        if returned is not None and isinstance(answer, AllocateProducerIdsResponse):
            bounds.append((returned, answer.producer_id_start + answer.producer_id_len))
        elif returned is not None and isinstance(answer, RaiseFloorResponse):
            bounds.append((returned, answer.next_producer_id))
    bounds.sort()
    times = [time for time, _ in bounds]
    floors: list[int] = []
    for _, bound in bounds:
        floors.append(max(bound, floors[-1]) if floors else bound)
    for operation in operations:
        answer = operation.answer
        if not isinstance(answer, AllocateProducerIdsResponse):
            continue
        position = bisect.bisect_left(times, operation.invoked) - 1
        if position >= 0 and answer.producer_id_start < floors[position]:
            raise Violation(
                "real-time-order",
                f"{operation.request}, invoked at {operation.invoked}, was given {answer.producer_id_start}, "
                f"but IDs below {floors[position]} were gone by {times[position]}",
            )


def check_gaps(
    operations: Iterable[Operation], acknowledged: Iterable[AcknowledgedBlock], committed: Mapping[int, Commit]
) -> None:
    """Every committed block that nobody holds must be the work of an operation that never learned its outcome."""
    unknown: dict[tuple[int, int], list[int]] = defaultdict(list)
    for operation in operations:
        request = operation.request
        if operation.answer is None and not operation.refused and isinstance(request, requests.AllocateProducerIds):
            unknown[request.broker_id, request.broker_epoch].append(operation.invoked)
    held = {first for first, _, _ in acknowledged}
    orphans: dict[tuple[int, int], int] = defaultdict(int)
    for first, commit in committed.items():
        record = commit.record
        if first in held or not isinstance(record, AllocateProducerIdsRecord):
            continue
        owner = record.broker_id, record.broker_epoch
        orphans[owner] += 1
        if bisect.bisect_right(unknown[owner], commit.time) < orphans[owner]:
            raise Violation("unexplained-gap", f"nobody asked for {record}, committed by {commit.time}")


def check_floors(operations: Iterable[Operation], commits: Iterable[Commit]) -> None:
    """Every floor was asked for, and was refused to nobody who asked for it alone."""
    asked: dict[int, int] = {}
    for operation in operations:
        request = operation.request
        if isinstance(request, requests.RaiseFloor) and not operation.refused:
            asked.setdefault(request.at_least, operation.invoked)
    for commit in commits:
        record = commit.record
        if not isinstance(record, ProducerIdFloorRecord):
            continue
        if asked.get(record.next_producer_id, commit.time + 1) > commit.time:
            raise Violation("unexplained-floor", f"nobody asked for {record}, committed by {commit.time}")


def _hands_out_under(record: Record, held: dict[int, int]) -> bool:
    if not isinstance(record, AllocateProducerIdsRecord | TransactionalBlockRecord):
        return False
    return any(highest >= record.producer_id_start for highest in held.values())


def _check_block(commit: Commit, next_id: int, epochs: Mapping[int, int]) -> None:
    record, offset = commit.record, commit.offset
    assert isinstance(record, AllocateProducerIdsRecord | TransactionalBlockRecord), f"{record} gives no block"
    if record.producer_id_start != next_id:
        raise Violation("id-gap", f"{record} at offset {offset}, but the next ID was {next_id}")
    if isinstance(record, TransactionalBlockRecord):
        return
    if record.broker_epoch != (epoch := epochs.get(record.broker_id)):
        raise Violation("stale-epoch", f"{record} at offset {offset}, but the epoch in force is {epoch}")


class AgentClaims:
    """The blocks that one agent's reserve took, the runs of IDs that left it, and the candidates that it took out."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.blocks: list[tuple[int, int]] = []
        self.epochs: dict[int, int | None] = {}
        self.runs: list[list[int]] = []
        self.candidates: set[int] = set()

    def offered(self, first: int, last: int, epoch: int | None) -> None:
        """The reserve took a block, when `epoch` was that of the newest registration that the agent had heard of."""
        self.blocks.append((first, last))
        self.epochs[first] = epoch

    def claimed(self, producer_id: int) -> None:
        """An ID left the agent."""
        runs = self.runs
        if runs and runs[-1][1] + 1 == producer_id:
            runs[-1][1] = producer_id
        else:
            runs.append([producer_id, producer_id])


def _check_offers(claims: Iterable[AgentClaims], committed: Mapping[int, Commit]) -> None:
    """A block was offered only while the registration that it was granted to was in force, as far as the agent knew."""
    for agent in claims:
        for first, epoch in agent.epochs.items():
            commit = committed.get(first)
            record = None if commit is None else commit.record
            if not isinstance(record, AllocateProducerIdsRecord) or record.broker_epoch != epoch:
                raise Violation("offered-after-registration", f"{agent.name}, of epoch {epoch}, was offered {record}")


def check_foreign(claims: Iterable[AgentClaims]) -> None:
    """Every ID that left an agent was in a block of this agent."""
    for agent in claims:
        blocks = sorted(agent.blocks)
        firsts = [first for first, _ in blocks]
        for first, last in agent.runs:
            expected, place = first, max(0, bisect.bisect_right(firsts, first) - 1)
            while expected <= last and place < len(blocks) and blocks[place][0] <= expected <= blocks[place][1]:
                expected, place = min(blocks[place][1], last) + 1, place + 1
            if expected != last + 1:
                raise Violation("foreign-id", f"{agent.name} handed out {expected}, which none of its blocks holds")


def check_repeated(claims: Iterable[AgentClaims]) -> None:
    """Every ID that left an agent left once."""
    everything = sorted((first, last, agent.name) for agent in claims for first, last in agent.runs)
    for (_, end, one), (start, _, other) in itertools.pairwise(everything):
        if start <= end:
            raise Violation("repeated-id", f"ID {start} left {one} and {other}")
