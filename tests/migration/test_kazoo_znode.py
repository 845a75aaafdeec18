"""The znode by way of kazoo, on a real ZooKeeper: what it answers, and what it answers when nobody does."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, TypeVar

import pytest
from kazoo.security import make_digest_acl

from pidkeeper.controller.migration import kazoo_znode
from pidkeeper.controller.migration.kazoo_znode import KazooZnode
from pidkeeper.controller.migration.zookeeper import (
    BLOCK_PATH,
    BROKERS_PATH,
    BlockZnode,
    Cause,
    Failure,
    LiveBrokers,
    Znode,
)
from tests.support.cluster import REPOSITORY
from tests.support.cutting_proxy import CuttingProxy
from tests.support.waiting import until
from tests.support.zookeeper import WAIT_SECONDS, Ensemble, zookeeper_client

REQUEST_TIMEOUT_MS = 1000
Found = TypeVar("Found")


class Asked:
    """A KazooZnode asked with await; counts that every call is answered once."""

    def __init__(self, znode: KazooZnode) -> None:
        self.znode = znode
        self.port: BlockZnode = znode
        self.calls = 0
        self.answers: list[Any] = []

    async def read(self) -> Znode | Failure:
        return await self._ask(self.port.read)

    async def write(self, data: bytes | None, version: int) -> Znode | Failure:
        return await self._ask(lambda done: self.port.write(data, version, done))

    async def brokers(self) -> LiveBrokers | Failure:
        return await self._ask(self.port.brokers)

    async def _ask(self, call: Callable[[Callable[[Found | Failure], None]], None]) -> Found | Failure:
        self.calls += 1
        call(self.answers.append)
        assert len(self.answers) == self.calls - 1, "answered before the call returned"
        await until(lambda: len(self.answers) >= self.calls)
        assert len(self.answers) == self.calls
        answer: Found | Failure = self.answers[-1]
        return answer

    async def sent(self) -> None:
        """Return once the request is with the operating system, and not answered."""
        await until(lambda: bool(self.znode._client._pending))

    async def connected(self) -> None:
        await until(lambda: self.port.disconnected() is None)


@pytest.fixture(autouse=True)
def _no_thread_left() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    left = {thread for thread in threading.enumerate() if not thread.name.startswith("asyncio")} - before
    assert not left, "threads are left over"


@contextlib.asynccontextmanager
async def running(connect: str, *, ready: bool = True, **options: Any) -> AsyncIterator[Asked]:
    """A started KazooZnode, with a session if `ready`; stopped at the end."""
    settings = {"session_timeout_ms": 10_000, "request_timeout_ms": REQUEST_TIMEOUT_MS} | options
    asked = Asked(KazooZnode(connect, **settings))
    await asked.znode.start()
    try:
        if ready:
            await asked.connected()
        yield asked
    finally:
        await asyncio.wait_for(asked.znode.stop(), WAIT_SECONDS)
    assert len(asked.answers) == asked.calls, "an answer too many or too few"


@contextlib.contextmanager
def plain(connect: str) -> Any:
    """kazoo's own client."""
    client = zookeeper_client(connect)
    try:
        yield client
    finally:
        client.stop()
        client.close()


def refused(answer: Znode | LiveBrokers | Failure, cause: Cause, said: str = "") -> None:
    assert isinstance(answer, Failure), answer
    assert answer.cause is cause, answer
    assert said in answer.detail, answer


# What is stored.


async def test_null_data(zookeeper: Ensemble) -> None:
    async with running(zookeeper.chroot("null")) as znode:
        assert await znode.read() == Znode(None, 0)


async def test_data(zookeeper: Ensemble) -> None:
    async with running(zookeeper.chroot("data", b"{}")) as znode:
        assert await znode.read() == Znode(b"{}", 0)


async def test_empty_data_counts_as_none(zookeeper: Ensemble) -> None:
    async with running(zookeeper.chroot("empty", b"")) as znode:
        assert await znode.read() == Znode(None, 0)


async def test_null_is_stored_as_null(zookeeper: Ensemble) -> None:
    connect = zookeeper.chroot("null-again", b"{}")
    async with running(connect) as znode:
        assert await znode.write(None, 0) == Znode(None, 1)
        assert await znode.read() == Znode(None, 1)
    with plain(connect) as client:
        assert client.get(BLOCK_PATH)[0] is None


async def test_absent(zookeeper: Ensemble) -> None:
    async with running(zookeeper.chroot("absent"), path="/other") as znode:
        refused(await znode.read(), Cause.ABSENT, "/other")
        refused(await znode.write(b"{}", 0), Cause.ABSENT, "no such znode")


