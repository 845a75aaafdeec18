"""Where the IDs of transactional producers come from, told from the log alone.

Before metadata version 6 from an agent, as a candidate. From then on from the blocks that the quorum took for them: one
block after the other, each ID once, in order. Whoever needs an ID then is told to come again only while none is left
and no block may be taken by the quorum alone.
"""

from __future__ import annotations

import bisect
from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from pidkeeper.protocol.founding import FoundingRecord
from pidkeeper.protocol.metadata_version import BASE
from pidkeeper.protocol.migration import MigrationPhase, MigrationRecord
from pidkeeper.protocol.records import FeatureLevelRecord, ProducerIdFloorRecord, Record
from pidkeeper.protocol.transactions import ForgetTransactionRecord, TransactionalBlockRecord, TransactionRecord
from pidkeeper.snapshots.owner_format import Owner
from tests.simulation.history import Commit
from tests.simulation.world import Violation

SINCE = 6
"""The metadata version."""

FLOORS_SINCE = 8
"""From this metadata version on a floor is one for what is left of them, too."""

_MUST_WAIT = frozenset(
    {
        MigrationPhase.BRIDGE,
        MigrationPhase.IMPORT,
        MigrationPhase.DUAL_WRITE,
        MigrationPhase.ROLLED_BACK,
        MigrationPhase.FINALIZING,
        MigrationPhase.ROLLING_BACK,
    }
)


class Moment(NamedTuple):
    """From `time` on: the metadata version, and whether somebody who needs an ID may be told to come again."""

    time: int
    version: int
    may_wait: bool


class OwnBlocks:
    """What the log says of them. `bridge`: the quorum is to begin in ZooKeeper, and takes nothing before. `hears`: it
    takes nothing before its founding is in the log.

    `by_candidate`: the IDs that came from agents; `owners`: who was given each of the others, in order.
    """

    def __init__(self, commits: Iterable[Commit], *, bridge: bool, hears: bool) -> None:
        self.by_candidate: set[int] = set()
        self.owners: list[Owner] = []
        self._bridge = bridge
        self._hears = hears
        self._version = BASE
        self._phase = MigrationPhase.NONE
        self._left: deque[range] = deque()
        self._known: dict[str, int] = {}
        self._taken: dict[int, int] = {}
        self._moments = [self._moment(-1)]
        for commit in commits:
            self._replay(commit.offset, commit.record)
            self._moments.append(self._moment(commit.time))

    def taken_at(self, offset: int) -> int | None:
        """The ID that the record at `offset` took from a block, if it took one."""
        return self._taken.get(offset)

    def during(self, invoked: int, returned: int | None) -> list[Moment]:
        """What was in force at some time in between, with both ends."""
        first = bisect.bisect_left(self._moments, invoked, key=_time) - 1
        end = len(self._moments) if returned is None else bisect.bisect_right(self._moments, returned, key=_time)
        return self._moments[max(0, first) : end]

    def _moment(self, time: int) -> Moment:
        begins = self._bridge and self._phase is MigrationPhase.NONE
        waits = self._phase in _MUST_WAIT or begins or self._hears
        return Moment(time, self._version, waits and not self._left)

    def _replay(self, offset: int, record: Record) -> None:
        if isinstance(record, FeatureLevelRecord):
            self._version = record.metadata_version
        elif isinstance(record, MigrationRecord):
            self._phase = record.phase
        elif isinstance(record, FoundingRecord):
            self._hears = False
        elif isinstance(record, ProducerIdFloorRecord) and self._version >= FLOORS_SINCE:
            self._left.clear()
        elif isinstance(record, TransactionalBlockRecord):
            if len(self._left) > 1 or record.producer_id_end < record.producer_id_start:
                raise Violation("own-block", f"{record} at offset {offset}, while {self._left} are left")
            self._left.append(range(record.producer_id_start, record.producer_id_end + 1))
        elif isinstance(record, ForgetTransactionRecord):
            self._known.pop(record.transactional_id, None)
        elif isinstance(record, TransactionRecord):
            if self._known.get(record.transactional_id) != record.producer_id:
                self._take(offset, record)
            self._known[record.transactional_id] = record.producer_id

    def _take(self, offset: int, record: TransactionRecord) -> None:
        if self._version < SINCE:
            self.by_candidate.add(record.producer_id)
            return
        if not self._left or self._left[0][0] != record.producer_id:
            raise Violation("foreign-id", f"{record} at offset {offset}: the next ID is in {self._left}")
        self._taken[offset] = record.producer_id
        self.owners.append(Owner(record.producer_id, offset, record.update_ms, record.transactional_id))
        left = self._left[0][1:]
        if left:
            self._left[0] = left
        else:
            self._left.popleft()


def _time(moment: Moment) -> int:
    return moment.time
