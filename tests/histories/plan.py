"""The settings of one history. Most faults are absent from most histories, as in the simulation (`swarm.py`); what
logs become is present in nearly all, each with thresholds so small that it happens within seconds.
"""

from __future__ import annotations

import random
from typing import Final

import msgspec

from pidkeeper.controller.node.settings import DEFAULT_SNAPSHOT_BYTES
from pidkeeper.controller.state.transitions import MAX_EPOCH
from pidkeeper.protocol.logs import UNLIMITED
from pidkeeper.protocol.metadata_version import LATEST
from tests.simulation.data_plane import DataLoad
from tests.simulation.drawn import Drawn
from tests.simulation.expiry import Crowding
from tests.simulation.object_store import StoreFaults
from tests.simulation.producer import WEEK_MS, Transactional
from tests.simulation.swarm import Migrating, Swarm
from tests.simulation.world import MILLISECOND, SECOND, World

POINTS: Final = (
    "put",
    "commit",
    "roll_put",
    "roll_commit",
    "collect",
    "collected",
    "sweep",
)
"""Where an agent may die: as it puts an object, with that in the store as it asks for its commit, or while the answer
is on its way; likewise with a segment; as it deletes garbage, and before it has told so; as it deletes orphans."""

MEMBER_FAULTS: Final = {"kill": 2.0, "power_cut": 2.0, "pause": 2.0, "graceful_restart": 1.0}
"""Of the nemesis, for any number of members."""

LINK_FAULTS: Final = {"isolate_leader": 2.0, "partition_one_way": 1.0, "transfer": 2.0, "reset_links": 1.0}
"""Where there are three."""

TURMOIL: Final = (6 * SECOND, 9 * SECOND)
"""How long faults go on."""


class Plan(msgspec.Struct, frozen=True):
    """Of one history, beside what a cluster is made with. Times in microseconds; shares of one.

    `agents`: faults of agents come so often on the average, 0 for never. `kills`: the share of agents' passages of each
    of `POINTS` at which one dies. `topics`: one is deleted so often, and created anew. `records`: DeleteRecords comes
    so often. `retention_ms`, `retention_bytes`: what topics may have. `restored`: a backup is taken at that moment, and
    put in the quorum's place at the other; None for never. If it `rolls_eagerly`, all agents roll what any
    of them ought to, and likewise all of them collect. `clocks`: wall clocks jump, for so short a time that no
    duty that goes by one finds it ahead twice. `max_epoch`: the highest of a producer, behind which it has another ID.
    """

    agents: int
    kills: dict[str, float]
    topics: int
    records: int
    retention_ms: tuple[int, ...]
    retention_bytes: tuple[int, ...]
    restored: tuple[int, int] | None
    rolls_eagerly: bool
    collects_eagerly: bool
    clocks: bool
    max_epoch: int


def draw_plan(rng: random.Random) -> Plan:
    """Of one history."""
    chosen = rng.sample(POINTS, rng.choice((0, 1, 2, 3)))
    backup = rng.randrange(2_000, 4_000) * MILLISECOND
    lost = backup + rng.randrange(500, 2_000) * MILLISECOND
    return Plan(
        agents=rng.choice((0, 1, 2, 4)) * SECOND,
        kills={point: rng.choice((0.03, 0.1)) if point in {"put", "commit"} else 0.3 for point in chosen},
        topics=rng.choice((0, 0, 2, 4)) * SECOND,
        records=rng.choice((0, 400, 1_000)) * MILLISECOND,
        retention_ms=rng.choice(((UNLIMITED,), (1_000, 3_000), (UNLIMITED, 800))),
        retention_bytes=rng.choice(((UNLIMITED,), (1_000, 4_000), (UNLIMITED, 300))),
        restored=(backup, lost) if rng.random() < 0.25 else None,
        rolls_eagerly=rng.random() < 0.4,
        collects_eagerly=rng.random() < 0.3,
        clocks=rng.random() < 0.5,
        max_epoch=rng.choice((2, 10, MAX_EPOCH)),
    )


def draw(world: World) -> Drawn:
    """What the cluster of one history is made with."""
    rng = world.stream("history")
    return Drawn(_load(rng, world.stream("epochs")), NO_ZOOKEEPER, _swarm(rng), TRANSACTIONAL, NO_CROWD)