# Who lives there.


async def test_where_no_broker_ever_was_is_none(zookeeper: Ensemble) -> None:
    async with running(zookeeper.chroot("no-brokers")) as znode:
        assert await znode.brokers() == LiveBrokers(())


async def test_brokers_live_while_their_sessions_last(zookeeper: Ensemble) -> None:
    connect = zookeeper.chroot("brokers")
    async with running(connect) as znode:
        with plain(connect) as one:
            one.create(f"{BROKERS_PATH}/2", b"{}", ephemeral=True, makepath=True)
            with plain(connect) as other:
                other.create(f"{BROKERS_PATH}/11", b"{}", ephemeral=True)
                other.create(f"{BROKERS_PATH}/broker", b"{}", ephemeral=True)
                assert await znode.brokers() == LiveBrokers((2, 11), foreign=1)
            assert await znode.brokers() == LiveBrokers((2,))
        assert await znode.brokers() == LiveBrokers(())


async def test_more_children_than_anybody_has_brokers(zookeeper: Ensemble, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kazoo_znode, "MAX_BROKERS", 2)
    connect = zookeeper.chroot("many-brokers")
    async with running(connect) as znode:
        with plain(connect) as client:
            client.ensure_path(BROKERS_PATH)
            for broker_id in range(3):
                client.create(f"{BROKERS_PATH}/{broker_id}")
                if broker_id < 2:
                    assert await znode.brokers() == LiveBrokers(tuple(range(broker_id + 1)))
        refused(await znode.brokers(), Cause.UNAVAILABLE, "it has 3 children, at most 2 are looked at")


async def test_brokers_that_only_others_may_see(zookeeper: Ensemble) -> None:
    connect = zookeeper.chroot("brokers-acl")
    with plain(connect) as client:
        client.ensure_path(BROKERS_PATH)
        client.set_acls(BROKERS_PATH, [make_digest_acl("kafka", "secret", all=True)])
    async with running(connect) as znode:
        refused(await znode.brokers(), Cause.DENIED, BROKERS_PATH)
        assert await znode.read() == Znode(None, 0)
    async with running(connect, digest="kafka:secret") as znode:
        assert await znode.brokers() == LiveBrokers(())


async def test_brokers_of_a_zookeeper_that_is_silent(zookeeper: Ensemble) -> None:
    async with running(zookeeper.chroot("brokers-silent")) as znode:
        zookeeper.pause(1)
        try:
            refused(await znode.brokers(), Cause.UNAVAILABLE, f"no answer within {REQUEST_TIMEOUT_MS} ms")
        finally:
            zookeeper.resume(1)


# Conditional writes.


async def test_writes_at_the_version(zookeeper: Ensemble) -> None:
    async with running(zookeeper.chroot("versions")) as znode:
        for version in range(20):
            data = b"%d" % version
            assert await znode.write(data, version) == Znode(data, version + 1)
            assert await znode.read() == Znode(data, version + 1)
        for version in (0, 19, 21):
            refused(await znode.write(b"not this", version), Cause.CONFLICT)
        assert await znode.read() == Znode(b"19", 20)


async def test_unconditional_write_is_a_bug(zookeeper: Ensemble) -> None:
    async with running(zookeeper.chroot("unconditional")) as znode:
        with pytest.raises(AssertionError, match="version -1"):
            znode.port.write(b"{}", -1, znode.answers.append)
        assert await znode.read() == Znode(None, 0)


async def test_one_of_two_writers_wins(zookeeper: Ensemble) -> None:
    connect = zookeeper.chroot("writers")
    async with running(connect) as one, running(connect) as other:
        for version in range(20):
            answers = await asyncio.gather(one.write(b"one", version), other.write(b"other", version))
            won = [answer for answer in answers if isinstance(answer, Znode)]
            lost = [answer for answer in answers if isinstance(answer, Failure)]
            assert len(won) == len(lost) == 1
            refused(lost[0], Cause.CONFLICT)
            assert await one.read() == await other.read() == won[0]


async def test_lost_acknowledgement_stays_unknown(zookeeper: Ensemble) -> None:
    """A second attempt would meet the first one's version, and report a conflict for what was written."""
    chroot = zookeeper.chroot("lost-ack").partition("/")[2]
    async with (
        CuttingProxy(zookeeper.address(1)).serving() as proxy,
        running(f"{proxy.address}/{chroot}", request_timeout_ms=5000) as znode,
    ):
        assert await znode.write(b"first", 0) == Znode(b"first", 1)
        proxy.cut_writes = True
        refused(await znode.write(b"second", 1), Cause.UNAVAILABLE)
        proxy.cut_writes = False
        await znode.connected()
        assert await znode.read() == Znode(b"second", 2)
        assert proxy.writes == 2


