"""The settings of one seed. Each is drawn anew, and most faults are absent from most seeds: uniform mixtures of
everything hide what needs one fault often and another never ("swarm testing", Groce et al., ISSTA 2012).
"""

from __future__ import annotations

import json
import random

import msgspec

from pidkeeper.controller.node.settings import DEFAULT_SNAPSHOT_BYTES
from pidkeeper.protocol.metadata_version import ADDED_PARTITIONS, BASE, LATEST, TRANSACTIONS
from tests.simulation.world import MILLISECOND, SECOND

MEMBER_FAULTS = {
    "kill": 3.0,
    "power_cut": 3.0,
    "power_cut_all": 0.7,
    "kill_all": 0.5,
    "pause": 2.0,
    "partition": 2.0,
    "partition_one_way": 2.0,
    "isolate_leader": 1.5,
    "reset_links": 1.5,
    "transfer": 2.0,
    "rolling_restart": 0.5,
    "graceful_restart": 1.0,
    "disk_slow": 1.5,
    "disk_full": 1.0,
    "disk_sync_error": 1.0,
    "disk_write_error": 0.7,
    "disk_open_error": 0.5,
    "disk_read_error": 0.5,
    "disk_flip": 1.5,
    "disk_misdirected_write": 1.0,
    "disk_replaced": 1.5,
    "crash_at_open": 1.0,
    "clock_jump": 0.7,
}
"""What befalls a whole member, a link or a disk, and how often beside each other. Messages have rates of their own."""

CHANGES = {
    "add_voter": 3.0,
    "remove_voter": 3.0,
    "replace_member": 2.0,
}
"""What operators do to the quorum. They are counted when they are done."""

FORGETTING = {
    "disk_rolled_back": 4.0,
    "disk_stale_read": 3.0,
}
"""What a member cannot notice at once. Few moments are fit for it (`Budget.may_forget`), so it is tried often."""

SLOW_DISKS = {
    "disk_hang": 2.0,
    "disk_slow_all": 1.0,
}
"""Disks that answer late, and without an error: of a leader mostly, or of all members alike."""

ZOOKEEPER_FAULTS = {
    "zookeeper_away": 1.0,
    "zookeeper_cut_off": 1.5,
    "zookeeper_slow": 1.0,
    "kill_point": 3.0,
}
"""What befalls ZooKeeper, and leaders in the midst of a step. Calls have rates of their own."""

MISTRUSTED = {
    "files_edited": 3.0,
    "term_forged": 2.0,
    "alone_in_its_file": 4.0,
}
"""What nobody has a reason to believe: files that were edited, and a faulty member. Each in a third of the seeds. The
last one needs disks of a build without foundings, so it is tried more often."""

UPGRADES = {
    "upgrade": 3.0,
}
"""Of builds, in the seeds that begin with an old one; in half of these often."""

MAX_SPARES = 2
"""Members beyond the first voters: machines that stand ready to be added."""


class Swarm(msgspec.Struct, frozen=True):
    """Times in microseconds, rates as fractions. See `draw` for the ranges."""

    members: int
    spares: int
    agents: int
    clients: int
    block_size: int
    safety_time: int
    # Load.
    think_time: int
    burst: int
    claims_per_second: int
    reserve_blocks: int
    floor_rate: float
    # Network.
    delay: int
    drop: float
    duplicate: float
    reorder: float
    spike: float
    stale_delivery: bool
    # Disk.
    disk_delay: int
    segment_bytes: int
    # Member.
    snapshot_entries: int
    snapshot_allocations: int
    snapshot_bytes: int
    heartbeat_ticks: int
    election_ticks: int
    link_lost_ticks: int
    session_ticks: int
    founding_hearing_ms: int
    chunk_bytes: int
    max_inflight: int
    max_append_bytes: int
    promotion_lag: int
    first_build: int
    clock_rates: tuple[float, ...]
    # Faults.
    fault_interval: int
    weights: dict[str, float]


SLOW_ROUND = 5 * MILLISECOND
"""A chunk's way to a member, onto its disk and back, from where on it counts beside the tenths of a second between two
snapshots."""

SLOW_ROUND_CHUNK = 65_536
"""The chunks of such seeds. The state grows to a hundred times what is logged between two snapshots of the smallest
interval, so transfers in small chunks would never end within one, and then they start over (decision 0023)."""


def draw(rng: random.Random) -> Swarm:
    """Settings for one seed."""
    swarm = _drawn(rng)
    if 2 * swarm.delay + swarm.disk_delay > SLOW_ROUND:
        return msgspec.structs.replace(swarm, chunk_bytes=SLOW_ROUND_CHUNK)
    return swarm


