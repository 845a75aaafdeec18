"""What rolls logs, beside what serves Fetch, over a store and a leader in memory."""

from __future__ import annotations

from typing import Any, Final

from pidkeeper.broker_agent.coordinator.directory import Directory, Node
from pidkeeper.broker_agent.data.counters import Counters
from pidkeeper.broker_agent.data.leading import Leaders
from pidkeeper.broker_agent.data.roll_gathering import TailReader
from pidkeeper.broker_agent.data.roll_making import SegmentMaker
from pidkeeper.broker_agent.data.rolling import Roller
from pidkeeper.broker_agent.data.segment_writing import SegmentWriter
from pidkeeper.broker_agent.kafka.wire.data.isolation import IsolationLevel
from pidkeeper.broker_agent.kafka.wire.data.record_batch import check_crc
from pidkeeper.broker_agent.kafka.wire.data.records import Aborted
from pidkeeper.protocol.segment_messages import StoredSegment
from tests.support.data_parts import RNG, StubRegistration, records
from tests.support.fetch_rig import FetchRig
from tests.support.split_batches import split_batches

BOTH_LEVELS: Final = (IsolationLevel.READ_UNCOMMITTED, IsolationLevel.READ_COMMITTED)


class RollRig(FetchRig):
    """Agent 7 rolls; `counters` are of what it does."""

    def __init__(self, *, segment_bytes: int = 8 << 20, **options: Any) -> None:
        super().__init__(retry_seconds=0.001, **options)
        self.leader.segment_bytes = segment_bytes
        self.directory = Directory(Node(7, "agent-7", 9092))
        self.roller = self.new_roller(self.session)
        self._open: dict[str, tuple[int, int]] = {}
        self._sequences: dict[tuple[int, int, int], int] = {}

    def new_roller(self, session: StubRegistration, counters: Counters | None = None) -> Roller:
        """Another one."""
        writer = SegmentWriter(self.store, self.leader, session, self.discarder, RNG, retry_seconds=0.001)
        maker = SegmentMaker(TailReader(self.leader, self.reader), self.segments)
        leaders = Leaders(self.directory)
        return Roller(self.leader, session, self.topics, leaders, maker, writer, counters or self.counters, RNG)

    def kept_segments(self, log: int = 0) -> list[StoredSegment]:
        """Those of a log."""
        found = self.leader.machine.logs.log(log)
        assert found is not None
        return [StoredSegment(*one) for one in found.segments]

    def names(self, log: int = 0) -> list[str]:
        """The objects of its segments."""
        objects = self.leader.machine.logs.objects
        return [objects.path(one.object) for one in self.kept_segments(log)]

    # A history.

    async def write(self, values: tuple[bytes, ...] = (b"v",), name: str | None = None, log: int = 0) -> None:
        """One batch, in a transaction of `name` if there is one; it begins where none is open."""
        if name is None:
            await self.append(records(-1, values), log=log)
            return
        if name not in self._open:
            self._open[name] = self.leader.begin(name, "t", 0, 1, 2)
        producer_id, epoch = self._open[name]
        place = producer_id, epoch, log
        sequence = self._sequences.get(place, 0)
        data = records(sequence, values, producer_id=producer_id, epoch=epoch, transactional=True)
        (outcome,) = await self.append(data, log=log, transactional=True)
        assert outcome >= 0
        self._sequences[place] = sequence + len(values)

    def end(self, name: str, *, committed: bool) -> None:
        """The transaction of a name, if it has one open."""
        if self._open.pop(name, None) is not None:
            self.leader.end(name, committed=committed)

    # What consumers see.

    async def everything(
        self, level: IsolationLevel, part_bytes: int, start: int = 0, log: int = 0, most: int = 1000
    ) -> list[bytes]:
        """The batches from an offset on, as they come in many answers; of READ_COMMITTED those that are shown."""
        found: list[bytes] = []
        offset = start
        while True:
            (one,) = await self.fetch((log, offset), level=level, part_bytes=part_bytes)
            assert one.error_code == 0, one
            data = b"".join(one.records)
            headers = split_batches(data)
            if not headers or len(found) >= most:
                return found[:most]
            assert headers[0].base_offset <= offset <= headers[0].last_offset
            aborted = Aborted(one.aborted_transactions or ())
            for header in headers:
                check_crc(data, header)
                if not aborted.has(header):
                    found.append(data[header.position : header.end])
                if header.is_control:
                    aborted.end(header.producer_id)
            offset = headers[-1].last_offset + 1
