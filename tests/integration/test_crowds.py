"""More idle and slow connections than a process may have open files, on every listener at once.

Probes answer, blocks and IDs are handed out, the log gets new segments, and who has asked before keeps its connection.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import resource
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.crowd import crowded, target
from bench.limited_files import LimitedFilesCluster
from pidkeeper.cli.local_cluster import Member, member_name
from pidkeeper.controller.storage.segment import segment_names
from pidkeeper.disk.files import OsFiles
from pidkeeper.service.connections import SWEEP_SECONDS
from tests.support.cluster import CONTROLLER_OPTIONS, allocate, metrics, register
from tests.support.http_calls import Answer, address_of, call
from tests.support.transactional_client import TransactionalClient

FILES = 1024
IDLE, SLOW = 800, 2200
"""At each HTTP listener. A third of the slow ones send a body that does not come: more than there are places."""

OPENED = 2 * (IDLE + SLOW)
"""What one process of the crowd may hold."""


SOFT = 256
"""A limit that a member may raise; fewer than the crowd that it then has room for."""


@pytest.fixture(params=[(FILES, FILES)], ids=["hard"])
def cluster(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[LimitedFilesCluster]:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < OPENED:
        pytest.skip(f"the limit of open files is {hard}, {OPENED} are needed")
    cluster = LimitedFilesCluster(
        tmp_path, files=request.param, controllers=1, agents=1, controller_options=CONTROLLER_OPTIONS
    )
    try:
        cluster.start()
        cluster.wait_ready()
        yield cluster
    finally:
        cluster.kill(*[member for member in cluster.members() if cluster.running(member)])


@contextlib.contextmanager
def kept_open(member: Member) -> Iterator[http.client.HTTPConnection]:
    connection = http.client.HTTPConnection(*address_of(member.http), timeout=10)
    try:
        connection.connect()
        yield connection
    finally:
        connection.close()


def claim(connection: http.client.HTTPConnection) -> int:
    """An ID over a connection that is open already. Raises HTTPException if it is no more."""
    connection.auto_open = 0
    connection.request("POST", "/v1/init-producer-id", "{}", {"Content-Type": "application/json"})
    answer = json.loads(connection.getresponse().read())
    assert answer["error_code"] == 0
    return int(answer["producer_id"])


def become_regular(connection: http.client.HTTPConnection) -> int:
    """Ask in two periods of the listener; the last ID."""
    end = time.monotonic() + 2 * SWEEP_SECONDS
    while time.monotonic() < end:
        claimed = claim(connection)
    return claimed


def kafka_answers(address: str) -> bool:
    body = b"\x00\x12\x00\x00\x00\x00\x00\x01\x00\x01c"
    with socket.create_connection(address_of(address), timeout=10) as client:
        client.sendall(len(body).to_bytes(4, "big") + body)
        return client.recv(8)[4:] == b"\x00\x00\x00\x01"


def probed(cluster: LimitedFilesCluster, member: Member, path: str) -> Answer:
    return call(cluster.probes[member_name(member)], "GET", path)


def test_crowds_on_every_listener_keep_nobody_out(cluster: LimitedFilesCluster) -> None:
    (controller,), (agent,) = cluster.layout.controllers, cluster.layout.agents
    transactions = TransactionalClient(cluster)
    epoch = register(controller, 9, "crowded").json()["broker_epoch"]
    targets = [target(member.http, "http", IDLE, SLOW) for member in (controller, agent)]
    targets += [target(address, "http", 100, 100) for address in cluster.probes.values()]
    targets += [target(controller.peer, "peer", 100, 100), target(agent.kafka, "kafka", 500, 500)]
    with kept_open(agent) as kept:
        first = become_regular(kept)
        with crowded(targets) as crowd:
            assert (crowd.begun.opened, crowd.begun.failed) == (sum(each.idle + each.slow for each in targets), 0)
            for member in (controller, agent):
                assert probed(cluster, member, "/livez").status == 200
                assert probed(cluster, member, "/readyz").status == 200
                assert probed(cluster, member, "/metrics").status == 200
                figures = metrics(member)
                assert 100 < figures["pidkeeper_http_connections"] < FILES
                assert figures["pidkeeper_http_connections_evicted_total"] > 0
                assert figures["pidkeeper_http_connections_refused_total"] == 0
                assert figures["pidkeeper_probe_connections_evicted_total"] > 0
            assert metrics(agent)["pidkeeper_agent_connections_evicted_total"] > 0
            assert [allocate(controller, 9, epoch).status for _ in range(5)] == [200] * 5
            assert claim(kept) > first
            assert kafka_answers(agent.kafka)
            wal = Path(controller.data_dir) / "wal"
            before = segment_names(OsFiles(), wal)
            while len(set(segment_names(OsFiles(), wal)) - set(before)) < 2:
                pair = transactions.pair("fat")
                assert transactions.add("fat", pair, *range(9_000)).status == 200
                assert transactions.end("fat", pair).status == 200
            for member in (controller, agent):
                assert probed(cluster, member, "/readyz").status == 200
        assert claim(kept) > first
    assert not cluster.dead()


@pytest.mark.parametrize("cluster", [(SOFT, OPENED)], indirect=True, ids=["soft"])
def test_a_limit_that_can_be_raised_is_no_limit(cluster: LimitedFilesCluster) -> None:
    (controller,), (agent,) = cluster.layout.controllers, cluster.layout.agents
    epoch = register(controller, 9, "crowded").json()["broker_epoch"]
    with crowded([target(member.http, "http", 2 * SOFT, SOFT // 4) for member in (controller, agent)]) as crowd:
        assert crowd.begun.failed == 0
        for member in (controller, agent):
            figures = metrics(member)
            assert figures["pidkeeper_http_connections"] > 2 * SOFT
            assert figures["pidkeeper_http_connections_evicted_total"] == 0
            assert probed(cluster, member, "/readyz").status == 200
        assert [allocate(controller, 9, epoch).status for _ in range(5)] == [200] * 5
        with kept_open(agent) as kept:
            assert claim(kept) < claim(kept)
    assert not cluster.dead()
