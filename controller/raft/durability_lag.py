"""How far the leader's own disk is behind those of the other voters, in ticks of 10 ms.

A leader need not have an entry durable itself for a majority to commit it (dissertation, section 10.2.1), but it
answers only what its own log cannot lose (`RaftLog.deliver`). So the answers wait for its disk while the others have
long done their part, and one of them had better lead.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from pidkeeper.controller.raft.disk_pace import CALM_TIMEOUTS
from pidkeeper.controller.raft.log import RaftLog
from pidkeeper.controller.raft.progress import Progress


class _Mark:
    """The leader's log through `index`, which was not durable here at the tick `since`."""

    __slots__ = ("committed", "holders", "index", "since")

    def __init__(self, index: int, since: int) -> None:
        self.index = index
        self.since = since
        # The tick at which it was committed, None before that; and who had acknowledged it by then.
        self.committed: int | None = None
        self.holders: tuple[int, ...] = ()


class DurabilityLag:
    """Marks the end of the leader's log once a tick, and compares when each mark is committed and when it is durable.

    Exists while this member leads. What is durable within a tick is never marked.
    """

    __slots__ = ("_allowance", "_calm_enough", "_ends", "_lagged", "_not_committed", "_not_durable")

    def __init__(self, election_ticks: int) -> None:
        # A handover costs an election, so less than a timeout is not worth it.
        self._allowance = election_ticks
        # By rising index; each mark is in both at first. One mark a tick at most, and none while nothing is appended.
        self._not_durable: deque[_Mark] = deque()
        self._not_committed: deque[_Mark] = deque()
        # Where the log ended at each of the last ticks, an election timeout of them.
        self._ends: deque[int] = deque(maxlen=election_ticks)
        # By member: the last tick at which it lacked what was appended an election timeout ago.
        self._lagged: dict[int, int] = {}
        self._calm_enough = CALM_TIMEOUTS * election_ticks

    def tick(self, now: int, log: RaftLog, progress: Mapping[int, Progress]) -> tuple[int, ...]:
        """A tick has passed; the members that should lead instead, as they are so much faster: often none.

        They are those by whose word an entry was committed that our own disk does not have after more than twice that
        time and an election timeout. So among equally slow disks nobody is faster. Who has lagged lately is not among
        them: where each disk stalls now and then, the successor's would be the next.
        """
        self._mark(now, log)
        self._note_who_lags(now, log.last_index, progress)
        while self._not_committed and self._not_committed[0].index <= log.commit:
            mark = self._not_committed.popleft()
            mark.committed = now
            mark.holders = tuple(peer for peer, one in sorted(progress.items()) if one.counted >= mark.index)
        while self._not_durable and self._not_durable[0].index <= log.stable:
            self._not_durable.popleft()
        oldest = self._not_durable[0] if self._not_durable else None
        if oldest is None or oldest.committed is None:
            return ()
        limit = 2 * (oldest.committed - oldest.since) + self._allowance
        if now - oldest.since <= limit:
            return ()
        recent = now - self._calm_enough
        return tuple(peer for peer in oldest.holders if self._lagged.get(peer, recent) <= recent)

    def _note_who_lags(self, now: int, last_index: int, progress: Mapping[int, Progress]) -> None:
        self._ends.append(last_index)
        if len(self._ends) == self._ends.maxlen:
            end = self._ends[0]
            for peer, one in progress.items():
                if one.match < end:
                    self._lagged[peer] = now

    def _mark(self, now: int, log: RaftLog) -> None:
        marked = self._not_durable[-1].index if self._not_durable else log.stable
        if log.last_index > marked:
            mark = _Mark(log.last_index, now)
            self._not_durable.append(mark)
            self._not_committed.append(mark)
