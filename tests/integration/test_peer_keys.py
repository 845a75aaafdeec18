"""Keys of the members are introduced and changed one member at a time, and no claim fails meanwhile."""

from __future__ import annotations

import signal
import threading
from pathlib import Path
from typing import Any, Self

from pidkeeper.cli.local_cluster import Agent, LocalCluster
from tests.support.cluster import exit_code, log_of, quorum, running_cluster, wait_until
from tests.support.http_calls import call


class Claims:
    """Claims IDs at an agent without a pause; `failed` are the answers that were no ID."""

    def __init__(self, agent: Agent) -> None:
        self.agent = agent
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
            answer = call(self.agent.http, "POST", "/v1/init-producer-id", {"transactional_id": None}).json()
            if answer.get("error_code") == 0:
                self.claimed.append(answer["producer_id"])
            else:
                self.failed.append(answer)


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
        wait_until(lambda: quorum(cluster.leader())["next_producer_id"] > before, "a block since the first roll")
        assert [quorum(one)["warnings"] for one in cluster.layout.controllers] == [[], [], []]

        # Whoever kept the first key is a stranger now.
        (left, *_) = cluster.layout.controllers
        cluster.kill(left)
        cluster.controller_options["peer_key_file"] = str(first)
        cluster.start(left)
        wait_until(lambda: "does not know the cluster key" in log_of(cluster, left), "its refusal")
        assert not cluster.ready(left)
