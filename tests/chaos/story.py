"""A kept journal and the histories of the members, as the operations and commits that the simulation's checks want."""

from __future__ import annotations

import bisect
import itertools
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from pidkeeper.controller.state import requests
from pidkeeper.protocol.errors import ErrorCode
from pidkeeper.protocol.ids import MAX_PRODUCER_ID, OWN
from pidkeeper.protocol.messages import (
    AllocatedBlock,
    AllocateProducerIdsResponse,
    InitProducerIdResponse,
    RaiseFloorResponse,
)
from pidkeeper.protocol.records import (
    AllocateProducerIdsRecord,
    ProducerIdFloorRecord,
    Record,
    RegisterBrokerRecord,
)
from pidkeeper.protocol.transactions import TransactionalBlockRecord
from tests.chaos.ledgers import Coverage, Ledger, ledgers
from tests.chaos.load.journal import Entry, JournalError, Outcome, claims, entries
from tests.chaos.load.kinds import ALLOCATE, INIT, RAISE_FLOOR, REGISTER
from tests.simulation.history import AgentClaims, Commit, Operation

END: Final = 2**63 - 1
"""By when a record was committed that no answer tells of."""


class Grant(NamedTuple):
    """A block was given: when, by which member, and to which broker."""

    returned: int
    member: str
    broker_id: int


class Story:
    """What a run has left in its directory. Raises JournalError.

    `operations`: those for blocks and floors, in order of their beginning; `grants`: in order of their coming;
    `others`: all other operations. `known`: the blocks that any member knows, in order of the log. `holes`: IDs that
    lie between those, and that no member can be asked about any more. `inits`: by transactional id.
    """

    def __init__(self, directory: Path) -> None:
        self.claimed = list(claims(directory))
        self.ledgers: list[Ledger] = ledgers(directory)
        self.known = sorted({block for ledger in self.ledgers for block in ledger.blocks}, key=lambda one: one.offset)
        self.coverage = Coverage(self.ledgers)
        self.holes = list(self._holes())
        self.operations: list[Operation] = []
        self.grants: list[Grant] = []
        self.others: list[Entry] = []
        self.inits: dict[str, list[Operation]] = defaultdict(list)
        self.outcomes: Counter[Outcome] = Counter()
        self.stale_refused = 0
        for entry in entries(directory):
            self.outcomes[entry.outcome] += 1
            try:
                self._take(entry)
            except (KeyError, TypeError) as error:
                raise JournalError(f"{entry} lacks what its kind has: {error!r}") from error
        if not self.ledgers:
            raise JournalError(f"{directory} holds no history of a member to compare the journal with")
        self.operations.sort(key=lambda operation: operation.invoked)
        self.grants.sort()

    def _take(self, entry: Entry) -> None:
        """Many thousands are of a kind, so of those no more is kept than is looked at."""
        if not (made := _operations(entry)):
            self.others.append(entry)
            if entry.kind == INIT:
                self.inits[entry.arguments["transactional_id"]].append(_init(entry))
            return
        self.operations += made
        self.stale_refused += entry.code == ErrorCode.STALE_BROKER_EPOCH.name
        granted = sum(isinstance(one.answer, AllocateProducerIdsResponse) for one in made)
        if granted and entry.returned is not None:
            member = sys.intern(entry.arguments["member"])
            self.grants += [Grant(entry.returned, member, entry.arguments["broker_id"])] * granted

    def _holes(self) -> Iterator[tuple[int, int]]:
        next_id = 0
        for block in self.known:
            if block.first > next_id and not self.coverage.has(next_id, block.first - 1):
                yield next_id, block.first - 1
            next_id = block.last + 1
        if not self.coverage.has(next_id, MAX_PRODUCER_ID):
            yield next_id, MAX_PRODUCER_ID

    def commits(self) -> list[Commit]:
        """Registrations, floors and blocks in order of the log, each with the time by which it was committed.

        A floor is wherever IDs jump, above a hole too.
        """
        bounds = _Bounds(self.operations, self.known)
        placed: list[tuple[float, Record]] = [*self._registrations()]
        next_id = 0
        for block in self.known:
            if block.first > next_id:
                placed.append((block.offset - 0.5, ProducerIdFloorRecord(block.first, 0)))
            placed.append((block.offset, _record(block)))
            next_id = block.last + 1
        placed.sort(key=lambda one: one[0])
        return [Commit(int(place), record, bounds.committed_by(place)) for place, record in placed]

    def _registrations(self) -> Iterator[tuple[int, Record]]:
        """Those that somebody was told of, or has had a block under; their offsets are the epochs."""
        told = {
            (entry.arguments["broker_id"], entry.result["broker_epoch"])
            for entry in self.others
            if entry.kind == REGISTER and entry.outcome is Outcome.OK
        }
        used = {(block.broker_id, block.broker_epoch) for block in self.known if block.broker_id != OWN}
        for broker_id, epoch in told | used:
            yield epoch, RegisterBrokerRecord(broker_id, epoch, "?")

    def agents(self) -> list[AgentClaims]:
        """What left each agent, and what left the quorum for transactional producers."""
        pieces: defaultdict[int, list[npt.NDArray[np.int64]]] = defaultdict(list)
        for one in self.claimed:
            pieces[one.agent].append(one.ids)
        found = [self._claims(f"agent {agent}", agent, np.concatenate(ids)) for agent, ids in pieces.items()]
        return [*found, self._claims("the quorum", OWN, self.transactional_ids())]

    def transactional_ids(self) -> npt.NDArray[np.int64]:
        """The IDs of transactional producers, once for each transactional id that had them."""
        had = {
            (transactional_id, init.answer.producer_id)
            for transactional_id, inits in self.inits.items()
            for init in inits
            if isinstance(init.answer, InitProducerIdResponse)
        }
        return np.array([producer_id for _, producer_id in had], np.int64)

    def _claims(self, name: str, broker_id: int, ids: npt.NDArray[np.int64]) -> AgentClaims:
        made = AgentClaims(name)
        made.blocks = [(block.first, block.last) for block in self.known if block.broker_id == broker_id]
        # Whose the IDs of a hole were is not known any more.
        made.blocks += self.holes
        ordered = np.sort(ids)
        breaks = np.flatnonzero(np.diff(ordered) != 1)
        firsts = ordered[np.concatenate(([0], breaks + 1))] if len(ordered) else ordered
        lasts = ordered[np.concatenate((breaks, [-1]))] if len(ordered) else ordered
        made.runs = [[first, last] for first, last in zip(firsts.tolist(), lasts.tolist(), strict=True)]
        return made


