"""Composes one agent from its configuration and runs it until a signal or a fault."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
import uuid
from collections.abc import AsyncIterator
from typing import Final

from pidkeeper.broker_agent.agent import Agent
from pidkeeper.broker_agent.api.app import build_app
from pidkeeper.broker_agent.backoff import Random
from pidkeeper.broker_agent.config import AgentConfig
from pidkeeper.broker_agent.controllers.aiohttp_transport import AiohttpTransport
from pidkeeper.broker_agent.controllers.client import ControllerClient
from pidkeeper.broker_agent.controllers.kafka_transport import KafkaTransport
from pidkeeper.broker_agent.controllers.traced_transport import TracedTransport
from pidkeeper.broker_agent.data.answering import DataAnswers, asking
from pidkeeper.broker_agent.data.room import DataRoom
from pidkeeper.broker_agent.data.seeking import StoreSeeker
from pidkeeper.broker_agent.data.settings import DataSettings
from pidkeeper.broker_agent.groups.answering import asking_groups
from pidkeeper.broker_agent.groups.room import GroupRoom
from pidkeeper.broker_agent.kafka.application import AgentApplication
from pidkeeper.broker_agent.kafka.dispatch import WITH_DATA, Ask
from pidkeeper.broker_agent.kafka.features import features_at
from pidkeeper.broker_agent.kafka.quotas.application import MeteredApplication
from pidkeeper.broker_agent.kafka.quotas.meter import Meters
from pidkeeper.broker_agent.kafka.responder import KafkaResponder
from pidkeeper.broker_agent.kafka.traced_transactions import TracedTransactions
from pidkeeper.broker_agent.kafka.transaction_responder import TransactionCalls, TransactionResponder, nothing
from pidkeeper.broker_agent.security.acls import AclList
from pidkeeper.broker_agent.security.quota_list import QuotaList
from pidkeeper.broker_agent.security.sasl import Sasl
from pidkeeper.broker_agent.security.user_list import UserList
from pidkeeper.broker_agent.session.refusals import FatalAgentError
from pidkeeper.protocol.addresses import HostPort
from pidkeeper.service.access import Access
from pidkeeper.service.app import App
from pidkeeper.service.boot_clock import boot_seconds
from pidkeeper.service.connections import MAX_CONNECTIONS, fitting_connections
from pidkeeper.service.kafka.listener import KafkaListener
from pidkeeper.service.kafka.wire.api_versions import Features
from pidkeeper.service.logs import tell_with_each_line
from pidkeeper.service.probe_listener import PROBE_CONNECTIONS, probes_served
from pidkeeper.service.process import Ending, ServiceError, on_stop_signal, on_violation, run_service
from pidkeeper.service.protection import Protection
from pidkeeper.service.refreshing import Refreshed, refreshing
from pidkeeper.service.server import HttpServer, ListenError
from pidkeeper.service.settings import parse_address, parse_optional_address, read_secret
from pidkeeper.service.token_list import TokenList
from pidkeeper.service.tracing import Exporter, Tracer
from pidkeeper.service.tracing_setting import exporting, load_tracer

SPARE_FILES: Final = 1312 + PROBE_CONNECTIONS
"""Open files beside Kafka's and HTTP's connections: HTTP out (144 to each of nine members, the most there are), the
probes', standard streams, libraries, and connections that are just being closed."""

HTTP_STOP_SECONDS: Final = 2.0
"""How long a graceful stop waits for HTTP requests under way."""

logger = logging.getLogger(__name__)


def run(config: AgentConfig) -> int:
    """Run an agent until SIGTERM or SIGINT. Returns the exit code: 0 after a graceful stop, 1 after a failure, 4 if
    the controllers do not let it do what it asks (KIP-730, "Error Handling").

    Raises SettingsError for a configuration that cannot be used.
    """
    callers = Callers(config)
    protection = config.protection()
    tracer = load_tracer(config.tracing, "pidkeeper-agent", config.broker_id)
    return run_service(
        lambda: _running(config, callers, protection, tracer),
        logger=logger,
        log_level=config.log_level,
        log_format=config.log_format,
        open_files=config.kafka_max_connections + MAX_CONNECTIONS + SPARE_FILES + protection.files,
    )


