"""Composes one controller from its configuration and runs it until a signal or a fault."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import sys

import uvloop

from pidkeeper.controller.api.app import build_app
from pidkeeper.controller.api.limits import ApiLimits
from pidkeeper.controller.config import ControllerConfig
from pidkeeper.controller.node.member import ClusterMember
from pidkeeper.controller.node.opening import InconsistentStorage
from pidkeeper.controller.node.settings import MemberSettings
from pidkeeper.controller.storage.errors import DirectoryError, LogCorruption, LogFull
from pidkeeper.protocol.addresses import HostPort
from pidkeeper.protocol.archive import ArchiveError
from pidkeeper.service.server import HttpServer, ListenError
from pidkeeper.service.settings import parse_address, read_secret, require_assertions
from pidkeeper.snapshots.format import NewerSnapshot

logger = logging.getLogger(__name__)

DRAIN_SECONDS = 2.0
"""How long requests in progress may take when the member stops: they only wait for a commit or a refusal."""

OPENING_ERRORS = DirectoryError, LogCorruption, LogFull, ArchiveError, InconsistentStorage, NewerSnapshot, OSError


def run(config: ControllerConfig) -> int:
    """Run until SIGTERM or SIGINT (returns 0), or until something makes it stop (returns 1).

    Raises SettingsError for a configuration that cannot be used.
    """
    logging.basicConfig(
        level=config.log_level.upper(), stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s %(message)s"
    )
    require_assertions()
    settings, listen = config.member_settings(), parse_address(config.http_listen, "http_listen")
    token = None if config.token_file is None else read_secret(config.token_file, "token_file")
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_serve(settings, listen, config.limits, token))


async def _serve(settings: MemberSettings, listen: HostPort, limits: ApiLimits, token: str | None) -> int:
    try:
        member = await ClusterMember.open(settings)
    except OPENING_ERRORS as error:
        logger.critical("cannot open the data directory: %s", error)
        return 1
    api = HttpServer(build_app(member, limits=limits, token=token))
    try:
        host, port = await api.start(listen.host, listen.port)
        await member.start()
    except ListenError as error:
        logger.critical("%s", error)
        return 1
    except OSError as error:
        logger.critical("cannot listen for peers on %s: %s", settings.peer_listen, error.strerror)
        return 1
    logger.info("member %d of cluster %s serves HTTP on %s:%d", member.node_id, member.cluster_id, host, port)
    # What was made so far lives as long as the process: the collector need not look at it again.
    gc.collect()
    gc.freeze()
    fault = await _until_stopped(member)
    if fault is not None:
        logger.critical("this member stops: %s: %s", type(fault).__name__, fault, exc_info=fault)
        return 1
    api.begin_drain()
    await member.hand_over()
    await api.stop(DRAIN_SECONDS)
    await member.stop()
    logger.info("stopped")
    return 0


async def _until_stopped(member: ClusterMember) -> BaseException | None:
    """Wait for SIGTERM or SIGINT (None) or a fault."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, member.request_stop)
    return await member.ended
