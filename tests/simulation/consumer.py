"""Consumers of all partitions in both isolation levels, and whether they are given just what the records say.

One of `read_committed` leaves out what is aborted as clients do: by the list that comes with the batches, and by the
markers among these.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from pidkeeper.broker_agent.kafka.wire.data.fetch import (
    FetchedPartition,
    FetchedTopic,
    FetchPartition,
    FetchRequest,
    FetchTopic,
)
from pidkeeper.broker_agent.kafka.wire.data.isolation import IsolationLevel
from pidkeeper.broker_agent.kafka.wire.data.record_batch import BatchHeader, read_batch_header
from pidkeeper.protocol.errors import ErrorCode
from pidkeeper.protocol.log_messages import EARLIEST
from tests.simulation.log_model import ModelLog
from tests.simulation.sent_batches import COVERED_FROM
from tests.simulation.world import MILLISECOND, SECOND, Violation

if TYPE_CHECKING:
    from tests.simulation.data_plane import DataPlane

MAX_BYTES: Final = (1, 500, 1 << 20)
WAITS_MS: Final = (0, 500)
STALE: Final = 10 * SECOND
"""For so long a leader may lead on that was deposed, and tell of topics that are gone."""

OUT_OF_RANGE: Final = ErrorCode.OFFSET_OUT_OF_RANGE.kafka_code
PATIENCE: Final = 4 * SECOND
"""Until a consumer asks again whose agent died."""


class Consumer:
    """Reads one place from the start on, and begins anew where its log has lost what comes next, or is another one.

    `read`: batches that it was given.
    """

    def __init__(self, plane: DataPlane, place: int, isolation: IsolationLevel) -> None:
        self.plane = plane
        self.place = place
        self.isolation = isolation
        self.offset = 0
        self.read = 0
        self._asked = 0
        self._log: ModelLog | None = None

    @property
    def at_the_end(self) -> bool:
        """Whether it has read all that there is."""
        log = self.plane.log(self.place)
        return log is None or self.offset == log.ends.end

    def act(self) -> None:
        """Ask any agent for what comes next, and come again."""
        plane, agent = self.plane, self.plane.any_agent()
        if plane.closed:
            return
        self._asked += 1
        number, now = self._asked, plane.world.now

        def done(code: int, topics: Sequence[FetchedTopic]) -> None:
            if number == self._asked:
                given = topics[0].partitions[0] if code == 0 else None
                if given is not None and given.error_code == OUT_OF_RANGE:
                    self._begin_anew(now)
                    return
                if given is not None and given.error_code == 0:
                    self._take(given, now)
                self._rest(number)

        if agent is not None and agent.data is not None:
            topic, partition = plane.place(self.place)
            wanted = FetchPartition(partition, self.offset, plane.rng.choice(MAX_BYTES))
            wait = plane.rng.choice(WAITS_MS)
            agent.data.fetch(FetchRequest(-1, wait, 1, 1 << 20, self.isolation, [FetchTopic(topic, [wanted])]), done)
        plane.world.at(PATIENCE, self._rest, number)

    def _begin_anew(self, asked: int) -> None:
        """What it has asked for is not there, which is so only where the log begins behind it, or is another one."""
        plane, log, number = self.plane, self._log, self._asked
        if log is not None and plane.logs_since(self.place, asked) == [log]:
            ends = log.ends
            if ends.start <= self.offset <= ends.end and log.removed is None:
                raise Violation("wrongly-out-of-range", f"{self.offset} of place {self.place}, which is {ends}")

        def done(code: int, offset: int, timestamp: int) -> None:
            if number == self._asked:
                self.offset = offset if code == 0 else self.offset
                self._rest(number)

        if (agent := plane.any_agent()) is not None and agent.data is not None:
            agent.data.list_offsets(*plane.place(self.place), EARLIEST, self.isolation, done)

    def _rest(self, number: int) -> None:
        if number == self._asked:
            self._asked += 1
            rest = 50 if self.plane.draining else self.plane.rng.randrange(500, 4_000)
            self.plane.world.at(rest * MILLISECOND, self.act)

    def _take(self, given: FetchedPartition, asked: int) -> None:
        """What it was given is that of one of the logs that there were at that time. Raises Violation."""
        found: list[Violation] = []
        for log in self.plane.logs_since(self.place, asked - STALE):
            try:
                self._compare(log, given)
            except Violation as violation:
                found.append(violation)
            else:
                self._log = log
                return
        if found:
            raise found[0]

    def _compare(self, log: ModelLog, given: FetchedPartition) -> None:
        ends, committed = log.ends, self.isolation is IsolationLevel.READ_COMMITTED
        ordered = given.log_start_offset <= given.last_stable_offset <= given.high_watermark <= ends.end
        if not ordered or given.log_start_offset > ends.start:
            raise Violation("consumer-ends", f"{self._facts(given)}, the log is {ends}")
        batches = list(_batches(b"".join(map(bytes, given.records))))
        if not batches:
            return
        below = batches[-1][0].base_offset + batches[-1][0].records_count
        shown = _without_aborted(batches, given) if committed else batches
        found = [(one.base_offset, data[COVERED_FROM:]) for one, data in shown if not one.is_control]
        wanted = [(row.offset, row.covered) for row in log.visible(self.offset, below, committed=committed)]
        limit = given.last_stable_offset if committed else given.high_watermark
        if found != wanted or below > limit:
            offsets = [offset for offset, _ in found], [offset for offset, _ in wanted]
            facts = f"{self._facts(given)}: read to {below} at {offsets[0]}, not {offsets[1]}"
            raise Violation("consumer-reads", facts)
        self.read += len(found)
        self.offset = below

    def _facts(self, given: FetchedPartition) -> str:
        ends = f"high watermark {given.high_watermark}, last stable {given.last_stable_offset}"
        return f"{self.isolation.name} of place {self.place} from {self.offset} on, {ends}"


def _batches(data: bytes) -> Iterator[tuple[BatchHeader, bytes]]:
    """Each batch with its header."""
    view = memoryview(data)
    while view:
        header = read_batch_header(view)
        yield header, bytes(view[: header.size])
        view = view[header.size :]


def _without_aborted(
    batches: Sequence[tuple[BatchHeader, bytes]], given: FetchedPartition
) -> list[tuple[BatchHeader, bytes]]:
    """What a client shows of them that reads committed records."""
    coming = sorted((one.first_offset, one.producer_id) for one in given.aborted_transactions or ())
    aborted: set[int] = set()
    shown = []
    for header, data in batches:
        while coming and coming[0][0] <= header.base_offset:
            aborted.add(coming.pop(0)[1])
        if header.is_control:
            aborted.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in aborted):
            shown.append((header, data))
    return shown