class Callers:
    """What an agent knows of callers by files, and shows of itself: None without the setting. Raises SettingsError."""

    def __init__(self, config: AgentConfig) -> None:
        self.token = None if config.token_file is None else _sent_token(config.token_file)
        self.tokens = None if config.tokens_file is None else TokenList(config.tokens_file)
        self.users = None if config.users_file is None else UserList(config.users_file)
        self.acls = None if config.acls_file is None else AclList(config.acls_file)
        self.quotas = None if config.quotas_file is None else QuotaList(config.quotas_file)

    def refresh(self) -> None:
        """Read what has changed."""
        for one in (self.token, self.tokens, self.users, self.acls, self.quotas):
            if one is not None:
                one.refresh()


@contextlib.asynccontextmanager
async def _running(
    config: AgentConfig, callers: Callers, protection: Protection, exporter: Exporter | None
) -> AsyncIterator[Ending]:
    ending = Ending()
    on_stop_signal(ending.request_stop)
    on_violation(ending.fail)
    rng = random.SystemRandom()
    async with (
        exporting(exporter) as tracer,
        refreshing(callers.refresh, protection.refresh),
        _transport(config, callers, protection, tracer) as transport,
    ):
        carrier = transport if tracer is None else TracedTransport(transport, tracer)
        client = ControllerClient(config.controllers, carrier, rng)
        async with contextlib.AsyncExitStack() as stack:
            rooms = await stack.enter_async_context(contextlib.AsyncExitStack())
            listener, advertised = await _bind_kafka(config, callers, protection)
            # It stops before the room does, and the room before the store.
            stack.push_async_callback(listener.stop)
            agent = Agent(
                config.broker_id,
                client,
                config.prefetch_settings(),
                incarnation_id=str(uuid.uuid4()),
                rng=rng,
                kafka=advertised,
                heartbeat_seconds=config.heartbeat_interval_ms / 1000,
                boot_clock=boot_seconds,
            )
            tell_with_each_line(lambda: {"broker": config.broker_id, "epoch": agent.session.broker_epoch})
            room, store, groups = None, None, None
            if config.data is not None:
                store = _seeker(config.data, agent, rng)
                rooms.push_async_callback(store.close)
                await store.start(ending.fail)
                room = DataRoom(config.data, store.store, client, agent.session, agent.directory, rng)
                rooms.push_async_callback(room.stop)
                room.start()
                groups = GroupRoom(config.groups, client, agent.session, agent.directory, agent.late_requests, rng)
                rooms.push_async_callback(groups.stop)
                groups.start(ending.fail)
            transactions = agent.transactions if tracer is None else _traced(agent, tracer)
            refused = nothing if room is None else room.joining.refused
            responder = TransactionResponder(transactions, refused, serves_groups=groups is not None)
            application = _application(agent, room, groups, responder.answer, callers.acls)
            meters = None if callers.quotas is None else Meters(callers.quotas, time.monotonic_ns)
            await listener.serve(application if meters is None else MeteredApplication(application, meters))
            app = build_app(
                agent,
                listener,
                room=room,
                store=store,
                groups=groups,
                tokens=callers.tokens,
                users=callers.users,
                acls=callers.acls,
                quotas=callers.quotas,
                throttled=None if meters is None else meters.throttled,
                protection=protection,
                tracer=tracer,
            )
            probe_listen = parse_optional_address(config.probe_listen, "probe_listen")
            await stack.enter_async_context(probes_served(app, probe_listen, protection))
            await _start_http(config, app, protection, stack)
            async with run_agent(agent, ending):
                yield ending
            agent.stopping = True
            logger.info("stopping")
        await agent.session.unregister()


def _transport(
    config: AgentConfig, callers: Callers, protection: Protection, tracer: Tracer | None
) -> AiohttpTransport | KafkaTransport:
    """What carries requests to the controllers."""
    if config.transport == "kafka":
        return KafkaTransport(token=callers.token, tls=protection.tls)
    headers = None if tracer is None else tracer.headers
    return AiohttpTransport(token=callers.token, tls=protection.tls, trace=headers)


