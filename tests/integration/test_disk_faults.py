"""A disk that is full, read-only or broken stops its member with a clear line; the others serve, nothing is lost."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import os
import resource
import threading
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import pytest

from pidkeeper.cli.local_cluster import Controller, LocalCluster
from tests.support.checking_client import CheckingClient
from tests.support.cluster import (
    allocate,
    bring_back,
    exit_code,
    followers,
    log_of,
    new_leader,
    pidkeeper,
    quorum,
    register,
    running_cluster,
    wait_until,
)
from tests.support.disk_faults import failing_sync, fill, remount, small_disk
from tests.support.http_calls import call

LOG_LIMIT_BYTES = 64 * 1024
"""Size of the log's file at which writes begin to fail; the member's own messages stay far below it."""

FLOOD_CALLS = 64
"""Registrations under way at once: about 6 KiB of log in one batch."""


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with running_cluster(tmp_path_factory.mktemp("disks")) as cluster:
        yield cluster


@pytest.fixture
def cluster(shared: LocalCluster) -> LocalCluster:
    bring_back(shared)
    return shared


def assert_stopped_by(cluster: LocalCluster, member: Controller, *words: str) -> None:
    """The member ended with exit code 1, and one line of its log that has all the words."""
    assert exit_code(cluster, member) == 1
    lines = [line for line in log_of(cluster, member).splitlines() if "CRITICAL pidkeeper.controller.server" in line]
    assert lines, cluster.log_end(member)
    assert all(word in lines[-1] for word in words), lines[-1]


def disk_trouble(member: Controller) -> str:
    """Why the member is not ready as far as its disk is concerned; nothing if it is, or if it does not answer."""
    with contextlib.suppress(OSError, http.client.HTTPException):
        answer = call(member.http, "GET", "/readyz/disk")
        if answer.status == 503:
            return answer.body.decode()
    return ""


def make_leader(cluster: LocalCluster, target: Controller) -> None:
    """Hand leadership to `target`."""
    if cluster.leader().id != target.id:
        answer = call(cluster.leader().http, "POST", "/v1/quorum/transfer", {"target": target.id})
        assert answer.status == 200, answer
    wait_until(lambda: quorum(target)["role"] == "leader" and cluster.ready(target), f"member {target.id} to lead")


@contextlib.contextmanager
def many_registrations(cluster: LocalCluster) -> Iterator[None]:
    """Write the log as fast as it goes: registrations with long names, many at once, at whoever leads."""
    stop = threading.Event()
    thread = threading.Thread(target=lambda: asyncio.run(_flood(cluster, stop)), name="registrations")
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


async def _flood(cluster: LocalCluster, stop: threading.Event) -> None:
    urls = [controller.http for controller in cluster.layout.controllers]

    async def work(session: aiohttp.ClientSession, number: int) -> None:
        turn, place = 0, 0
        while not stop.is_set():
            turn += 1
            body = {"incarnation_id": f"{number:03}-{turn:060}"}
            url = f"{urls[place % len(urls)]}/v1/brokers/{3000 + number}/register"
            try:
                async with session.post(url, json=body) as answer:
                    place += answer.status != 200
            except (OSError, TimeoutError, aiohttp.ClientError):
                place += 1
                await asyncio.sleep(0.01)

    timeout = aiohttp.ClientTimeout(total=2.0)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=timeout) as session:
        await asyncio.gather(*(work(session, number) for number in range(FLOOD_CALLS)))


def test_a_full_disk_stops_the_leader_and_nothing_is_lost(tmp_path: Path) -> None:
    with small_disk(tmp_path / "data" / "controller-1", "5m") as disk, running_cluster(tmp_path) as cluster:
        member = cluster.layout.controllers[0]
        make_leader(cluster, member)
        filler = fill(disk, leave=256 * 1024)
        with CheckingClient(cluster) as client:
            client.more()
            told = disk_trouble(member)
            assert told == ""
            with many_registrations(cluster):
                while cluster.running(member) and not told:
                    told = disk_trouble(member)
                assert_stopped_by(cluster, member, "LogFull: no room for a log segment", "free some space")
            assert "no room for a log segment" in told, "it ended without a warning"
            assert log_of(cluster, member).count("this member stops when its segment is full") == 1
            new_leader(cluster, member)
            client.more()
            refused = pidkeeper("controller", "run", "--config", cluster.directory / "config" / "controller-1.toml")
            assert refused.returncode == 1
            assert "no room for a log segment" in refused.stderr.splitlines()[-1]
            filler.unlink()
            bring_back(cluster)
            client.more()
        client.check()


def test_a_disk_that_takes_no_more_bytes_stops_its_member(cluster: LocalCluster) -> None:
    leader = cluster.leader()
    victim = followers(cluster, leader)[0]
    with CheckingClient(cluster) as client:
        resource.prlimit(victim.pid, resource.RLIMIT_FSIZE, (LOG_LIMIT_BYTES, LOG_LIMIT_BYTES))
        with many_registrations(cluster):
            assert_stopped_by(cluster, victim, "LogFailed: writing the log", "File too large", "has to exit")
        client.more()
        bring_back(cluster)
        client.more()
    client.check()


def test_a_failed_sync_stops_the_leader(cluster: LocalCluster, tmp_path: Path) -> None:
    victim = cluster.leader()
    with CheckingClient(cluster) as client:
        client.more()
        with failing_sync(victim.pid, tmp_path / "trace", when="3"):
            assert_stopped_by(cluster, victim, "LogFailed: writing the log", "Input/output error", "has to exit")
        assert (tmp_path / "trace").read_text().count("INJECTED") == 1, "a failed sync was tried again"
        client.more()
        bring_back(cluster)
        client.more()
    client.check()


def test_a_batch_whose_sync_failed_is_not_acknowledged(cluster: LocalCluster, tmp_path: Path) -> None:
    leader = cluster.leader()
    victim, away = followers(cluster, leader)
    epoch = register(leader, 9, "failed-sync").json()["broker_epoch"]
    before = allocate(leader, 9, epoch).json()["producer_id_start"]
    # From here on no entry can be committed without the victim's word.
    cluster.kill(away)
    with failing_sync(victim.pid, tmp_path / "trace", when="1+"):
        refused = allocate(leader, 9, epoch)
        assert_stopped_by(cluster, victim, "Input/output error")
    assert refused.status in {421, 503, 504}, refused
    assert refused.json()["retryable"]
    commit = quorum(leader)["commit_index"]
    bring_back(cluster)
    after = allocate(cluster.leader(), 9, epoch).json()["producer_id_start"]
    assert after > before
    assert quorum(cluster.leader())["commit_index"] > commit


def test_a_read_only_disk_is_refused(tmp_path: Path) -> None:
    with small_disk(tmp_path / "data" / "controller-1", "5m") as disk, running_cluster(tmp_path) as cluster:
        member = cluster.layout.controllers[0]
        cluster.kill(member)
        remount(disk, "ro")
        cluster.start(member)
        assert_stopped_by(cluster, member, "cannot open the data directory", "Read-only file system", str(disk))
        with CheckingClient(cluster) as client:
            client.more()
        remount(disk, "rw")
        bring_back(cluster)
        client.check()


def test_a_directory_without_write_permission_is_refused(cluster: LocalCluster) -> None:
    member = followers(cluster, cluster.leader())[0]
    cluster.kill(member)
    log = Path(member.data_dir) / "wal"
    log.chmod(0o555)
    try:
        if os.access(log, os.W_OK):
            pytest.skip("this user may write into any directory, whatever its permissions")
        cluster.start(member)
        assert_stopped_by(cluster, member, "cannot open the data directory", "Permission denied", str(log))
    finally:
        log.chmod(0o750)
