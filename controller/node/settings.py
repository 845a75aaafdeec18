"""What one member is told about itself and its quorum."""

from __future__ import annotations

from typing import Final

import msgspec

from pidkeeper.protocol.addresses import HostPort


class Voter(msgspec.Struct, frozen=True):
    """One voter: where its peer links listen, and the base URL of its HTTP interface."""

    id: int
    peer: HostPort
    http: str


class Timing(msgspec.Struct, frozen=True):
    """All timeouts of consensus together.

    The election timeout is drawn from [base, 2 x base). `link_lost_ms`: how far apart the followers of a leader whose
    connections broke try to succeed it; an election takes a few milliseconds and a fdatasync on each side.
    """

    tick_ms: int
    heartbeat_ms: int
    election_timeout_ms: int
    link_lost_ms: int

    def ticks(self, milliseconds: int) -> int:
        """The number of ticks that last at least `milliseconds`."""
        return -(-milliseconds // self.tick_ms)


PROFILES: Final = {
    # Elections of 300-600 ms are ten heartbeats: a scheduling pause of some heartbeats does not cost leadership.
    "lan": Timing(tick_ms=10, heartbeat_ms=50, election_timeout_ms=300, link_lost_ms=30),
    # Round trips of up to 100 ms between members.
    "wan": Timing(tick_ms=10, heartbeat_ms=250, election_timeout_ms=1500, link_lost_ms=300),
}


DEFAULT_SNAPSHOT_BYTES: Final = 32 * 1024 * 1024
"""Of the log between two snapshots. With what stays behind a snapshot, and what comes while it is taken, the log is at
most twice as long on disk and in memory; a start reads it in less than a second."""


class ZooKeeperSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How ZooKeeper is reached. `digest`: user:password of its digest authentication, None without it."""

    connect: str
    session_timeout_ms: int
    request_timeout_ms: int
    digest: str | None


class SegmentSettings(msgspec.Struct, frozen=True):
    """A tail is rolled with `rows` batches and markers, with `tail_bytes`, or once its first row is `age_ms` old.

    `segment_bytes`: how large agents make a segment. `retention_check_ms`: between two looks at the retention of a log
    (Kafka's `log.retention.check.interval.ms`). `garbage_ms`: how long an object stays at least once no log needs it,
    twice as long as an agent reads for one answer.
    """

    rows: int = 1000
    tail_bytes: int = 8 << 20
    age_ms: int = 600_000
    segment_bytes: int = 8 << 20
    retention_check_ms: int = 300_000
    garbage_ms: int = 60_000


class MemberSettings(msgspec.Struct, frozen=True, kw_only=True):
    """See ControllerConfig for the keys.

    `voters`: those who found a blank directory, and the addresses of those who did; by rising id. This member is one of
    them, or it is `learner`. `peer_keys`: see `Identity.keys`. `certified`: peers have certificates in their place.
    `bridge`: a quorum that has handed out nothing yet begins in ZooKeeper. `founding_hearing_ms`: for how long a quorum
    that was just founded hears its brokers before it hands out its first ID.
    """

    node_id: int
    cluster_id: str
    data_dir: str
    voters: tuple[Voter, ...]
    peer_listen: HostPort
    timing: Timing
    block_size: int
    broker_session_timeout_ms: int
    founding_hearing_ms: int = 10_000
    snapshot_entries: int
    snapshot_allocations: int
    snapshot_bytes: int = DEFAULT_SNAPSHOT_BYTES
    segment_bytes: int
    peer_keys: tuple[bytes | None, ...]
    certified: bool = False
    learner: Voter | None = None
    transaction_abort_check_ms: int = 10_000
    transactional_id_expiration_ms: int = 7 * 24 * 3_600_000
    producer_id_expiration_ms: int = 24 * 3_600_000
    offsets_retention_ms: int = 7 * 24 * 3_600_000
    offsets_retention_check_ms: int = 600_000
    segments: SegmentSettings = SegmentSettings()
    zookeeper: ZooKeeperSettings | None = None
    bridge: bool = False

    def address(self) -> str:
        """Where the other members reach this one."""
        own = [voter for voter in self.voters if voter.id == self.node_id]
        return str((self.learner or own[0]).peer)
