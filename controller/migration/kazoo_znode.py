"""The znode of the latest block in a real ZooKeeper, and its brokers, by way of kazoo: only this module knows kazoo."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar

from kazoo.client import KazooClient
from kazoo.exceptions import (
    AuthFailedError,
    BadVersionError,
    InvalidACLError,
    KazooException,
    NoAuthError,
    NoNodeError,
    WriterNotClosedException,
)
from kazoo.handlers.threading import KazooTimeoutError, SequentialThreadingHandler
from kazoo.protocol.states import KazooState, KeeperState
from kazoo.retry import KazooRetry

from pidkeeper.controller.migration.live_brokers import parse_children
from pidkeeper.controller.migration.zookeeper import (
    BLOCK_PATH,
    BROKERS_PATH,
    MAX_BROKERS,
    Cause,
    Failure,
    LiveBrokers,
    Znode,
)

logger = logging.getLogger(__name__)

_FIRST_PAUSE_SECONDS: Final = 0.1
_LONGEST_PAUSE_SECONDS: Final = 1.0
"""Between two attempts to connect. kazoo's own bound is an hour, which would outlast the outage."""

_GOODBYE_SECONDS: Final = 0.5
"""How long a session may take to close in order. No znode hangs on it, so it may as well expire."""

_ANY_VERSION: Final = -1
"""ZooKeeper's mark for a request that is not conditional."""

_CAUSES: Final = (
    (BadVersionError, Cause.CONFLICT, "the znode was written by somebody else"),
    (NoNodeError, Cause.ABSENT, "there is no such znode"),
    (NoAuthError, Cause.DENIED, "the znode's ACL does not allow it"),
    (InvalidACLError, Cause.DENIED, "the znode's ACL is invalid"),
    (AuthFailedError, Cause.DENIED, "ZooKeeper refuses the credential"),
)

Done = Callable[[Znode | Failure], None]
Found = TypeVar("Found")