class _Bounds:
    """By when a record was committed: before anybody was told of a block at its offset or behind."""

    def __init__(self, operations: Iterable[Operation], known: Sequence[AllocatedBlock]) -> None:
        offsets = {block.first: block.offset for block in known}
        told = sorted(
            (offsets[operation.answer.producer_id_start], operation.returned)
            for operation in operations
            if isinstance(operation.answer, AllocateProducerIdsResponse)
            and operation.answer.producer_id_start in offsets
            and operation.returned is not None
        )
        self._offsets = [offset for offset, _ in told]
        earliest = itertools.accumulate((returned for _, returned in reversed(told)), min)
        self._times = [*reversed([*earliest]), END]

    def committed_by(self, place: float) -> int:
        return self._times[bisect.bisect_left(self._offsets, place)]


def _record(block: AllocatedBlock) -> Record:
    if block.broker_id == OWN:
        return TransactionalBlockRecord(block.first, block.last, block.timestamp_ms)
    length = block.last - block.first + 1
    return AllocateProducerIdsRecord(
        block.broker_id, block.broker_epoch, block.last, block.first, length, block.timestamp_ms
    )


def _operations(entry: Entry) -> list[Operation]:
    """Operations for blocks, each for one, or for a floor; none for others, and for what is no such request at all."""
    asked = entry.arguments
    if entry.kind == RAISE_FLOOR:
        answer = None
        if entry.outcome is Outcome.OK:
            answer = RaiseFloorResponse(entry.result["next_producer_id"], entry.result["raised"])
        return [_made(entry, requests.RaiseFloor(asked["at_least"]), answer)]
    if entry.kind != ALLOCATE:
        return []
    request = requests.AllocateProducerIds(asked["broker_id"], asked["broker_epoch"])
    granted = [entry.result, *entry.result.get("more", [])] if entry.outcome is Outcome.OK else []
    answers = [AllocateProducerIdsResponse(0, one["producer_id_start"], one["producer_id_len"]) for one in granted]
    # Nobody was told what became of those that were asked for and are not in the answer.
    missing = [None] * (asked.get("blocks", 1) - len(answers))
    return [_made(entry, request, answer) for answer in (*answers, *missing)]


def _made(entry: Entry, request: requests.Request, answer: object) -> Operation:
    made = Operation(request, entry.invoked)
    made.refused = entry.outcome is Outcome.REFUSED
    made.answer = answer
    made.returned = entry.returned if answer is not None or entry.outcome is not Outcome.OK else None
    return made


def _init(entry: Entry) -> Operation:
    """`producer` is the number of the instance."""
    asked = entry.arguments
    request = requests.InitProducerId(OWN, OWN, asked["transactional_id"], 0, -1, -1, -1)
    made = Operation(request, entry.invoked)
    made.returned, made.producer = entry.returned, asked["instance"]
    if entry.outcome is Outcome.OK:
        made.answer = InitProducerIdResponse(0, entry.result["producer_id"], entry.result["producer_epoch"])
    return made
