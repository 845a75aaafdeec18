"""Composes one controller from its configuration and runs it until a signal or a fault."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
from prometheus_client.registry import Collector

from pidkeeper.controller.api.app import build_app, build_authenticator
from pidkeeper.controller.api.limits import ApiLimits
from pidkeeper.controller.api.usage_metrics import usage_watched
from pidkeeper.controller.config import ControllerConfig
from pidkeeper.controller.kafka.interface import KafkaInterface
from pidkeeper.controller.node.assembly import ClusterMember
from pidkeeper.controller.node.commit_spans import TracedInterface
from pidkeeper.controller.node.durable_voters import VotersRefused
from pidkeeper.controller.node.interface import MemberInterface
from pidkeeper.controller.node.opening import InconsistentStorage
from pidkeeper.controller.node.process_ports import open_member
from pidkeeper.controller.node.settings import MemberSettings
from pidkeeper.controller.storage.errors import DirectoryError, LogCorruption, LogFull
from pidkeeper.protocol.addresses import HostPort
from pidkeeper.service.connections import MAX_CONNECTIONS, fitting_connections
from pidkeeper.service.kafka.listener import MAX_CONNECTIONS as KAFKA_CONNECTIONS
from pidkeeper.service.logs import tell_with_each_line
from pidkeeper.service.probe_listener import PROBE_CONNECTIONS, probes_served
from pidkeeper.service.process import ServiceError, on_stop_signal, on_violation, run_service
from pidkeeper.service.protection import Protection
from pidkeeper.service.refreshing import Refreshed, refreshing
from pidkeeper.service.server import HttpServer, ListenError
from pidkeeper.service.settings import parse_address, parse_optional_address
from pidkeeper.service.shared_tokens import shared_tokens
from pidkeeper.service.token_hashes import SharedTokens
from pidkeeper.service.token_list import TokenList
from pidkeeper.service.tracing import Exporter
from pidkeeper.service.tracing_setting import FLUSH_SECONDS, exporting, load_tracer
from pidkeeper.snapshots.archive_format import ArchiveError
from pidkeeper.snapshots.snapshot_format import NewerSnapshot

logger = logging.getLogger(__name__)

DRAIN_SECONDS: Final = 2.0
"""How long requests in progress may take when the member stops: they only wait for a commit or a refusal."""

STOP_SECONDS: Final = 4.5
"""How long a stop may take: two waits for a successor, the drain, and what is left for the disk. What is not durable by
then was not acknowledged. FLUSH_SECONDS longer with traces."""

SPARE_FILES: Final = 256 + PROBE_CONNECTIONS
"""Open files beside HTTP connections: two links with each of 8 members and 16 guests, 64 handshakes, the probes', and
144 for segments, snapshots, archive, standard streams, libraries, and connections that are just being closed."""

OPENING_ERRORS = (
    DirectoryError,
    LogCorruption,
    LogFull,
    ArchiveError,
    InconsistentStorage,
    NewerSnapshot,
    VotersRefused,
    OSError,
)


class _Interfaces(NamedTuple):
    """What the interfaces of a controller are set up with."""

    http_listen: HostPort
    kafka_listen: HostPort | None
    kafka_addresses: Mapping[int, str]
    probe_listen: HostPort | None
    limits: ApiLimits
    shared: Refreshed[SharedTokens]
    tokens: TokenList | None
    protection: Protection

    @classmethod
    def of(cls, config: ControllerConfig) -> _Interfaces:
        """Raises SettingsError."""
        return cls(
            parse_address(config.http_listen, "http_listen"),
            parse_optional_address(config.kafka_listen, "kafka_listen"),
            config.kafka_addresses(),
            parse_optional_address(config.probe_listen, "probe_listen"),
            config.limits,
            shared_tokens(config.token_file, config.operator_token_file),
            None if config.tokens_file is None else TokenList(config.tokens_file),
            config.protection(),
        )

    @property
    def wanted(self) -> tuple[int, int]:
        """How many connections HTTP and Kafka should be able to hold."""
        return MAX_CONNECTIONS, 0 if self.kafka_listen is None else KAFKA_CONNECTIONS

    def refresh(self) -> None:
        """Read what has changed of the files."""
        self.protection.refresh()
        self.shared.refresh()
        if self.tokens is not None:
            self.tokens.refresh()


def run(config: ControllerConfig) -> int:
    """Run until SIGTERM or SIGINT (returns 0), or until something makes it stop or keeps it from stopping (returns 1).

    Raises SettingsError for a configuration that cannot be used.
    """
    settings, interfaces = config.member_settings(), _Interfaces.of(config)
    tracer = load_tracer(config.tracing, "pidkeeper-controller", config.node_id)
    return run_service(
        lambda: _running(settings, interfaces, tracer),
        logger=logger,
        log_level=config.log_level,
        log_format=config.log_format,
        open_files=sum(interfaces.wanted) + SPARE_FILES + interfaces.protection.files,
        stop_seconds=STOP_SECONDS if tracer is None else STOP_SECONDS + FLUSH_SECONDS,
    )


@asynccontextmanager
async def _running(
    settings: MemberSettings, interfaces: _Interfaces, exporter: Exporter | None = None
) -> AsyncIterator[ClusterMember]:
    protection = interfaces.protection
    http, kafka, handshakes = fitting_connections(*interfaces.wanted, protection.files, reserved=SPARE_FILES)
    protection.fit(handshakes)
    try:
        member = await open_member(settings, protection)
    except OPENING_ERRORS as error:
        raise ServiceError(f"cannot open the data directory: {error}") from error
    on_violation(member.driver.fault)
    core = member.core
    tell_with_each_line(lambda: {"member": member.node_id, "term": core.term, "index": core.commit})
    async with AsyncExitStack() as stack:
        tracer = await stack.enter_async_context(exporting(exporter))
        collectors: list[Collector] = [await stack.enter_async_context(usage_watched(Path(settings.data_dir)))]
        by_kafka = await _bind_kafka(interfaces, kafka, stack)
        if by_kafka is not None:
            collectors.append(by_kafka)
        interface = MemberInterface(member)
        app = build_app(
            interface if tracer is None else TracedInterface(member, tracer),
            limits=interfaces.limits,
            shared=interfaces.shared,
            tokens=interfaces.tokens,
            protection=protection,
            collectors=collectors,
            tracer=tracer,
        )
        await stack.enter_async_context(refreshing(interfaces.refresh))
        await stack.enter_async_context(probes_served(app, interfaces.probe_listen, protection))
        api = HttpServer(app, max_connections=http, protection=protection)
        host, port = await api.start(*msgspec.structs.astuple(interfaces.http_listen))
        try:
            await member.start()
        except OSError as error:
            raise ServiceError(f"cannot listen for peers on {settings.peer_listen}: {error.strerror}") from error
        if by_kafka is not None:
            await by_kafka.serve(app.operations, app.dispatch, interface.leader)
        on_stop_signal(member.request_stop)
        logger.info("member %d of cluster %s serves HTTP on %s:%d", member.node_id, settings.cluster_id, host, port)
        yield member
        api.begin_drain()
        await member.hand_over()
        await api.stop(DRAIN_SECONDS)
        if by_kafka is not None:
            await by_kafka.listener.stop()
        await member.stop()


async def _bind_kafka(interfaces: _Interfaces, connections: int, stack: AsyncExitStack) -> KafkaInterface | None:
    """The interface for Kafka's protocol, with its address taken, if there is to be one. Raises ListenError."""
    address = interfaces.kafka_listen
    if address is None:
        return None
    authenticator = build_authenticator(interfaces.shared, interfaces.tokens, interfaces.protection)
    by_kafka = KafkaInterface(
        authenticator, interfaces.protection, interfaces.kafka_addresses, max_connections=connections
    )
    stack.push_async_callback(by_kafka.listener.stop)
    try:
        port = await by_kafka.listener.bind(address.host, address.port)
    except OSError as error:
        raise ListenError(f"kafka_listen: cannot listen on {address}: {error}") from None
    logger.info("brokers are served by Kafka's protocol on %s", HostPort(address.host, port))
    return by_kafka