class KazooZnode:
    """One znode, one session, calls one after another (`BlockZnode`).

    `connect`: as `check_connect` returns it. `session_timeout_ms`: ZooKeeper ends a session that was silent that long;
    `request_timeout_ms` bounds one call, whatever requests it is made of. `digest`: `user:password` for the znode's
    ACL. A lost session is replaced without end, until `stop`.
    """

    def __init__(
        self,
        connect: str,
        *,
        session_timeout_ms: int,
        request_timeout_ms: int,
        digest: str | None = None,
        path: str = BLOCK_PATH,
    ) -> None:
        self._where = f"ZooKeeper at {connect}"
        self._path = path
        self._timeout_ms = request_timeout_ms
        self._handler = _Handler(connect_seconds=request_timeout_ms / 1000)
        # kazoo warns of every attempt, and its debug log shows the credential.
        quiet = logger.getChild("kazoo")
        quiet.setLevel(logging.ERROR)
        self._client = KazooClient(
            connect,
            timeout=session_timeout_ms / 1000,
            handler=self._handler,
            auth_data=None if digest is None else [("digest", digest)],
            connection_retry=KazooRetry(
                max_tries=-1,
                delay=_FIRST_PAUSE_SECONDS,
                max_delay=_LONGEST_PAUSE_SECONDS,
                sleep_func=self._handler.sleep_func,
            ),
            logger=quiet,
        )
        self._client.add_listener(self._session_changed)
        self._without_session: str | None = f"no session with {self._where}: connecting since the start"
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="zookeeper")
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopped = False

    async def start(self) -> None:
        """Begin to connect; returns at once. Once only."""
        assert self._loop is None, "started twice"
        self._loop = asyncio.get_running_loop()
        self._client.start_async()

    async def stop(self) -> None:
        """End the session and all threads, after the answer to the call under way."""
        assert self._loop is not None, "stop() before start()"
        if not self._stopped:
            self._stopped = True
            # Behind the call under way, so `done` has been called when this returns; and also if nobody waits for it.
            closed = self._loop.run_in_executor(self._executor, self._close)
            self._executor.shutdown(wait=False)
            await asyncio.shield(closed)
            self._executor.shutdown()

    # The port.

    def read(self, done: Done) -> None:
        """See `BlockZnode.read`. Empty data counts as none: kazoo and zkCli create a znode with empty data where Kafka
        leaves it null, and no block is in either."""
        self._begin(self._path, self._read, done)

    def write(self, data: bytes | None, version: int, done: Done) -> None:
        """See `BlockZnode.write`. One request, never repeated: what became of the first would be lost."""
        assert version >= 0, f"a write at version {version} would not be conditional"
        self._begin(self._path, functools.partial(self._write, data, version), done)

    def brokers(self, done: Callable[[LiveBrokers | Failure], None]) -> None:
        """See `BlockZnode.brokers`."""
        self._begin(BROKERS_PATH, self._brokers, done)

    def disconnected(self) -> str | None:
        """None while there is a session with ZooKeeper, else what is wrong."""
        if self._stopped:
            return f"no session with {self._where}: stopped"
        return self._without_session

    # One call: `_begin` and `answer` on the event loop, the rest on the executor's thread.

    def _begin(
        self, path: str, call: Callable[[_Deadline], Found | Failure], done: Callable[[Found | Failure], None]
    ) -> None:
        loop = self._loop
        assert loop is not None, "a call before start()"
        # kazoo would queue what is asked without a session, and send it when nobody waits for it any more.
        if (reason := self.disconnected()) is not None:
            loop.call_soon(done, Failure(Cause.UNAVAILABLE, reason))
        else:
            self._executor.submit(lambda: loop.call_soon_threadsafe(done, self._outcome(path, call)))

    def _outcome(self, path: str, call: Callable[[_Deadline], Found | Failure]) -> Found | Failure:
        try:
            return call(_Deadline(self._timeout_ms))
        except KazooTimeoutError:
            return self._unavailable(path, f"no answer within {self._timeout_ms} ms")
        except KazooException as error:
            for kind, cause, meaning in _CAUSES:
                if isinstance(error, kind):
                    return Failure(cause, f"{path} in {self._where}: {meaning}")
            return self._unavailable(path, f"{type(error).__name__}: {error.__doc__ or error}")
        except Exception as error:  # whatever kazoo makes of a reply that it does not understand
            logger.exception("ZooKeeper's reply cannot be read")
            return self._unavailable(path, f"{type(error).__name__}: {error}")

    def _unavailable(self, path: str, what: str) -> Failure:
        return Failure(Cause.UNAVAILABLE, f"{path} in {self._where}: {what}")

    def _read(self, deadline: _Deadline) -> Znode | Failure:
        session = self._client.client_id
        self._meet_quorum(self._path, deadline)
        data, stat = deadline.get(self._client.get_async(self._path))
        return self._session_lost(self._path, session) or Znode(data or None, stat.version)

    def _brokers(self, deadline: _Deadline) -> LiveBrokers | Failure:
        session = self._client.client_id
        try:
            self._meet_quorum(BROKERS_PATH, deadline)
            stat = deadline.get(self._client.exists_async(BROKERS_PATH))
            if stat is not None and stat.numChildren > MAX_BROKERS:
                what = f"it has {stat.numChildren} children, at most {MAX_BROKERS} are looked at"
                return self._unavailable(BROKERS_PATH, what)
            names = deadline.get(self._client.get_children_async(BROKERS_PATH))
        except NoNodeError:
            names = []
        return self._session_lost(BROKERS_PATH, session) or parse_children(names)

    def _session_lost(self, path: str, session: object) -> Failure | None:
        """A new session may be with a server that has not seen what the old one had."""
        if session is None or self._client.client_id != session:
            return self._unavailable(path, "the session was lost during the read")
        return None

    def _meet_quorum(self, path: str, deadline: _Deadline) -> None:
        """Return once a majority has agreed on something after this was called: what is read next is not older.

        `sync` does not do it: a leader answers it from what it knows, also one that was deposed while it was paused.
        A transaction is voted on even if it only checks, here that the znode exists; it changes nothing.
        """
        transaction = self._client.transaction()
        transaction.check(path, _ANY_VERSION)
        for outcome in deadline.get(transaction.commit_async()):
            if isinstance(outcome, Exception):
                raise outcome

    def _write(self, data: bytes | None, version: int, deadline: _Deadline) -> Znode:
        stat = deadline.get(self._client.set_async(self._path, data, version))
        return Znode(data or None, stat.version)

    # The session: on kazoo's threads, but for the end.

    def _session_changed(self, state: str) -> None:
        if state == KazooState.CONNECTED:
            # A call that began with a session may have come to kazoo after its loss. kazoo has kept it, and would send
            # it now, when nobody waits for it; this is how it drops what was asked before a loss.
            self._client._notify_pending(KeeperState.CONNECTING)
            self._without_session = None
            logger.info("there is a session with %s", self._where)
            return
        if self._client.client_state == KeeperState.AUTH_FAILED:
            what = "it refuses the credential"
        elif state == KazooState.SUSPENDED:
            what = "the connection was lost"
        else:
            what = "the session was lost"
        self._without_session = f"no session with {self._where}: {what}"
        if not self._stopped:
            logger.warning("%s", self._without_session)

    def _close(self) -> None:
        self._handler.closing.set()
        abort = threading.Timer(_GOODBYE_SECONDS, self._handler.abort)
        abort.start()
        try:
            self._client.stop()
            self._client.close()
        except WriterNotClosedException:
            # Only a name server that does not answer holds kazoo that long. Its thread ends with that.
            logger.warning("kazoo is still looking up %s", self._where)
        finally:
            abort.cancel()
            abort.join()


