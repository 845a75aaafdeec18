"""Settings of the agent: defaults < TOML file < environment < overrides."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import msgspec

from broker_agent.kafka_listener import IDLE_TIMEOUT_SECONDS, MAX_CONNECTIONS
from broker_agent.prefetch import (
    MAX_BURST,
    MAX_RESERVE_BLOCKS,
    MIN_BLOCKS,
    MIN_RESERVE_IDS,
    RESERVE_SECONDS,
    PrefetchSettings,
)
from broker_agent.reserve import ASK_FRACTION
from protocol.records import BrokerId

ENVIRONMENT_PREFIX: Final = "PIDKEEPER_AGENT__"

MAX_TOKEN_BYTES: Final = 4096
"""Longest bearer token read from `token_file`: HTTP servers take header lines of 8 KiB."""

_WILDCARDS: Final = ("0.0.0.0", "::")  # noqa: S104 - compared with, never bound

_Positive = Annotated[float, msgspec.Meta(gt=0)]


class ConfigError(ValueError):
    """A setting that is missing, unknown or wrong; the message names it and says what it may be."""


class HostPort(msgspec.Struct, frozen=True):
    """A parsed `host:port`; IPv6 hosts stand in brackets."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class AgentConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All settings. Addresses are `host:port`, where port 0 means any free one; controllers are base URLs.

    `kafka_advertised` is what clients are told to connect to. It defaults to `kafka_listen`, unless that is a wildcard.
    """

    broker_id: BrokerId
    controllers: tuple[str, ...]
    http_listen: str = "127.0.0.1:8091"
    kafka_listen: str = "127.0.0.1:9092"
    kafka_advertised: str | None = None
    token_file: str | None = None
    heartbeat_interval_ms: Annotated[int, msgspec.Meta(ge=10, le=60_000)] = 500
    ask_fraction: Annotated[float, msgspec.Meta(ge=0, le=1)] = ASK_FRACTION
    reserve_seconds: Annotated[float, msgspec.Meta(ge=0)] = RESERVE_SECONDS
    min_reserve_ids: Annotated[int, msgspec.Meta(ge=0)] = MIN_RESERVE_IDS
    min_blocks: Annotated[int, msgspec.Meta(ge=1)] = MIN_BLOCKS
    max_reserve_blocks: Annotated[int, msgspec.Meta(ge=1)] = MAX_RESERVE_BLOCKS
    max_burst: Annotated[int, msgspec.Meta(ge=1)] = MAX_BURST
    kafka_max_connections: Annotated[int, msgspec.Meta(ge=1)] = MAX_CONNECTIONS
    kafka_idle_timeout_seconds: _Positive = IDLE_TIMEOUT_SECONDS
    log_level: Literal["debug", "info", "warning", "error"] = "info"

    def __post_init__(self) -> None:
        if not self.controllers:
            raise ValueError("controllers: at least one base URL is needed")
        for url in self.controllers:
            if not url.startswith(("http://", "https://")):
                raise ValueError(f"controllers: {url!r} is not a base URL like http://127.0.0.1:8081")
        for name in ("http_listen", "kafka_listen"):
            parse_host_port(name, getattr(self, name))
        self._check_advertised()
        self.prefetch_settings()

    def _check_advertised(self) -> None:
        if self.kafka_advertised is not None:
            if parse_host_port("kafka_advertised", self.kafka_advertised).port == 0:
                raise ValueError("kafka_advertised: clients need a port other than 0")
        elif parse_host_port("kafka_listen", self.kafka_listen).host in _WILDCARDS:
            raise ValueError(f"kafka_advertised: must be given, for no client can connect to {self.kafka_listen}")

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


_KEYS: Final = tuple(field.name for field in msgspec.structs.fields(AgentConfig))


def parse_host_port(name: str, text: str) -> HostPort:
    """Split `host:port`. Raises ValueError that names the setting."""
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isascii() or not port.isdecimal() or int(port) > 65_535:
        raise ValueError(f"{name}: {text!r} is not host:port like 127.0.0.1:9092")
    return HostPort(host.removeprefix("[").removesuffix("]"), int(port))


def load_config(
    path: Path | None = None,
    *,
    environment: Mapping[str, str] | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> AgentConfig:
    """Read all sources. Raises ConfigError."""
    merged: dict[str, Any] = {}
    if path is not None:
        merged |= _known(_read_toml(path), f"file {path}")
    merged |= _known(_from_environment(os.environ if environment is None else environment), "environment")
    merged |= _known({key: value for key, value in (overrides or {}).items() if value is not None}, "overrides")
    if isinstance(merged.get("controllers"), str):
        merged["controllers"] = [url.strip() for url in merged["controllers"].split(",") if url.strip()]
    try:
        return msgspec.convert(merged, AgentConfig, strict=False)
    except msgspec.ValidationError as error:
        raise ConfigError(f"bad setting of the agent: {error}") from None


def read_token(config: AgentConfig) -> str | None:
    """The bearer token, or None where no file is named. Raises ConfigError."""
    if config.token_file is None:
        return None
    try:
        with Path(config.token_file).open("rb") as file:
            token = file.read(MAX_TOKEN_BYTES + 1).decode("ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"token_file: cannot read {config.token_file}: {error}") from None
    if not token or len(token) > MAX_TOKEN_BYTES or not token.isprintable():
        raise ConfigError(f"token_file: {config.token_file} must hold one line of 1 to {MAX_TOKEN_BYTES} characters")
    return token


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            return tomllib.load(file)
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"cannot read the configuration file {path}: {error}") from None


def _from_environment(environment: Mapping[str, str]) -> dict[str, str]:
    return {
        name.removeprefix(ENVIRONMENT_PREFIX).lower(): value
        for name, value in environment.items()
        if name.startswith(ENVIRONMENT_PREFIX)
    }


def _known(settings: Mapping[str, Any], source: str) -> Mapping[str, Any]:
    unknown = sorted(set(settings) - set(_KEYS))
    if unknown:
        raise ConfigError(f"{source}: unknown setting {', '.join(unknown)}; known are {', '.join(_KEYS)}")
    return settings
