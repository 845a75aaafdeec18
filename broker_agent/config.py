"""Settings of the agent: defaults < TOML file < environment < overrides."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec

from pidkeeper.broker_agent.data.settings import DataSettings
from pidkeeper.broker_agent.groups.settings import GroupSettings
from pidkeeper.broker_agent.ids.prefetch import (
    MAX_BURST,
    MAX_RESERVE_BLOCKS,
    MIN_BLOCKS,
    MIN_RESERVE_IDS,
    RESERVE_SECONDS,
    PrefetchSettings,
)
from pidkeeper.broker_agent.ids.reserve import ASK_FRACTION
from pidkeeper.protocol.addresses import KAFKA_SSL, HostPort, KafkaUrl
from pidkeeper.protocol.records import MAX_PEER_LENGTH, BrokerId
from pidkeeper.service.kafka.listener import IDLE_TIMEOUT_SECONDS, MAX_CONNECTIONS
from pidkeeper.service.logs import LogFormat, LogLevel
from pidkeeper.service.protection import OFF, Level, Protection, check_urls, load_protection
from pidkeeper.service.settings import load_settings
from pidkeeper.service.tls_files import TlsFiles
from pidkeeper.service.tracing_setting import Tracing

ENVIRONMENT_PREFIX: Final = "PIDKEEPER_AGENT__"

_WILDCARDS: Final = ("0.0.0.0", "::")  # noqa: S104 - compared with, never bound

_Positive = Annotated[float, msgspec.Meta(gt=0)]


class AgentConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All settings. Addresses are `host:port`, where port 0 means any free one.

    `transport`: whether the controllers are asked over HTTP, and `controllers` are base URLs, or in Kafka's protocol
    (KIP-730), and they are kafka://host:port, or kafka+ssl:// for TLS.
    `kafka_advertised` is what clients are told to connect to. It defaults to `kafka_listen`, unless that is a wildcard.
    `probe_listen` serves probes and metrics once more, whatever goes on at the other two. `security`, `tls`: as in
    `service.protection`; the certificate names this broker, and is shown to the controllers.
    `token_file`: the token that is sent to the controllers; `tokens_file`: those of its own callers over HTTP, with
    their roles (`service.token_list`). `users_file`: the users of SASL at its Kafka listener
    (`broker_agent.security.user_list`); with it, clients that show no certificate must be one. `acls_file`: who may use
    which transactional id (`broker_agent.security.acls`); without it, everybody any. `quotas_file`: how much each may
    ask at the Kafka listener (`broker_agent.security.quota_list`); without it, as much as it can. `tracing`: whether
    spans are exported, as OpenTelemetry's own variables say. `data`: where the records of partitions are kept; without
    it, none are, and the agent serves IDs alone. `groups`: of the consumer groups that are served with them.
    """

    broker_id: BrokerId
    controllers: tuple[str, ...]
    transport: Literal["http", "kafka"] = "http"
    http_listen: str = "127.0.0.1:8091"
    probe_listen: str | None = None
    kafka_listen: str = "127.0.0.1:9092"
    kafka_advertised: str | None = None
    security: Level = OFF
    tls: TlsFiles = TlsFiles()
    token_file: str | None = None
    tokens_file: str | None = None
    users_file: str | None = None
    acls_file: str | None = None
    quotas_file: str | None = None
    heartbeat_interval_ms: Annotated[int, msgspec.Meta(ge=10, le=60_000)] = 2000
    ask_fraction: Annotated[float, msgspec.Meta(ge=0, le=1)] = ASK_FRACTION
    reserve_seconds: Annotated[float, msgspec.Meta(ge=0)] = RESERVE_SECONDS
    min_reserve_ids: Annotated[int, msgspec.Meta(ge=0)] = MIN_RESERVE_IDS
    min_blocks: Annotated[int, msgspec.Meta(ge=1)] = MIN_BLOCKS
    max_reserve_blocks: Annotated[int, msgspec.Meta(ge=1)] = MAX_RESERVE_BLOCKS
    max_burst: Annotated[int, msgspec.Meta(ge=1)] = MAX_BURST
    kafka_max_connections: Annotated[int, msgspec.Meta(ge=1)] = MAX_CONNECTIONS
    kafka_idle_timeout_seconds: _Positive = IDLE_TIMEOUT_SECONDS
    log_level: LogLevel = "info"
    log_format: LogFormat = "text"
    tracing: Tracing = "off"
    data: DataSettings | None = None
    groups: GroupSettings = GroupSettings()

    def __post_init__(self) -> None:
        if not self.controllers:
            raise ValueError("controllers: at least one address is needed")
        for url in self.controllers:
            if self.transport == "kafka":
                KafkaUrl.parse(url, 'controllers, with transport = "kafka"')
            elif not url.startswith(("http://", "https://")):
                raise ValueError(f"controllers: {url!r} is not a base URL like http://127.0.0.1:8081")
        for name in ("http_listen", "probe_listen", "kafka_listen"):
            if (address := getattr(self, name)) is not None:
                HostPort.parse(address, name)
        self._check_advertised()
        self.prefetch_settings()

    def _check_advertised(self) -> None:
        if self.kafka_advertised is not None:
            if HostPort.parse(self.kafka_advertised, "kafka_advertised").port == 0:
                raise ValueError("kafka_advertised: clients need a port other than 0")
            if len(self.kafka_advertised) > MAX_PEER_LENGTH:
                raise ValueError(f"kafka_advertised: {len(self.kafka_advertised)} characters, not {MAX_PEER_LENGTH}")
        elif HostPort.parse(self.kafka_listen, "kafka_listen").host in _WILDCARDS:
            raise ValueError(f"kafka_advertised: must be given, for no client can connect to {self.kafka_listen}")

    def protection(self) -> Protection:
        """What its listeners and connections do about TLS. Raises SettingsError."""
        check_urls(
            self.security, self.controllers, "controllers", KAFKA_SSL if self.transport == "kafka" else "https://"
        )
        return load_protection(self.security, self.tls, ("broker", self.broker_id))

    def prefetch_settings(self) -> PrefetchSettings:
        """The settings of the prefetch policy. Raises ValueError."""
        return PrefetchSettings(
            ask_fraction=self.ask_fraction,
            reserve_seconds=self.reserve_seconds,
            min_reserve_ids=self.min_reserve_ids,
            min_blocks=self.min_blocks,
            max_reserve_blocks=self.max_reserve_blocks,
            max_burst=self.max_burst,
        )


def load_config(path: Path | None = None, environment: Mapping[str, str] = os.environ) -> AgentConfig:
    """Read the file, and the environment above it. Raises SettingsError."""
    return load_settings(AgentConfig, path, environment, ENVIRONMENT_PREFIX, lists=("controllers",))
