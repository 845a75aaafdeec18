"""More idle connections than a process may have open files: it holds what fits, and answers whoever asks."""

from __future__ import annotations

import contextlib
import resource
import socket
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pidkeeper.cli.local_cluster import HOST, LocalCluster, Member
from tests.support.cluster import allocate, metrics, quorum, register
from tests.support.http_calls import call

FILES = 1024
IDLE = 1500
_LIMITED = (
    "import resource, runpy, sys; "
    f"resource.setrlimit(resource.RLIMIT_NOFILE, ({FILES}, {FILES})); "
    "sys.argv[0] = 'pidkeeper'; runpy.run_module('pidkeeper.cli', run_name='__main__')"
)


_INIT_BODY = struct.pack(">hhih", 22, 4, 1, 1) + b"c\x00\x00" + struct.pack(">iqh", -1, -1, -1) + b"\x00"
_INIT = struct.pack(">i", len(_INIT_BODY)) + _INIT_BODY
_INIT_ANSWER_BYTES = 26


class LimitedCluster(LocalCluster):
    """Every process may open so many files and no more, whatever it would like."""

    def program(self, _: Member) -> list[str]:
        return [sys.executable, "-c", _LIMITED]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LimitedCluster]:
    cluster = LimitedCluster(tmp_path, controllers=1, agents=1)
    try:
        cluster.start()
        cluster.wait_ready()
        yield cluster
    finally:
        cluster.kill(*[member for member in cluster.members() if cluster.running(member)])


@pytest.fixture
def many_files() -> Iterator[None]:
    """For the connections of the test itself."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 3 * IDLE + FILES:
        pytest.skip(f"the limit of open files is {hard}, {3 * IDLE + FILES} are needed")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 3 * IDLE + FILES), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("many_files")
@pytest.mark.parametrize(
    ("http", "kafka"), [(b"", b""), (b"GET /readyz HTTP/1.1\r\n", _INIT[:-1])], ids=["silent", "never finished"]
)
def test_idle_connections_keep_nobody_out(cluster: LimitedCluster, http: bytes, kafka: bytes) -> None:
    (controller,), (agent,) = cluster.layout.controllers, cluster.layout.agents
    epoch = register(controller, 9, "idle").json()["broker_epoch"]
    with contextlib.ExitStack() as stack:
        for address, sent in ((controller.http, http), (agent.http, http), (agent.kafka, kafka)):
            port = int(address.rpartition(":")[2])
            for _ in range(IDLE):
                connection = stack.enter_context(socket.create_connection((HOST, port), timeout=5))
                with contextlib.suppress(OSError):  # it had to give way already
                    connection.sendall(sent)
        for member in (controller, agent):
            assert call(member.http, "GET", "/readyz").status == 200
            assert 0 < metrics(member)["pidkeeper_http_connections"] < FILES
            assert metrics(member)["pidkeeper_http_connections_evicted_total"] > 0
        answers = [allocate(controller, 9, epoch) for _ in range(5)]
        assert [answer.status for answer in answers] == [200] * 5
        claims = [call(agent.http, "POST", "/v1/init-producer-id", {}).json() for _ in range(5)]
        assert [claim["error_code"] for claim in claims] == [0] * 5
        with socket.create_connection((HOST, int(agent.kafka.rpartition(":")[2])), timeout=10) as client:
            client.sendall(_INIT)
            assert len(client.recv(4096)) == _INIT_ANSWER_BYTES
        assert metrics(agent)["pidkeeper_agent_connections_evicted_total"] > 0
    assert quorum(controller)["healthy"]
