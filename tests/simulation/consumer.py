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
from tests.simulation.log_model import ModelLog
from tests.simulation.sent_batches import COVERED_FROM
from tests.simulation.world import MILLISECOND, SECOND, Violation

if TYPE_CHECKING:
    from tests.simulation.data_plane import DataPlane

MAX_BYTES: Final = (1, 500, 1 << 20)
WAITS_MS: Final = (0, 500)
PATIENCE: Final = 4 * SECOND
"""Until a consumer asks again whose agent died."""


class Consumer:
    """Reads one partition from the start on. `read`: batches that it was given."""

    def __init__(self, plane: DataPlane, partition: int, isolation: IsolationLevel) -> None:
        self.plane = plane
        self.partition = partition
        self.isolation = isolation
        self.offset = 0
        self.read = 0
        self._asked = 0

    @property
    def at_the_end(self) -> bool:
        """Whether it has read all that there is."""
        log = self.plane.log(self.partition)
        return log is None or self.offset == log.ends.end

    def act(self) -> None:
        """Ask any agent for what comes next, and come again."""
        plane, agent = self.plane, self.plane.any_agent()
        if plane.closed:
            return
        self._asked += 1
        number = self._asked

        def done(code: int, topics: Sequence[FetchedTopic]) -> None:
            if number == self._asked:
                if code == 0:
                    self._take(topics[0].partitions[0])
                self._rest(number)

        if agent is not None and agent.data is not None:
            wanted = FetchPartition(self.partition, self.offset, plane.rng.choice(MAX_BYTES))
            wait = plane.rng.choice(WAITS_MS)
            topics = [FetchTopic(plane.topic, [wanted])]
            agent.data.fetch(FetchRequest(-1, wait, 1, 1 << 20, self.isolation, topics), done)
        plane.world.at(PATIENCE, self._rest, number)

    def _rest(self, number: int) -> None:
        if number == self._asked:
            self._asked += 1
            rest = 50 if self.plane.draining else self.plane.rng.randrange(500, 4_000)
            self.plane.world.at(rest * MILLISECOND, self.act)

    def _take(self, given: FetchedPartition) -> None:
        log = self.plane.log(self.partition)
        if given.error_code or log is None:
            return
        ends = log.ends
        if not given.last_stable_offset <= given.high_watermark <= ends.end:
            raise Violation("consumer-ends", f"{self._facts(given)}, the log is {ends}")
        committed = self.isolation is IsolationLevel.READ_COMMITTED
        batches = list(_batches(b"".join(map(bytes, given.records))))
        if not batches:
            return
        below = batches[-1][0].base_offset + batches[-1][0].records_count
        shown = _without_aborted(batches, given) if committed else batches
        found = [(one.base_offset, data[COVERED_FROM:]) for one, data in shown if not one.is_control]
        self._compare(log, found, below, given, committed=committed)
        self.read += len(found)
        self.offset = below

    def _compare(
        self, log: ModelLog, found: list[tuple[int, bytes]], below: int, given: FetchedPartition, *, committed: bool
    ) -> None:
        wanted = [(row.offset, row.covered) for row in log.visible(self.offset, below, committed=committed)]
        limit = given.last_stable_offset if committed else given.high_watermark
        if found != wanted or below > limit:
            offsets = [offset for offset, _ in found], [offset for offset, _ in wanted]
            raise Violation(
                "consumer-reads", f"{self._facts(given)}: read to {below} at {offsets[0]}, not {offsets[1]}"
            )

    def _facts(self, given: FetchedPartition) -> str:
        ends = f"high watermark {given.high_watermark}, last stable {given.last_stable_offset}"
        return f"{self.isolation.name} of partition {self.partition} from {self.offset} on, {ends}"


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
