"""Keys of the members are introduced and changed one member at a time, and no claim fails meanwhile."""

from __future__ import annotations

import http.client
import signal
import ssl
import threading
from pathlib import Path
from typing import Any, Self

import pytest

from pidkeeper.cli.local_cluster import Agent, LocalCluster
from pidkeeper.controller.raft.messages import RequestVote
from pidkeeper.controller.transport.frames import NONCE_BYTES, PROTOCOL_VERSION, Hello, Proof, frame
from pidkeeper.protocol.log_position import MAX_NUMBER
from tests.support.cluster import allocate, exit_code, followers, log_of, quorum, register, running_cluster, wait_until
from tests.support.http_calls import call, exchange


class Claims:
    """Claims IDs at an agent without a pause, over TLS with a `context`; `failed` are the answers that were no ID."""

    def __init__(self, agent: Agent, context: ssl.SSLContext | None = None) -> None:
        self.agent = agent
        self._context = context
        self.claimed: list[int] = []
        self.failed: list[Any] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(60)
        assert not self._thread.is_alive(), "the claims do not end"

    def _run(self) -> None:
        while not self._stop.wait(0.001):
            try:
                answer = self._claim()
            except (OSError, http.client.HTTPException) as error:
                answer = {"no answer": error}
            if answer.get("error_code") == 0:
                self.claimed.append(answer["producer_id"])
            else:
                self.failed.append(answer)

    def _claim(self) -> dict[str, Any]:
        answer = call(
            self.agent.http, "POST", "/v1/init-producer-id", {"transactional_id": None}, context=self._context
        )
        claimed: dict[str, Any] = answer.json()
        return claimed


def roll(cluster: LocalCluster, **options: Any) -> None:
    """Restart one controller after the other with these settings."""
    cluster.controller_options.update(options)
    for controller in cluster.layout.controllers:
        cluster.signal(controller, signal.SIGTERM)
        assert exit_code(cluster, controller) == 0
        cluster.start(controller)
        cluster.wait_ready(controller)


def test_a_key_is_introduced_and_changed_under_load(tmp_path: Path) -> None:
    first, both, second = (tmp_path / name for name in ("first", "both", "second"))
    first.write_text("the first key of the members\n")
    both.write_text("the first key of the members\nthe second key of the members\n")
    second.write_text("the second key of the members\n")
    keyless = {"peer_key_file": None, "insecure": True}
    with running_cluster(tmp_path / "cluster", agents=1, controller_options=keyless) as cluster:
        (agent,) = cluster.layout.agents
        before = quorum(cluster.leader())["next_producer_id"]
        with Claims(agent) as claims:
            for options in (
                {"peer_key_file": str(first)},
                {"insecure": False},
                {"peer_key_file": str(both)},
                {"peer_key_file": str(second)},
            ):
                roll(cluster, **options)
        assert claims.failed == []
        assert len(claims.claimed) == len(set(claims.claimed)) > 0
        leader = cluster.leader()
        epoch = register(leader, 7, "rolled").json()["broker_epoch"]
        assert allocate(leader, 7, epoch).json()["producer_id_start"] >= before
        assert [quorum(one)["warnings"] for one in cluster.layout.controllers] == [[], [], []]

        # Whoever kept the first key is a stranger now.
        (left, *_) = cluster.layout.controllers
        cluster.kill(left)
        cluster.controller_options["peer_key_file"] = str(first)
        cluster.start(left)
        wait_until(lambda: "does not know the cluster key" in log_of(cluster, left), "its refusal")
        assert not cluster.ready(left)


def test_a_member_with_peers_does_not_start_without_a_key(tmp_path: Path) -> None:
    cluster = LocalCluster(tmp_path, agents=0, controller_options={"peer_key_file": None})
    first = cluster.layout.controllers[0]
    cluster.start(first)
    assert exit_code(cluster, first) == 2
    assert "say insecure = true where nobody else can reach the peer ports" in log_of(cluster, first)


@pytest.mark.parametrize("keys", [{}, {"peer_key_file": None, "insecure": True}], ids=["with a key", "insecure"])
def test_a_vote_request_of_the_last_term_ends_no_quorum(tmp_path: Path, keys: dict[str, Any]) -> None:
    """From a stranger who calls itself a member. Behind that term there is none in which anybody could be elected."""
    with running_cluster(tmp_path, agents=0, controller_options=keys) as cluster:
        leader = cluster.leader()
        target, pretended = followers(cluster, leader)
        epoch = register(leader, 5, "before").json()["broker_epoch"]
        terms = [quorum(one)["term"] for one in cluster.layout.controllers]
        first = allocate(leader, 5, epoch).json()["producer_id_start"]
        link = (
            Hello(
                PROTOCOL_VERSION, cluster.layout.cluster_id, pretended.id, target.id, "a-directory", bytes(NONCE_BYTES)
            ),
            Proof(b""),
            RequestVote(MAX_NUMBER - 1, pretended.id, target.id, 2**40, MAX_NUMBER - 2, True),
        )
        exchange(target.peer, b"".join(map(frame, link)))
        if keys:
            wait_until(lambda: "terms that no election can have led to" in log_of(cluster, target), "its refusal")
        assert allocate(cluster.leader(), 5, epoch).json()["producer_id_start"] > first
        assert [quorum(one)["term"] for one in cluster.layout.controllers] == terms
        assert all(cluster.running(one) for one in cluster.layout.controllers)
