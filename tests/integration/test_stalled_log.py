"""A log that nobody reads any more stops no service: real processes whose standard error is a pipe that is full."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from pidkeeper.cli.local_cluster import LocalCluster, Member, member_name
from tests.support.cluster import CONTROLLER_OPTIONS, allocate, bring_back, register, wait_until
from tests.support.http_calls import address_of, call

PIPE_BYTES = 4096
UNREAD = b"-" * PIPE_BYTES


class PipedCluster(LocalCluster):
    """One controller and one agent, which log to pipes that this process has open."""

    def __init__(self, directory: Path) -> None:
        super().__init__(
            directory,
            controllers=1,
            agents=1,
            controller_options=CONTROLLER_OPTIONS,
            agent_options={"log_level": "debug"},
        )
        self.pipes: dict[str, int] = {}
        for member in self.members():
            os.mkfifo(path := self._pipe(member))
            # Both ends: so nobody waits for the other one to be opened.
            pipe = self.pipes[member_name(member)] = os.open(path, os.O_RDWR | os.O_NONBLOCK)
            fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, PIPE_BYTES)

    def program(self, member: Member) -> list[str]:
        return ["sh", "-c", 'exec "$@" 2>"$0"', str(self._pipe(member)), *super().program(member)]

    def _pipe(self, member: Member) -> Path:
        return self.directory / f"{member_name(member)}.pipe"

    def read(self, member: Member) -> bytes:
        """What lies in its pipe."""
        with contextlib.suppress(BlockingIOError):
            return os.read(self.pipes[member_name(member)], PIPE_BYTES)
        return b""

    def stall(self, member: Member) -> None:
        """Fill it: from now on a write waits for ever."""
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(self.pipes[member_name(member)], UNREAD)
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(self.pipes[member_name(member)], UNREAD[:1])


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[PipedCluster]:
    cluster = PipedCluster(tmp_path)
    try:
        bring_back(cluster)
        yield cluster
    finally:
        cluster.kill(*(member for member in cluster.members() if cluster.running(member)))
        for pipe in cluster.pipes.values():
            os.close(pipe)


def test_claims_go_on_while_the_agents_log_stalls_and_so_does_its_stop(cluster: PipedCluster) -> None:
    (agent,) = cluster.layout.agents
    wait_until(lambda: call(agent.http, "POST", "/v1/init-producer-id", {}).status == 200, "claims")
    cluster.stall(agent)
    with socket.create_connection(address_of(agent.kafka)) as stranger:
        # It logs why it closes the connection.
        stranger.sendall(b"\xff" * 64)
        assert stranger.recv(1) == b""
    assert call(agent.http, "POST", "/v1/init-producer-id", {}).status == 200
    cluster.signal(agent, signal.SIGTERM)
    wait_until(lambda: not cluster.running(agent), "its end")
    assert cluster.exit_code(agent) == 0


def test_blocks_are_handed_out_while_the_controllers_log_stalls_and_it_says_more_when_it_is_read(
    cluster: PipedCluster,
) -> None:
    (controller,) = cluster.layout.controllers
    epoch = register(controller, 9, "served").json()["broker_epoch"]
    wait_until(lambda: allocate(controller, 9, epoch).status == 200, "a block")
    cluster.stall(controller)
    # Orders are logged.
    for floor in (1, 2):
        assert call(controller.http, "POST", "/v1/producer-ids/floor", {"at_least": floor}).status == 200
    assert allocate(controller, 9, epoch).status == 200
    wait_until(lambda: b"at_least=2" in cluster.read(controller), "what was logged meanwhile")