def _load(rng: random.Random, epochs: random.Random) -> DataLoad:
    return DataLoad(
        partitions=rng.choice((1, 1, 2)),
        plain=rng.choice((1, 1, 2)),
        idempotent=rng.choice((1, 2, 3)),
        transactional=rng.choice((0, 1, 1, 2)),
        think_time=rng.choice((40, 80, 160)) * MILLISECOND,
        instance_time=rng.choice((3, 8)) * SECOND,
        timeouts_ms=rng.choice(((1_500,), (500, 1_500))),
        strangers=rng.choice((0.0, 0.0, 0.1)),
        lost=rng.choice((0.0, 0.02, 0.1)),
        late=rng.choice((0.0, 0.0, 0.05, 0.15)),
        newest=True,
        faults=_store_faults(rng),
        roll_rows=rng.choice((2, 4, 10)),
        roll_age_ms=rng.choice((300, 1_000)),
        segment_bytes=rng.choice((400, 2_000, 1 << 20)),
        garbage_ms=rng.choice((200, 600)),
        own_epochs=epochs.choice((0.0, 0.3, 1.0)),
        topics=rng.choice((1, 2)),
        retention_check_ms=rng.choice((200, 500)),
        expiration_ms=rng.choice((700, 1_500, 24 * 3_600_000)),
    )


def _store_faults(rng: random.Random) -> StoreFaults:
    return StoreFaults(
        delay=rng.choice((1, 3, 10, 30)) * MILLISECOND,
        slow=rng.choice((0.0, 0.02, 0.1)),
        failing=rng.choice((0.0, 0.02, 0.15)),
        lost=rng.choice((0.0, 0.02, 0.1)),
        late=rng.choice((0.0, 0.02, 0.1)),
        pauses=rng.choice((0, 0, 4)) * SECOND,
    )


def _swarm(rng: random.Random) -> Swarm:
    members = rng.choice((1, 1, 1, 3))
    weights = {kind: weight * rng.choice((0, 0, 1)) for kind, weight in MEMBER_FAULTS.items()}
    if members > 1:
        weights |= {kind: weight * rng.choice((0, 1)) for kind, weight in LINK_FAULTS.items()}
    return Swarm(
        members=members,
        spares=0,
        agents=rng.choice((2, 2, 3)),
        clients=0,
        block_size=50,
        safety_time=rng.randrange(*TURMOIL),
        think_time=SECOND,
        burst=1,
        claims_per_second=0,
        reserve_blocks=1,
        floor_rate=0.0,
        delay=rng.choice((200, 1_000, 3_000)),
        drop=rng.choice((0.0, 0.0, 0.01)),
        duplicate=0.0,
        reorder=0.0,
        spike=0.0,
        stale_delivery=False,
        disk_delay=rng.choice((200, 1_000, 5_000)),
        segment_bytes=32_768,
        snapshot_entries=rng.choice((20, 80, 100_000)),
        snapshot_allocations=100_000,
        snapshot_bytes=DEFAULT_SNAPSHOT_BYTES,
        heartbeat_ticks=5,
        election_ticks=20,
        link_lost_ticks=2,
        session_ticks=rng.choice((100, 200)),
        founding_hearing_ms=0,
        chunk_bytes=65_536,
        max_inflight=64,
        max_append_bytes=262_144,
        promotion_lag=30,
        first_build=LATEST,
        clock_rates=(1.0,) * members,
        fault_interval=rng.choice((1_000, 2_000, 4_000)) * MILLISECOND,
        weights=weights,
    )


NO_ZOOKEEPER: Final = Migrating(
    present=False,
    bridge=False,
    absent=True,
    before=-1,
    foreign=False,
    brokers=1,
    think=SECOND,
    delay=MILLISECOND,
    timeout=SECOND,
    detection=SECOND,
    unknown=0.0,
    order_interval=SECOND,
    finalize_from=60 * SECOND,
    weights={"kill_point": 0.0},
    first_build=LATEST,
    kafka_blocks=False,
)

TRANSACTIONAL: Final = Transactional(
    ids=0,
    think_time=SECOND,
    instance_time=SECOND,
    timeouts_ms=(2_000,),
    max_epoch=MAX_EPOCH,
    marker_delay=0,
    abort_check_ms=200,
    forget_check_ms=3_600_000,
    expiration_ms=WEEK_MS,
    fresh=0.0,
    init_share=0.0,
    late=0.0,
    at_once=1,
    liars=0.0,
    old_agents=0.0,
    own_epochs=0.0,
)
"""Producers are those of the data plane; those of the simulation write nothing."""

NO_CROWD: Final = Crowding(0, 1_000, 10_000)