def _seeker(settings: DataSettings, agent: Agent, rng: Random) -> StoreSeeker:
    """What finds the store of `agent`, which the quorum has to take for the cluster's."""

    def admitted() -> bool:
        return agent.session.store_epoch is not None

    return StoreSeeker(settings, rng, on_found=agent.found_store, admitted=admitted)


def _application(
    agent: Agent, room: DataRoom | None, groups: GroupRoom | None, ask: Ask, acls: AclList | None
) -> AgentApplication:
    """What answers clients: `ask` their transactions, and where records are kept `room` what is about topics, and
    `groups` what is about groups."""

    def cluster_id() -> str | None:
        return agent.session.cluster_id

    if room is None or groups is None:
        return AgentApplication(KafkaResponder(agent.reserve, agent.directory, cluster_id), ask, acls)

    def features() -> Features:
        return features_at(agent.session.metadata_version)

    responder = KafkaResponder(agent.reserve, agent.directory, cluster_id, apis=WITH_DATA, features=features)
    data = DataAnswers(room, agent.directory, cluster_id)
    asked = asking(data, asking_groups(groups.answers, ask))
    return AgentApplication(responder, asked, acls, apis=WITH_DATA, ask_soon=data.answer_soon)


def _traced(agent: Agent, tracer: Tracer) -> TransactionCalls:
    """Have the rounds of `agent` be spans; its transactional requests, as spans, for Kafka's listener."""
    agent.prefetcher.round_span = lambda blocks: tracer.internal_span("prefetch", {"pidkeeper.blocks": blocks})
    return TracedTransactions(agent.transactions, tracer)


@contextlib.asynccontextmanager
async def run_agent(agent: Agent, ending: Ending) -> AsyncIterator[None]:
    """Run the agent meanwhile; what it raises ends the service. Raises ServiceError for its refusal for good."""

    def on_done(task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            ending.fail(error)

    running = asyncio.create_task(agent.run())
    running.add_done_callback(on_done)
    try:
        yield
    except FatalAgentError as error:
        raise ServiceError(str(error), exit_code=error.exit_code) from error
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def _bind_kafka(config: AgentConfig, callers: Callers, protection: Protection) -> tuple[KafkaListener, HostPort]:
    """The listener, and the address that clients are told: with port 0 it is known only once the socket is bound."""
    address = parse_address(config.kafka_listen, "kafka_listen")
    kafka, _, handshakes = _connections(config, protection)
    protection.fit(handshakes)
    listener = KafkaListener(
        Access.PRODUCER,
        max_connections=kafka,
        idle_timeout=config.kafka_idle_timeout_seconds,
        protection=protection,
        sasl=None if callers.users is None else Sasl(callers.users),
    )
    try:
        port = await listener.bind(address.host, address.port)
    except OSError as error:
        raise ListenError(f"kafka_listen: cannot listen on {address}: {error}") from None
    advertised = HostPort(address.host, port)
    if config.kafka_advertised is not None:
        advertised = parse_address(config.kafka_advertised, "kafka_advertised")
    logger.info("Kafka listener on %s, advertised as %s", HostPort(address.host, port), advertised)
    return listener, advertised


def _sent_token(path: str) -> Refreshed[str]:
    return Refreshed("token_file", [path], lambda: read_secret(path, "token_file"))


def _connections(config: AgentConfig, protection: Protection) -> list[int]:
    """How many the Kafka listener and the HTTP server hold, and handshakes before they do."""
    return fitting_connections(config.kafka_max_connections, MAX_CONNECTIONS, protection.files, reserved=SPARE_FILES)


async def _start_http(config: AgentConfig, app: App, protection: Protection, stack: contextlib.AsyncExitStack) -> None:
    address = parse_address(config.http_listen, "http_listen")
    _, http, _ = _connections(config, protection)
    server = HttpServer(app, max_connections=http, protection=protection)
    stack.push_async_callback(server.stop, HTTP_STOP_SECONDS)
    try:
        _, port = await server.start(address.host, address.port)
    except ListenError as error:
        raise ListenError(f"http_listen: {error}") from None
    logger.info("HTTP on %s", HostPort(address.host, port))