# Access.


async def test_acl(zookeeper: Ensemble) -> None:
    connect = zookeeper.chroot("acl")
    with plain(connect) as client:
        client.create("/guarded", None, acl=[make_digest_acl("kafka", "secret", all=True)])
    async with running(connect, path="/guarded", digest="kafka:secret") as znode:
        assert await znode.write(b"{}", 0) == Znode(b"{}", 1)
        assert await znode.read() == Znode(b"{}", 1)
    for digest in (None, "kafka:wrong"):
        async with running(connect, path="/guarded", digest=digest) as znode:
            refused(await znode.read(), Cause.DENIED, "ACL")
            refused(await znode.write(b"{}", 1), Cause.DENIED, "ACL")


async def test_credential_is_refused_for_a_while(zookeeper: Ensemble) -> None:
    """kazoo gives up for good when a server refuses a credential; this does not."""
    connect = zookeeper.chroot("refused")
    zookeeper.kill(1)
    zookeeper.settings.append("DigestAuthenticationProvider.enabled=false")
    zookeeper.start_server(1)
    async with running(connect, ready=False, digest="kafka:secret") as znode:
        await until(lambda: "refuses the credential" in (znode.port.disconnected() or ""))
        zookeeper.kill(1)
        zookeeper.settings.clear()
        zookeeper.start_server(1)
        await znode.connected()
        assert await znode.write(b"{}", 0) == Znode(b"{}", 1)


# Without an answer.


async def test_server_dies_and_comes_back(zookeeper: Ensemble) -> None:
    connect = zookeeper.chroot("dies")
    async with running(connect) as znode:
        assert await znode.write(b"before", 0) == Znode(b"before", 1)
        zookeeper.kill(1)
        refused(await znode.write(b"during", 1), Cause.UNAVAILABLE, connect)
        await until(lambda: znode.port.disconnected() is not None)
        refused(await znode.read(), Cause.UNAVAILABLE, "the connection was lost")
        zookeeper.start_server(1)
        await znode.connected()
        assert await znode.read() == Znode(b"before", 1)
        assert await znode.write(b"after", 1) == Znode(b"after", 2)


async def test_session_expires(zookeeper: Ensemble) -> None:
    """The server forgets the session while it cannot be reached."""
    connect = zookeeper.chroot("expires")
    async with running(connect, session_timeout_ms=400) as znode:
        session = znode.znode._client.client_id
        zookeeper.kill(1)
        await until(lambda: znode.port.disconnected() is not None)
        zookeeper.start_server(1)
        with plain(zookeeper.connect) as client:  # its session outlasts the other's
            client.get("/")
            await znode.connected()
        assert await znode.write(b"after", 0) == Znode(b"after", 1)
        assert session is not None


async def test_server_pauses(zookeeper: Ensemble) -> None:
    connect = zookeeper.chroot("pauses")
    async with running(connect, request_timeout_ms=300) as znode:
        zookeeper.pause(1)
        try:
            began = time.monotonic()
            refused(await znode.write(b"once", 0), Cause.UNAVAILABLE, "no answer within 300 ms")
            refused(await znode.read(), Cause.UNAVAILABLE, "no answer within 300 ms")
            assert time.monotonic() - began < WAIT_SECONDS / 2
        finally:
            zookeeper.resume(1)
        await znode.connected()
        # It may still happen, and did: the request was on its way. Once.
        assert await znode.read() == Znode(b"once", 1)


async def test_no_server_since_the_start(zookeeper: Ensemble) -> None:
    """Nothing is queued for later: what was asked without a session never happens."""
    connect = zookeeper.chroot("late")
    zookeeper.kill(1)
    async with running(connect, ready=False, request_timeout_ms=10_000) as znode:
        reason = znode.port.disconnected()
        assert reason == f"no session with ZooKeeper at {connect}: connecting since the start"
        refused(await znode.write(b"never", 0), Cause.UNAVAILABLE, reason)
        refused(await znode.read(), Cause.UNAVAILABLE, reason)
        zookeeper.start_server(1)
        await znode.connected()
        assert await znode.read() == Znode(None, 0)


