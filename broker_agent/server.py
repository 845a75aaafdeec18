"""Builds and runs a whole agent process."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import random
import resource
import signal
import sys
import uuid
from typing import Any, Final

import uvloop
from aiohttp import web

from pidkeeper.broker_agent.agent import Agent
from pidkeeper.broker_agent.config import AgentConfig
from pidkeeper.broker_agent.controllers.aiohttp_transport import AiohttpTransport
from pidkeeper.broker_agent.controllers.client import ControllerClient
from pidkeeper.broker_agent.http_api import make_app
from pidkeeper.broker_agent.kafka.listener import KafkaListener
from pidkeeper.broker_agent.kafka.responder import KafkaResponder
from pidkeeper.broker_agent.kafka.transaction_responder import TransactionResponder
from pidkeeper.broker_agent.metrics import make_registry
from pidkeeper.broker_agent.session.refusals import FatalAgentError
from pidkeeper.protocol.settings import HostPort, read_secret, require_assertions

SPARE_FILES: Final = 1024
"""Open files beside the Kafka connections: HTTP out (80 to each of nine members, the most there are) and in, standard
streams, libraries."""

HTTP_STOP_SECONDS: Final = 2.0
"""How long a graceful stop waits for HTTP requests under way."""

_log = logging.getLogger(__name__)


def run(config: AgentConfig) -> int:
    """Run an agent until SIGTERM or SIGINT. Returns the exit code: 0 after a graceful stop, 1 after a failure.

    Raises SettingsError for a configuration that cannot be used.
    """
    require_assertions()
    token = None if config.token_file is None else read_secret(config.token_file, "token_file")
    logging.basicConfig(
        stream=sys.stderr,
        level=config.log_level.upper(),
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_serve(config, token))
    except (FatalAgentError, _ListenError) as error:
        _log.error("%s", error)
        return 1
    return 0


class _ListenError(Exception):
    """An address cannot be bound."""


async def _serve(config: AgentConfig, token: str | None) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    broken: asyncio.Future[None] = loop.create_future()
    loop.set_exception_handler(lambda _, context: _on_unhandled(broken, context))
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    _raise_file_limit(config.kafka_max_connections + SPARE_FILES)
    rng = random.SystemRandom()
    async with AiohttpTransport(token=token) as transport:
        client = ControllerClient(config.controllers, transport, rng)
        async with contextlib.AsyncExitStack() as stack:
            listener, advertised = await _bind_kafka(config)
            stack.push_async_callback(listener.stop)
            agent = Agent(
                config.broker_id,
                client,
                config.prefetch_settings(),
                incarnation_id=str(uuid.uuid4()),
                rng=rng,
                kafka=advertised,
                heartbeat_seconds=config.heartbeat_interval_ms / 1000,
            )
            responder = KafkaResponder(agent.reserve, agent.directory, lambda: agent.session.cluster_id)
            transactions = agent.transactions
            await listener.serve(responder, TransactionResponder(transactions).answer)
            await _start_http(
                config, make_app(agent, transactions, make_registry(agent, listener, transactions)), stack
            )
            gc.collect()
            # What exists by now lives as long as the process: later collections need not walk it.
            gc.freeze()
            await _run_until(stop, broken, agent)
            agent.stopping = True
            _log.info("stopping")
        await agent.session.unregister()


def _on_unhandled(broken: asyncio.Future[None], context: dict[str, Any]) -> None:
    """Log what no caller caught; a violated invariant ends the process, for its memory cannot be trusted any more."""
    error = context.get("exception")
    _log.error("%s", context.get("message"), exc_info=error)
    if isinstance(error, AssertionError) and not broken.done():
        broken.set_exception(error)


async def _run_until(stop: asyncio.Event, broken: asyncio.Future[None], agent: Agent) -> None:
    """Run the agent until `stop` is set. Raises what the agent raises, and what is put into `broken`."""
    running = asyncio.ensure_future(agent.run())
    stopping = asyncio.ensure_future(stop.wait())
    try:
        done, _ = await asyncio.wait((running, stopping, broken), return_when=asyncio.FIRST_COMPLETED)
        for future in done:
            future.result()
    finally:
        stopping.cancel()
        running.cancel()
        await asyncio.gather(running, stopping, return_exceptions=True)


async def _bind_kafka(config: AgentConfig) -> tuple[KafkaListener, HostPort]:
    """The listener, and the address that clients are told: with port 0 it is known only once the socket is bound."""
    address = HostPort.parse(config.kafka_listen, "kafka_listen")
    listener = KafkaListener(
        max_connections=config.kafka_max_connections, idle_timeout=config.kafka_idle_timeout_seconds
    )
    try:
        port = await listener.bind(address.host, address.port)
    except OSError as error:
        raise _ListenError(f"kafka_listen: cannot listen on {address}: {error}") from None
    advertised = HostPort(address.host, port)
    if config.kafka_advertised is not None:
        advertised = HostPort.parse(config.kafka_advertised, "kafka_advertised")
    _log.info("Kafka listener on %s, advertised as %s", HostPort(address.host, port), advertised)
    return listener, advertised


async def _start_http(config: AgentConfig, app: web.Application, stack: contextlib.AsyncExitStack) -> None:
    address = HostPort.parse(config.http_listen, "http_listen")
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=HTTP_STOP_SECONDS)
    await runner.setup()
    stack.push_async_callback(runner.cleanup)
    try:
        await web.TCPSite(runner, address.host, address.port).start()
    except OSError as error:
        raise _ListenError(f"http_listen: cannot listen on {address}: {error}") from None
    port = runner.addresses[0][1]
    _log.info("HTTP on %s", HostPort(address.host, port))


def _raise_file_limit(wanted: int) -> None:
    """Raise the soft limit of open files to `wanted`, as far as the hard limit allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    reachable = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (reachable, hard))
    if reachable < wanted:
        _log.warning("the limit of open files is %d, %d would be needed: raise `ulimit -n`", reachable, wanted)
