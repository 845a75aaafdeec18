"""Sound partition logs of which the older part was rolled into segments, as an agent builds these."""

from __future__ import annotations

from typing import Final, NamedTuple

from pidkeeper.broker_agent.data.segment_building import SegmentBuilder
from pidkeeper.broker_agent.data.segment_index import decode_index
from pidkeeper.broker_agent.data.selecting import marker_batch
from pidkeeper.broker_agent.kafka.wire.data.record_batch import with_base_offset
from pidkeeper.controller.state import requests
from pidkeeper.controller.state.logs.partition_log import PartitionLog
from pidkeeper.protocol.log_messages import AbortedTransaction, Marker
from pidkeeper.protocol.logs import ObjectId
from pidkeeper.protocol.segments import SegmentName, index_path
from tests.support.log_state import FOUNDING, end, join, log_of
from tests.support.sound_logs import IDS, ORDERS, PAYMENTS, SoundLogs, data, history

APP: Final = (2 * IDS, 0)
"""The transactional producer of `history`."""
ROLLED_OFFSETS: Final = 13 + 10 + 6
"""Of all logs, from where each begins."""
BATCHES: Final = 7 + 7 + 4
"""In segments, control batches included."""


class Rolled(NamedTuple):
    """The names of a segment and of its index in the store."""

    log: str
    sparse: str


def roll(made: SoundLogs, log: int, end_offset: int, *, base_offset: int | None = None) -> Rolled:
    """Broker 1 rolls a log up to an offset: its tail, and the segments from `base_offset` on."""
    state = log_of(made.machine, log)
    first = state.tail_start if base_offset is None else base_offset
    builder = SegmentBuilder(first)
    aborted = {
        AbortedTransaction(one.producer_id, one.first_offset, one.marker_offset)
        for one in state.aborted_between(first, end_offset)
    }
    for older in (one for one in state.segments if one.base_offset >= first):
        older_path = made.machine.logs.objects.path(older.key)
        builder.add(made.objects[older_path])
        # The quorum knows no more of these.
        aborted.update(decode_index(made.objects[index_path(older_path)]).aborted)
    for _, piece in sorted(_rows(made, state, end_offset)):
        builder.add(piece)
    built = builder.finish(aborted)
    object_id = ObjectId(1, made.epochs[1], _next_number(made))
    name = SegmentName(state.topic.name, state.partition, first)
    replaces = state.covered(first, end_offset)
    assert replaces is not None and built.end_offset == end_offset
    sizes = built.size, len(built.sparse), built.max_timestamp
    asked = requests.CommitSegment(object_id, FOUNDING, log, name, end_offset, *sizes, replaces)
    assert made.ask(asked).joined
    path = name.path(object_id, FOUNDING)
    made.objects |= {path: b"".join(built.pieces), index_path(path): built.sparse}
    return Rolled(path, index_path(path))


def _next_number(made: SoundLogs) -> int:
    last = made.machine.logs.last_roll(1)
    return 0 if last is None else last.number + 1


def _rows(made: SoundLogs, state: PartitionLog, end_offset: int) -> list[tuple[int, bytes]]:
    """Offset and bytes of the tail's batches and markers below an offset."""
    rows = [(one.offset, marker_batch(Marker(*one))) for one in state.markers_from(0, end_offset, 1 << 20)]
    for row in state.batches_from(0, end_offset, 1 << 20):
        content = made.objects[made.machine.logs.objects.path(row.key)][row.position : row.position + row.size]
        rows.append((row.base_offset, with_base_offset(content, row.base_offset)))
    return rows


def rolled_history() -> SoundLogs:
    """`history`, more of it, and rolls; a third snapshot is between two of these.

    `orders-0` has segments from 0 and 5 to 13, and a tail whose marker aborts what began in the second one; `orders-1`,
    from 0, 8, 9 and 10 to 12, with a marker alone in the second one and a transaction across the last two, and begins
    at 2 now; `payments-0`, from 0 to 6, of which
    a part was in a segment before. Objects that no log needs are gone but for that segment.
    """
    made = history()
    made.ask(join("app", APP, "orders", 0))
    made.commit(1, (ORDERS, data(APP, 2, 2, True)))
    made.commit(2, (ORDERS, data((0, 0), 8, 1)))
    made.ask(end("app", APP, committed=False))
    made.commit(2, (ORDERS, data((0, 0), 9, 1)))
    made.ask(join("app", APP, "orders", 1))
    made.commit(1, (ORDERS + 1, data(APP, 3, 1, True)))
    made.commit(1, (ORDERS + 1, data(APP, 4, 1, True)))
    made.ask(end("app", APP, committed=False))
    roll(made, ORDERS, 5)
    roll(made, ORDERS + 1, 8)
    roll(made, PAYMENTS, 4)
    made.snapshot()
    roll(made, ORDERS, 13)
    for reach in (9, 10, 12):
        roll(made, ORDERS + 1, reach)
    roll(made, PAYMENTS, 6, base_offset=0)
    made.ask(requests.DeleteRecords((1, made.epochs[1]), ((ORDERS + 1, 2),)))
    made.commit(2, (ORDERS, data((0, 0), 10, 1)))
    objects = made.machine.logs.objects
    for path in map(objects.path, objects.garbage):
        if path.startswith("wal/"):
            del made.objects[path]
    return made


def segments(made: SoundLogs, log: int) -> list[Rolled]:
    """Those that a log reads from, by offset."""
    paths = [made.machine.logs.objects.path(one.key) for one in log_of(made.machine, log).segments]
    return [Rolled(path, index_path(path)) for path in paths]
