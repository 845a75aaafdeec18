"""The configuration of one controller: `controller.toml`, overridden by `PIDKEEPER__*` variables."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec

from pidkeeper.controller.api.limits import ApiLimits
from pidkeeper.controller.migration.connect_string import check_connect
from pidkeeper.controller.node.settings import (
    DEFAULT_SNAPSHOT_BYTES,
    PROFILES,
    MemberSettings,
    SegmentSettings,
    Voter,
    ZooKeeperSettings,
)
from pidkeeper.protocol.addresses import KAFKA_SSL, AddressError, KafkaUrl
from pidkeeper.protocol.ids import DEFAULT_BLOCK_SIZE, MAX_BLOCK_SIZE
from pidkeeper.protocol.messages import ClusterId
from pidkeeper.protocol.segments import MAX_LOG_SEGMENT_BYTES, MAX_SEGMENT_ROWS
from pidkeeper.service.logs import LogFormat, LogLevel
from pidkeeper.service.protection import OFF, REQUIRED, Level, Protection, check_urls, load_protection
from pidkeeper.service.settings import SettingsError, load_settings, parse_address, read_secret, read_secrets
from pidkeeper.service.tls_files import TlsFiles
from pidkeeper.service.tracing_setting import Tracing

ENVIRONMENT_PREFIX: Final = "PIDKEEPER__"


MIN_PEER_KEY_CHARACTERS: Final = 16
"""A key is compared, never typed: 16 random characters are 64 bits even in hexadecimal."""


class VoterTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One `[[voters]]` table: `id`, `peer` as host:port, `http` as the base URL that clients reach it under.

    `kafka`: where it speaks Kafka's protocol, if it does, as kafka://host:port, or kafka+ssl:// for TLS; brokers that
    ask another member are told it while this one leads.
    `learner`: it does not vote until it is made a voter; only the member's own table can have it.
    """

    id: Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]
    peer: str
    http: str
    kafka: str | None = None
    learner: bool = False


class ZooKeeperTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The `[zookeeper]` table: `connect` as host:port,host:port/chroot, timeouts of the session and of one call.

    `digest_file` holds user:password for an ensemble that asks for a digest.
    """

    connect: str
    session_timeout_ms: Annotated[int, msgspec.Meta(ge=1000, le=300_000)] = 6000
    request_timeout_ms: Annotated[int, msgspec.Meta(ge=100, le=60_000)] = 2000
    digest_file: str | None = None

    def settings(self) -> ZooKeeperSettings:
        """The table, checked. Raises SettingsError."""
        digest = None
        if self.digest_file is not None:
            digest = read_secret(self.digest_file, "zookeeper.digest_file")
            if ":" not in digest:
                raise SettingsError(f"zookeeper.digest_file: {self.digest_file} must hold user:password")
        return ZooKeeperSettings(
            connect=check_connect(self.connect),
            session_timeout_ms=self.session_timeout_ms,
            request_timeout_ms=self.request_timeout_ms,
            digest=digest,
        )


class ControllerConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Every key of `controller.toml`.

    `node_id` names this member among `voters`, which are those of a blank cluster: once the quorum was changed, the
    log and the snapshots say who they are. `profile` sets all timeouts together. `block_size` is in producer IDs; it
    and `mode` hold as the quorum was founded with them. `founding_hearing_ms`: for how long a quorum that was just
    founded hears which IDs its brokers hold before it hands out its first one.
    `snapshot_entries`, `snapshot_bytes` and `snapshot_allocations`: how many applied entries, bytes of them, or
    allocated blocks are between two snapshots, whichever comes first. `transaction_abort_check_ms`: between two looks
    for transactions whose time is up; `transactional_id_expiration_ms`: after which an idle transactional id is
    forgotten (Kafka's `transaction.abort.timed.out.transaction.cleanup.interval.ms` and
    `transactional.id.expiration.ms`); `producer_id_expiration_ms`: after which a partition log forgets a silent
    producer (KIP-854); `offsets_retention_ms`: after which the offsets of a consumer group without members are
    forgotten, and `offsets_retention_check_ms`: between two looks for them (Kafka's `offsets.retention.minutes`,
    KIP-211, and `offsets.retention.check.interval.ms`). `log_roll_rows`, `log_roll_bytes`, `log_roll_ms`: batches and
    markers, bytes, or age with which the tail of a partition log becomes a segment, of up to `log_segment_bytes`;
    `log_retention_check_ms`: between two looks at the retention of a log; `log_segment_delete_delay_ms`: how long an
    object stays in the store once no log needs it (Kafka's `log.retention.check.interval.ms` and
    `log.segment.delete.delay.ms`). `security`,
    `tls`: as in `service.protection`; the certificate names this member, and over TLS it is what peers prove.
    `peer_key_file` holds the secrets that members prove to each other without TLS, one a line: any of them will do.
    `insecure`: a peer need not prove any. `token_file` the bearer token that HTTP callers must send;
    `operator_token_file` the one that operators send instead, and that alone lets them change the cluster, beside their
    certificates; either may have several, one a line. `tokens_file`: tokens of callers with roles of their own
    (`service.token_list`).
    `kafka_listen`: host:port where brokers are served by Kafka's protocol as well: AllocateProducerIds (KIP-730),
    and the registrations and heartbeats that it takes. `probe_listen`: host:port where probes and metrics are
    served once more, whatever goes on at `http_listen`. `mode`: whether a quorum that has handed out nothing yet
    allocates by itself, or from ZooKeeper (`zookeeper`, KIP-730's bridge). `zookeeper`: how ZooKeeper is reached,
    needed until the migration from it is finalised. `tracing`: whether spans are exported, as OpenTelemetry's own
    variables say.
    """

    node_id: Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]
    cluster_id: ClusterId
    data_dir: str
    http_listen: str
    http_advertised: str | None = None
    kafka_listen: str | None = None
    probe_listen: str | None = None
    peer_listen: str
    voters: Annotated[list[VoterTable], msgspec.Meta(min_length=1, max_length=9)]
    profile: Literal["lan", "wan"] = "lan"
    mode: Literal["quorum", "zookeeper"] = "quorum"
    zookeeper: ZooKeeperTable | None = None
    block_size: Annotated[int, msgspec.Meta(ge=1, le=MAX_BLOCK_SIZE)] = DEFAULT_BLOCK_SIZE
    broker_session_timeout_ms: Annotated[int, msgspec.Meta(ge=100, le=3_600_000)] = 9000
    founding_hearing_ms: Annotated[int, msgspec.Meta(ge=0, le=3_600_000)] = 10_000
    snapshot_entries: Annotated[int, msgspec.Meta(ge=10, le=1_000_000)] = 10_000
    snapshot_allocations: Annotated[int, msgspec.Meta(ge=10, le=1_000_000)] = 20_000
    snapshot_bytes: Annotated[int, msgspec.Meta(ge=1024 * 1024, le=1024**3)] = DEFAULT_SNAPSHOT_BYTES
    segment_bytes: Annotated[int, msgspec.Meta(ge=1024 * 1024, le=1024**3)] = 16 * 1024 * 1024
    transaction_abort_check_ms: Annotated[int, msgspec.Meta(ge=100, le=3_600_000)] = 10_000
    transactional_id_expiration_ms: Annotated[int, msgspec.Meta(ge=1000, le=2**53)] = 7 * 24 * 3_600_000
    producer_id_expiration_ms: Annotated[int, msgspec.Meta(ge=1000, le=2**53)] = 24 * 3_600_000
    offsets_retention_ms: Annotated[int, msgspec.Meta(ge=1000, le=2**53)] = 7 * 24 * 3_600_000
    offsets_retention_check_ms: Annotated[int, msgspec.Meta(ge=100, le=2**53)] = 600_000
    log_roll_rows: Annotated[int, msgspec.Meta(ge=1, le=MAX_SEGMENT_ROWS)] = 1000
    log_roll_bytes: Annotated[int, msgspec.Meta(ge=1, le=MAX_LOG_SEGMENT_BYTES)] = 8 << 20
    log_roll_ms: Annotated[int, msgspec.Meta(ge=100, le=2**53)] = 600_000
    log_segment_bytes: Annotated[int, msgspec.Meta(ge=1 << 16, le=MAX_LOG_SEGMENT_BYTES)] = 8 << 20
    log_retention_check_ms: Annotated[int, msgspec.Meta(ge=100, le=2**53)] = 300_000
    log_segment_delete_delay_ms: Annotated[int, msgspec.Meta(ge=100, le=2**53)] = 60_000
    security: Level = OFF
    tls: TlsFiles = TlsFiles()
    peer_key_file: str | None = None
    insecure: bool = False
    token_file: str | None = None
    operator_token_file: str | None = None
    tokens_file: str | None = None
    log_level: LogLevel = "info"
    log_format: LogFormat = "text"
    tracing: Tracing = "off"
    limits: ApiLimits = ApiLimits()

    def member_settings(self) -> MemberSettings:
        """The part that the member needs, checked. Raises SettingsError."""
        voters = {
            table.id: Voter(table.id, parse_address(table.peer, "voters.peer"), table.http.rstrip("/"))
            for table in self.voters
            if not table.learner
        }
        if self.mode == "zookeeper" and self.zookeeper is None:
            raise SettingsError('mode = "zookeeper" needs a [zookeeper] table: connect = "host:port,host:port/chroot"')
        learner = self._learner(voters)
        if len(voters) + (learner is not None) != len(self.voters):
            raise SettingsError(f"voters: an id stands there twice: {[table.id for table in self.voters]}")
        if learner is None and self.node_id not in voters:
            raise SettingsError(
                f"voters: member {self.node_id} itself is not among {sorted(voters)}: check node_id. One that joins "
                "them has a table of its own with learner = true, until `pidkeeper quorum add-voter` has made it "
                "a voter. Voters are changed by `pidkeeper quorum add-voter` and `remove-voter`, never by a file"
            )
        if self.http_advertised is not None and learner is None:
            voters[self.node_id] = msgspec.structs.replace(voters[self.node_id], http=self.http_advertised.rstrip("/"))
        return MemberSettings(
            node_id=self.node_id,
            cluster_id=self.cluster_id,
            data_dir=self.data_dir,
            voters=tuple(voters[voter] for voter in sorted(voters)),
            peer_listen=parse_address(self.peer_listen, "peer_listen"),
            timing=PROFILES[self.profile],
            block_size=self.block_size,
            broker_session_timeout_ms=self.broker_session_timeout_ms,
            founding_hearing_ms=self.founding_hearing_ms,
            snapshot_entries=self.snapshot_entries,
            snapshot_allocations=self.snapshot_allocations,
            snapshot_bytes=self.snapshot_bytes,
            segment_bytes=self.segment_bytes,
            peer_keys=self._peer_keys(),
            certified=self.security == REQUIRED,
            learner=learner,
            transaction_abort_check_ms=self.transaction_abort_check_ms,
            transactional_id_expiration_ms=self.transactional_id_expiration_ms,
            producer_id_expiration_ms=self.producer_id_expiration_ms,
            offsets_retention_ms=self.offsets_retention_ms,
            offsets_retention_check_ms=self.offsets_retention_check_ms,
            segments=SegmentSettings(
                rows=self.log_roll_rows,
                tail_bytes=self.log_roll_bytes,
                age_ms=self.log_roll_ms,
                segment_bytes=self.log_segment_bytes,
                retention_check_ms=self.log_retention_check_ms,
                garbage_ms=self.log_segment_delete_delay_ms,
            ),
            zookeeper=None if self.zookeeper is None else self.zookeeper.settings(),
            bridge=self.mode == "zookeeper",
        )

    def kafka_addresses(self) -> dict[int, str]:
        """Where members speak Kafka's protocol, by their id. Raises SettingsError."""
        try:
            return {
                table.id: str(KafkaUrl.parse(table.kafka, "voters.kafka"))
                for table in self.voters
                if table.kafka is not None
            }
        except AddressError as error:
            raise SettingsError(str(error)) from error

    def protection(self) -> Protection:
        """What its listeners and links do about TLS. Raises SettingsError."""
        urls = [table.http for table in self.voters]
        check_urls(
            self.security, urls if self.http_advertised is None else [*urls, self.http_advertised], "voters.http"
        )
        check_urls(self.security, list(self.kafka_addresses().values()), "voters.kafka", KAFKA_SSL)
        if self.security == REQUIRED and self.insecure:
            raise SettingsError('insecure: it lets peers in without a proof, and security = "required" lets nobody')
        return load_protection(self.security, self.tls, ("controller", self.node_id), self.cluster_id)

    def _learner(self, voters: Mapping[int, Voter]) -> Voter | None:
        tables = [table for table in self.voters if table.learner]
        if not tables:
            return None
        if not voters or [table.id for table in tables] != [self.node_id]:
            raise SettingsError(
                f"voters: {[table.id for table in tables]} are learners; only member {self.node_id} itself can be one, "
                "next to the voters that it joins"
            )
        table = tables[0]
        return Voter(table.id, parse_address(table.peer, "voters.peer"), table.http.rstrip("/"))

    def _peer_keys(self) -> tuple[bytes | None, ...]:
        nothing = (None,) if self.insecure else ()
        if self.peer_key_file is not None:
            secrets = read_secrets(self.peer_key_file, "peer_key_file", least=MIN_PEER_KEY_CHARACTERS)
            return *(secret.encode() for secret in secrets), *nothing
        if self.security == REQUIRED:
            return ()
        if len(self.voters) > 1 and not self.insecure:
            raise SettingsError(
                "peer_key_file: members must prove to each other who they are: name a file that holds the same secret "
                f"of {MIN_PEER_KEY_CHARACTERS} characters or more on all of them, or say insecure = true where nobody "
                "else can reach the peer ports"
            )
        return nothing


def load_config(path: Path | None, environment: Mapping[str, str] = os.environ) -> ControllerConfig:
    """Read and check the configuration. Raises SettingsError."""
    return load_settings(ControllerConfig, path, environment, ENVIRONMENT_PREFIX)
