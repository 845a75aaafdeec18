"""What each broker took in a shard: its blocks in the order of the log, its registrations, and how fast.

A token bucket of rate r is used up by k(t) - r t above its lowest value so far, where k counts the blocks. Both can be
told of a shard alone and added up over shards: `bucket_low` is the least of k - r t before a block, `bucket_high_level`
the greatest of k - r t with it, `bucket_used` how much of the bucket was used within the shard.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pidkeeper.pipeline.engine.engine import Named
from pidkeeper.pipeline.limits import Limits
from pidkeeper.pipeline.quorum import evidence
from pidkeeper.pipeline.quorum.blocks import History, Longs
from pidkeeper.protocol.ids import OWN

MINUTE_MS: Final = 60_000
HOUR_MS: Final = 3_600_000


def judge_brokers(shard: int, history: History, limits: Limits) -> Iterator[Named]:
    """Of each broker: how many blocks, the first and the last of them, and what `storm` and `quota` need of it."""
    order = np.argsort(history.broker_id, kind="stable")
    yield from _epoch_falls(history, order)
    yield from _epochs(shard, history)
    brokers, starts = np.unique(history.broker_id[order], return_index=True)
    rows: list[dict[str, Any]] = []
    wanted: dict[str, list[int]] = {name: [] for name in ("first", "last", "bucket_high", "bucket_peak")}
    for broker, mine in zip(brokers.tolist(), np.split(order, starts[1:]), strict=True):
        if broker == OWN:
            continue
        times = history.clock_ms[mine]
        facts, places = _rates(times, limits)
        wanted["first"].append(int(mine[0]))
        wanted["last"].append(int(mine[-1]))
        for name, place in places.items():
            wanted[name].append(int(mine[place]))
        ids = {"first_id": int(history.first_id[mine].min()), "last_id": int(history.last_id[mine].max())}
        rows.append({"shard": shard, "broker_id": broker, "blocks": len(mine)} | ids | facts)
    if rows:
        columns = {name: [row[name] for row in rows] for name in rows[0]}
        columns |= {name: history.structs(places) for name, places in wanted.items()}
        yield "brokers", pa.RecordBatch.from_pydict(columns, schema=evidence.BROKERS)


def _epoch_falls(history: History, order: Longs) -> Iterator[Named]:
    """Blocks whose broker epoch is below that of the same broker's block before."""
    broker, epoch = history.broker_id[order], history.broker_epoch[order]
    falls = np.flatnonzero((broker[1:] == broker[:-1]) & (epoch[1:] < epoch[:-1]))
    if len(falls):
        found = {"block": history.structs(order[falls + 1]), "previous": history.structs(order[falls])}
        yield "epoch_falls", pa.RecordBatch.from_pydict(found, schema=evidence.EPOCH_FALLS)


def _epochs(shard: int, history: History) -> Iterator[Named]:
    """The registrations that blocks name: an epoch is the offset of one record, so no two brokers have the same."""
    pairs = np.stack([history.broker_epoch, history.broker_id])
    order = np.lexsort((history.offset, *pairs[::-1]))
    epochs, brokers = pairs[:, order]
    begins = np.ones(len(order), bool)
    begins[1:] = (epochs[1:] != epochs[:-1]) | (brokers[1:] != brokers[:-1])
    rows = order[begins]
    rows = rows[history.broker_id[rows] != OWN]
    found = {
        "shard": np.full(len(rows), shard, np.int32),
        "broker_epoch": history.broker_epoch[rows],
        "first": history.structs(rows),
    }
    yield "epochs", pa.RecordBatch.from_pydict(found, schema=evidence.EPOCHS)


def _rates(times: Longs, limits: Limits) -> tuple[dict[str, Any], dict[str, int]]:
    """The busiest minute and the token bucket, by the leaders' clocks; places are among `times`."""
    order = np.argsort(times, kind="stable")
    clock = times[order]
    within = np.arange(1, len(clock) + 1) - np.searchsorted(clock, clock - MINUTE_MS, side="right")
    busiest = int(np.argmax(within))
    taken = np.arange(1, len(clock) + 1) - clock * (limits.quota_per_second / 1000)
    used = np.rint(taken - np.minimum.accumulate(taken - 1)).astype(np.int64)
    peak, high = int(np.argmax(used)), int(np.argmax(taken))
    facts = {
        "minute_blocks": int(within[busiest]),
        "minute_ms": int(clock[busiest]),
        "bucket_low": float((taken - 1).min()),
        "bucket_high_level": float(taken[high]),
        "bucket_used": int(used[peak]),
        "from_ms": int(clock[0]),
        "to_ms": int(clock[-1]),
        "seam_ms": _seams(clock, limits).tolist(),
    }
    return facts, {"bucket_high": int(order[high]), "bucket_peak": int(order[peak])}


def _seams(clock: Longs, limits: Limits) -> Longs:
    """The times of the first and of the last minute, of which no more are needed than make a storm."""
    most = limits.storm_blocks_per_minute + 1
    head = clock[clock < clock[0] + MINUTE_MS][:most]
    tail = clock[clock > clock[-1] - MINUTE_MS][-most:]
    if len(head) + len(tail) >= len(clock):
        return clock[-2 * most :] if len(clock) > 2 * most else clock
    return np.concatenate([head, tail])


def judge_hours(shard: int, history: History) -> Iterator[Named]:
    """How many IDs went in each hour, by the leaders' clocks."""
    timed = history.timed
    hours, which = np.unique(history.clock_ms[timed] // HOUR_MS, return_inverse=True)
    ids = np.bincount(which, weights=(history.last_id - history.first_id + 1)[timed].astype(np.float64))
    blocks: npt.NDArray[np.int64] = np.bincount(which)
    found = {"shard": np.full(len(hours), shard, np.int32), "hour": hours, "ids": ids, "blocks": blocks}
    yield "hours", pa.RecordBatch.from_pydict(found, schema=evidence.HOURS)


STALE_SQL: Final = """
with newest as (
    select h.*, (select max(r.broker_epoch) from registered r
                 where r.broker_id = h.broker_id and r."offset" < h."offset") as newest
    from history h
    where h."offset" > (select min(r."offset") from registered r where r.broker_id = h.broker_id)
       or h.broker_epoch >= h."offset"
)
select {'offset': "offset", 'first_id': first_id, 'last_id': last_id, 'broker_id': broker_id,
        'broker_epoch': broker_epoch, 'timestamp_ms': timestamp_ms, 'place': place} as block, newest
from newest where broker_epoch >= "offset" or newest > broker_epoch
"""


def judge_registrations(con: Any, history: History, registered: Any) -> Iterator[Named]:
    """Blocks for an epoch that a registration before them had ended, or that cannot have existed yet.

    `registered`: broker_id, offset and broker_epoch of the registrations that members' logs still hold.
    """
    known_from = min(registered.column("offset").to_pylist(), default=None)
    in_doubt = history.broker_epoch >= history.offset
    if known_from is not None:
        in_doubt |= history.offset > known_from
    rows = np.flatnonzero(in_doubt)
    if len(rows):
        con.register("history", history.table.take(pa.array(rows)))
        con.register("registered", registered)
        for batch in con.sql(STALE_SQL).to_arrow_table().cast(evidence.STALE_EPOCHS).to_batches():
            yield "stale_epochs", batch
        con.unregister("history")
        con.unregister("registered")