async def test_write_between_two_sessions_never_happens(zookeeper: Ensemble) -> None:
    """A call may begin with a session, and come to kazoo when it has none: it is not kept for the next one."""
    connect = zookeeper.chroot("between")
    async with running(connect, request_timeout_ms=300) as znode:
        zookeeper.kill(1)
        await until(lambda: znode.port.disconnected() is not None)
        znode.znode._without_session = None
        refused(await znode.write(b"late", 0), Cause.UNAVAILABLE, "no answer within 300 ms")
        znode.znode._without_session = "lost"
        zookeeper.start_server(1)
        await znode.connected()
        assert await znode.read() == Znode(None, 0)


# The end.


async def test_stop_answers_the_call_under_way(zookeeper: Ensemble) -> None:
    connect = zookeeper.chroot("stop-busy")
    async with running(connect, request_timeout_ms=300) as znode:
        zookeeper.pause(1)
        try:
            znode.calls += 1
            znode.port.read(znode.answers.append)
            await asyncio.wait_for(znode.znode.stop(), WAIT_SECONDS / 2)
            refused(znode.answers[-1], Cause.UNAVAILABLE)
            refused(await znode.read(), Cause.UNAVAILABLE, "stopped")
        finally:
            zookeeper.resume(1)


@pytest.mark.parametrize("away", ["killed", "paused", "paused since the start"])
async def test_stop_without_server(zookeeper: Ensemble, away: str) -> None:
    """The session's time is a minute: whoever waits for it runs into the bound."""
    connect = zookeeper.chroot(f"stop-{away.replace(' ', '-')}")
    early = away == "paused since the start"
    try:
        if early:
            zookeeper.pause(1)
        async with running(connect, ready=not early, session_timeout_ms=60_000) as znode:
            if away == "killed":
                zookeeper.kill(1)
            elif not early:
                zookeeper.pause(1)
            await asyncio.wait_for(znode.znode.stop(), WAIT_SECONDS / 3)
    finally:
        if zookeeper.running(1):
            zookeeper.resume(1)


def test_process_exits_without_stop(zookeeper: Ensemble) -> None:
    script = (
        "import asyncio; from controller.migration.kazoo_znode import KazooZnode\n"
        f"znode = KazooZnode({zookeeper.connect!r}, session_timeout_ms=10000, request_timeout_ms=1000)\n"
        "async def leave():\n"
        "    await znode.start()\n"
        "    while znode.disconnected(): await asyncio.sleep(0.01)\n"
        "asyncio.run(leave())"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=REPOSITORY,
        timeout=WAIT_SECONDS,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


# Reads are never old.


async def test_read_through_a_follower_that_lags(zookeeper_ensemble: Ensemble) -> None:
    name = zookeeper_ensemble.chroot("lags").partition("/")[2]
    follower, other = zookeeper_ensemble.followers()
    async with (
        running(f"{zookeeper_ensemble.address(follower)}/{name}", request_timeout_ms=10_000) as reader,
        running(f"{zookeeper_ensemble.address(other)}/{name}") as writer,
    ):
        for version in range(5):
            zookeeper_ensemble.pause(follower)
            try:
                written = await writer.write(b"new", version)
                reading = asyncio.ensure_future(reader.read())
                await reader.sent()
            finally:
                zookeeper_ensemble.resume(follower)
            assert await reading == written


async def test_read_through_a_deposed_leader(zookeeper_ensemble: Ensemble) -> None:
    """It was paused, a new leader acknowledged a write, and it does not know yet."""
    name = zookeeper_ensemble.chroot("deposed").partition("/")[2]
    old = zookeeper_ensemble.wait_for_quorum()
    others = [server for server in zookeeper_ensemble.servers if server != old]
    connect = ",".join(zookeeper_ensemble.address(server) for server in others)
    async with running(
        f"{zookeeper_ensemble.address(old)}/{name}", session_timeout_ms=60_000, request_timeout_ms=10_000
    ) as reader:
        zookeeper_ensemble.pause(old)
        try:
            with plain(f"{connect}/{name}") as client:
                stat = await asyncio.to_thread(_set_at_last, client, b"new")
            reading = asyncio.ensure_future(reader.read())
            await reader.sent()
        finally:
            zookeeper_ensemble.resume(old)
        answer = await reading
        assert isinstance(answer, Failure) or answer == Znode(b"new", stat.version), answer


def _set_at_last(client: Any, data: bytes) -> Any:
    """Set once there is a leader for it."""
    return client.retry(client.set, BLOCK_PATH, data)