class _Deadline:
    """The time that the requests of one call share."""

    def __init__(self, timeout_ms: int) -> None:
        self._end = time.monotonic() + timeout_ms / 1000

    def get(self, result: Any) -> Any:
        """What kazoo's asynchronous `result` comes to. Raises what it raises, and KazooTimeoutError."""
        return result.get(timeout=max(0.0, self._end - time.monotonic()))


class _Handler(SequentialThreadingHandler):  # type: ignore[misc]
    """kazoo's threads, which last until `closing` is set, and its socket, which can be cut off."""

    def __init__(self, connect_seconds: float) -> None:
        super().__init__()
        self.closing: Final = threading.Event()
        self._connect_seconds = connect_seconds
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._aborted = False

    def spawn(self, func: Callable[..., None], *args: Any, **kwargs: Any) -> threading.Thread:
        """Start a thread. kazoo's connection thread ends for good with a refused credential or an odd reply: again."""

        def repeat() -> None:
            while True:
                # It has logged what it raises.
                with contextlib.suppress(Exception):
                    func(*args, **kwargs)
                # `running` ends without `closing` when a process exits without `stop`: kazoo waits for its threads.
                if not self.running or self.closing.wait(_LONGEST_PAUSE_SECONDS):
                    return

        thread: threading.Thread = super().spawn(repeat)
        return thread

    def create_connection(self, *args: Any, timeout: float, **kwargs: Any) -> socket.socket:
        """Connect within the time of a call: kazoo allows one server all of the session's."""
        connection: socket.socket = super().create_connection(
            *args, timeout=min(timeout, self._connect_seconds), **kwargs
        )
        with self._lock:
            self._socket = connection
            if not self._aborted:
                return connection
        connection.close()
        raise ConnectionAbortedError("stopped")

    def abort(self) -> None:
        """Cut off the connection, so that nobody waits for a server that is silent."""
        with self._lock:
            self._aborted = True
            if self._socket is not None:
                with contextlib.suppress(OSError):
                    self._socket.shutdown(socket.SHUT_RDWR)
