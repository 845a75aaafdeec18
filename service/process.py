"""The process that a service runs in: logging, event loop, signals, and what its end means to whoever started it."""

from __future__ import annotations

import asyncio
import gc
import logging
import math
import os
import resource
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

import uvloop

from pidkeeper.service.log_writer import flush_log
from pidkeeper.service.logs import LogFormat, LogLevel, start_logging
from pidkeeper.service.memory import give_back_what_is_freed
from pidkeeper.service.settings import SettingsError, require_assertions
from pidkeeper.service.supervisor import supervised

FAILED: Final = 1
UNUSABLE_SETTINGS: Final = 2
"""Exit codes; 0 after a stop that was asked for."""

YOUNG_OBJECTS: Final = 10_000
"""More objects than before, at which the collector looks at the younger ones: with Python's 700 each crowd of requests
that are under way together was looked at again and again, of which all is freed when they are answered."""

MIDDLE_COLLECTIONS: Final = 5
"""Of all objects there is one for so many of the middle-aged. It stops the event loop for 20 ms where there are 1,000
connections: with 70,000 objects between two, every few seconds while connections come and go. At most
10,000 x 10 x 5 = 500,000 objects wait for it, some 60 MiB."""

SWITCH_SECONDS: Final = 0.001
"""For how long a thread may keep the interpreter from the event loop, which waits as long with each of its turns while
a snapshot is encoded. Allocations of 64 callers come as fast as with Python's 0.005; those beside a snapshot of 200,000
transactional ids have less than half of the p99. Without a snapshot the p99 is a sixth longer."""

Config = TypeVar("Config")

_STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)

_log = logging.getLogger(__name__)


class ServiceError(Exception):
    """The service cannot start or go on, and its message says all that an operator needs to know."""

    def __init__(self, message: str, exit_code: int = FAILED) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class Running(Protocol):
    """A service that has started. `ended` is set when it is to stop: to None on request, to the error by a fault."""

    @property
    def ended(self) -> asyncio.Future[BaseException | None]:
        """Waited for once."""
        ...


class Ending:
    """What ends a service: whatever comes first of a request to stop and a fault."""

    def __init__(self) -> None:
        self.ended: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()

    def request_stop(self) -> None:
        """End it as it should."""
        self._end(None)

    def fail(self, error: BaseException) -> None:
        """End it by a fault."""
        self._end(error)

    def _end(self, error: BaseException | None) -> None:
        if not self.ended.done():
            self.ended.set_result(error)


def run_service(
    service: Callable[[], AbstractAsyncContextManager[Running]],
    *,
    logger: logging.Logger,
    log_level: LogLevel,
    log_format: LogFormat,
    open_files: int,
    stop_seconds: float = math.inf,
) -> int:
    """Run until SIGTERM or SIGINT (returns 0), or until a fault (returns 1, or what a ServiceError says), which is
    logged with `logger`.

    Entering `service` starts it and calls `on_stop_signal`, leaving it stops it gracefully; a fault is raised within.
    `open_files`: how many it may need. `stop_seconds`: how long it may take to stop; after that the process leaves with
    1 as if it had crashed. Raises SettingsError without assertions.
    """
    start_logging(log_level, log_format)
    require_assertions()
    _raise_file_limit(open_files)
    give_back_what_is_freed()
    sys.setswitchinterval(SWITCH_SECONDS)
    deadline = _deadline(stop_seconds, logger)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        try:
            runner.run(_until_ended(service, deadline))
        except ServiceError as error:
            logger.critical("%s", error)
            return error.exit_code
        except Exception as fault:
            logger.critical("this process stops: %s: %s", type(fault).__name__, fault, exc_info=fault)
            return FAILED
    # Not after a failure: the interpreter still waits for threads of the service, and one of them may hang.
    deadline.cancel()
    logger.info("stopped")
    return 0


def on_stop_signal(request_stop: Callable[[], None]) -> None:
    """Have SIGTERM and SIGINT call `request_stop` from now on; before, they end the process at once.

    So does a second one, with FAILED, as if it had crashed. Not by the default of the signal, which the first process
    of a container does not have.
    """
    loop = asyncio.get_running_loop()

    def stop() -> None:
        for number in _STOP_SIGNALS:
            loop.add_signal_handler(number, leave)
        request_stop()

    def leave() -> None:
        _log.warning("told to stop for a second time: leaving at once")
        flush_log()
        os._exit(FAILED)

    for number in _STOP_SIGNALS:
        loop.add_signal_handler(number, stop)


def on_violation(fail: Callable[[BaseException], None]) -> None:
    """Log what no caller of the running event loop catches from now on, and call `fail` with a violated invariant.

    The memory cannot be trusted then. An assertion of a library says nothing of it, and callers may cause one.
    """

    def unhandled(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        _log.error("%s", context.get("message"), exc_info=error)
        if isinstance(error, AssertionError) and _is_ours(error):
            fail(error)

    asyncio.get_running_loop().set_exception_handler(unhandled)


def run_module(load_config: Callable[[Path | None], Config], run: Callable[[Config], int]) -> int:
    """The exit code of `python -m PACKAGE [CONFIG]`: 2, with the reason on stderr, for unusable settings."""
    try:
        return run(load_config(Path(sys.argv[1]) if len(sys.argv) > 1 else None))
    except SettingsError as error:
        sys.stderr.write(f"{error}\n")
        return UNUSABLE_SETTINGS


def _deadline(seconds: float, logger: logging.Logger) -> threading.Timer:
    """What ends the process `seconds` after its start, whatever hangs: the event loop, a thread of it, a disk."""

    def leave() -> None:
        logger.critical("not stopped within %g s, something hangs: this process leaves as if it had crashed", seconds)
        os._exit(FAILED)

    timer = threading.Timer(min(seconds, threading.TIMEOUT_MAX), leave)
    timer.daemon = True
    return timer


async def _until_ended(service: Callable[[], AbstractAsyncContextManager[Running]], deadline: threading.Timer) -> None:
    async with service() as running:
        # What was made so far lives as long as the process: the collector need not look at it again.
        gc.collect()
        gc.freeze()
        _, middle, _ = gc.get_threshold()
        gc.set_threshold(YOUNG_OBJECTS, middle, MIDDLE_COLLECTIONS)
        async with supervised():
            fault = await running.ended
        deadline.start()
        if fault is not None:
            raise fault


def _is_ours(error: AssertionError) -> bool:
    """Whether code of this distribution raised it, for all that is known."""
    raised_in = [frame.f_globals.get("__name__", "") for frame, _ in traceback.walk_tb(error.__traceback__)]
    return not raised_in or raised_in[-1].startswith("pidkeeper.")


def _raise_file_limit(wanted: int) -> None:
    """Raise the soft limit of open files to `wanted`, as far as the hard limit allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    reachable = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (reachable, hard))
    if reachable < wanted:
        _log.warning("the limit of open files is %d, %d would be needed: raise `ulimit -n`", reachable, wanted)