def _drawn(rng: random.Random) -> Swarm:
    members = 3 if rng.random() < 0.8 else 5
    block_size = rng.choice((10, 20, 50))
    heartbeat = rng.choice((5, 8, 12))
    chosen = {kind: weight * rng.choice((0, 0, 1, 1, 3)) for kind, weight in MEMBER_FAULTS.items()}
    if not any(chosen.values()):
        chosen = dict(MEMBER_FAULTS)
    lossy = rng.random() < 0.6
    # The quorum changes in a third of the seeds, and then often.
    first_build = rng.choice((BASE, ADDED_PARTITIONS, LATEST))
    if first_build < LATEST:
        chosen |= {kind: weight * rng.choice((1, 3)) for kind, weight in UPGRADES.items()}
    spares = rng.choice((0, 0, 0, 0, 1, MAX_SPARES))
    if spares:
        chosen |= {kind: weight * rng.choice((1, 1, 3)) for kind, weight in CHANGES.items()}
    chosen |= {kind: weight * rng.choice((0, 1, 2)) for kind, weight in FORGETTING.items()}
    return Swarm(
        members=members,
        spares=spares,
        agents=rng.randint(3, 5),
        clients=rng.randint(3, 5),
        block_size=block_size,
        safety_time=50 * SECOND,
        think_time=rng.choice((500, 800, 1_200)) * MILLISECOND,
        burst=rng.choice((8, 16, 28)),
        claims_per_second=block_size * rng.randint(1, 4),
        reserve_blocks=rng.randint(2, 8),
        floor_rate=rng.choice((0.0, 0.002, 0.02)),
        delay=rng.choice((100, 300, 1_000, 1_000, 5_000)),
        drop=rng.choice((0.0, 0.005, 0.02, 0.1)) if lossy else 0.0,
        duplicate=rng.choice((0.0, 0.01, 0.1)) if lossy else 0.0,
        reorder=rng.choice((0.0, 0.01, 0.1)) if lossy else 0.0,
        spike=rng.choice((0.0, 0.0, 0.002, 0.01)),
        stale_delivery=rng.random() < 0.5,
        disk_delay=rng.choice((100, 500, 2_000, 2_000, 10_000)),
        segment_bytes=rng.choice((2_048, 8_192, 32_768)),
        snapshot_entries=rng.choice((15, 40, 100, 250)),
        snapshot_allocations=rng.choice((30, 100, 100_000)),
        snapshot_bytes=rng.choice((3_000, 20_000, DEFAULT_SNAPSHOT_BYTES)),
        heartbeat_ticks=heartbeat,
        election_ticks=heartbeat * rng.choice((4, 6)),
        link_lost_ticks=rng.choice((0, 2, 4, 10)),
        session_ticks=rng.choice((100, 300)),
        chunk_bytes=rng.choice((8_192, 16_384, 65_536)),
        max_inflight=rng.choice((1, 4, 64)),
        max_append_bytes=rng.choice((200, 5_000, 262_144)),
        first_build=first_build,
        promotion_lag=rng.choice((3, 30, 1_024)),
        clock_rates=tuple(rng.choice((1.0, 1.0, rng.uniform(0.6, 1.6))) for _ in range(members + spares)),
        fault_interval=rng.choice((300, 700, 1_200, 2_000, 4_000)) * MILLISECOND,
        weights=chosen,
        founding_hearing_ms=rng.choice((0, 300, 2_000)),
    )


def draw_mistrusted(rng: random.Random) -> dict[str, float]:
    """The weights of `MISTRUSTED` beside the other faults."""
    return {kind: weight * rng.choice((0, 0, 1)) for kind, weight in MISTRUSTED.items()}


def draw_slow_disks(rng: random.Random) -> dict[str, float]:
    """The weights of slow disks for one seed."""
    return {kind: weight * rng.choice((0, 0, 1, 3)) for kind, weight in SLOW_DISKS.items()}


class Migrating(msgspec.Struct, frozen=True):
    """The settings of ZooKeeper, of the old brokers and of the operators' orders. Times in microseconds.

    `bridge`: the quorum begins in ZooKeeper; else nobody asks it for IDs until the migration was started.
    `absent`: there is no znode until an old broker makes one. `before`: the last ID that was handed out by others, -1
    for none; `foreign`: another quorum wrote that, else a broker. `unknown`: calls whose caller hears nothing.
    `kafka_blocks`: the quorum's blocks are as long as the old brokers'.
    """

    present: bool
    bridge: bool
    absent: bool
    before: int
    foreign: bool
    brokers: int
    think: int
    delay: int
    timeout: int
    detection: int
    unknown: float
    order_interval: int
    finalize_from: int
    weights: dict[str, float]
    first_build: int
    kafka_blocks: bool

    def initial(self) -> bytes | None:
        """The data of the znode at the beginning."""
        if self.before < 0:
            return None
        block = {"version": 1, "broker": -1 if self.foreign else 7, "block_start": str(max(0, self.before - 999))}
        fields = {**block, "block_end": str(self.before)}
        if self.foreign:
            fields["claimed_by"] = "pidkeeper/simulated-cluster/before"
        return json.dumps(fields).encode()


def draw_migrating(rng: random.Random) -> Migrating:
    """Settings for one seed; ZooKeeper is there in two of five."""
    absent = rng.random() < 0.15
    weights = {kind: weight * rng.choice((0, 1, 1, 3)) for kind, weight in ZOOKEEPER_FAULTS.items()}
    return Migrating(
        present=rng.random() < 0.4,
        bridge=rng.random() < 0.8,
        absent=absent,
        before=-1 if absent else rng.choice((-1, 999, rng.randrange(1, 100_000))),
        foreign=rng.random() < 0.4,
        brokers=rng.choice((1, 1, 2, 3)),
        think=rng.choice((10, 30, 100, 300)) * MILLISECOND,
        delay=rng.choice((300, 1_000, 3_000, 15_000)),
        timeout=rng.choice((50, 150, 600)) * MILLISECOND,
        detection=rng.choice((10, 100, 500)) * MILLISECOND,
        unknown=rng.choice((0.0, 0.01, 0.05, 0.2)),
        order_interval=rng.choice((200, 500, 1_500, 4_000)) * MILLISECOND,
        finalize_from=rng.choice((5, 10, 20, 35, 60)) * SECOND,
        weights=weights,
        first_build=rng.choice((BASE, TRANSACTIONS)),
        kafka_blocks=rng.random() < 0.3,
    )
