"""From evidence to findings: all checks of the quorum, on the driver's connection."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from pidkeeper.pipeline.limits import DEFAULT, Limits
from pidkeeper.pipeline.quorum import copies, coverage, epochs, identity, memory, order, rates, snapshots
from pidkeeper.pipeline.quorum.texts import add_macros

CHECKS: Final = (
    "identity",
    "overlap",
    "regress",
    "gap",
    "replicas_disagree",
    "epoch_regress",
    "stale_epoch",
    "coverage",
    "memory",
    "snapshot_behind",
    "storm",
    "burn_down",
    "quota",
)
"""In the order in which a report shows them."""
ADRIFT_SQL: Final = """
create temp table blocks_adrift as
select first_id, last_id, null::bigint as "offset", broker_id, broker_epoch, timestamp_ms,
    count(distinct member_id) as members, 1 as version, min(place) as place,
    day_of(timestamp_ms) as day
from adrift a
where not exists (from blocks_in_order b where b.first_id = a.first_id and b.last_id = a.last_id
    and b.broker_id = a.broker_id and b.broker_epoch = a.broker_epoch and b.timestamp_ms = a.timestamp_ms)
group by first_id, last_id, broker_id, broker_epoch, timestamp_ms
"""
"""Blocks whose offset no copy tells: a log lacks them where it starts behind the last snapshot beside it."""


class Concluded(NamedTuple):
    """What the members' files hold, and the numbers of those that were left out as foreign."""

    held: Sequence[coverage.Held]
    foreign: list[int]


def conclude(con: Any, limits: Limits = DEFAULT) -> Concluded:
    """Insert the findings of CHECKS.

    The connection has the tables `files`, `members`, `archive_listing` and `findings`, the evidence of `quorum`, and
    the blocks of all shards as `blocks_in_order`.
    """
    add_macros(con)
    foreign = identity.foreign_members(identity.known_of(con))
    others = [one.member_id for one in foreign]
    held = coverage.held_of(con, others)
    con.execute(ADRIFT_SQL)
    con.execute("create temp view blocks as from blocks_in_order union all by name from blocks_adrift")
    identity.conclude(con, foreign)
    order.conclude(con, others)
    copies.conclude(con, others)
    epochs.conclude(con)
    coverage.conclude(con, held)
    memory.conclude(con, others)
    snapshots.conclude(con, others)
    rates.conclude(con, limits, others)
    return Concluded(held, others)
